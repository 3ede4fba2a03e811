"""Deep Q-learning, and its variants."""

from ludus.algorithms.dqn.config import DQN, IQN, QRDQN, MunchausenDQN, Rainbow

__all__ = ["DQN", "IQN", "QRDQN", "MunchausenDQN", "Rainbow"]
