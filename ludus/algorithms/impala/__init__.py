"""IMPALA."""

from ludus.algorithms.impala.config import IMPALA

__all__ = ["IMPALA"]
