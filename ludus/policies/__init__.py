"""Policies: networks, how they act, and their files."""
