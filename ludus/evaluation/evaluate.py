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
from ludus.envs.tree.game_tree import GameTree
from ludus.evaluation.exact import ExactEvaluator
from ludus.evaluation.matches import MatchPlayer, outcomes
from ludus.policies.specs import tabulates
from ludus.rollout.manager import manage
from ludus.runtime.inprocess import build_runtime
from ludus.storage.stored_run import META, open_run

FRESH = "fresh"
"""A block of episodes that no run plays: what a run was steered by does not count again in its final figures."""


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
class EvaluationReport:
    """exploitability: of the last generation's meta-strategies; None where the game cannot be enumerated."""

    run_dir: Path
    env: str
    generation: int
    matches: tuple[HeadToHead, ...]
    exploitability: Exploitability | None


def evaluate_run(run_dir: Path | str, *, episodes: int = 10_000, policies: Sequence[str] = ()) -> EvaluationReport:
    """Play `policies` of a run against each other, every combination of one per player, and compute exploitability if possible.

    policies: names such as "0-12", or "meta" for the last meta-strategies; default: meta and the newest of each population.
    Nothing is written. Raises ConfigError for an unknown name, with the nearest; RunError for an unreadable run.
    """
    run = _Run(Path(run_dir))
    stored = run.stored
    stored.check_names(policies)
    seats = [run.choices(player, policies) for player in range(len(stored.population))]
    if episodes < 2:
        raise ConfigError(f"episodes is {episodes}; an interval needs at least 2.")
    matches = tuple(run.match(profile, episodes) for profile in product(*seats))
    exploitability = run.exact.exploitability(stored.solution) if run.exact is not None else None
    return EvaluationReport(stored.folder, stored.env.id, stored.generation, matches, exploitability)


class _Run:
    """A stored run and what plays its policies."""

    def __init__(self, folder: Path) -> None:
        self.stored = open_run(folder)
        env = self.stored.env.played.make()
        rollouts = manage(build_runtime("inprocess"), env)
        self._player = MatchPlayer(rollouts, self.stored.policy, seed=self.stored.info.seed)
        self.exact = self._exact(getattr(env, "tree", None))

    def _exact(self, tree: object) -> ExactEvaluator | None:
        """Where there is a tree, and every policy can be written as a table (one with memory cannot)."""
        policies = {ref: self.stored.policy(ref) for ref in self.stored.records}
        if not isinstance(tree, GameTree) or not all(tabulates(p.spec, mode=ref.mode) for ref, p in policies.items()):
            return None
        exact = ExactEvaluator(tree, self.stored.population)
        for ref, policy in policies.items():
            exact.add(ref, policy)
        return exact

    def choices(self, player: int, names: Sequence[str]) -> list[str]:
        """The names that can play `player`, by default meta and the newest."""
        own = self.stored.names(player)
        chosen = [name for name in names if name == META or name in own]
        return chosen or [META, own[-1]]

    def match(self, profile: tuple[str, ...], episodes: int) -> HeadToHead:
        players = self.stored.mixture(profile)
        returns = self._player.returns(players, episodes, block=FRESH)
        spread = returns.std(axis=0, ddof=1) / np.sqrt(episodes)
        return HeadToHead(
            policies=profile,
            episodes=episodes,
            mean=returns.mean(axis=0),
            half_width=spread * float(student.ppf(0.975, episodes - 1)),
            wins=outcomes(returns),
            exact=None if self.exact is None else self.exact.values(players),
        )
