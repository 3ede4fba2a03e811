"""Pipeline PSRO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from ludus.driver.scenario import Scenario
from ludus.driver.scenarios.parts import Different, Solver

if TYPE_CHECKING:
    from ludus.schedulers.pipeline import PipelinePSROScheduler


class PipelinePSRO(Scenario):
    """Pipeline PSRO (McAleer et al. 2020): several levels of each population train at once, each against the meta-strategy of those below.
    The lowest is frozen when it no longer improves, and a new one begins on top.

    generations: levels in the end. levels: that train at a time. least, most: tasks that the lowest level trains for before it is
    frozen. improvement: of the payoff, below which it no longer improves. start: the file of a policy that each level starts from.
    diversity: behavioural, from the frozen levels below.
    """

    meta_solver: Solver = "nash"
    levels: int = Field(3, ge=1)
    least: int = Field(1, ge=1)
    most: int = Field(10, ge=1)
    improvement: float = Field(0.0, ge=0)
    start: str | None = None
    diversity: Different = None

    @property
    def needs_learner(self) -> bool:
        return True

    @property
    def moves_opponents(self) -> bool:
        return True

    def scheduler(self, population: tuple[int, ...]) -> PipelinePSROScheduler:
        from ludus.schedulers.pipeline import (
            PipelinePSROScheduler as Scheduler,  # a scenario can be read without loading it
        )

        return Scheduler(
            solver=self.meta_solver,
            generations=self.generations,
            population=population,
            seed=self.seed,
            levels=self.levels,
            least=self.least,
            most=self.most,
            improvement=self.improvement,
            start=self.start,
            diversity=self.diversity,
            mode=self.mode,
            sampling=self.evaluation.sampling(self.meta_solver, self.seed),
        )
