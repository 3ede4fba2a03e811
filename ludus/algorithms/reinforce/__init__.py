"""REINFORCE."""

from ludus.algorithms.reinforce.config import Reinforce

__all__ = ["Reinforce"]
