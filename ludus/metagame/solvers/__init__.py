"""Meta-solvers, the numerics under them, and which matches to play next."""
