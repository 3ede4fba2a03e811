"""The records and seams of populations: who is in them, where they came from, and what is told to a run's store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import EnvError
from ludus.core.types import EnvSpec, Match, PolicyRef, PolicySpec, Weights
from ludus.metagame.population.payoffs import Payoffs


@dataclass(frozen=True, slots=True)
class Lineage:
    """Origin of a policy: the task and generation that made it, and what its training started from.

    parent: the policy whose weights it started from, if any. start: "random", "policy" (`parent` says which), or the path of a file.
    """

    task: str = ""
    generation: int = 0
    parent: PolicyRef | None = None
    start: str = "random"


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    """A frozen member of a population. index: its place in the population, which is its index on the payoff table's axis."""

    ref: PolicyRef
    index: int
    spec: PolicySpec
    lineage: Lineage


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What a scheduler sees.

    Attributes:
        populations: Policies of each population, oldest first.
        payoffs: Payoffs of all profiles, with missing entries.
        initial: Number of policies of each population that no task has made; (): one each.
    """

    populations: tuple[tuple[PolicyRef, ...], ...]
    payoffs: Payoffs
    initial: tuple[int, ...] = ()

    def first(self, population: int) -> int:
        """Return the place of the first policy that was trained: those before it were there from the start. Place 0 plays at random, the
        others were given (`ludus.schedulers.config.Opponent`)."""
        return self.initial[population] if self.initial else 1

    def place(self, ref: PolicyRef) -> int:
        """Return where a policy is in its population, in whatever mode. Raises ValueError for one that is no member."""
        return [member.policy for member in self.populations[ref.population]].index(ref.policy)


def seats_in(population: Sequence[int], which: int) -> tuple[int, ...]:
    """Return the players of one population. population: [P] index of each player's."""
    return tuple(p for p, one in enumerate(population) if one == which)


def seats_of(population: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the players of each population. population: [P] index of each player's."""
    return [seats_in(population, which) for which in sorted(set(population))]


def populations_of(env: EnvSpec, *, share: bool = True) -> tuple[int, ...]:
    """Return [P] index of each player's population: interchangeable players share one, unless `share` is False. Raises EnvError if the
    environment's `symmetry` is no partition of its players."""
    if not share:
        return tuple(range(env.num_players))
    groups = sorted(env.symmetry, key=min)
    if sorted(player for group in groups for player in group) != list(range(env.num_players)):
        raise EnvError(
            f"{env.id}: symmetry {env.symmetry} is not a partition of the players 0 to {env.num_players - 1}."
        )
    return tuple(next(k for k, group in enumerate(groups) if p in group) for p in range(env.num_players))


@runtime_checkable
class Recorder(Protocol):
    """Receiver of new facts, implemented by the run's database. Each call comes once per new fact (repeats are filtered out before), in
    the order in which the facts became known; the policy's weights are durable before `policy_added` is called."""

    def policy_added(self, record: PolicyRecord) -> None:
        """A new member."""
        ...

    def matches_recorded(self, matches: Sequence[Match]) -> None:
        """New matches of the log."""
        ...

    def payoffs_recorded(self, profiles: NDArray[np.int64], mean: NDArray[np.float64]) -> None:
        """New exact cells: profiles int64[k, P], mean float64[k, P] (each player's expected return)."""
        ...


@runtime_checkable
class WeightsStore(Protocol):
    """Durable weights, by reference (`version` is always a number)."""

    def put(self, ref: PolicyRef, spec: PolicySpec, weights: Weights) -> None:
        """Durable when it returns. Putting equal weights again does nothing."""
        ...

    def get(self, ref: PolicyRef) -> Weights:
        """Raises RunError if they are missing or changed."""
        ...
