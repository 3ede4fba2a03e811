"""Runs and policies pushed to a zoo and pulled from one; copies of runs, and what is damaged in them."""
