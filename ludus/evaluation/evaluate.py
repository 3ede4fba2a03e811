"""Evaluation of a finished or running run: matches between any of its policies, and exploitability where it can be computed.

`RunEvaluator` is what every evaluation of a stored run plays with: matches here, trained exploiters in `exploiters.py`. What is computed
from stored results alone is in `run_ratings.py`. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.process_settings import standard_settings
from ludus.core.types import EnvSpec, Exploitability, NamedStatistics, PolicyRef
from ludus.envs.sweep_rules import find_sweep_rules
from ludus.envs.tree.game_tree import find_tree
from ludus.evaluation.exact import ExactEvaluator, refuse_device, tree_on
from ludus.evaluation.matches import MatchRunner, outcomes
from ludus.evaluation.policies import META, NamedPlayers
from ludus.metagame.population.match_log import statistics_of
from ludus.metagame.solvers.confidence import student
from ludus.policies.base import Policy
from ludus.rollout.host import LocalRollouts
from ludus.rollout.rollouts import ProgressCallback
from ludus.storage.stored_run import StoredRun, open_run

FRESH = "fresh"
"""A block of episodes that no run plays: what a run was steered by does not count again in its final figures."""

Tell = Callable[[int, int], None]
"""(episodes that are done, of how many)."""


@dataclass(frozen=True, slots=True, eq=False)
class RunResult:
    """Fields that every result about a stored run begins with.

    Attributes:
        run_dir: Directory of the run.
        env: Id of its environment.
        generation: The generation that was asked about, or the last complete one.
    """

    run_dir: Path
    env: str
    generation: int


def facts_of(run: StoredRun, of: str = "") -> tuple[Path, str, int]:
    """Return the fields of `RunResult`; of: whose exploitability is asked for, "@12" say."""
    what = of.removeprefix("@")
    return run.folder, run.env.id, int(what) if what.isdecimal() else run.generation


def require_two_player_zero_sum(spec: EnvSpec, measure: str, advice: str) -> None:
    """Raise ScenarioError for other games. measure: what is of such games alone; advice: what to do instead."""
    if spec.num_players != 2 or not spec.zero_sum:
        raise ScenarioError(
            f"{measure} is of two-player zero-sum games; {spec.id} has {spec.num_players} player{'s' * (spec.num_players > 1)}"
            f"{'' if spec.zero_sum else ' and is general-sum'}. {advice}"
        )


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


class RunEvaluator:
    """Plays and computes with the policies of a stored run, in its environment, the game from its start. Raises RunError for an unreadable
    run.

    Attributes:
        stored: The run.
        spec: Specification of its game.
        tree: The game's tree; None unless it is compiled.
        sweep_rules: The game's rules as exact sweeps read them; None where there are no sweeps over it.
        named: Policies by name.
        rollouts: Plays episodes in the environment.
        player: Plays matches in it.
    """

    def __init__(self, folder: Path | str, *, seed: int | None = None) -> None:
        """seed: key of what is played; default: the run's own."""
        self.stored = open_run(folder)
        env = self.stored.env.played.make()
        self.spec, self.tree, self.sweep_rules = env.spec, find_tree(env), find_sweep_rules(env)
        self.named = NamedPlayers(self.stored, self.spec)
        self.rollouts = LocalRollouts.around(env)
        self.player = MatchRunner(self.rollouts, self.policy, seed=self.stored.info.seed if seed is None else seed)

    def policy(self, ref: PolicyRef) -> Policy:
        """A policy of the run, or one that was named."""
        return self.named.policy(ref)

    def exact(self, device: str) -> ExactEvaluator | None:
        """Return exact values of the run's policies; None without a tree. Nothing is known where a policy plays a part that cannot be
        written as a table (one with memory, a bot)."""
        if self.tree is None:
            refuse_device(device)
            return None
        exact = ExactEvaluator(tree_on(self.tree, device), self.stored.population)
        for ref in self.stored.records:
            exact.add(ref, self.policy(ref))
        return exact

    def match(
        self,
        profile: tuple[str, ...],
        episodes: int,
        exact: ExactEvaluator | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> HeadToHead:
        """Play one combination of policies by name, and compute its values with `exact`."""
        players = self.named.mixture(profile)
        played = self.player.episodes(players, episodes, block=FRESH, on_progress=on_progress)
        returns = played.returns
        values = None if exact is None or not self.named.is_own(players) else exact.values(players)
        return HeadToHead(
            policies=profile,
            episodes=episodes,
            mean=returns.mean(axis=0),
            half_width=returns.std(axis=0, ddof=1) / np.sqrt(episodes) * student(episodes),
            wins=outcomes(returns),
            exact=None if values is None or np.isnan(values).any() else values,
            statistics=statistics_of(self.player.statistics, played.statistics),
        )

    def close(self) -> None:
        """Close the environments."""
        self.rollouts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
    with RunEvaluator(run_dir) as run:
        named = run.named
        names = [*policies] or ([of] if of != f"@{META}" else [])
        profiles = named.profiles(names)
        matches_only = policies and run.stored.lacking and of == f"@{META}"  # of an entry of a zoo for some players
        solution = None if matches_only else named.solution(of)
        if episodes < 2:
            raise ConfigError(f"episodes is {episodes}; an interval needs at least 2.")
        exact = run.exact(device)
        matches: list[HeadToHead] = []
        for profile in profiles:
            before, total = len(matches) * episodes, len(profiles) * episodes
            on_progress = None if tell is None else partial(_tell_share, tell, before, total)
            matches.append(run.match(profile, episodes, exact, on_progress))
        exploitability = None if exact is None or solution is None else exact.exploitability(solution)
    return EvaluationReport(*facts_of(run.stored, of), tuple(matches), exploitability, of)


def _tell_share(tell: Tell, before: int, total: int, ended: int) -> None:
    """Report a match that follows `before` episodes of others."""
    tell(before + ended, total)
