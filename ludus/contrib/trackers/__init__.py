"""Trackers of other packages."""
