"""Where parts live: this process, or Ray's actors; and child processes, which are called and can be ended."""
