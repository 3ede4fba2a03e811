"""Scenarios, and the run that comes of one."""
