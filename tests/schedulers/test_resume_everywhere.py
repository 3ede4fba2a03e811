"""Every scheduler, saved and loaded after every single result, goes on the same; populations begin with unequal sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from ludus.core.types import Solution
from ludus.population.payoffs import Payoffs
from ludus.schedulers.anytime import AnytimePSROScheduler, SelfPlayPSROScheduler
from ludus.schedulers.base import Scheduler
from ludus.schedulers.fixed_opponents import FixedOpponentsScheduler
from ludus.schedulers.league import LeagueRules, LeagueScheduler
from ludus.schedulers.pipeline import PipelinePSROScheduler
from ludus.schedulers.psro import PSROScheduler
from ludus.schedulers.responses import (
    BestResponse,
    PreferenceResponse,
    RecommendedResponse,
    RectifiedResponse,
    SequentialLeague,
)
from ludus.schedulers.self_play import FictitiousSelfPlayScheduler, PFSPScheduler, QualityPast, SelfPlayScheduler
from ludus.solvers.fixed import Uniform
from ludus.solvers.nash import Nash
from ludus.testing.scheduler import check_scheduler


@dataclass(frozen=True)
class Joint:
    """A joint meta-strategy: alike on all profiles whose places sum to an even number."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> Solution:
        weights = (np.indices(payoffs.sizes).sum(axis=0) % 2 == 0).astype(np.float64)
        return Solution(None, np.nan, joint=weights / weights.sum())


PSRO = {"generations": 2, "seed": 0}
TWO = {"solver": Nash(), **PSRO}
CHUNKS = {"chunks": 3, "seed": 0}
KINDS: dict[str, Callable[..., Scheduler]] = {
    "psro": lambda **p: PSROScheduler(**TWO, **p),
    "several": lambda **p: PSROScheduler(**TWO, responses=BestResponse(count=2), order="sequential", **p),
    "rectified": lambda **p: PSROScheduler(**TWO, responses=RectifiedResponse(most=2), **p),
    "preference": lambda **p: PSROScheduler(**TWO, responses=PreferenceResponse(), **p),
    "jpsro cce": lambda **p: PSROScheduler(solver=Joint(), **PSRO, **p),
    "jpsro ce": lambda **p: PSROScheduler(solver=Joint(), responses=RecommendedResponse(most=2), **PSRO, **p),
    "sequential league": lambda **p: PSROScheduler(**TWO, responses=SequentialLeague(), **p),
    "anytime": lambda **p: AnytimePSROScheduler(**TWO, **p),
    "self-play psro": lambda **p: SelfPlayPSROScheduler(**TWO, **p),
    "pipeline": lambda **p: PipelinePSROScheduler(**TWO, levels=2, most=2, **p),
    "self-play": lambda **p: SelfPlayScheduler(**CHUNKS, **p),
    "quality": lambda **p: SelfPlayScheduler(latest=0.8, past=QualityPast(rate=0.5), **CHUNKS, **p),
    "fictitious": lambda **p: FictitiousSelfPlayScheduler(**CHUNKS, **p),
    "pfsp": lambda **p: PFSPScheduler(latest=0.4, **CHUNKS, **p),
    "fixed": lambda **p: FixedOpponentsScheduler(**CHUNKS, **p),
    "league": lambda **p: LeagueScheduler(rules=LeagueRules(least=1, most=2), decay=0.5, **CHUNKS, **p),
}


@pytest.mark.parametrize("kind", KINDS)
def test_two_populations(kind: str) -> None:
    check_scheduler(lambda: KINDS[kind](population=(0, 1)), population=(0, 1), initial=(1, 2), everywhere=True)


@pytest.mark.parametrize("kind", KINDS)
def test_one_population(kind: str) -> None:
    check_scheduler(lambda: KINDS[kind](population=(0, 0)), population=(0, 0), everywhere=True)


def test_joint_strategies_of_three_players() -> None:
    for rule in (BestResponse(), RecommendedResponse(most=1)):
        check_scheduler(
            lambda rule=rule: PSROScheduler(solver=Joint(), responses=rule, population=(0, 1, 1), **PSRO),
            population=(0, 1, 1),
            initial=(2, 1),
        )


def test_preference_responses_of_three_players() -> None:
    check_scheduler(
        lambda: PSROScheduler(solver=Uniform(), responses=PreferenceResponse(), population=(0, 1, 2), **PSRO),
        population=(0, 1, 2),
    )
