"""Magnetic mirror descent and R-NaD."""
