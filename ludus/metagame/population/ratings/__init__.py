"""Ratings, from the match log."""
