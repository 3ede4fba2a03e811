"""A package, since others install one of that name."""
