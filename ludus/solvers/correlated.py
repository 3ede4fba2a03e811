"""Correlated and coarse correlated equilibria of meta-games, for any number of players (Aumann 1974; Moulin and Vial 1978)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, SolverError
from ludus.population.payoffs import Payoffs
from ludus.solvers import games
from ludus.solvers.base import Solution
from ludus.solvers.games import DeviationKind, coarse_rows, correlated_rows, joint_gains, symmetric_joint
from ludus.solvers.simplex_program import Matrix, SimplexProgram, minimise

Selection = Literal["max_gini", "max_welfare", "min_epsilon"]

LEAST = 1e-9  # weights below this part of 1 / profiles are dropped


@dataclass(frozen=True, kw_only=True)
class CoarseCorrelated:
    """A joint distribution over profiles from which nobody gains by playing one strategy for good before seeing a draw (a CCE).

    select: which one of many. "max_gini": the most even, least sum of squares (Marris et al. 2021). "max_welfare": the largest sum of
    payoffs. "min_epsilon": the one where the best deviation loses most (`epsilon` below zero if all can lose). Where the last two
    leave a choice, the most even is taken, so each answer is unique, and renaming strategies renames it.
    epsilon: what a deviation may gain, in payoffs. tolerance: by how much a condition may be missed, as a fraction of the payoffs' range.

    The gap is what the players gain together by their best such deviations. Players that share a population get a symmetric joint
    distribution.
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

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> Solution:
        """Raises SolverError for holes or NaN. The answer is a joint distribution; `warm` is not used."""
        games.require_complete(payoffs, self.kind)
        mean = games.symmetrised(payoffs)
        joint = symmetric_joint(self._joint(mean).reshape(payoffs.sizes), payoffs.population)
        return Solution(None, float(joint_gains(mean, joint, self.kind).sum()), joint=joint)

    def _joint(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64[profiles]."""
        scale = games.payoff_range(mean) or 1.0
        rows = (coarse_rows if self.kind == "cce" else correlated_rows)(mean / scale)
        limits = np.full(rows.shape[0], self.epsilon / scale)
        if self.select == "min_epsilon" and len(limits):
            limits[:] = least_epsilon(rows)[0]
        if self.select == "max_welfare":
            # the mean of the players' payoffs, from 0: a sum would leave the scale of the other rows
            welfare = (mean / scale).mean(axis=0).ravel()
            welfare = welfare - welfare.min()
            rows, limits = with_row(rows, -welfare), np.append(limits, -most(welfare, rows, limits))
        found = minimise(SimplexProgram(rows, limits), tolerance=0.1 * self.tolerance)
        if found.error > self.tolerance:  # where the limits leave no room rounding may stop it; a little room helps
            found = minimise(SimplexProgram(rows, limits + self.tolerance), tolerance=0.1 * self.tolerance)
        if found.error > 10.0 * self.tolerance:
            raise SolverError(
                f"{self.kind}: stopped {found.error:.1e} of the payoffs' range from an equilibrium, after {found.iterations} iterations, "
                f"{self.tolerance:.0e} was asked for. Raise `tolerance`."
            )
        return games.distribution(found.x, least=LEAST / len(found.x))


@dataclass(frozen=True, kw_only=True)
class Correlated(CoarseCorrelated):
    """A joint distribution over profiles from which nobody gains by deviating after seeing the own strategy that was drawn (a CE).

    Options and choice as in `CoarseCorrelated`; `epsilon` is per pair of the strategy drawn and the one played instead, weighted
    with the probability of the draw. The gap is what the players gain together by the best answer to each draw (the swap regret).
    """

    kind: ClassVar[DeviationKind] = "ce"


def least_epsilon(rows: Matrix) -> tuple[float, NDArray[np.float64]]:
    """(value, x): the least max (rows x) over distributions x. Raises SolverError if HiGHS reports a failure."""
    k, n = rows.shape
    ones = np.full((k, 1), -1.0)
    answer = _highs(np.r_[np.zeros(n), 1.0], with_column(rows, ones), np.zeros(k), free=1)
    return float(answer[-1]), answer[:-1]


def most(value: NDArray[np.float64], rows: Matrix, limits: NDArray[np.float64]) -> float:
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
    """`rows` and one more."""
    if isinstance(rows, np.ndarray):
        return np.vstack([rows, row])
    from scipy.sparse import csr_array, vstack

    return vstack([rows, csr_array(row[None])]).tocsr()


def with_column(rows: Matrix, column: NDArray[np.float64]) -> Matrix:
    """`rows` and one more column."""
    if isinstance(rows, np.ndarray):
        return np.hstack([rows, column])
    from scipy.sparse import csr_array, hstack

    return hstack([rows, csr_array(column)]).tocsr()
