"""Recurrent deep Q-learning."""

from ludus.algorithms.r2d2.config import R2D2

__all__ = ["R2D2"]
