"""Environments: the contract, and everything that keeps it."""
