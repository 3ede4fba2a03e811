"""Plain (multi-agent) reinforcement learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ludus.scenario import Scenario

if TYPE_CHECKING:
    from ludus.schedulers.fixed_opponents import FixedOpponents as FixedOpponentsScheduler


class FixedOpponents(Scenario):
    """Train against opponents that do not learn, or, in a task of one player, against nothing. The opponents play uniformly at random.

    learners: the populations that learn. mode: in which snapshots are played; each generation adds one. start: the file of a policy that
    each learner starts from.
    """

    generations: int = Field(1, ge=0)
    learners: tuple[int, ...] = (0,)
    mode: Literal["explore", "greedy"] = "explore"
    start: str | None = None

    def scheduler(self, population: tuple[int, ...]) -> FixedOpponentsScheduler:
        from ludus.schedulers.fixed_opponents import (
            FixedOpponents as Scheduler,  # a scenario can be read without loading it
        )

        return Scheduler(
            population=population,
            chunks=self.generations,
            seed=self.seed,
            learners=self.learners,
            start=self.start,
            mode=self.mode,
        )
