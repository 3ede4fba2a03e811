"""Where parts live: this process, or Ray's actors."""
