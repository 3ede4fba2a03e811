"""The payoff view that schedulers and meta-solvers read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import DataError

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
