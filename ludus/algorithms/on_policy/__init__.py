"""On-policy learning by autograd: a base for algorithms with networks and a loss of one's own."""

from ludus.algorithms.on_policy.config import Batch, OnPolicy

__all__ = ["Batch", "OnPolicy"]
