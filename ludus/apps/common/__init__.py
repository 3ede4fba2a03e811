"""What several applications use: progress in the terminal, experiments on disk, and requests to runs that are running."""
