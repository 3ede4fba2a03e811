"""Self-play and its kin: one learner per population, which meets the learners' newest weights and their past."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ludus.core.errors import ConfigError
from ludus.driver.scenario import Scenario
from ludus.driver.scenarios.parts import Past, Solver
from ludus.learners.base import Algorithm
from ludus.policies.specs import Modes
from ludus.solvers.fixed import Last, LastK, Uniform
from ludus.solvers.pfsp import Weighting

if TYPE_CHECKING:
    from ludus.schedulers.self_play import FictitiousSelfPlayScheduler, PFSPScheduler, SelfPlayScheduler


class OwnPast(Scenario):
    """What self-play and its kin have in common. A learner goes on from generation to generation; each adds a snapshot of it to its
    population.

    mode: in which snapshots are played. start: the file of a policy that each learner starts from. cells: which payoffs are found out,
    those that the schedule reads (needed), or all. span: returns that count as a clear defeat and a clear victory, where win rates are
    read; by default the least and the largest return of the game, which in poker are so rare that all rates are near one half.
    """

    mode: Literal["explore", "greedy"] = "explore"
    start: str | None = None
    cells: Literal["needed", "all"] = "needed"
    span: tuple[float, float] | None = None

    @property
    def modes(self) -> Modes:
        """In which newest weights are met: those that their learner plays in."""
        return self.algorithm.collect().modes if isinstance(self.algorithm, Algorithm) else ()

    @property
    def complete(self) -> bool:
        """Whether all cells are found out: a meta-solver that reads them needs it."""
        solver = getattr(self, "meta_solver", None)
        return self.cells == "all" or not isinstance(solver, Last | LastK | Uniform | None)


class SelfPlay(OwnPast):
    """Self-play. latest: share of the games that are against the newest weights, 1 for naive self-play; OpenAI Five had 0.8 (Berner et
    al. 2019). every_seat: one learner (share=always) plays those games in all seats at once, and learns from all of them. past: who is met
    in the others: `uniform`, `quality` (OpenAI Five) or `prioritised` (by win rates). meta_solver: the meta-strategy that is announced, by
    default the newest snapshots."""

    latest: float = Field(1.0, ge=0, le=1)
    every_seat: bool = False
    past: Past = "uniform"
    meta_solver: Solver = "last"

    @property
    def needs_learner(self) -> bool:
        return self.latest > 0

    def scheduler(self, population: tuple[int, ...]) -> SelfPlayScheduler:
        from ludus.schedulers.self_play import (
            SelfPlayScheduler as Scheduler,  # a scenario can be read without loading it
        )

        cut = isinstance(self.algorithm, Algorithm) and self.algorithm.collect().unit == "decisions"
        if self.every_seat and 0 < self.latest < 1 and cut:
            raise ConfigError(
                f"every_seat with latest={self.latest:g} takes turns with games against the past. They need whole episodes, and the "
                "algorithm collects decisions, whose episodes go on. Give it episodes (batch_unit=episodes), or latest=1."
            )
        return Scheduler(
            population=population,
            chunks=self.generations,
            seed=self.seed,
            latest=self.latest,
            every_seat=self.every_seat,
            past=self.past,
            start=self.start,
            span=self.span,
            solver=self.meta_solver,
            mode=self.mode,
            modes=self.modes,
            sampling=self.evaluation.sampling(self.meta_solver, self.seed),
            complete=self.complete,
        )


class FictitiousSelfPlay(OwnPast):
    """Fictitious self-play over snapshots (Heinrich, Lanctot and Silver 2015): each generation trains against the average of the past,
    which is the meta-strategy that is announced."""

    meta_solver: Solver = "uniform"

    def scheduler(self, population: tuple[int, ...]) -> FictitiousSelfPlayScheduler:
        from ludus.schedulers.self_play import FictitiousSelfPlayScheduler as Scheduler

        return Scheduler(
            population=population,
            chunks=self.generations,
            seed=self.seed,
            start=self.start,
            span=self.span,
            solver=self.meta_solver,
            mode=self.mode,
            sampling=self.evaluation.sampling(self.meta_solver, self.seed),
            complete=self.complete,
        )


class PFSP(OwnPast):
    """Prioritised fictitious self-play (Vinyals et al. 2019): against the past by win rates. weighting: how, the hard ones most (squared,
    linear, linear_capped) or those of one's own level (variance). latest: share of the games against the newest weights."""

    weighting: Weighting = "squared"
    latest: float = Field(0.0, ge=0, le=1)
    meta_solver: Solver = "last"

    @property
    def needs_learner(self) -> bool:
        return self.latest > 0

    def scheduler(self, population: tuple[int, ...]) -> PFSPScheduler:
        from ludus.schedulers.self_play import PFSPScheduler as Scheduler  # a scenario can be read without loading it

        return Scheduler(
            population=population,
            chunks=self.generations,
            seed=self.seed,
            weighting=self.weighting,
            latest=self.latest,
            start=self.start,
            span=self.span,
            solver=self.meta_solver,
            mode=self.mode,
            modes=self.modes,
            sampling=self.evaluation.sampling(self.meta_solver, self.seed),
            complete=self.complete,
        )
