"""What all contestants of `benchmarks.training_speed` share: the settings of PPO on CartPole, of DQN and of SAC. Standard library only.

A case of PPO is `SETTING/ENVIRONMENT`. An order is one iteration: `batch` decisions are collected and learned from. Of DQN and SAC
an order is some updates from a table that is full.

    gymnasium   Gymnasium's native vector, one step of which is some NumPy calls for all environments
    python      as many Python environments, `gymnasium.make`, in each one's own vectoriser
"""

from __future__ import annotations

from dataclasses import dataclass

ENVIRONMENTS = ("gymnasium", "python")


@dataclass(frozen=True, slots=True)
class Setting:
    """PPO's: environments × steps decisions per iteration, `epochs` passes in minibatches of `minibatch`.

    separate: a network of these hidden layers for policy and value each; otherwise one with two heads.
    """

    environments: int
    steps: int
    minibatch: int
    epochs: int
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    separate: bool = False
    learning_rate: float = 3e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_coefficient: float = 0.5
    entropy: float = 0.0
    max_gradient_norm: float = 0.5

    @property
    def batch(self) -> int:
        """Decisions per iteration."""
        return self.environments * self.steps

    @property
    def minibatches(self) -> int:
        """Per epoch."""
        return -(-self.batch // self.minibatch)


SETTINGS = {
    # Its defaults, with 8 environments and the batch of its zoo's CartPole.
    "sb3": Setting(environments=8, steps=256, minibatch=256, epochs=10, separate=True),
    # Its defaults, with 128 environments: one minibatch of 64 steps of each, and its own network, 64 wide.
    "pufferlib": Setting(
        environments=128, steps=64, minibatch=8192, epochs=1, hidden=(64,), activation="relu", learning_rate=0.015
    ),
    # Its settings for MuJoCo, with as many environments in its one worker as it has there in eight.
    "sample_factory": Setting(environments=64, steps=64, minibatch=1024, epochs=2),
    # Its example's for CartPole, with minibatches of 256 instead of 64, at which it is nearly three times as fast.
    "tianshou": Setting(environments=20, steps=100, minibatch=256, epochs=10),
    # Its example's for MuJoCo, with the environments and minibatches of Stable-Baselines3.
    "torchrl": Setting(environments=8, steps=256, minibatch=256, epochs=10, separate=True),
    # Its tuned example's for CartPole: 4,000 decisions, minibatches of 128, 6 epochs.
    "rllib": Setting(environments=8, steps=500, minibatch=128, epochs=6),
    # What suits Ludus, and no peer's.
    "ludus": Setting(environments=128, steps=32, minibatch=1024, epochs=2, learning_rate=1e-3),
}


@dataclass(frozen=True, slots=True)
class Replay:
    """DQN's, or SAC's: a full table of `capacity` transitions of an environment, and updates from `batch` of them."""

    environment: str
    batch: int
    hidden: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    learning_rate: float = 1e-3
    gamma: float = 0.99
    capacity: int = 10_000
    updates: int = 200  # per order
    target_period: int = 10  # DQN: updates between copies into the target network
    polyak: float = 0.005  # SAC: share by which the targets move per update


REPLAY = {
    # Stable-Baselines3's zoo's for CartPole, and its defaults for SAC.
    "dqn": Replay("CartPole-v1", batch=64, learning_rate=2.3e-3),
    "sac": Replay("Pendulum-v1", batch=256, learning_rate=3e-4, updates=40),
}


def cases(*settings: str) -> tuple[str, ...]:
    """Names of these settings' cases."""
    return tuple(f"{setting}/{environment}" for setting in settings for environment in ENVIRONMENTS)
