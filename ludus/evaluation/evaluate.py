"""Evaluation of a finished or running run: matches between any of its policies, and exploitability where it can be computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError
from ludus.core.process_settings import standard_settings
from ludus.core.types import Exploitability, NamedStatistics
from ludus.evaluation.evaluated_run import FRESH, OpenRun, RunResult, Tell, facts_of
from ludus.evaluation.exact import ExactEvaluator, refuse_device, tree_on
from ludus.evaluation.matches import outcomes
from ludus.evaluation.policies import META
from ludus.metagame.population.match_log import statistics_of
from ludus.metagame.solvers.confidence import student
from ludus.rollout.manager import ProgressCallback


@dataclass(frozen=True, slots=True, eq=False)
class HeadToHead:
    """One profile's result: mean return float64[P] per seat, with the half width of its 95% interval (Student's t over episodes).
    statistics: of each seat; None where the environment counts nothing."""

    policies: tuple[str, ...]
    episodes: int
    mean: NDArray[np.float64]
    half_width: NDArray[np.float64]
    wins: tuple[tuple[int, int, int], ...]
    exact: NDArray[np.float64] | None
    statistics: NamedStatistics | None = None


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationReport(RunResult):
    """exploitability: of what `of` names; None where the game cannot be enumerated."""

    matches: tuple[HeadToHead, ...]
    exploitability: Exploitability | None
    of: str = f"@{META}"


@standard_settings()
def evaluate_run(
    run_dir: Path | str,
    *,
    episodes: int = 10_000,
    policies: Sequence[str] = (),
    of: str = f"@{META}",
    device: str = "auto",
    tell: Tell | None = None,
) -> EvaluationReport:
    """Play `policies` of a run against each other, every combination of one per player, and compute the exploitability of `of` if
    possible.

    policies, of: names as `ludus.evaluation.policies` takes them, those of this run as "@meta", "@12", "@0/0-12"; policies may be of other
    runs of the game, and files. Default: `of`, or of @meta the last meta-strategies and the newest policy of each population. device:
    where exact values are computed, as `ludus.evaluation.exact.tree_on` takes it. tell: is told now and then how far it is. Nothing is
    written. Raises ConfigError for an unknown name, with the nearest, and for a device that is not there; RunError for an unreadable run.
    """
    with OpenRun(run_dir) as run:
        named = run.named
        names = [*policies] or ([of] if of != f"@{META}" else [])
        profiles = named.profiles(names)
        matches_only = policies and run.stored.lacking and of == f"@{META}"  # of an entry of a zoo for some players
        solution = None if matches_only else named.solution(of)
        if episodes < 2:
            raise ConfigError(f"episodes is {episodes}; an interval needs at least 2.")
        exact = _exact(run, device)
        matches: list[HeadToHead] = []
        for profile in profiles:
            hear = None if tell is None else _hear(tell, before=len(matches) * episodes, total=len(profiles) * episodes)
            matches.append(_match(run, exact, profile, episodes, hear))
        exploitability = None if exact is None or solution is None else exact.exploitability(solution)
    return EvaluationReport(*facts_of(run.stored, of), tuple(matches), exploitability, of)


def _hear(tell: Tell, *, before: int, total: int) -> ProgressCallback:
    """Of a match, after so many episodes of others."""
    return lambda ended: tell(before + ended, total)


def _exact(run: OpenRun, device: str) -> ExactEvaluator | None:
    """Return where there is a tree. Nothing is known where a policy plays a part that cannot be written as a table (one with memory, a
    bot)."""
    if run.tree is None:
        refuse_device(device)
        return None
    exact = ExactEvaluator(tree_on(run.tree, device), run.stored.population)
    for ref in run.stored.records:
        exact.add(ref, run.policy(ref))
    return exact


def _match(
    run: OpenRun,
    exact: ExactEvaluator | None,
    profile: tuple[str, ...],
    episodes: int,
    hear: ProgressCallback | None,
) -> HeadToHead:
    players = run.named.mixture(profile)
    played = run.player.episodes(players, episodes, block=FRESH, hear=hear)
    returns = played.returns
    spread = returns.std(axis=0, ddof=1) / np.sqrt(episodes)
    return HeadToHead(
        policies=profile,
        episodes=episodes,
        mean=returns.mean(axis=0),
        half_width=spread * student(episodes),
        wins=outcomes(returns),
        exact=None if exact is None or not run.named.is_own(players) else _known(exact.values(players)),
        statistics=statistics_of(run.player.statistics, played.statistics),
    )


def _known(values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    return None if np.isnan(values).any() else values
