"""The records and seams of populations: who is in them, where they came from, their payoffs as schedulers and meta-solvers read them, and
what is told to a run's store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import DataError, EnvError
from ludus.core.types import EnvSpec, Match, PolicyRef, PolicySpec, Weights

Places: TypeAlias = Mapping[int, Sequence[int]]
"""population -> places of the policies that take part."""


@dataclass(frozen=True, slots=True, eq=False)
class Payoffs:
    """Empirical payoff table of the meta-game: profile -> per player (count, mean, M2).

    Axis p of the profile axes is player p's policy, seat by seat: where players share a population, (i, j) and (j, i) are different seat
    orders and stay apart; such players have axes of one length.

    Attributes:
        mean: float64[P, n_0, …, n_{P-1}], mean returns, NaN in missing entries.
        count: int64[n_0, …], episodes.
        m2: float64[P, n_0, …], sums of squared deviations from the mean.
        exact: bool[n_0, …], entries that were computed.
        utility_range: [P] (least, largest) return of each player.
        population: [P] index of each player's population.
        zero_sum: As in `EnvSpec`.

    Raises:
        DataError: For shapes that do not fit each other, and for other dtypes.
    """

    mean: NDArray[np.float64]
    count: NDArray[np.int64]
    m2: NDArray[np.float64]
    exact: NDArray[np.bool_]
    utility_range: tuple[tuple[float, float], ...]
    population: tuple[int, ...]
    zero_sum: bool

    def __post_init__(self) -> None:
        shape, sizes = self.mean.shape, self.mean.shape[1:]
        players = len(sizes)
        if not players or shape[0] != players:
            raise DataError(
                f"payoffs: mean has the shape {shape}; expected [P, n_0, …, n_P-1], an axis of policies for each player."
            )
        for name, numbers in (("mean", self.mean), ("m2", self.m2)):
            if numbers.dtype != np.float64:
                raise DataError(f"payoffs: {name} is of {numbers.dtype}; expected float64. Give {name}.astype(float).")
        for name, array, expected in (
            ("m2", self.m2, shape),
            ("count", self.count, sizes),
            ("exact", self.exact, sizes),
        ):
            if array.shape != expected:
                raise DataError(
                    f"payoffs: {name} has the shape {array.shape}; expected {expected}, as mean has {shape}."
                )
        if len(self.utility_range) != players or len(self.population) != players:
            raise DataError(
                f"payoffs: utility_range has {len(self.utility_range)} entries and population {len(self.population)}; expected {players}, "
                "one per player."
            )
        if sorted(set(self.population)) != list(range(len(set(self.population)))):
            raise DataError(
                f"payoffs: population is {self.population}; expected populations counted from 0 without gaps."
            )
        for p, which in enumerate(self.population):
            first = self.population.index(which)
            if sizes[p] != sizes[first]:
                raise DataError(
                    f"payoffs: players {first} and {p} share population {which} and have {sizes[first]} and {sizes[p]} policies; give "
                    "both the same ones, or each a population of its own."
                )

    @property
    def num_players(self) -> int:
        return int(self.mean.shape[0])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return [P] policies per player."""
        return tuple(int(n) for n in self.mean.shape[1:])

    @property
    def known(self) -> NDArray[np.bool_]:
        """Return bool[n_0, …]: the profiles that are exact or were played. The others are missing."""
        return self.exact | (self.count > 0)

    @property
    def everyone(self) -> Places:
        """Return all policies."""
        return {which: range(size) for which, size in zip(self.population, self.sizes, strict=True)}

    def part(self, places: Places) -> Payoffs:
        """Return the payoffs of a part of the policies: `places` [P] indices of each player's."""
        cells = np.ix_(*(places[which] for which in self.population))
        every: tuple[Any, ...] = (slice(None), *cells)
        return replace(self, mean=self.mean[every], count=self.count[cells], m2=self.m2[every], exact=self.exact[cells])


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
class MatchArchive(Protocol):
    """Matches that are recorded durably, implemented by the run's database: they need not stay in memory."""

    def matches_with(self, ids: Sequence[str]) -> Mapping[str, Match]:
        """Return those of the recorded matches that have one of these ids."""
        ...

    def first_matches(self, count: int) -> Sequence[Match]:
        """Return the first `count` recorded matches, in their order."""
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
