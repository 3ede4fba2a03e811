"""The game between policies: members and payoffs, and meta-solvers."""
