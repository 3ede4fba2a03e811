"""A run's directory: database, policy files, checkpoints, locks."""
