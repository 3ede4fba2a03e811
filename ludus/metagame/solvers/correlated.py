"""Correlated and coarse correlated equilibria of meta-games, for any number of players (Aumann 1974; Moulin and Vial 1978)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, SolverError
from ludus.core.ties import TIE
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.base import MetaSolution
from ludus.metagame.solvers.limits import USEFUL, note_of, require_memory
from ludus.metagame.solvers.nash import solve_interior_point
from ludus.metagame.solvers.normal_form import DeviationKind, coarse_rows, correlated_rows, joint_gains, symmetric_joint
from ludus.metagame.solvers.simplex_program import Matrix, SimplexProgram, minimize

Selection = Literal["max_gini", "max_welfare", "min_epsilon"]

LEAST = 1e-9  # weights below this part of 1 / profiles are dropped


@dataclass(frozen=True, kw_only=True)
class CoarseCorrelated:
    """Coarse correlated equilibrium (CCE): a joint distribution from which no player gains by one fixed strategy, chosen before the draw.

    The gap is what the players gain together by their best such deviations. Players who share a population get a symmetric joint
    distribution.

    Attributes:
        select: Which of many equilibria. "max_gini": the most even, of least sum of squares (Marris et al. 2021). "max_welfare": the
            largest sum of payoffs. "min_epsilon": the one where the best deviation loses most (`epsilon` below zero if all can lose).
            Where the last two leave a choice, the most even is taken, so each answer is unique, and renaming strategies renames it.
        epsilon: What a deviation may gain, in payoffs.
        tolerance: By how much a condition may be missed, as a fraction of the payoffs' range.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    ignores_copies: ClassVar[bool] = True
    kind: ClassVar[DeviationKind] = "cce"

    select: Selection = "max_gini"
    epsilon: float = 0.0
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        if self.select not in ("max_gini", "max_welfare", "min_epsilon"):
            raise ConfigError(
                f"{self.kind}: select is {self.select!r}, expected 'max_gini', 'max_welfare' or 'min_epsilon'."
            )
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0.0):
            raise ConfigError(f"{self.kind}: epsilon is {self.epsilon}, expected a gain in payoffs, 0 or more.")
        if self.epsilon and self.select == "min_epsilon":
            raise ConfigError(
                f"{self.kind}: epsilon is {self.epsilon}, but select is 'min_epsilon', which finds it itself."
            )
        if not 1e-10 <= self.tolerance <= 1e-2:
            raise ConfigError(
                f"{self.kind}: tolerance is {self.tolerance}, expected a fraction of the payoffs' range between 1e-10 and 1e-2."
            )

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError for missing entries or NaN. The answer is a joint distribution; `warm` is not used."""
        normal_form.require_complete(payoffs, self.kind)
        mean = normal_form.symmetrize(payoffs)
        weights, part, note = self._answer(mean)
        joint = np.zeros(payoffs.sizes)
        joint[np.ix_(*part)] = weights.reshape([len(places) for places in part])
        joint = symmetric_joint(joint, payoffs.population)
        return MetaSolution(None, float(joint_gains(mean, joint, self.kind).sum()), joint=joint, note=note)

    def _answer(self, mean: NDArray[np.float64]) -> tuple[NDArray[np.float64], Sequence[NDArray[np.int64]], str]:
        """Return (weights of the profiles of a part, [P] the places of the strategies in it, a note or "")."""
        part: Sequence[NDArray[np.int64]] = [np.arange(size) for size in mean.shape[1:]]
        if self.kind == "ce" and self.select != "min_epsilon" and not self.epsilon:
            played = zero_sum_supports(mean)
            if played is not None:
                part, product = played, only_equilibrium(mean[0], *played)
                if product is not None:
                    return product, part, ""
        require_memory(
            self._memory(mean.shape[1:], [len(places) for places in part]),
            solver=self.kind,
            what=f"a game of {' × '.join(map(str, mean.shape[1:]))} policies",
            advice="Use fewer policies (responses.most, or a `stop`), cce instead of ce, or nash for two players and zero sums.",
        )
        weights, note = self._selected(mean, part, normal_form.payoff_range(mean) or 1.0)
        return weights, part, note

    def _memory(self, sizes: Sequence[int], played: Sequence[int]) -> float:
        """Return bytes for these policies, of whom `played` have weight; measured."""
        profiles = math.prod(played)
        if self.kind == "cce":
            return 8.0 * (3.5 * sum(sizes) * profiles + 2.5 * min(sum(sizes), profiles) ** 2)
        deviations = sum(k * (n - 1) for k, n in zip(played, sizes, strict=True))
        entries = sum((n - 1) * math.prod(sizes) for n in sizes)
        return 64.0 * entries + 20.0 * min(deviations, profiles) ** 2

    def _selected(
        self, mean: NDArray[np.float64], part: Sequence[NDArray[np.int64]], scale: float
    ) -> tuple[NDArray[np.float64], str]:
        """Return (float64[profiles of `part`], a note or "")."""
        rows: Matrix = (coarse_rows if self.kind == "cce" else correlated_rows)(mean / scale)
        if rows.shape[1] > math.prod(map(len, part)):
            columns = np.arange(rows.shape[1]).reshape(mean.shape[1:])[np.ix_(*part)].ravel()
            rows = rows[:, columns]
            rows = rows[np.flatnonzero(np.diff(rows.indptr))]
            mean = mean[np.ix_(np.arange(len(mean)), *part)]
        limits = np.full(rows.shape[0], self.epsilon / scale)
        if self.select == "min_epsilon" and len(limits):
            limits[:] = least_epsilon(rows)[0]
        if self.select == "max_welfare":
            # the mean of the players' payoffs, from 0: a sum would leave the scale of the other rows
            welfare = (mean / scale).mean(axis=0).ravel()
            welfare = welfare - welfare.min()
            rows, limits = with_row(rows, -welfare), np.append(limits, -maximize_linear(welfare, rows, limits))
        best = minimize(SimplexProgram(rows, limits), tolerance=0.1 * self.tolerance)
        if best.error > 10.0 * self.tolerance:  # where limits leave no room rounding may stop it; a little room helps
            relaxed = minimize(SimplexProgram(rows, limits + self.tolerance), tolerance=0.1 * self.tolerance)
            best = min(best, relaxed, key=lambda optimum: optimum.error)
        weights, error = best.x, best.error
        if not error <= USEFUL:  # a vertex, which may not be the one that `select` asks for
            missed, weights = least_epsilon(rows)
            error = max(missed, 11.0 * self.tolerance)
        note = note_of(
            error, self.tolerance, solver=self.kind, advice="Raise `tolerance`, or use cce or another solver."
        )
        return normal_form.distribution(weights, least=LEAST / len(weights)), note


@dataclass(frozen=True, kw_only=True)
class Correlated(CoarseCorrelated):
    """Correlated equilibrium (CE): a joint distribution from which no player gains by deviating after seeing its recommended strategy.

    Options and selection as in `CoarseCorrelated`; `epsilon` is per pair of the recommended strategy and the one played instead, weighted
    with the probability of the recommendation. The gap is what the players gain together by the best answer to each recommendation (the
    swap regret).
    """

    kind: ClassVar[DeviationKind] = "ce"


# --------------------------------------------------------------------------------------------------------------------
# Two players, zero-sum: whatever is recommended to one, what the other plays then is an equilibrium strategy (Forges 1990, "Correlated
# equilibrium in two-person zero-sum games"). So strategies that no equilibrium plays can be left out; and where both players have but one
# equilibrium strategy, their product is the only correlated equilibrium. An interior-point method finds that hard, as its conditions leave
# no room at all.

NEVER = 1e5  # times its weight, which goes to 0 with the gap: a regret that is larger goes to a number
SURELY = 1e-6  # of the range: the least such regret
NEARLY = 1e-10  # of the range: the gap at which both are looked at
REGULAR = 1e10  # the condition number below which equations have one solution
ROUNDING = 1e-10  # of the range: the gap of an equilibrium that was computed from its supports


def zero_sum_supports(mean: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Find who is played in some equilibrium of a two-player zero-sum (or constant-sum) game.

    Args:
        mean: float64[2, n, m] payoffs.

    Returns:
        The places of these strategies of each player (and of others, where rounding cannot tell). None for other games, and where rounding
        stops too early to say.
    """
    scale = normal_form.payoff_range(mean)
    if len(mean) != 2 or scale == 0.0 or float(np.ptp(mean[0] + mean[1])) > TIE * scale:
        return None
    matrix = mean[0] / scale
    solution = solve_interior_point(matrix, gap=NEARLY)
    if not solution.converged:
        return None
    earned, paid = matrix @ solution.column, solution.row @ matrix
    sides = (solution.row, earned.max() - earned), (solution.column, paid - paid.min())
    first, second = (np.flatnonzero((regret <= SURELY) | (regret <= NEVER * probs)) for probs, regret in sides)
    return first, second


def only_equilibrium(
    matrix: NDArray[np.float64], first: NDArray[np.int64], second: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """Solve a matrix game for the only equilibrium with these supports.

    Args:
        matrix: float64[n, m]: what the first player earns.
        first: The first player's strategies that may have weight.
        second: The second player's.

    Returns:
        float64[len(first), len(second)]: how likely each pair is; None if there is no such equilibrium, or more than one.
    """
    size = len(first)
    if size != len(second):
        return None
    scale = float(np.ptp(matrix)) or 1.0
    played = matrix[np.ix_(first, second)] / scale
    if not np.linalg.cond(_bordered(played)) < REGULAR:
        return None
    right = np.append(np.zeros(size), 1.0)
    x, y = (np.linalg.solve(_bordered(one), right)[:-1] for one in (played.T, played))
    if min(x.min(), y.min()) <= 0.0:
        return None
    gap = float((matrix[:, second] @ y).max() - (x @ matrix[first]).min())
    return np.outer(x, y) if gap <= ROUNDING * scale else None


def _bordered(played: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the equations of the strategy, and the value, for which every row of `played` is worth the same."""
    ones = np.ones((len(played), 1))
    return np.block([[played, -ones], [ones.T, np.zeros((1, 1))]])


def least_epsilon(rows: Matrix) -> tuple[float, NDArray[np.float64]]:
    """Return (value, x): the least max (rows x) over distributions x. Raises SolverError if HiGHS reports a failure."""
    k, n = rows.shape
    ones = np.full((k, 1), -1.0)
    answer = _highs(np.r_[np.zeros(n), 1.0], with_column(rows, ones), np.zeros(k), free=1)
    return float(answer[-1]), answer[:-1]


def maximize_linear(value: NDArray[np.float64], rows: Matrix, limits: NDArray[np.float64]) -> float:
    """max of value'x over distributions x with rows x <= limits. Raises SolverError if HiGHS reports a failure."""
    return float(value @ _highs(-value, rows, limits, free=0))


def _highs(cost: NDArray[np.float64], rows: Matrix, limits: NDArray[np.float64], *, free: int) -> NDArray[np.float64]:
    """The least cost over distributions, beside `free` unbounded variables at the end."""
    from scipy.optimize import linprog  # 0.2 s to import, and the default selection never needs it

    n = len(cost) - free
    answer = linprog(
        cost,
        A_ub=rows if len(limits) else None,
        b_ub=limits if len(limits) else None,
        A_eq=np.r_[np.ones(n), np.zeros(free)][None],
        b_eq=[1.0],
        bounds=[(0.0, None)] * n + [(None, None)] * free,
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if answer.status != 0:
        raise SolverError(
            f"HiGHS could not solve a program of {len(limits)} deviations and {n} profiles: {answer.message}"
        )
    return np.asarray(answer.x)


def with_row(rows: Matrix, row: NDArray[np.float64]) -> Matrix:
    """Return `rows` and one more."""
    if isinstance(rows, np.ndarray):
        return np.vstack([rows, row])
    from scipy.sparse import csr_array, vstack

    return vstack([rows, csr_array(row[None])]).tocsr()


def with_column(rows: Matrix, column: NDArray[np.float64]) -> Matrix:
    """Return `rows` and one more column."""
    if isinstance(rows, np.ndarray):
        return np.hstack([rows, column])
    from scipy.sparse import csr_array, hstack

    return hstack([rows, csr_array(column)]).tocsr()
