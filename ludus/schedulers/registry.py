"""Schedulers by the scenario that uses them."""

SCHEDULERS = {"psro": "ludus.schedulers.psro:PSROScheduler"}
