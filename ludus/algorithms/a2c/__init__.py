"""Advantage actor-critic."""

from ludus.algorithms.a2c.config import A2C

__all__ = ["A2C"]
