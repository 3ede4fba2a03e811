"""Tabular Q-learning on enumerated games."""

from ludus.algorithms.tabular_q.config import TabularQ

__all__ = ["TabularQ"]
