"""The rating `online_elo`: Elo points that each episode moves. `elo`, of greatest likelihood, is in `bradley_terry.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.arrays import kernel
from ludus.core.errors import ConfigError
from ludus.core.types import Match
from ludus.metagame.population.base import Payoffs
from ludus.metagame.population.ratings.base import RatingTable, population_sizes, rating_table, require_two_players
from ludus.metagame.population.ratings.win_counts import connected_groups, group_notes, pairwise_results


@dataclass(frozen=True, kw_only=True)
class OnlineElo:
    """Elo (1978), online: after each episode the winner takes k × (score - expected score) points from the loser; all start at 0.

    The order of a match's episodes is not stored: each counts as the match's mean score. The result depends on the order, and has no
    interval; for a frozen population `elo`, of greatest likelihood, is better.

    Attributes:
        k: Points at stake.
        order: "log", as recorded, or "shuffled" with `seed`, so that policies that played early are not rated by older opponents' ratings
            only.
        seed: Seed of the shuffle.
    """

    k: float = 16.0
    order: Literal["log", "shuffled"] = "log"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.k > 0.0:
            raise ConfigError(f"online_elo: k is {self.k}, expected a number of points above 0, such as 16.")
        if self.order not in ("log", "shuffled"):
            raise ConfigError(f"online_elo: order is {self.order!r}, expected 'log' or 'shuffled'.")

    def rate(self, payoffs: Payoffs, log: Sequence[Match]) -> RatingTable:
        """Rate the policies. Raises DataError for other than two players."""
        require_two_players(payoffs, "online_elo")
        sizes, (one, other) = population_sizes(payoffs), payoffs.population
        n, results = sum(sizes), pairwise_results(log, sizes, (one, other))
        games = results.wins + results.draws + results.losses
        score = (results.wins + 0.5 * results.draws) / np.maximum(games, 1.0)
        order = np.arange(len(games))
        if self.order == "shuffled":
            order = seeding.generator(self.seed, "online_elo").permutation(len(games))
        rating = _play(results.first[order], results.second[order], games[order], score[order], float(self.k), n)
        played = games > 0
        group = connected_groups(n, results.first[played], results.second[played])
        notes = [f"in the order of {'the log' if self.order == 'log' else f'shuffle {self.seed}'}", *group_notes(group)]
        return rating_table("online_elo", "Elo points", sizes, rating, group=group, notes=notes)


@kernel
def _play(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    games: NDArray[np.float64],
    score: NDArray[np.float64],
    k: float,
    n: int,
) -> NDArray[np.float64]:
    rating = np.zeros(n)
    for m in range(len(first)):
        i, j = first[m], second[m]
        if i == j:
            continue
        for _ in range(int(games[m])):
            expected = 1.0 / (1.0 + 10.0 ** ((rating[j] - rating[i]) / 400.0))
            change = k * (score[m] - expected)
            rating[i] += change
            rating[j] -= change
    return rating
