"""Nash equilibria of small two-player general-sum games: support enumeration, or Lemke and Howson's paths."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, SolverError
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.base import MetaSolution
from ludus.metagame.solvers.limits import USEFUL, check_watcher, note_of

# --------------------------------------------------------------------------------------------------------------------
# Lemke and Howson's paths to equilibria of bimatrix games (1964; Nisan et al., Algorithmic Game Theory, 2007,
# algorithm 3.6). Strategies and slacks carry labels: row i is i, column j is m + j. With payoffs above zero,
# column' x + r = 1 and row y + s = 1 are two tableaus; x_i and s_i share the label i, r_j and y_j the label m + j.
# A pair of vertices at which every label is missing from one of the two bases is an equilibrium, once x and y are
# divided by their sums; so is the start x = y = 0, but for that. A path drops one label and then lets the label
# that left one tableau enter the other, until the dropped one leaves. nashpy has this, too, but its loop has no
# bound, its integer pivots overflow from about 12 strategies on, and its way to break ties leads astray in
# degenerate games.

Matrix = NDArray[np.float64]
Pair = tuple[NDArray[np.float64], NDArray[np.float64]]

TIE = 1e-12  # ratios this near are ties
TINY = 1e-11  # smaller numbers are not pivoted on


def paths(row: Matrix, column: Matrix, *, max_pivots: int) -> Iterator[Pair]:
    """The ends of the paths from every label in turn, with at most `max_pivots` pivots in all.

    row, column: float64[m, n], the players' payoffs. Yields distributions (x[m], y[n]); paths that rounding breaks are left out.
    """
    first, second = _unit(row), _unit(column)
    left = max_pivots
    for label in range(sum(row.shape)):
        end, pivots = _path(first, second, label=label, max_pivots=left)
        left -= pivots
        if end is not None:
            yield end
        if left <= 0:
            return


def _unit(payoffs: Matrix) -> Matrix:
    """Return payoffs moved and scaled to [1, 2], which leaves the equilibria where they are."""
    low, spread = float(payoffs.min()), float(np.ptp(payoffs))
    return np.asarray((payoffs - low) / (spread or 1.0) + 1.0)


class _Tableau:
    """body [k, m + n + 1]: one column per label, the right-hand side last; `basis` [k]: the labels of the basic variables."""

    def __init__(self, body: Matrix, slacks: range) -> None:
        self._body = body
        self._order = [-1, *slacks]  # right-hand side, then the columns that would perturb it
        self.basis = list(slacks)

    def enter(self, label: int) -> int:
        """Make a variable basic; return the label that leaves, -1 if there is none."""
        body = self._body
        rows = np.flatnonzero(body[:, label] > TINY)
        # the lexicographic rule: the least ratio after perturbing the right-hand side by powers of an infinitely small number
        for key in self._order:
            if len(rows) < 2:
                break
            ratios = body[rows, key] / body[rows, label]
            rows = rows[ratios <= ratios.min() + TIE]
        if not len(rows):
            return -1
        i = int(rows[0])
        body[i] /= body[i, label]
        factors = body[:, label].copy()
        factors[i] = 0.0
        body -= np.outer(factors, body[i])
        leaving, self.basis[i] = self.basis[i], label
        return leaving

    def strategy(self, labels: range) -> NDArray[np.float64]:
        """Return the values of the variables `labels`, divided by their sum."""
        values = np.zeros(len(labels))
        for i, label in enumerate(self.basis):
            if label in labels:
                values[label - labels.start] = max(self._body[i, -1], 0.0)
        return np.asarray(values / values.sum())


def _path(row: Matrix, column: Matrix, *, label: int, max_pivots: int) -> tuple[Pair | None, int]:
    """The end of the path that drops `label`, and the pivots made."""
    m, n = row.shape
    rows, columns = range(m), range(m, m + n)
    first = _Tableau(np.c_[column.T, np.eye(n), np.ones(n)], columns)
    second = _Tableau(np.c_[np.eye(m), row, np.ones(m)], rows)
    turn, other = (first, second) if label in rows else (second, first)
    entering = label
    for pivots in range(1, max_pivots + 1):
        entering = turn.enter(entering)
        if entering < 0:
            return None, pivots
        if entering == label:
            return (first.strategy(rows), second.strategy(columns)), pivots
        turn, other = other, turn
    return None, max_pivots


# --------------------------------------------------------------------------------------------------------------------
# Every equilibrium of a non-degenerate bimatrix game, by its supports (Nisan et al. 2007, Algorithmic Game Theory,
# algorithm 3.4). For each pair of supports of equal size: the weights of one player that leave the other
# indifferent within the support are the solution of a linear system. They are an equilibrium if none is negative
# and nothing outside a support is better. All second supports are tried at once.

ROUNDING = 1e-9
"""Of the payoffs' range, or of a weight: smaller differences are none. It only chooses candidates, which are checked afterwards."""
SINGULAR = 1e-13


def equilibria(row: Matrix, column: Matrix) -> Iterator[Pair]:
    """Yield (x float64[m], y float64[n]) of the game with payoffs float64[m, n], of supports of equal size, small ones first."""
    row, column = _scaled(row), _scaled(column)
    m, n = row.shape
    for size in range(1, min(m, n) + 1):
        column_supports = np.array(list(combinations(range(n), size)))  # [K, size]
        for row_support in np.array(list(combinations(range(m), size))):
            y, earned = _indifferent(np.moveaxis(row[row_support][:, column_supports], 0, 1))
            x, lost = _indifferent(np.swapaxes(np.moveaxis(column[row_support][:, column_supports], 0, 1), 1, 2))
            best = np.einsum("mks,ks->mk", row[:, column_supports], y).max(axis=0)
            answer = (x @ column[row_support]).max(axis=1)
            fits = (y >= -ROUNDING).all(axis=1) & (x >= -ROUNDING).all(axis=1)
            fits &= (best <= earned + ROUNDING) & (answer <= lost + ROUNDING)
            for k in np.flatnonzero(fits):
                yield _spread(x[k], row_support, m), _spread(y[k], column_supports[k], n)


def _indifferent(tables: Matrix) -> tuple[Matrix, NDArray[np.float64]]:
    """Return (weights [K, s], value [K]) with tables[k] @ weights[k] = value[k] in every row, of sum 1; NaN where that has no single
    solution. tables: float64[K, s, s]."""
    count, size, _ = tables.shape
    bordered = np.zeros((count, size + 1, size + 1))
    bordered[:, :size, :size] = tables
    bordered[:, :size, size] = -1.0
    bordered[:, size, :size] = 1.0
    regular = np.abs(np.linalg.det(bordered)) > SINGULAR
    right = np.zeros(size + 1)
    right[size] = 1.0
    solutions = np.full((count, size + 1), np.nan)
    solutions[regular] = np.linalg.solve(
        bordered[regular], np.broadcast_to(right[:, None], (regular.sum(), size + 1, 1))
    )[..., 0]
    return solutions[:, :size], solutions[:, size]


def _spread(weights: NDArray[np.float64], support: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    out = np.zeros(size)
    out[support] = np.maximum(weights, 0.0)
    return out


def _scaled(payoff: Matrix) -> Matrix:
    """Return between 0 and 1."""
    spread = float(np.ptp(payoff))
    return np.asarray((payoff - payoff.min()) / (spread if spread > 0 else 1.0))


FEW_PAIRS = 1_000
"""Up to so many pairs of supports (6 by 6 strategies have 923) `auto` enumerates."""


@dataclass(frozen=True, kw_only=True)
class NashBimatrix:
    """Exact Nash equilibrium of a two-player game, zero-sum or not: of those found, the first one with the largest sum of payoffs.

    Players who share a population get the same strategy: a symmetric equilibrium, by way of the imitation game, in which the second player
    earns 1 for doing what the first does: its equilibria's second strategies are the symmetric equilibria (McLennan and Tourky 2010).

    Attributes:
        method: "support_enumeration" looks at every pair of supports of equal size and finds every equilibrium of a non-degenerate game
            (Nisan et al. 2007, algorithm 3.4); their number grows exponentially. "lemke_howson" follows a path of pivots from every
            strategy in turn, lexicographic where there are ties (Lemke and Howson 1964); it finds at least one equilibrium, not necessarily
            all. "auto": the first up to `FEW_PAIRS` pairs of supports; the second beyond, or if enumeration finds nothing in a degenerate
            game.
        max_pivots: Limit of all paths together; paths can be exponentially long.
        max_pairs: More pairs of supports are rejected.
        tolerance: An answer counts if deviations gain at most this fraction of the payoffs' range.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"two_player"})
    ignores_copies: ClassVar[bool] = True

    method: Literal["auto", "support_enumeration", "lemke_howson"] = "auto"
    max_pivots: int = 10_000
    max_pairs: int = 20_000
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        if self.method not in ("auto", "support_enumeration", "lemke_howson"):
            raise ConfigError(
                f"nash_bimatrix: method is {self.method!r}, expected 'auto', 'support_enumeration' or 'lemke_howson'."
            )
        if min(self.max_pivots, self.max_pairs) < 1:
            raise ConfigError(
                f"nash_bimatrix: max_pivots is {self.max_pivots} and max_pairs is {self.max_pairs}, expected at least 1."
            )
        if not 0.0 < self.tolerance < 1.0:
            raise ConfigError(f"nash_bimatrix: tolerance is {self.tolerance}, expected between 0 and 1, like 1e-6.")

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError for missing entries, NaN, more than two players, too many pairs of supports, or if no
        equilibrium was found."""
        normal_form.require_two_player(payoffs, "nash_bimatrix")
        normal_form.require_complete(payoffs, "nash_bimatrix")
        mean, shared = normal_form.symmetrize(payoffs), normal_form.share_population(payoffs)
        row, column = (mean[0], np.eye(len(mean[0]))) if shared else (mean[0], mean[1])
        pairs = pairs_of_supports(*row.shape)
        enumerate_ = self.method == "support_enumeration" or (self.method == "auto" and pairs <= FEW_PAIRS)
        if enumerate_ and pairs > self.max_pairs:
            raise SolverError(
                f"nash_bimatrix: {row.shape[0]} by {row.shape[1]} strategies have {pairs} pairs of supports, more than "
                f"max_pairs = {self.max_pairs}; use method lemke_howson."
            )
        best, nearest = self._best(mean, equilibria(row, column), shared=shared) if enumerate_ else (None, None)
        if best is None and self.method != "support_enumeration":
            best, other = self._best(mean, paths(row, column, max_pivots=self.max_pivots), shared=shared)
            nearest = min((one for one in (nearest, other) if one is not None), key=lambda one: one.gap, default=None)
        span = max(normal_form.payoff_range(mean), 1e-300)
        if best is None and nearest is not None and nearest.gap <= USEFUL * span:
            advice = "Raise `tolerance`, or use regret_matching_plus or projected_replicator_dynamics."
            # a candidate that is not within the tolerance misses it, whatever is rounding elsewhere
            note = note_of(nearest.gap / span, 0.1 * self.tolerance, solver="nash_bimatrix", advice=advice)
            best = replace(nearest, note=note)
        if best is None:
            raise SolverError(
                f"nash_bimatrix: no equilibrium of this {row.shape[0]} by {row.shape[1]} game was found by {self.method} "
                f"(max_pivots = {self.max_pivots}); raise max_pivots, try another method, or use regret_matching_plus or "
                "projected_replicator_dynamics."
            )
        return best

    def _best(
        self, mean: Matrix, candidates: Iterator[Pair], *, shared: bool
    ) -> tuple[MetaSolution | None, MetaSolution | None]:
        """Return (the candidate with the highest sum of payoffs among those that are equilibria, the one with the least gap)."""
        allowed = self.tolerance * max(normal_form.payoff_range(mean), 1e-300)
        best, most, nearest = None, -math.inf, None
        for x, y in candidates:
            check_watcher()
            second = normal_form.distribution(y)
            marginals = (second, second) if shared else (normal_form.distribution(x), second)
            gap = float(normal_form.deviation_gains(mean, marginals).sum())
            welfare = float(marginals[0] @ mean.sum(axis=0) @ marginals[1])
            if gap <= allowed and welfare > most + allowed:
                best, most = MetaSolution(marginals, gap), welfare
            if nearest is None or gap < nearest.gap:
                nearest = MetaSolution(marginals, gap)
        return best, nearest


def pairs_of_supports(m: int, n: int) -> int:
    """Return how many pairs of supports of equal size m by n strategies have: sum_k C(m, k) C(n, k) over k >= 1."""
    return math.comb(m + n, m) - 1
