"""Worker: OpenSpiel's meta-solvers, as they stand, on the games of `benchmarks.peers.meta_games`.

    python -m benchmarks.peers.openspiel_meta.run [--case CASE …] [--seed S]

Options are those of Ludus's worker; regret matching runs with gamma = 0, which costs OpenSpiel the same. Payoffs of the Gini CCE go
straight to JPSRO's solver, without the elimination of dominated or repeated strategies, of which there are none.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyspiel
from open_spiel.python.algorithms import jpsro, lp_solver, projected_replicator_dynamics, regret_matching
from open_spiel.python.egt import alpharank

from benchmarks.peers.meta_games import PRD_DT, PRD_GAMMA, PRD_ITERATIONS, REGRET_MATCHING, Game, Solve, work

PACKAGES = ("open-spiel", "cvxpy", "ecos", "numpy", "scipy")


def alpha_rank(mean: Game, **options: Any) -> Any:
    """The joint distribution over profiles."""
    _, _, joint, _, _ = alpharank.compute(list(mean), m=50, **options)
    return np.asarray(joint).reshape(mean.shape[1:])


def swept(mean: Game) -> Any:
    """Epsilon halved until the answer stays."""
    with contextlib.redirect_stdout(io.StringIO()):
        joint = alpharank.sweep_pi_vs_epsilon(list(mean))
    return np.asarray(joint).reshape(mean.shape[1:])


def prd(mean: Game) -> Any:
    return projected_replicator_dynamics.projected_replicator_dynamics(
        list(mean), prd_iterations=PRD_ITERATIONS, prd_dt=PRD_DT, prd_gamma=PRD_GAMMA
    )


def gini_cce(mean: Game) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        joint, _ = jpsro._mgcce(mean, [np.ones(n) for n in mean.shape[1:]])
    return joint


def nash(mean: Game) -> Any:
    row, column, _, _ = lp_solver.solve_zero_sum_matrix_game(pyspiel.create_matrix_game(*mean))
    return np.ravel(row), np.ravel(column)


SOLVERS: dict[str, Solve] = {
    "alpha-Rank, epsilon 0.01": lambda mean: alpha_rank(mean, use_inf_alpha=True, inf_alpha_eps=0.01),
    "alpha-Rank, alpha 1": lambda mean: alpha_rank(mean, alpha=1.0),
    "alpha-Rank, swept": swept,
    "PRD, zero-sum": prd,
    "PRD, general-sum": prd,
    "regret matching": lambda mean: regret_matching.regret_matching(list(mean), iterations=REGRET_MATCHING, gamma=0.0),
    "Gini CCE": gini_cce,
    "Nash": nash,
}


def main(argv: Sequence[str] | None = None) -> int:
    return work(SOLVERS, PACKAGES, argv)


if __name__ == "__main__":
    sys.exit(main())
