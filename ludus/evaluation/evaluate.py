"""Evaluation of a finished or running run: matches between any of its policies, and exploitability where it can be computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from ludus.core.errors import ConfigError
from ludus.core.types import Exploitability
from ludus.evaluation.evaluated_run import FRESH, EvaluatedRun, RunResult, facts_of
from ludus.evaluation.exact import ExactEvaluator
from ludus.evaluation.matches import outcomes
from ludus.policies.specs import tabulates
from ludus.storage.stored_run import META, StoredRun


@dataclass(frozen=True, slots=True, eq=False)
class HeadToHead:
    """One profile's result: mean return float64[P] per seat, with the half width of its 95% interval (Student's t over episodes)."""

    policies: tuple[str, ...]
    episodes: int
    mean: NDArray[np.float64]
    half_width: NDArray[np.float64]
    wins: tuple[tuple[int, int, int], ...]
    exact: NDArray[np.float64] | None


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationReport(RunResult):
    """exploitability: of the last generation's meta-strategies; None where the game cannot be enumerated."""

    matches: tuple[HeadToHead, ...]
    exploitability: Exploitability | None


def evaluate_run(run_dir: Path | str, *, episodes: int = 10_000, policies: Sequence[str] = ()) -> EvaluationReport:
    """Play `policies` of a run against each other, every combination of one per player, and compute exploitability if possible.

    policies: names such as "0-12", or "meta" for the last meta-strategies; default: meta and the newest of each population.
    Nothing is written. Raises ConfigError for an unknown name, with the nearest; RunError for an unreadable run.
    """
    with EvaluatedRun(run_dir) as run:
        stored = run.stored
        stored.check_names(policies)
        seats = [_choices(stored, player, policies) for player in range(len(stored.population))]
        if episodes < 2:
            raise ConfigError(f"episodes is {episodes}; an interval needs at least 2.")
        exact = _exact(run)
        matches = tuple(_match(run, exact, profile, episodes) for profile in product(*seats))
        exploitability = None if exact is None else exact.exploitability(stored.solution)
    return EvaluationReport(*facts_of(stored), matches, exploitability)


def _exact(run: EvaluatedRun) -> ExactEvaluator | None:
    """Where there is a tree, and every policy can be written as a table (one with memory cannot)."""
    policies = {ref: run.policy(ref) for ref in run.stored.records}
    if run.tree is None or not all(tabulates(p.spec, mode=ref.mode) for ref, p in policies.items()):
        return None
    exact = ExactEvaluator(run.tree, run.stored.population)
    for ref, policy in policies.items():
        exact.add(ref, policy)
    return exact


def _choices(stored: StoredRun, player: int, names: Sequence[str]) -> list[str]:
    """The names that can play `player`, by default meta and the newest."""
    own = stored.names(player)
    chosen = [name for name in names if name == META or name in own]
    return chosen or [META, own[-1]]


def _match(run: EvaluatedRun, exact: ExactEvaluator | None, profile: tuple[str, ...], episodes: int) -> HeadToHead:
    players = run.stored.mixture(profile)
    returns = run.player.returns(players, episodes, block=FRESH)
    spread = returns.std(axis=0, ddof=1) / np.sqrt(episodes)
    return HeadToHead(
        policies=profile,
        episodes=episodes,
        mean=returns.mean(axis=0),
        half_width=spread * float(student.ppf(0.975, episodes - 1)),
        wins=outcomes(returns),
        exact=None if exact is None else exact.values(players),
    )
