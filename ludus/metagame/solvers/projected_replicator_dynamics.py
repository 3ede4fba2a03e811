"""Projected replicator dynamics (Lanctot et al. 2017), for any number of players."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import inner, kernel
from ludus.core.errors import ConfigError
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.base import MetaSolution
from ludus.metagame.solvers.dynamics import SUMS, add, assign, contract, own_axis_last, padded_uniform

# --------------------------------------------------------------------------------------------------------------------
# Projected replicator dynamics, compiled: the reference's steps, with most of the products saved. A step needs
# every strategy's payoff against the others' mixtures, which is a product with the whole payoff tensor. Along the
# trajectory these payoffs are smooth, so between products they are extrapolated from the last five (a polynomial of
# degree 4), for a block of steps. The product at the block's end shows how far off that was: if it was more than
# allowed, the block is taken back and done again in shorter blocks, at last step by step. A strategy that falls to
# its least probability makes a kink, which costs a few such repetitions.

NODES = 5  # products that the extrapolation goes through
LONGEST = 64  # steps in a block
EASY = 1.0 / 64.0  # a block whose error is below this part of the allowed one is followed by one of twice the length


@kernel(fastmath=SUMS)
def project(point: NDArray[np.float64], least: float) -> None:
    """The nearest point (Euclidean) of {p : p_i >= least, sum p = 1}, in place.

    It is max(point - shift, least), with the shift for which the sum is 1: found by leaving out, round by round, entries that end at
    `least` (Michelot 1986). Points that are nearly there take two rounds. Needs least <= 1 / n.
    """
    shift, free = -np.inf, len(point) + 1
    while True:
        count, total = 0, 0.0
        for i in range(len(point)):
            inside = point[i] - shift > least
            count += inside
            total += (point[i] - least) * inside
        if count == free or count == 0:
            break
        free, shift = count, (total - (1.0 - least * len(point))) / count
    for i in range(len(point)):
        point[i] = max(point[i] - shift, least)


@inner(fastmath=SUMS)
def grow(strategy: NDArray[np.float64], values: NDArray[np.float64], dt: float, gamma: float) -> int:
    """x_i += dt x_i (u_i - u'x), in place; returns how many probabilities are below gamma.

    The mean u'x is taken over sum x, which rounding moves away from 1: otherwise what is off grows by a factor of 1 - dt u'x with each
    step, to anything where payoffs are negative.
    """
    mean, total = 0.0, 0.0
    for i in range(len(strategy)):
        mean += strategy[i] * values[i]
        total += strategy[i]
    mean /= total
    below = 0
    for i in range(len(strategy)):
        strategy[i] += dt * strategy[i] * (values[i] - mean)
        below += strategy[i] < gamma
    return below


@inner
def step(
    strategies: NDArray[np.float64], values: NDArray[np.float64], sizes: NDArray[np.int64], dt: float, gamma: float
) -> None:
    """Lanctot et al. 2017, appendix: the replicator step, then projection onto {x_i >= gamma}; all players at once, in place."""
    for player in range(len(sizes)):
        size = sizes[player]
        # the replicator step keeps the sum, so only points that fell below gamma need the projection
        if grow(strategies[player, :size], values[player, :size], dt, gamma) > 0:
            project(strategies[player, :size], gamma)


@inner
def products(
    tables: NDArray[np.float64], strategies: NDArray[np.float64], sizes: NDArray[np.int64], out: NDArray[np.float64]
) -> None:
    """out float64[P, max n_p]: every strategy's payoff against the others' mixtures."""
    for player in range(len(sizes)):
        contract(tables[player], strategies, sizes, player, out[player, : sizes[player]])


class ReplicatorCurve(NamedTuple):
    """The polynomial through the last products.

    history: float64[NODES, P, max n_p], the latest last; nodes: float64[NODES], the steps that they belong to; slopes: float64[NODES],
    1 / prod_{b != a} (nodes[a] - nodes[b]), the constant part of Lagrange's weights, infinite until all nodes are there.
    """

    history: NDArray[np.float64]
    nodes: NDArray[np.float64]
    slopes: NDArray[np.float64]


@inner
def remember(curve: ReplicatorCurve, time: float, values: NDArray[np.float64]) -> None:
    """`values` [P, max n_p] at `time` join the curve, the earliest leave it."""
    for a in range(NODES - 1):
        assign(curve.history[a], curve.history[a + 1])
        curve.nodes[a] = curve.nodes[a + 1]
    assign(curve.history[NODES - 1], values)
    curve.nodes[NODES - 1] = time
    for a in range(NODES):
        product = 1.0
        for b in range(NODES):
            if b != a:
                product *= curve.nodes[a] - curve.nodes[b]
        curve.slopes[a] = 1.0 / product if product != 0.0 else np.inf


@inner(fastmath=SUMS)
def extrapolate(curve: ReplicatorCurve, time: float, out: NDArray[np.float64]) -> None:
    """The curve at `time` (Lagrange's form), into `out` [P, max n_p]."""
    weights = curve.slopes.copy()
    for a in range(NODES):
        for b in range(NODES):
            if b != a:
                weights[a] *= time - curve.nodes[b]
    p, q, r, s, t = weights
    flat, to = curve.history.reshape(NODES, out.size), out.ravel()
    for i in range(len(to)):
        to[i] = p * flat[0, i] + q * flat[1, i] + r * flat[2, i] + s * flat[3, i] + t * flat[4, i]


@inner
def max_abs_difference(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the greatest difference of two entries; NaN where there is one."""
    a, b, most = one.ravel(), other.ravel(), 0.0
    for i in range(len(a)):
        apart = abs(a[i] - b[i])
        if not apart <= most:
            most = apart
        if most != most:
            break
    return most


@inner
def block(
    strategies: NDArray[np.float64],
    total: NDArray[np.float64],
    values: NDArray[np.float64],
    curve: ReplicatorCurve,
    sizes: NDArray[np.int64],
    time: int,
    length: int,
    first: int,
    dt: float,
    gamma: float,
) -> NDArray[np.float64]:
    """Return `length` steps from `time`, the first by `values`, the others by the curve; returns the curve at the end.

    Changes `strategies`, and from iterate `first` on `total`.
    """
    guess = values.copy()
    for ahead in range(1, length + 1):
        step(strategies, guess, sizes, dt, gamma)
        if time + ahead >= first:
            add(total.ravel(), strategies.ravel())
        if length > 1:
            extrapolate(curve, float(time + ahead), guess)
    return guess


@kernel
def replicator(
    tables: NDArray[np.float64],
    sizes: NDArray[np.int64],
    strategies: NDArray[np.float64],
    iterations: int,
    dt: float,
    gamma: float,
    window: int,
    allowed: float,
) -> tuple[NDArray[np.float64], int]:
    """The mean float64[P, max n_p] of the last `window` of the iterations + 1 strategies met, the start among them; and the products made.

    `strategies` is the start and is changed in place to the last iterate. allowed: how far extrapolated payoffs may be off; 0: none is
    extrapolated.
    """
    first = iterations + 1 - window
    total = strategies.copy() if first <= 0 else np.zeros_like(strategies)
    values, exact = np.zeros_like(strategies), np.zeros_like(strategies)
    curve = ReplicatorCurve(np.zeros((NODES, *strategies.shape)), np.zeros(NODES), np.zeros(NODES))
    products(tables, strategies, sizes, values)
    remember(curve, 0.0, values)
    time, known, length, num_products = 0, 1, 1, 1
    while time < iterations:
        length = min(length, iterations - time)
        before, total_before = strategies.copy(), total.copy()
        guess = block(strategies, total, values, curve, sizes, time, length, first, dt, gamma)
        products(tables, strategies, sizes, exact)
        num_products += 1
        error = max_abs_difference(exact, guess) if length > 1 else 0.0
        if not error <= allowed:  # NaN included
            assign(strategies, before)
            assign(total, total_before)
            length = max(length // 4, 1)
            known = 1 if length == 1 else known
            continue
        time += length
        assign(values, exact)
        remember(curve, float(time), values)
        if length > 1:
            length = min(2 * length, LONGEST) if error <= EASY * allowed else length
        else:
            known += 1
            length = 2 if known >= NODES and allowed > 0.0 else 1
    return total / min(window, iterations + 1), num_products


@dataclass(frozen=True, kw_only=True)
class ProjectedReplicatorDynamics:
    """Projected replicator dynamics (Lanctot et al. 2017): the time average of replicator dynamics with probabilities of at least `gamma`.

    Defaults are OpenSpiel's: 100,000 steps of dt = 1e-3, gamma = 1e-6, from uniform strategies. Steps are in units of payoff, as there: a
    game with payoffs a hundred times larger moves a hundred times faster, unless `normalize` is true. gamma = 0 gives replicator dynamics
    (Taylor and Jonker 1978). Players who share a population get the same strategy.

    Attributes:
        iterations: Number of steps.
        dt: Length of a step.
        gamma: Least probability of every policy.
        average_last: Average only this many of the last strategies; None: all.
        precision: Payoffs are extrapolated between products (see `ludus.metagame.solvers.projected_replicator_dynamics`) while that is off
            by at most this fraction of their range; 0 makes a product at every step, as the reference does.
        normalize: Whether payoffs are divided by their range first (the largest of all players), so that their unit does not matter.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    iterations: int = 100_000
    dt: float = 1e-3
    gamma: float = 1e-6
    average_last: int | None = None
    precision: float = 1e-11
    normalize: bool = False

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ConfigError(f"projected_replicator_dynamics: iterations is {self.iterations}, expected at least 1.")
        if not 0.0 < self.dt < np.inf:
            raise ConfigError(f"projected_replicator_dynamics: dt is {self.dt}, expected a positive step.")
        if not 0.0 <= self.gamma < 1.0:
            raise ConfigError(
                f"projected_replicator_dynamics: gamma is {self.gamma}, expected a probability below 1 / policies."
            )
        if self.average_last is not None and self.average_last < 1:
            raise ConfigError(
                f"projected_replicator_dynamics: average_last is {self.average_last}, expected null or at least 1."
            )
        if not 0.0 <= self.precision <= 1e-3:
            raise ConfigError(
                f"projected_replicator_dynamics: precision is {self.precision}, expected 0 to 1e-3, like 1e-11."
            )

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError for missing entries or NaN.

        `gamma` is lowered to 1 / n where a population has too many policies for it. Each solve starts anew.
        """
        normal_form.require_complete(payoffs, "projected_replicator_dynamics")
        mean, sizes = normal_form.symmetrize(payoffs), np.array(payoffs.sizes, dtype=np.int64)
        iterations = self.iterations if sizes.max() > 1 else 1  # or nobody has a choice
        steps = mean / (normal_form.payoff_range(mean) or 1.0) if self.normalize else mean
        average, _ = replicator(
            own_axis_last(steps),
            sizes,
            padded_uniform(payoffs.sizes),
            iterations,
            self.dt,
            min(self.gamma, 1.0 / max(payoffs.sizes)),
            self.average_last or iterations + 1,
            self.precision * normal_form.payoff_range(steps),
        )
        marginals = normal_form.unpadded(average, payoffs)
        return MetaSolution(marginals, float(normal_form.deviation_gains(mean, marginals).sum()))
