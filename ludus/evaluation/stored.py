"""A stored run, opened for reading: its scenario, its policies and its last meta-strategies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ludus.core.errors import ConfigError, RunError, nearest
from ludus.core.types import Factor, Mixture, PolicyRef, Solution
from ludus.driver.scenario import Scenario
from ludus.driver.scenario_files import parse_scenario
from ludus.evaluation.matches import factors_of
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.population.base import PolicyRecord
from ludus.storage.policy_files import PolicyFiles
from ludus.storage.reader import Reader

META = "meta"
"""The name of the last meta-strategy, beside the policies' own names."""


class StoredRun:
    """What a run directory holds after its last finished generation. Raises RunError for one that is unreadable or has none yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with Reader(folder) as reader:
            info, stored, last = reader.info(), reader.policies(), reader.last_generation()
            joint = None if last is None else reader.joint(last.number)
        if last is None:
            raise RunError(f"{str(folder)!r} has no finished generation yet; there is nothing to evaluate.")
        self.scenario = _scenario(folder, info.text)
        self.population = info.population
        self.generation = last.number
        marginals = tuple(np.array(m) for m in last.marginals)
        self.solution = Solution(marginals if joint is None else None, last.solver_gap, joint=joint)
        self.members: dict[int, list[PolicyRecord]] = {}
        for policy in stored:
            self.members.setdefault(policy.record.ref.population, []).append(policy.record)
        self._check_sizes()
        self.records = {p.record.ref: p.record for p in stored}
        self._files = PolicyFiles(folder, {p.record.ref: p.sha256 for p in stored})
        self._loaded: dict[PolicyRef, Policy] = {}

    def _check_sizes(self) -> None:
        for player, marginal in enumerate(self.solution.strategies):
            known = len(self.members.get(self.population[player], []))
            if len(marginal) > known:
                raise RunError(
                    f"the database of {str(self.folder)!r} has {known} policies of player {player}, whose last meta-strategy is over "
                    f"{len(marginal)}. Rows were removed by hand; restore the database from a copy."
                )

    def policy(self, ref: PolicyRef) -> Policy:
        """A policy, read when it is first wanted."""
        if ref not in self._loaded:
            self._loaded[ref] = build_policy(self.records[ref].spec, self._files.get(ref))
        return self._loaded[ref]

    def check_names(self, names: Sequence[str]) -> None:
        """Raises ConfigError, with the nearest, for a name that is no policy of this run and not `META`."""
        known = {META, *(record.ref.policy for members in self.members.values() for record in members)}
        for name in names:
            if name not in known:
                raise ConfigError(f"run {str(self.folder)!r} has no policy {name!r}{nearest(name, known)}")

    def names(self, player: int) -> list[str]:
        """The policies that can play `player`, the newest last."""
        return [record.ref.policy for record in self.members[self.population[player]]]

    def mixture(self, profile: Sequence[str]) -> Mixture:
        """The policies that these names, one per player, stand for; `META` is the last meta-strategy. Where that is a joint distribution,
        the players who are named so are drawn together."""
        members = [[record.ref for record in self.members[which]] for which in self.population]
        factors = list(factors_of(self.solution, members, [p for p, name in enumerate(profile) if name == META]))
        for player, name in enumerate(profile):
            if name != META:
                ref = next(ref for ref in members[player] if ref.policy == name)
                factors.append(Factor((player,), ((ref,),), (1.0,)))
        return Mixture(tuple(sorted(factors, key=lambda factor: factor.seats)))


def _scenario(folder: Path, text: str) -> Scenario:
    try:
        return parse_scenario(text)
    except ConfigError as error:
        raise RunError(f"the scenario in the database of {str(folder)!r} cannot be used: {error}") from error
