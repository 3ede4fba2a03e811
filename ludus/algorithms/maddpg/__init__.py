"""Multi-agent deep deterministic policy gradient."""

from ludus.algorithms.maddpg.config import MADDPG

__all__ = ["MADDPG"]
