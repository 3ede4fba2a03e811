"""Tabular Q-learning."""
