"""What actor-critic algorithms that learn from replay share: transitions, when updates are due, and critics with targets."""

from ludus.algorithms.off_policy.config import TABLE, OffPolicy

__all__ = ["TABLE", "OffPolicy"]
