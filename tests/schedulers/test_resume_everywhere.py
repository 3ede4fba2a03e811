"""Every scheduler, saved and loaded after every single result, goes on the same; populations begin with unequal sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from ludus.core.types import MetaSolution
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers.fixed import Uniform
from ludus.schedulers.anytime import (
    AnytimePSROOptions,
    AnytimePSROScheduler,
    SelfPlayPSROOptions,
    SelfPlayPSROScheduler,
)
from ludus.schedulers.base import Scheduler
from ludus.schedulers.fixed_opponents import FixedOpponentsOptions, FixedOpponentsScheduler
from ludus.schedulers.league import LeagueOptions, LeagueRules, LeagueScheduler
from ludus.schedulers.pipeline import PipelinePSROOptions, PipelinePSROScheduler
from ludus.schedulers.psro import PSROOptions, PSROScheduler
from ludus.schedulers.responses import (
    BestResponse,
    PreferenceResponse,
    RecommendedResponse,
    RectifiedResponse,
    SequentialLeague,
)
from ludus.schedulers.self_play import (
    FictitiousSelfPlayOptions,
    PFSPOptions,
    QualityPast,
    SelfPlayOptions,
    SelfPlayScheduler,
)
from ludus.testing.scheduler import check_scheduler


@dataclass(frozen=True)
class Joint:
    """A joint meta-strategy: alike on all profiles whose places sum to an even number."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        weights = (np.indices(payoffs.sizes).sum(axis=0) % 2 == 0).astype(np.float64)
        return MetaSolution(None, np.nan, joint=weights / weights.sum())


RUN = {"generations": 2, "seed": 0}
SHORT = {"generations": 1, "seed": 0}
"""Of those with most tasks; with two generations they are resumed in their own files."""
KINDS: dict[str, Callable[..., Scheduler]] = {
    "psro": lambda **p: PSROScheduler(PSROOptions(**RUN), **p),
    "several": lambda **p: PSROScheduler(PSROOptions(responses=BestResponse(count=2), order="sequential", **RUN), **p),
    "rectified": lambda **p: PSROScheduler(PSROOptions(responses=RectifiedResponse(most=2), **RUN), **p),
    "preference": lambda **p: PSROScheduler(PSROOptions(responses=PreferenceResponse(), **RUN), **p),
    "jpsro cce": lambda **p: PSROScheduler(PSROOptions(meta_solver=Joint(), **RUN), **p),
    "jpsro ce": lambda **p: PSROScheduler(
        PSROOptions(meta_solver=Joint(), responses=RecommendedResponse(most=2), **RUN), **p
    ),
    "sequential league": lambda **p: PSROScheduler(PSROOptions(responses=SequentialLeague(), **RUN), **p),
    "anytime": lambda **p: AnytimePSROScheduler(AnytimePSROOptions(**RUN), **p),
    "self-play psro": lambda **p: SelfPlayPSROScheduler(SelfPlayPSROOptions(**RUN), **p),
    "pipeline": lambda **p: PipelinePSROScheduler(PipelinePSROOptions(levels=2, most=2, **SHORT), **p),
    "self-play": lambda **p: SelfPlayScheduler(SelfPlayOptions(**RUN), **p),
    "quality": lambda **p: SelfPlayScheduler(SelfPlayOptions(latest=0.8, past=QualityPast(rate=0.5), **RUN), **p),
    "fictitious": lambda **p: SelfPlayScheduler(FictitiousSelfPlayOptions(**RUN), **p),
    "pfsp": lambda **p: SelfPlayScheduler(PFSPOptions(latest=0.4, **RUN), **p),
    "fixed": lambda **p: FixedOpponentsScheduler(FixedOpponentsOptions(**RUN), **p),
    "league": lambda **p: LeagueScheduler(LeagueOptions(rules=LeagueRules(least=1, most=2), decay=0.5, **SHORT), **p),
}


@pytest.mark.parametrize("kind", KINDS)
def test_two_populations(kind: str) -> None:
    check_scheduler(lambda: KINDS[kind](population=(0, 1)), population=(0, 1), initial=(1, 2), everywhere=True)


@pytest.mark.parametrize("kind", ["jpsro ce", "preference", "sequential league", "several"])
def test_one_population(kind: str) -> None:
    """The others: under the contract in their own files."""
    check_scheduler(lambda: KINDS[kind](population=(0, 0)), population=(0, 0))


def test_joint_strategies_of_three_players() -> None:
    for rule, population, initial in (
        (BestResponse(), (0, 1, 1), (2, 1)),
        (RecommendedResponse(most=1), (0, 1, 2), (2, 1, 1)),
    ):
        check_scheduler(
            lambda rule=rule, population=population: PSROScheduler(
                PSROOptions(meta_solver=Joint(), responses=rule, **RUN), population=population
            ),
            population=population,
            initial=initial,
        )


def test_preference_responses_of_three_players() -> None:
    check_scheduler(
        lambda: PSROScheduler(
            PSROOptions(meta_solver=Uniform(), responses=PreferenceResponse(), **RUN), population=(0, 1, 2)
        ),
        population=(0, 1, 2),
    )
