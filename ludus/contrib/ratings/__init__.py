"""Ratings by other packages."""
