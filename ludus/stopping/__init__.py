"""When to stop: progress records, stoppers, and which of them could fire where they stand."""
