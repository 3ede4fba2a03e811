"""What several applications use: experiments on disk, and requests to runs that are running."""
