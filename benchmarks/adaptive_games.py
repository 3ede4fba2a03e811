"""Populations with known payoffs: symmetric, zero-sum games of wins and losses with skill, cycles and an advantage of the first seat.

Policy i wins from the first seat against j with the probability 1 / (1 + exp(-(L_ij + ADVANTAGE))), L antisymmetric. A block is two
episodes, one from each seat. Their mean return is 1, 0 or -1, and its expectation A_ij is the payoff that is to be found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.types import MetaSolution
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers.match_selection import CellSelection

Matrix = NDArray[np.float64]
ADVANTAGE = 0.4
EPISODES = 2
"""Matches (episodes) of a block."""


def _skill(n: int, rng: np.random.Generator, spread: float) -> Matrix:
    strength = rng.normal(size=n) * spread
    return np.asarray(strength[:, None] - strength)


def _elo(n: int, rng: np.random.Generator) -> Matrix:
    """Skill alone."""
    return _skill(n, rng, 1.0)


def _noise(n: int, rng: np.random.Generator) -> Matrix:
    """Skill, and every pair on its own (a random antisymmetric matrix)."""
    noise = rng.normal(size=(n, n))
    return np.asarray(_skill(n, rng, 0.7) + (noise - noise.T) / np.sqrt(2))


def _low_rank(n: int, rng: np.random.Generator) -> Matrix:
    """Skill, and six dimensions of strengths and weaknesses that meet each other (Balduzzi et al. 2019, disc games)."""
    attack, defence = rng.normal(size=(2, n, 6))
    return np.asarray(_skill(n, rng, 0.5) + 0.3 * (attack @ defence.T - defence @ attack.T))


def _spinning_top(n: int, rng: np.random.Generator) -> Matrix:
    """Skill, and cycles that are long in the middle and short at the top (Czarnecki et al. 2020)."""
    strength = rng.normal(size=n)
    width, angle = 1.5 * np.exp(-(strength**2) / 2), rng.uniform(0, 2 * np.pi, n)
    x, y = width * np.cos(angle), width * np.sin(angle)
    return np.asarray(strength[:, None] - strength) + 2 * (np.outer(x, y) - np.outer(y, x))


def _generations(n: int, rng: np.random.Generator) -> Matrix:
    """As training makes them: later policies are a little better, and each is a mixture of rock, paper and scissors."""
    style = rng.dirichlet(np.full(3, 0.3), size=n)
    cycle = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    strength = np.linspace(0, 2, n) + 0.2 * rng.normal(size=n)
    return np.asarray(strength[:, None] - strength + 2 * style @ cycle @ style.T)


GAMES: Final[dict[str, Callable[[int, np.random.Generator], Matrix]]] = {
    "elo": _elo,
    "noise": _noise,
    "low rank": _low_rank,
    "spinning top": _spinning_top,
    "generations": _generations,
}


class Game:
    """A population of n policies, and what was played of it so far."""

    def __init__(self, name: str, *, n: int, seed: int, sampling: str) -> None:
        """seed: of the game; `sampling` names the stream of its luck, so that two ways of sampling meet the same game and other luck."""
        level = GAMES[name](n, seeding.generator(seed, "game", name))
        self.first = 1 / (1 + np.exp(-(level + ADVANTAGE)))  # i wins from the first seat against j
        self.payoff = self.first - self.first.T  # ((2 first - 1) - (2 first' - 1)) / 2
        self.blocks = 0
        self._rng = seeding.generator(seed, "luck", name, sampling)
        self._count = np.zeros((n, n), dtype=np.int64)
        self._sum, self._squares = np.zeros((n, n)), np.zeros((n, n))

    def play(self, cells: CellSelection) -> None:
        """So many more blocks of each profile. A policy against itself earns 0 in every block."""
        i, j = cells.profiles.T
        win, lose = self.first[i, j], self.first[j, i]  # from the first seat; the other one's win from its first seat
        chances = np.stack([win * (1 - lose), (1 - win) * lose, win * lose + (1 - win) * (1 - lose)], axis=1)
        won, lost, _ = np.where(i == j, 0, self._rng.multinomial(cells.units, chances).T)
        np.add.at(self._count, (i, j), cells.units)
        np.add.at(self._sum, (i, j), won - lost)
        np.add.at(self._squares, (i, j), won + lost)
        self.blocks += int(cells.units.sum())

    def view(self) -> Payoffs:
        """The payoffs by blocks; both seat orders of a profile show the same blocks."""
        upper = ~np.eye(len(self._count), dtype=np.bool_)
        count = self._count + np.where(upper, self._count.T, 0)
        total = self._sum - np.where(upper, self._sum.T, 0.0)
        squares = self._squares + np.where(upper, self._squares.T, 0.0)
        mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        m2 = np.where(count > 0, np.maximum(squares - count * np.nan_to_num(mean) ** 2, 0.0), 0.0)
        exact = np.zeros(count.shape, dtype=np.bool_)
        ends = ((-1.0, 1.0), (-1.0, 1.0))
        return Payoffs(np.stack([mean, -mean]), count, np.stack([m2, m2]), exact, ends, (0, 0), zero_sum=True)

    def nash_conv(self, solution: MetaSolution) -> float:
        """The true NashConv of a meta-strategy, by the known payoffs: no match that steered has a part in it."""
        row, column = solution.strategies
        return float((self.payoff @ column).max() - (row @ self.payoff).min())
