"""A league of main agents and exploiters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from ludus.core.parts import build_part, dump_part
from ludus.driver.scenarios.parts import Solver
from ludus.driver.scenarios.self_play import OwnPast
from ludus.schedulers.registry import LEAGUE_RULES
from ludus.solvers.fixed import Last

if TYPE_CHECKING:
    from ludus.schedulers.league import LeagueScheduler

LeagueRules = Annotated[
    Any,
    BeforeValidator(lambda v: build_part("league's rules", v, LEAGUE_RULES)),
    PlainSerializer(lambda part: dump_part(part, LEAGUE_RULES)),
]


class League(OwnPast):
    """A league (AlphaStar, Vinyals et al. 2019): main agents, main exploiters and league exploiters that train at the same time, from
    generation to generation.

    main, main_exploiters, league_exploiters: how many there are of each in every population. rules: whom they meet and when they are
    frozen, by default with the paper's numbers ({kind: alphastar, strong: 0.7} say). decay: what the results of a snapshot count beside
    those of the next newer one. meta_solver: of the game among main agents and their checkpoints; none: the newest main agents are
    announced, all alike.
    """

    main: int = Field(1, ge=1)
    main_exploiters: int = Field(1, ge=0)
    league_exploiters: int = Field(2, ge=0)
    rules: LeagueRules = "alphastar"
    decay: float = Field(0.0, ge=0, lt=1)
    meta_solver: Solver | None = None

    @property
    def complete(self) -> bool:
        """Whether all cells are found out; a meta-solver is given the main agents' alone."""
        return self.cells == "all"

    @property
    def needs_learner(self) -> bool:
        return True

    def scheduler(self, population: tuple[int, ...]) -> LeagueScheduler:
        from ludus.schedulers.league import LeagueScheduler as Scheduler  # a scenario can be read without loading it

        return Scheduler(
            population=population,
            chunks=self.generations,
            seed=self.seed,
            main=self.main,
            main_exploiters=self.main_exploiters,
            league_exploiters=self.league_exploiters,
            rules=self.rules,
            decay=self.decay,
            start=self.start,
            span=self.span,
            solver=self.meta_solver,
            mode=self.mode,
            sampling=self.evaluation.sampling(self.meta_solver or Last(), self.seed),
            complete=self.complete,
        )
