"""Proximal policy optimisation."""

from ludus.algorithms.ppo.config import PPO

__all__ = ["PPO"]
