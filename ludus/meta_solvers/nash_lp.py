"""The matrix game as a linear program for HiGHS: exact vertices, no warm start."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.errors import SolverError
from ludus.meta_solvers.games import distribution
from ludus.meta_solvers.nash_ipm import MatrixSolution, certified_gap


def solve_highs(matrix: NDArray[np.float64], *, gap: float) -> MatrixSolution:
    """Minimise w subject to A y <= w e, y a distribution; the row player's strategy is the dual (von Neumann's minimax theorem).

    matrix: float64[m, n], the row player's payoffs. HiGHS works to about 1e-7 of the payoffs' range, so a smaller `gap` may be missed
    (`converged` is then False). Raises SolverError if HiGHS reports a failure.
    """
    from scipy.optimize import linprog  # 0.2 s to import, and most runs never need it

    m, n = matrix.shape
    low, scale = float(matrix.min()), float(matrix.max() - matrix.min()) or 1.0
    a = (matrix - low) / scale
    answer = linprog(
        np.r_[np.zeros(n), 1.0],
        A_ub=np.c_[a, -np.ones(m)],
        b_ub=np.zeros(m),
        A_eq=np.r_[np.ones(n), 0.0][None],
        b_eq=[1.0],
        bounds=[(0.0, None)] * n + [(None, None)],
        method="highs",
    )
    if answer.status != 0:
        raise SolverError(f"HiGHS could not solve a {m} by {n} matrix game: {answer.message}")
    row, column = distribution(-answer.ineqlin.marginals), distribution(answer.x[:n])
    found = certified_gap(matrix, row, column)
    return MatrixSolution(row, column, found, int(answer.nit), found <= gap)
