"""Plain (multi-agent) reinforcement learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from ludus.core.config import Config
from ludus.core.errors import ConfigError
from ludus.driver.scenario import Scenario
from ludus.solvers.fixed import Last

if TYPE_CHECKING:
    from ludus.schedulers.fixed_opponents import FixedOpponentsScheduler


class FixedOpponent(Config):
    """policy: RUN (its last meta-strategies), RUN:newest, RUN:POLICY, RUN:POPULATION/POLICY, FILE.safetensors or random, as
    `ludus tournament` names them. weight: how often it is met, beside the others."""

    policy: str = Field(min_length=1)
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)


def _opponents(value: Any) -> Any:
    entries = tuple({"policy": entry} if isinstance(entry, str) else entry for entry in _listed(value))
    if wrong := [entry for entry in entries if not isinstance(entry, Mapping | FixedOpponent)]:
        raise ConfigError(
            f"{wrong[0]!r} was given; an opponent is a name, as `ludus tournament` takes it, or {{policy: NAME, weight: NUMBER}}."
        )
    return entries


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


class FixedOpponents(Scenario):
    """Train against opponents that do not learn, or, in a task of one player, against nothing.

    opponents: who they are (see `FixedOpponent`), drawn by their weights in each episode, for each seat by itself; they are copied into the
    run. Without any they play uniformly at random. learners: the populations that learn. mode: in which snapshots are played; each
    generation adds one. start: the file of a policy that each learner starts from.
    """

    generations: int = Field(1, ge=0)
    learners: tuple[int, ...] = (0,)
    opponents: Annotated[tuple[FixedOpponent, ...], BeforeValidator(_opponents)] = ()
    mode: Literal["explore", "greedy"] = "explore"
    start: str | None = None

    @model_validator(mode="after")
    def _once(self) -> FixedOpponents:
        names = [opponent.policy for opponent in self.opponents]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"opponents: {twice[0]!r} was given twice; give it once, with a weight.")
        return self

    @property
    def given(self) -> Sequence[tuple[str, float]]:
        return [(opponent.policy, opponent.weight) for opponent in self.opponents]

    def scheduler(self, population: tuple[int, ...]) -> FixedOpponentsScheduler:
        from ludus.schedulers.fixed_opponents import FixedOpponentsScheduler as Scheduler

        return Scheduler(
            population=population,
            chunks=self.generations,
            seed=self.seed,
            learners=self.learners,
            start=self.start,
            mode=self.mode,
            sampling=self.evaluation.sampling(Last(), self.seed),
        )
