"""Deep Q-learning."""

from ludus.algorithms.dqn.config import DQN

__all__ = ["DQN"]
