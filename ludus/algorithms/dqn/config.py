"""DQN's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ludus.algorithms.base import About, Collect, Learner, LearnerContext
from ludus.algorithms.schedule import Schedule, Scheduled
from ludus.algorithms.spaces import discrete
from ludus.config import Config
from ludus.data.base import ItemUnit, Sizes, TableSpec
from ludus.policies.specs import q_spec
from ludus.types import EnvSpec, PolicySpec, Weights

TABLE = "replay"


class DQN(Config):
    """Deep Q-learning (Mnih et al. 2015) with double, dueling and n-step targets and prioritised replay; see the README beside it."""

    about: ClassVar[About] = About(
        actions=("discrete",), data="off-policy", recurrent=False, masks=True, paper="Mnih et al. 2015"
    )

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "relu"
    double: bool = True
    dueling: bool = False
    n_step: int = Field(default=1, ge=1)
    gamma: float = Field(default=1.0, ge=0, le=1)

    rollout: int = Field(default=500, ge=1)  # what is collected between two rounds of updates, in rollout_unit
    rollout_unit: Literal["episodes", "decisions"] = "episodes"
    capacity: int = Field(default=100_000, ge=1)  # decisions in the replay table
    min_size: int = Field(default=1000, ge=1)  # decisions before the first update
    batch: int = Field(default=512, ge=1)  # decisions per update
    priority_exponent: float = Field(default=0.0, ge=0, le=1)  # of a row's |error|; 0: all rows are drawn alike
    importance: Scheduled = Schedule(
        start=0.4, end=1.0
    )  # how far the weights of prioritised rows make up for their being drawn more often
    updates_per_decision: float = Field(default=0.02, gt=0)

    learning_rate: Scheduled = Schedule(start=1e-2, end=5e-4)
    epsilon: Scheduled = Schedule(start=1.0, end=0.0)
    target_period: int = Field(default=50, ge=1)  # updates between copies into the target network
    polyak: float | None = Field(default=None, gt=0, le=1)  # instead: moves the target by this share per update
    huber_delta: float = Field(default=1.0, gt=0)
    max_gradient_norm: float = Field(default=10.0, ge=0)  # 0: not clipped
    scale_rewards: bool = True  # by the largest utility, where it is known

    @model_validator(mode="after")
    def _check(self) -> DQN:
        if self.epsilon.start > 1.0 or (self.epsilon.end or 0.0) > 1.0:
            raise ValueError("epsilon is a probability; its start and end must be at most 1")
        if self.importance.start > 1.0 or (self.importance.end or 0.0) > 1.0:
            raise ValueError("importance is an exponent from 0 to 1; its start and end must be at most 1")
        if self.min_size > self.capacity:
            raise ValueError(f"min_size {self.min_size} must be at most the capacity {self.capacity}")
        return self

    @property
    def item(self) -> ItemUnit:
        return "decision"

    def check(self, env: EnvSpec) -> None:
        """Raises ScenarioError if some player's actions are not discrete."""
        for player in range(env.num_players):
            discrete(env, (player,), algorithm="DQN")

    def collect(self) -> Collect:
        return Collect(self.rollout_unit, self.rollout)

    def tables(self) -> Sequence[TableSpec]:
        limiter, exponent = {"min_size": self.min_size}, self.priority_exponent
        kind = "prioritised" if exponent > 0.0 else "ring"
        return (TableSpec(TABLE, kind, capacity=self.capacity, limiter=limiter, priority_exponent=exponent or 1.0),)

    def sizes(self) -> Mapping[str, Sizes]:
        """Known where decisions are collected; how many an episode has is not."""
        return {TABLE: Sizes(insert=self.rollout, batch=self.batch)} if self.rollout_unit == "decisions" else {}

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        inputs, actions = discrete(env, seats, algorithm="DQN")
        return q_spec(
            inputs=inputs, actions=actions, hidden=self.hidden, activation=self.activation, dueling=self.dueling
        )

    def learner(self, context: LearnerContext, start: Weights | None = None) -> Learner:
        from ludus.algorithms.dqn.learner import DQNLearner  # a scenario can be read without loading torch

        return DQNLearner(self, context, start)
