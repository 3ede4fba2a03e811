"""Runs and policies pushed to a zoo, and pulled from one."""
