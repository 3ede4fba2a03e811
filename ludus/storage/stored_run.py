"""A run directory, opened: the one way to it, for whoever evaluates a run and whoever goes on with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ludus.core.config import from_yaml
from ludus.core.errors import ConfigError, RunError, nearest
from ludus.core.types import Factor, Mixture, PolicyRef, Solution
from ludus.envs.options import Environment
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.population.base import PolicyRecord
from ludus.storage.base import GenerationRecord
from ludus.storage.policy_files import PolicyFiles
from ludus.storage.reader import Reader

T = TypeVar("T")

META = "meta"
"""The name of the last meta-strategy, beside the policies' own names."""


class StoredRun:
    """What a run directory says of itself, read once; the run may be going on. Raises RunError for one that is unreadable.

    info, checkpoints, policies, summary: as `Reader` gives them. members: of each population, in order. records: by ref.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with Reader(folder) as reader:
            self.info, self.summary = reader.info(), reader.summary()
            self.checkpoints, self.policies = reader.checkpoints(), reader.policies()
            self._last = reader.last_generation()
            self._joint = None if self._last is None else reader.joint(self._last.number)
        self.population = self.info.population
        self.records = {p.record.ref: p.record for p in self.policies}
        self.members: dict[int, list[PolicyRecord]] = {}
        for ref, record in self.records.items():
            self.members.setdefault(ref.population, []).append(record)
        self._loaded: dict[PolicyRef, Policy] = {}

    # ---------------------------------------------------------------------------------------------- of the scenario

    @cached_property
    def env(self) -> Environment:
        """The options of its environment. Raises RunError as `part` does."""
        return self.part("env", lambda options: Environment(**options))

    def part(self, name: str, make: Callable[[Any], T], *, default: Any = None) -> T:
        """What `make` makes of a part of the scenario, which the database has with all options written out. default: for a part that is not
        there. Raises RunError for one that is not there and has none, or of which `make` raises ConfigError."""
        try:
            data = from_yaml(self.info.text, what="the scenario", source=str(self.folder))
            if name not in data and default is None:
                raise ConfigError("it is not there.")
            return make(data.get(name, default))
        except ConfigError as error:
            raise RunError(
                f"the scenario in the database of {str(self.folder)!r} cannot be used: {name}: {error}"
            ) from error

    # ---------------------------------------------------------------------------------------------- generations

    @property
    def generation(self) -> int:
        """The last one that finished. Raises RunError if none has."""
        return self._finished().number

    @cached_property
    def solution(self) -> Solution:
        """The meta-strategies of the last finished generation. Raises RunError if none has, or if policies of theirs are missing."""
        last = self._finished()
        marginals = tuple(np.array(m) for m in last.marginals)
        solution = Solution(marginals if self._joint is None else None, last.solver_gap, joint=self._joint)
        for player, marginal in enumerate(solution.strategies):
            known = len(self.members.get(self.population[player], []))
            if len(marginal) > known:
                raise RunError(
                    f"the database of {str(self.folder)!r} has {known} policies of player {player}, whose last meta-strategy is over "
                    f"{len(marginal)}. Rows were removed by hand; restore the database from a copy."
                )
        return solution

    def _finished(self) -> GenerationRecord:
        if self._last is None:
            raise RunError(f"{str(self.folder)!r} has no finished generation yet; there is nothing to evaluate.")
        return self._last

    # ---------------------------------------------------------------------------------------------- policies

    def files(self, refs: Collection[PolicyRef]) -> PolicyFiles:
        """The weights of these policies."""
        return PolicyFiles(self.folder, {p.record.ref: p.sha256 for p in self.policies if p.record.ref in refs})

    @cached_property
    def _files(self) -> PolicyFiles:
        return self.files(self.records.keys())

    def policy(self, ref: PolicyRef) -> Policy:
        """A policy, read when it is first wanted."""
        if ref not in self._loaded:
            self._loaded[ref] = build_policy(self.records[ref].spec, self._files.get(ref))
        return self._loaded[ref]

    def check_names(self, names: Sequence[str]) -> None:
        """Raises ConfigError, with the nearest, for a name that is no policy of this run and not `META`."""
        known = {META, *(ref.policy for ref in self.records)}
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
        factors = list(self.solution.factors(members, [p for p, name in enumerate(profile) if name == META]))
        for player, name in enumerate(profile):
            if name != META:
                ref = next(ref for ref in members[player] if ref.policy == name)
                factors.append(Factor((player,), ((ref,),), (1.0,)))
        return Mixture(tuple(sorted(factors, key=lambda factor: factor.seats)))


def open_run(folder: Path | str) -> StoredRun:
    """A run that can be evaluated. Raises RunError if it is unreadable, or has no finished generation."""
    run = StoredRun(Path(folder))
    _ = run.env, run.solution  # what is wrong with them shows now
    return run
