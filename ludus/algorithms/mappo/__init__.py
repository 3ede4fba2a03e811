"""PPO for teams, with a central critic."""

from ludus.algorithms.mappo.config import MAPPO

__all__ = ["MAPPO"]
