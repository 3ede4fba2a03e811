"""Ludus trains populations of reinforcement-learning policies against each other."""

__version__ = "0.1.0"
