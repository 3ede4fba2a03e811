"""PPO's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ludus.algorithms.base import About, Collect, Learner, LearnerContext
from ludus.algorithms.schedule import Schedule, Scheduled
from ludus.algorithms.spaces import discrete
from ludus.config import Config
from ludus.data.base import ItemUnit, Sizes, TableSpec
from ludus.policies.specs import mlp_spec
from ludus.types import EnvSpec, PolicySpec, Weights

TABLE = "rollouts"


class PPO(Config):
    """Proximal policy optimisation (Schulman et al. 2017) with masked discrete actions; see the README beside this file.

    The defaults suit games of some hundred to some thousand information states; larger ones want a rate of 3e-4 to 1e-3 and minibatches."""

    about: ClassVar[About] = About(
        actions=("discrete",), data="on-policy", recurrent=False, masks=True, paper="Schulman et al. 2017"
    )

    differs: ClassVar[bool] = True  # from members of its population, if a task says so (`ludus.algorithms.diversity`)

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "relu"
    value_network: Literal["shared", "separate"] = "shared"

    batch: int = Field(default=750, ge=1)  # what one update learns from, in batch_unit
    batch_unit: Literal["episodes", "decisions"] = "episodes"
    epochs: int = Field(default=30, ge=1)
    minibatches: int = Field(default=1, ge=1)  # per epoch; 1: the whole batch
    max_lag: int | None = Field(default=None, ge=0)
    capacity: int = Field(default=1_000_000, ge=1)  # most rows waiting

    learning_rate: Scheduled = Schedule(start=1e-2, end=0.0)
    entropy: Scheduled = Schedule(start=0.05, end=0.0)
    gamma: float = Field(default=1.0, ge=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    correction: Literal["none", "vtrace"] = "none"  # of rows that older weights made
    rho_bar: float = Field(default=1.0, gt=0)  # V-trace's largest weight of a row, and of a step back in time
    c_bar: float = Field(default=1.0, gt=0)
    clip: float = Field(default=0.3, gt=0)
    clip_value: float | None = Field(default=None, gt=0)
    value_coefficient: float = Field(default=1.0, ge=0)
    max_gradient_norm: float = Field(default=0.2, ge=0)  # 0: not clipped
    target_kl: float | None = Field(default=None, gt=0)
    normalise_advantages: bool = True
    scale_rewards: bool = True  # by the largest utility, where it is known

    @property
    def item(self) -> ItemUnit:
        return "decision"

    def check(self, env: EnvSpec) -> None:
        """Raises ScenarioError if some player's actions are not discrete."""
        for player in range(env.num_players):
            discrete(env, (player,), algorithm="PPO")

    def collect(self) -> Collect:
        return Collect(self.batch_unit, self.batch)

    def tables(self) -> Sequence[TableSpec]:
        return (TableSpec(TABLE, kind="queue", capacity=self.capacity, max_lag=self.max_lag),)

    def sizes(self) -> Mapping[str, Sizes]:
        """Known where decisions are collected; how many an episode has is not."""
        return {TABLE: Sizes(insert=self.batch, batch=0)} if self.batch_unit == "decisions" else {}

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        inputs, actions = discrete(env, seats, algorithm="PPO")
        return mlp_spec(
            inputs=inputs, actions=actions, hidden=self.hidden, activation=self.activation, value=self.value_network
        )

    def learner(self, context: LearnerContext, start: Weights | None = None) -> Learner:
        from ludus.algorithms.ppo.learner import PPOLearner  # a scenario can be read without loading torch

        return PPOLearner(self, context, start)
