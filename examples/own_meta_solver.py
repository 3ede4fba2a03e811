"""A meta-solver of your own: equal weight on each population's newest policies.

python examples/own_meta_solver.py
PYTHONPATH=examples ludus train kuhn 'meta_solver={kind: own_meta_solver:Newest, count: 5}'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import ludus
from ludus.metagame.solvers.normal_form import nash_conv, require_populated
from ludus.testing.meta_solver import check_meta_solver


@dataclass(frozen=True, kw_only=True)
class Newest:
    """1 / count for each of the `count` newest policies. Its fields are its options in a scenario."""

    needs: ClassVar[frozenset[str]] = frozenset()  # any of "two_player", "zero_sum", "symmetric"

    count: int = 3

    def solve(self, payoffs: ludus.Payoffs, *, warm: Any = None, rng: np.random.Generator) -> ludus.MetaSolution:
        """No side effects: the answer depends on the arguments alone."""
        require_populated(payoffs, "newest")
        marginals = []
        for size in payoffs.sizes:
            kept = np.arange(size) >= size - self.count
            marginals.append(kept / kept.sum())
        return ludus.MetaSolution(tuple(marginals), nash_conv(payoffs, marginals))


def main(generations: int = 20) -> None:
    check_meta_solver(Newest(count=2))
    scenario = ludus.PSRO(
        env="openspiel/kuhn_poker",
        algorithm="exact",
        meta_solver={"kind": "own_meta_solver:Newest", "count": 5},
        generations=generations,
    )
    result = ludus.run(scenario)
    print("NashConv:", [round(value, 3) for value in result.nash_conv])


if __name__ == "__main__":
    main()
