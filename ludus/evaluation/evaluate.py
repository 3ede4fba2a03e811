"""Evaluation of a finished or running run: matches between any of its policies, and exploitability where it can be computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from ludus.envs.game_tree import GameTree
from ludus.errors import ConfigError, RunError, nearest
from ludus.evaluation.exact import ExactEvaluator
from ludus.evaluation.matches import MatchPlayer, outcomes
from ludus.observe.policy_files import PolicyFiles
from ludus.observe.reader import Reader
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.population.base import PolicyRecord
from ludus.rollout.manager import RolloutManager
from ludus.runtime.inprocess import build_runtime
from ludus.scenario import Scenario, parse_scenario
from ludus.types import Exploitability, Factor, Mixture, PolicyRef, Solution

META = "meta"
FRESH = 1
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
    seats = [run.choices(player, policies) for player in range(len(run.population))]
    if episodes < 2:
        raise ConfigError(f"episodes is {episodes}; an interval needs at least 2.")
    matches = tuple(run.match(profile, episodes) for profile in product(*seats))
    exploitability = run.exact.exploitability(run.solution) if run.exact is not None else None
    return EvaluationReport(run.folder, run.scenario.env.id, run.generation, matches, exploitability)


def _scenario(folder: Path, text: str) -> Scenario:
    try:
        return parse_scenario(text)
    except ConfigError as error:
        raise RunError(f"the scenario in the database of {str(folder)!r} cannot be used: {error}") from error


class _Run:
    """A stored run, opened for reading: its policies, its last meta-strategies and what plays them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with Reader(folder) as reader:
            info, stored, generations = reader.info(), reader.policies(), reader.generations()
        if not generations:
            raise RunError(f"{str(folder)!r} has no finished generation yet; there is nothing to evaluate.")
        self.scenario = _scenario(folder, info.text)
        self.population = info.population
        self.generation = generations[-1].number
        self.solution = Solution(tuple(np.array(m) for m in generations[-1].marginals), generations[-1].solver_gap)
        self.members: dict[int, list[PolicyRecord]] = {}
        for policy in stored:
            self.members.setdefault(policy.record.ref.population, []).append(policy.record)
        self._check_sizes()
        self._records = {p.record.ref: p.record for p in stored}
        self._files = PolicyFiles(folder, {p.record.ref: p.sha256 for p in stored})
        self._loaded: dict[PolicyRef, Policy] = {}
        env = self.scenario.env.make()
        rollouts = RolloutManager(build_runtime("inprocess"), env)
        self._player = MatchPlayer(rollouts, self.policy, seed=self.scenario.seed)
        tree = getattr(env, "tree", None)
        self.exact = ExactEvaluator(tree, self.population) if isinstance(tree, GameTree) else None
        if self.exact is not None:
            for ref in self._records:
                self.exact.add(ref, self.policy(ref))

    def _check_sizes(self) -> None:
        for player, marginal in enumerate(self.solution.strategies):
            known = len(self.members.get(self.population[player], []))
            if len(marginal) > known:
                raise RunError(
                    f"the database of {str(self.folder)!r} has {known} policies of player {player}, whose last meta-strategy is over "
                    f"{len(marginal)}. Rows were removed by hand; restore the database from a copy."
                )

    def policy(self, ref: PolicyRef) -> Policy:
        if ref not in self._loaded:
            self._loaded[ref] = build_policy(self._records[ref].spec, self._files.get(ref))
        return self._loaded[ref]

    def choices(self, player: int, names: Sequence[str]) -> list[str]:
        """The names that can play `player`, by default meta and the newest."""
        own = {record.ref.policy for record in self.members[self.population[player]]}
        known = {META, *(record.ref.policy for members in self.members.values() for record in members)}
        for name in names:
            if name not in known:
                raise ConfigError(f"run {str(self.folder)!r} has no policy {name!r}{nearest(name, known)}")
        chosen = [name for name in names if name == META or name in own]
        return chosen or [META, self.members[self.population[player]][-1].ref.policy]

    def _factor(self, player: int, name: str) -> Factor:
        members = self.members[self.population[player]]
        if name != META:
            ref = next(record.ref for record in members if record.ref.policy == name)
            return Factor((player,), ((ref,),), (1.0,))
        probs = self.solution.strategies[player]
        kept = [int(i) for i in np.flatnonzero(probs > 0)]
        return Factor((player,), tuple((members[i].ref,) for i in kept), tuple(float(probs[i]) for i in kept))

    def match(self, profile: tuple[str, ...], episodes: int) -> HeadToHead:
        players = Mixture(tuple(self._factor(p, name) for p, name in enumerate(profile)))
        returns = self._player.returns(players, episodes, block=FRESH)
        spread = returns.std(axis=0, ddof=1) / np.sqrt(episodes)
        exact = None
        if self.exact is not None:
            stacks = self.exact.stack
            plans = [
                np.asarray(f.probs) @ stacks(p, [entry[0] for entry in f.entries])
                for p, f in enumerate(players.factors)
            ]
            exact = self.exact.tree.values(plans)
        return HeadToHead(
            policies=profile,
            episodes=episodes,
            mean=returns.mean(axis=0),
            half_width=spread * float(student.ppf(0.975, episodes - 1)),
            wins=outcomes(returns),
            exact=exact,
        )
