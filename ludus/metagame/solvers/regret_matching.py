"""Regret matching (Hart and Mas-Colell 2000) and regret matching+ (Tammelin et al. 2015), for any number of players."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import inner, kernel
from ludus.core.errors import ConfigError
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.base import MetaSolution
from ludus.metagame.solvers.dynamics import SUMS, contract, own_axis_last, padded_uniform


@inner(fastmath=SUMS)
def match(
    strategy: NDArray[np.float64],
    regrets: NDArray[np.float64],
    values: NDArray[np.float64],
    total: NDArray[np.float64],
    weight: float,
    gamma: float,
    plus: bool,
) -> None:
    """One player's step, in place: regrets grow by values - mean; the strategy is proportional to their positive parts.

    All float64[n]. It is uniform where no regret is positive, and mixed with gamma of uniform otherwise. plus: negative regrets are
    forgotten. The new strategy joins `total` with `weight`.
    """
    mean = 0.0
    for i in range(len(strategy)):
        mean += values[i] * strategy[i]
    positive = 0.0
    for i in range(len(strategy)):
        regret = regrets[i] + (values[i] - mean)
        strategy[i] = max(regret, 0.0)
        regrets[i] = strategy[i] if plus else regret
        positive += strategy[i]
    if positive > 0.0:
        share, least = (1.0 - gamma) / positive, gamma / len(strategy)
    else:
        share, least = 0.0, 1.0 / len(strategy)
    for i in range(len(strategy)):
        strategy[i] = strategy[i] * share + least
        total[i] += weight * strategy[i]


@kernel
def regret_matching(
    tables: NDArray[np.float64],
    sizes: NDArray[np.int64],
    strategies: NDArray[np.float64],
    iterations: int,
    gamma: float,
    plus: bool,
    in_turn: bool,
) -> NDArray[np.float64]:
    """The sum float64[P, max n_p] of the start and all iterates; with `plus`, iterate t (the start is 0) has the weight t + 1.

    `strategies` is the start and is changed in place to the last iterate. in_turn: each player already sees the new strategies of the
    players before it.
    """
    players = len(sizes)
    total, regrets, values = strategies.copy(), np.zeros_like(strategies), np.zeros_like(strategies)
    for iteration in range(iterations):
        weight = iteration + 2.0 if plus else 1.0
        for turn in range(players if in_turn else 1):
            movers = range(turn, turn + 1) if in_turn else range(players)
            for p in movers:
                contract(tables[p], strategies, sizes, p, values[p, : sizes[p]])
            for p in movers:
                n = sizes[p]
                match(strategies[p, :n], regrets[p, :n], values[p, :n], total[p, :n], weight, gamma, plus)
    return total


def _require_iterations(iterations: int, solver: str) -> None:
    if iterations < 1:
        raise ConfigError(f"{solver}: iterations is {iterations}, expected at least 1.")


def _solve(payoffs: Payoffs, *, solver: str, iterations: int, gamma: float, plus: bool) -> MetaSolution:
    normal_form.require_complete(payoffs, solver)
    mean, sizes = normal_form.symmetrize(payoffs), np.array(payoffs.sizes, dtype=np.int64)
    iterations = iterations if sizes.max() > 1 else 1  # or nobody has a choice
    in_turn = plus and not normal_form.share_population(
        payoffs
    )  # players of one population move at once, so that they stay alike
    average = regret_matching(
        own_axis_last(mean), sizes, padded_uniform(payoffs.sizes), iterations, gamma, plus, in_turn
    )
    marginals = normal_form.unpadded(average, payoffs)
    return MetaSolution(marginals, float(normal_form.deviation_gains(mean, marginals).sum()))


@dataclass(frozen=True, kw_only=True)
class RegretMatching:
    """Regret matching (Hart and Mas-Colell 2000): play in proportion to positive regrets; the answer is the average strategy.

    In two-player zero-sum games the averages converge to Nash (gap at most of the order 1 / sqrt(iterations)). In other games the joint
    play converges to the coarse correlated equilibria; its marginals, which are returned, need not be near Nash, and the gap shows how
    near they are. Players who share a population get the same strategy.

    Attributes:
        iterations: Number of iterations, from uniform strategies.
        gamma: Probability of playing uniformly instead, 1e-6 in OpenSpiel; 0 is several times faster, since strategies without regret then
            cost nothing.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    iterations: int = 100_000
    gamma: float = 0.0

    def __post_init__(self) -> None:
        _require_iterations(self.iterations, "regret_matching")
        if not 0.0 <= self.gamma < 1.0:
            raise ConfigError(f"regret_matching: gamma is {self.gamma}, expected a probability below 1.")

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError for missing entries or NaN. Each solve starts anew: regrets of an older game would be
        stale."""
        return _solve(payoffs, solver="regret_matching", iterations=self.iterations, gamma=self.gamma, plus=False)


@dataclass(frozen=True, kw_only=True)
class RegretMatchingPlus:
    """Regret matching+ (Tammelin 2014): negative regrets are forgotten, players move in turn, and weights of the average grow linearly.

    The same guarantees as `RegretMatching`; in zero-sum games the gap usually falls nearly as 1 / iterations. Players who share a
    population move simultaneously and get the same strategy.

    Attributes:
        iterations: Number of iterations.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    iterations: int = 10_000

    def __post_init__(self) -> None:
        _require_iterations(self.iterations, "regret_matching_plus")

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError for missing entries or NaN. Each solve starts anew: regrets of an older game would be
        stale."""
        return _solve(payoffs, solver="regret_matching_plus", iterations=self.iterations, gamma=0.0, plus=True)
