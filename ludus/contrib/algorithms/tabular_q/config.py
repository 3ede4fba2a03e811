"""Tabular Q-learning on enumerated games."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from ludus.algorithms.common.base import TRANSITIONS, AlgorithmInfo, CollectConfig
from ludus.algorithms.common.config import CollectOptions, Schedule, Scheduled
from ludus.algorithms.common.space_checks import UnsupportedSpace
from ludus.core.types import EnvSpec, PolicySpec
from ludus.policies.specs import tabular_spec
from ludus.replay.base import ItemUnit, Sizes, TableSpec


class TabularQ(CollectOptions):
    """Q-learning (Watkins 1989) with one value per information state and action; see the README beside this file.

    Attributes:
        batch: What is collected between two sweeps, in `batch_unit`.
        batch_unit: Unit of `batch`.
        capacity: Most rows that wait.
        gamma: Discount per own decision; 1: the rules end every episode.
        step: Step size: "visits": learning_rate / visits^power, which converges; "constant": learning_rate.
        learning_rate: Step size, or its numerator; 0.01 to 1.
        power: Exponent of the visits, above 0.5 for convergence.
        epsilon: Chance of a uniform legal action.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete",), data="off-policy", recurrent=False, masks=True, paper="Watkins 1989"
    )
    learner_class: ClassVar[str] = "ludus.contrib.algorithms.tabular_q.learner:TabularQLearner"
    needs_tree: ClassVar[bool] = True

    batch: int = Field(default=500, ge=1)
    batch_unit: Literal["episodes", "decisions"] = "episodes"
    capacity: int = Field(default=1_000_000, ge=1)
    gamma: float = Field(default=1.0, ge=0, le=1)
    step: Literal["visits", "constant"] = "visits"
    learning_rate: Scheduled = Schedule(start=1.0)
    power: float = Field(default=0.75, ge=0, le=1)
    epsilon: Scheduled = Schedule(start=1.0, end=0.0, over=0.8)

    @property
    def item(self) -> ItemUnit:
        return "decision"

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise UnsupportedSpace if the game is not enumerated."""
        if env.enumeration is None:
            raise UnsupportedSpace(
                f"tabular Q-learning needs a game that is compiled to a tree, and {env.id} is not: {env.no_tree}."
            )

    def collect(self) -> CollectConfig:
        return CollectConfig(self.batch_unit, self.batch, processing=self.processing)

    def tables(self) -> Sequence[TableSpec]:
        return (TableSpec(TRANSITIONS, kind="queue", capacity=self.capacity),)

    def sizes(self) -> Mapping[str, Sizes]:
        """Return the sizes: inserts are known where decisions are collected."""
        return {TRANSITIONS: Sizes(insert=self.batch, batch=0)} if self.batch_unit == "decisions" else {}

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        self.check(env, seats)
        assert env.enumeration is not None
        return tabular_spec(env.enumeration, seats)
