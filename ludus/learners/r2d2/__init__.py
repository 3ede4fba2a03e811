"""Recurrent deep Q-learning."""
