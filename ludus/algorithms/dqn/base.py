"""What learning action values from replay has in common: settings of DQN and R2D2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ludus.algorithms.base import Collect
from ludus.algorithms.images import needs_images
from ludus.algorithms.on_policy.teams import separate_networks
from ludus.algorithms.schedule import Schedule, Scheduled
from ludus.algorithms.spaces import byte_scale, discrete, one_space
from ludus.config import Config
from ludus.policies.specs import Body, body_config
from ludus.types import EnvSpec

TABLE = "replay"


class QLearning(Config):
    """Base of the settings: what is collected and replayed, the optimizer, exploration and the target network."""

    body: Body = "mlp"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)  # of the body "mlp", as its activation
    activation: Literal["tanh", "relu"] = "relu"
    share_weights: bool = True  # one network for all agents of a team; False: one for each, told apart by agent_ids
    double: bool = True
    dueling: bool = False
    n_step: int = Field(default=1, ge=1)
    gamma: float = Field(default=1.0, ge=0, le=1)

    rollout: int = Field(default=500, ge=1)  # what is collected between two rounds of updates, in rollout_unit
    rollout_unit: Literal["episodes", "decisions"] = "episodes"
    capacity: int = Field(default=100_000, ge=1)  # items in the replay table
    min_size: int = Field(default=1000, ge=1)  # decisions before the first update
    batch: int = Field(default=512, ge=1)  # items per update
    priority_exponent: float = Field(default=0.0, ge=0, le=1)  # of an item's error; 0: all are drawn alike
    importance: Scheduled = Schedule(
        start=0.4, end=1.0
    )  # how far the weights of prioritised items make up for their being drawn more often
    updates_per_decision: float = Field(default=0.02, gt=0)

    learning_rate: Scheduled = Schedule(start=1e-2, end=5e-4)
    epsilon: Scheduled = Schedule(start=1.0, end=0.0)
    target_period: int = Field(default=50, ge=1)  # updates between copies into the target network
    polyak: float | None = Field(default=None, gt=0, le=1)  # instead: moves the target by this share per update
    huber_delta: float = Field(default=1.0, gt=0)
    max_gradient_norm: float = Field(default=10.0, ge=0)  # 0: not clipped
    scale_rewards: bool = True  # by the largest utility, where it is known

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        if self.rollout_unit == "decisions" and self.n_step > self.rollout:
            raise ValueError(
                f"n_step {self.n_step} is more than the {self.rollout} decisions of a rollout, where targets end; raise rollout to many "
                "times n_step, for each environment"
            )
        if (largest := self.epsilon.largest) > 1.0:
            raise ValueError(f"epsilon is a probability; its start and end must be at most 1 (given: {largest:g})")
        if (largest := self.importance.largest) > 1.0:
            raise ValueError(
                f"importance is an exponent from 0 to 1; its start and end must be at most 1 (given: {largest:g})"
            )
        return self

    def check(self, env: EnvSpec) -> None:
        """Raises ScenarioError if some player's actions are not discrete, or their observations do not fit the body."""
        for player in range(env.num_players):
            self._inputs(env, (player,))

    def collect(self) -> Collect:
        return Collect(self.rollout_unit, self.rollout)

    @property
    def prioritised(self) -> bool:
        """Whether items with larger errors are drawn more often."""
        return self.priority_exponent > 0.0

    def _networks(self, env: EnvSpec, seats: tuple[int, ...]) -> int:
        """How many the agents of a player have between them. Raises ScenarioError if they cannot be told apart."""
        return 1 if self.share_weights else separate_networks(env, seats, algorithm=type(self).__name__)

    def _inputs(self, env: EnvSpec, seats: tuple[int, ...]) -> Mapping[str, Any]:
        """What specs of policies say about the spaces and the body. Raises ScenarioError."""
        name = type(self).__name__
        _, actions = discrete(env, seats, algorithm=name)
        observation, _ = one_space(env, seats, algorithm=name)
        shape = tuple(observation.shape or ())
        if env.enumeration is not None:
            shape = env.enumeration.observation.shape[1:]
        body = body_config(self.body, self.hidden, self.activation)
        needs_images(shape, network=self.body, algorithm=name, option="body", env_id=env.id)
        return {"shape": shape, "actions": actions, "body": body, "image": byte_scale(env, observation) != 1.0}
