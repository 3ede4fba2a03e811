"""Worker: Ludus's meta-solvers on the games of `benchmarks.peers.meta_games`.

python -m benchmarks.meta_solvers_worker [--case CASE …] [--seed S]
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import numpy as np

from benchmarks.lines import Lines
from benchmarks.peers.meta_games import (
    NASH_GAP,
    PRD_DT,
    PRD_GAMMA,
    PRD_ITERATIONS,
    REGRET_MATCHING,
    REGRET_MATCHING_PLUS,
    Game,
    Solve,
    game,
    nash_conv,
    work,
)
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers.alpha_rank import AlphaRank
from ludus.metagame.solvers.base import MetaSolver
from ludus.metagame.solvers.correlated import CoarseCorrelated
from ludus.metagame.solvers.nash import Nash
from ludus.metagame.solvers.projected_replicator_dynamics import ProjectedReplicatorDynamics
from ludus.metagame.solvers.regret_matching import RegretMatching, RegretMatchingPlus
from ludus.testing.meta_solver import exact_view

PACKAGES = ("ludus", "numpy", "numba", "scipy")
REPLICATOR = ProjectedReplicatorDynamics(iterations=PRD_ITERATIONS, dt=PRD_DT, gamma=PRD_GAMMA)
NASH = Nash(tolerance=NASH_GAP / 2.0)  # a fraction of the range, which is 2


def view(mean: Game) -> Payoffs:
    """Exact payoffs of two populations."""
    return exact_view(mean, zero_sum=bool(np.array_equal(mean[0], -mean[1])))


def answer(solver: MetaSolver, mean: Game) -> Any:
    """The whole `solve`: checks, solution, and its gap."""
    solution = solver.solve(view(mean), rng=np.random.default_rng(0))
    return solution.joint if solution.marginals is None else solution.marginals


SOLVERS: dict[str, Solve] = {
    "alpha-Rank, epsilon 0.01": partial(answer, AlphaRank(alpha="infinite", epsilon=0.01, answer="joint")),
    "alpha-Rank, alpha 1": partial(answer, AlphaRank(alpha=1.0, answer="joint")),
    "alpha-Rank, swept": partial(answer, AlphaRank(alpha="infinite", answer="joint")),
    "PRD, zero-sum": partial(answer, REPLICATOR),
    "PRD, general-sum": partial(answer, REPLICATOR),
    "regret matching": partial(answer, RegretMatching(iterations=REGRET_MATCHING)),
    "regret matching+": partial(answer, RegretMatchingPlus(iterations=REGRET_MATCHING_PLUS)),
    "Gini CCE": partial(answer, CoarseCorrelated(select="max_gini")),
    "Nash": partial(answer, NASH),
}


def resolved(seed: int, lines: Lines, *, added: int = 20) -> None:
    """A 980 by 980 game gets `added` strategies for both players, one after the other: seconds with the last answer and without."""
    mean, rng = game("Nash, re-solved", seed), np.random.default_rng(0)
    size = mean.shape[1] - added
    warm = NASH.solve(view(mean[:, :size, :size]), rng=rng).warm
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    worst = 0.0
    for n in range(size + 1, size + added + 1):
        grown = view(mean[:, :n, :n])
        for name, last in (("cold", None), ("warm", warm)):
            start = time.process_time()
            solution = NASH.solve(grown, warm=last, rng=rng)
            seconds[name].append(time.process_time() - start)
        assert solution.marginals is not None
        warm, worst = solution.warm, max(worst, nash_conv(grown.mean, *solution.marginals))
    figures = {f"Nash, re-solved: {name} seconds": float(np.median(values)) for name, values in seconds.items()}
    lines.figures({**figures, "Nash, re-solved: gap": worst})


def main(argv: list[str]) -> int:
    if argv[:2] != ["--case", "Nash, re-solved"]:
        return work(SOLVERS, PACKAGES, argv)
    answer(NASH, game("Nash", 1, size=4))
    resolved(int(argv[-1]), Lines(PACKAGES))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
