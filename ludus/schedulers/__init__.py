"""Schedulers: what a run does next."""
