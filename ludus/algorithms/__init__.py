"""Algorithms and what they build: one folder for each family."""
