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
    """Result of one combination of policies.

    Attributes:
        policies: [P] name of each player's policy.
        episodes: Episodes that were played.
        mean: float64[P], mean return of each player.
        half_width: float64[P], half of the 95% interval of the mean (Student's t over episodes).
        wins: [P] (won, drawn, lost) episodes.
        exact: float64[P], expected returns; None where they were not computed.
        statistics: Those of each player; None where the environment counts nothing.
    """

    policies: tuple[str, ...]
    episodes: int
    mean: NDArray[np.float64]
    half_width: NDArray[np.float64]
    wins: tuple[tuple[int, int, int], ...]
    exact: NDArray[np.float64] | None
    statistics: NamedStatistics | None = None


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationReport(RunResult):
    """Result of `evaluate_run`.

    Attributes:
        matches: One result per combination of policies.
        exploitability: That of what `of` names; None where the game cannot be enumerated.
        of: Name of the policies whose exploitability was asked for.
    """

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
    """Play policies of a run against each other, and compute exploitability where the game has a tree.

    Every combination of one policy per player is played. Nothing is written.

    Args:
        run_dir: Directory of the run.
        episodes: Episodes per combination.
        policies: Names as `ludus.evaluation.policies` reads them, those of this run as "@meta", "@12" or "@0/0-12"; policies of other runs
            of the game and files too. Default: `of`, or for @meta the last meta-strategies and the newest policy of each population.
        of: Name of the policies of this run whose exploitability is computed.
        device: Where exact values are computed, as in `ludus.evaluation.exact.tree_on`: "auto", "cpu", "cuda" or "cuda:N".
        tell: Called now and then with the progress.

    Returns:
        Mean returns of each combination with 95% intervals (Student's t over episodes), and the exploitability of `of`.

    Raises:
        ConfigError: For an unknown name (with the nearest one), and for a device that is missing.
        RunError: If the run cannot be read.
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
            on_progress = (
                None
                if tell is None
                else _on_progress(tell, before=len(matches) * episodes, total=len(profiles) * episodes)
            )
            matches.append(_match(run, exact, profile, episodes, on_progress))
        exploitability = None if exact is None or solution is None else exact.exploitability(solution)
    return EvaluationReport(*facts_of(run.stored, of), tuple(matches), exploitability, of)


def _on_progress(tell: Tell, *, before: int, total: int) -> ProgressCallback:
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
    on_progress: ProgressCallback | None,
) -> HeadToHead:
    players = run.named.mixture(profile)
    played = run.player.episodes(players, episodes, block=FRESH, on_progress=on_progress)
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
