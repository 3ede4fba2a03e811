"""Soft actor-critic, for continuous and for discrete actions."""

from ludus.algorithms.sac.config import SAC, SACDiscrete

__all__ = ["SAC", "SACDiscrete"]
