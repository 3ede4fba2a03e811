"""Policies: networks, how they act, and their files; bots by name."""
