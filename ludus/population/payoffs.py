"""The payoff view that schedulers and meta-solvers read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Payoffs:
    """profile -> per player (n, mean, M2). Axis p of the profile axes is player p's policy, seat by seat: with a population that
    players share, (i, j) and (j, i) are different seat orders and stay apart.

    mean: float64[P, n_0, …, n_{P-1}], NaN in holes. count: int64[n_0, …]. m2: float64[P, n_0, …]. exact: bool[n_0, …].
    utility_range: [P] (least, largest). population: [P] index of each player's population. zero_sum: as in `EnvSpec`.
    """

    mean: NDArray[np.float64]
    count: NDArray[np.int64]
    m2: NDArray[np.float64]
    exact: NDArray[np.bool_]
    utility_range: tuple[tuple[float, float], ...]
    population: tuple[int, ...]
    zero_sum: bool

    @property
    def num_players(self) -> int:
        return int(self.mean.shape[0])

    @property
    def sizes(self) -> tuple[int, ...]:
        """[P] policies per player."""
        return tuple(int(n) for n in self.mean.shape[1:])

    def holes(self, min_count: int = 1) -> NDArray[np.int64]:
        """Profiles, int64[k, P], that are neither exact nor played at least `min_count` times."""
        return np.argwhere(~self.exact & (self.count < min_count))
