"""What a page shows of a run, computed from its database alone."""
