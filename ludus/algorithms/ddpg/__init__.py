"""Deep deterministic policy gradient and its twin-delayed form."""

from ludus.algorithms.ddpg.config import DDPG, TD3

__all__ = ["DDPG", "TD3"]
