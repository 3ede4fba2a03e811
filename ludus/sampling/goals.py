"""What adaptive evaluation's matches are for: each goal says how many more units a cell should have.

MetaStrategy     the cells on which the meta-strategy's NashConv depends: what each policy that may be a best response earns against
                 the policies that have weight. Policies that cannot be one any more get nothing, as in successive elimination.
Certainty        the same until estimates say that the tolerance is reached; then what brings the proven bound down to it.
ResponseGraph    the comparisons of payoffs that are not decided yet, those with the fewest units first (ResponseGraphUCB of Rowland et
                 al. 2019, with its rule "uniform"): for α-Rank and rankings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError
from ludus.meta_solvers import games
from ludus.population.payoffs import Payoffs
from ludus.sampling.blocks import firsts, over_orders
from ludus.sampling.filling import filled
from ludus.sampling.payoff_bounds import MIN_UNITS, against, others, payoff_bounds, self_play_known
from ludus.types import Solution

HALVINGS = 20
NEGLIGIBLE = 1e-3
"""Profiles of the others that are less probable than this part of the most probable one get no units for the sake of estimates."""
ENOUGH = 100
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class MetaStrategy:
    """Units go where they bring down the largest of the policies' optimistic gains: estimated gain plus z standard errors, where z is
    `optimism` times sqrt(2 log(1 + t)), t the table's units per policy (as in UCB1, Auer et al. 2002): who was unlucky gets another chance.

    Policy i of player p gains g_i = sum over a of w(a) u(i, a) - value, w(a) being how probable the others' profile a is; its variance is
    the sum of w(a)^2 s(i, a)^2 / n(i, a). To bring it to t^2 takes n(i, a) = w(a) s(i, a) sum(w s) / t^2 (Neyman 1934). One level of
    optimistic gain, found by bisection, uses the batch up. Where that takes less than half of it, z is doubled, up to 16 times.
    min_units: before a cell has so many, its own M2 is not looked at (see `spreads`).
    """

    optimism: float = 1.0
    min_units: int = MIN_UNITS

    def __post_init__(self) -> None:
        if not self.optimism > 0.0:
            raise ConfigError(
                f"adaptive evaluation: optimism is {self.optimism}, expected a factor above 0, such as 1."
            )

    def errors(self, payoffs: Payoffs) -> float:
        """z: how many standard errors gains are taken to be larger than estimated."""
        units = payoffs.count[firsts(payoffs.sizes, payoffs.population)].sum() / max(payoffs.sizes)
        return float(self.optimism * np.sqrt(2.0 * np.log1p(units)))

    def demand(self, payoffs: Payoffs, solution: Solution, units: int) -> Array:
        """See `Goal`."""
        payoffs, first = filled(payoffs), firsts(payoffs.sizes, payoffs.population)
        for doubled in range(5):
            found = _within(units, payoffs, self.sides(payoffs, solution, self.errors(payoffs) * 2**doubled))
            if found[first].sum() > 0.5 * units:
                break
        return found

    def sides(self, payoffs: Payoffs, solution: Solution, errors: float) -> list[_Side]:
        """Each player's policies, their widths being so many standard errors."""
        mean, spread = games.symmetrised(payoffs), spreads(payoffs, self.min_units)
        found = []
        for p in range(payoffs.num_players):
            weight = others(solution, p).ravel()
            seen = np.flatnonzero(weight > NEGLIGIBLE * weight.max())
            count, weighted = _rows(_units(payoffs), p)[:, seen], _rows(spread[p], p)[:, seen] * weight[seen]
            width = errors * np.sqrt((weighted**2 / count).sum(axis=1))
            found.append(_Side(against(mean[p], solution, p), width, seen, count, _Neyman(weighted, errors)))
        return found


@dataclass(frozen=True, kw_only=True)
class Certainty:
    """Until the estimates of `MetaStrategy` put every optimistic gain within a quarter of the tolerance of the best, its demand; after that
    what brings the simultaneous intervals of `payoff_bounds`, weighted by the others' mixture, within `tolerance` / P.

    Intervals narrow as c / sqrt(n). The sum of w c / sqrt(n) is t with the fewest units where n is proportional to (w c)^(2/3).
    """

    tolerance: float
    confidence: float = 0.95
    steer: MetaStrategy = dataclasses.field(default_factory=MetaStrategy)

    def __post_init__(self) -> None:
        if not self.tolerance > 0.0:
            raise ConfigError(f"adaptive evaluation: tolerance is {self.tolerance}, expected a NashConv above 0.")

    def demand(self, payoffs: Payoffs, solution: Solution, units: int) -> Array:
        """See `Goal`."""
        payoffs = filled(payoffs)
        estimated = self.steer.sides(payoffs, solution, self.steer.errors(payoffs))
        if _needed(estimated, self.tolerance / 4 / payoffs.num_players, payoffs).any():
            return _within(units, payoffs, estimated)
        bounds = payoff_bounds(payoffs, confidence=self.confidence, min_units=self.steer.min_units)
        mean, found = games.symmetrised(payoffs), []
        for p in range(payoffs.num_players):
            count, weight = _rows(_units(payoffs), p), others(solution, p).ravel()
            widths = bounds.high[p] - mean[p]
            side = _Sum(_rows(widths, p) * weight * np.sqrt(count))
            everything = np.arange(count.shape[1])
            found.append(_Side(against(mean[p], solution, p), against(widths, solution, p), everything, count, side))
        return _within(units, payoffs, found, least=0.9 * self.tolerance / payoffs.num_players)


@dataclass(frozen=True, kw_only=True)
class ResponseGraph:
    """Cells of undecided comparisons get units until all of them have equally many: two payoffs of a player that differ in its own policy
    alone, or, where two players share a population, the payoffs of i and of j when they meet. Undecided: their simultaneous intervals
    overlap; of what was never played the interval is the utility range, which has to be finite."""

    confidence: float = 0.95
    min_units: int = MIN_UNITS

    def demand(self, payoffs: Payoffs, solution: Solution, units: int) -> Array:
        """See `Goal`."""
        bounds = payoff_bounds(payoffs, confidence=self.confidence, min_units=self.min_units)
        if payoffs.num_players == 2 and games.shared(payoffs):
            undecided = (bounds.low[0] < bounds.high[1]) & (bounds.low[1] < bounds.high[0])
            undecided &= ~np.eye(len(undecided), dtype=np.bool_)
        else:
            undecided = np.zeros(payoffs.sizes, dtype=np.bool_)
            for p in range(payoffs.num_players):
                undecided |= overlapping(bounds.low[p], bounds.high[p], axis=p)
        wanted = over_orders(np.maximum, undecided & ~payoffs.exact, payoffs.population)
        count = over_orders(np.minimum, payoffs.count, payoffs.population)
        level = _level(count[wanted & firsts(payoffs.sizes, payoffs.population)], units)
        return np.where(wanted, np.maximum(level - count, 0.0), 0.0)


def _level(count: NDArray[np.int64], units: int) -> float:
    """What all of these counts that are below it are raised to by so many units."""
    if not len(count):
        return 0.0
    rising = np.sort(count).astype(np.float64)
    levels = (units + np.cumsum(rising)) / np.arange(1, len(rising) + 1)  # if the first 1, 2, … are raised
    return float(levels[levels > rising][-1])


def spreads(payoffs: Payoffs, min_units: int) -> NDArray[np.float64]:
    """float64[P, n_0, …]: standard deviation of one unit; 0 where nothing is uncertain.

    The prior is half of the utility range; once the table has `ENOUGH` units beyond the first of each cell, twice its typical deviation if
    that is smaller (a poker hand can cost 13, and rarely does), but at least a tenth. It stands until a cell has `min_units` units; then M2
    with one more unit at that distance, so a cell whose few units agree is not yet certain. Pooled over seat orders as if they were
    perfectly correlated.
    """
    out = np.empty_like(payoffs.mean)
    count = np.maximum(payoffs.count, 1)
    free = int((count - 1).sum())
    for p, (least, most) in enumerate(payoffs.utility_range):
        typical = 2.0 * float(np.sqrt(payoffs.m2[p].sum() / max(free, 1)))
        prior = (most - least) / 2
        if not np.isfinite(prior):
            prior = max(float(payoffs.mean[p].max() - payoffs.mean[p].min()) / 2, typical)
        if free >= ENOUGH:
            prior = min(prior, max(typical, prior / 10))
        out[p] = np.where(payoffs.count < min_units, prior, np.sqrt((payoffs.m2[p] + prior**2) / count))
    out[:, payoffs.exact] = 0.0
    if games.shared(payoffs):
        out = games.symmetrised(dataclasses.replace(payoffs, mean=out))
        if self_play_known(payoffs):
            out[:, range(out.shape[1]), range(out.shape[1])] = 0.0
    return out


def overlapping(low: NDArray[np.float64], high: NDArray[np.float64], *, axis: int) -> NDArray[np.bool_]:
    """bool, as `low`: whether an interval overlaps any other along the axis. Equal intervals without width count as decided."""
    order = np.argsort(low, axis=axis, kind="stable")
    starts, ends = (np.moveaxis(np.take_along_axis(a, order, axis), axis, 0) for a in (low, high))
    met = np.zeros(starts.shape, dtype=np.bool_)
    met[1:] = starts[1:] < np.maximum.accumulate(ends, axis=0)[:-1]  # it starts before an earlier one ends
    met[:-1] |= starts[1:] < ends[:-1]  # the next one starts before it ends
    out = np.empty_like(met)
    np.put_along_axis(out, np.moveaxis(order, axis, 0), met, axis=0)
    return np.moveaxis(out, 0, axis)


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """Of one player, for each policy against the others' mixture: gain, width float64[n_p]. seen: int64[m], the others' profiles that are
    looked at; count float64[n_p, m], and by `wanted` of widths float64[n_p] the counts that bring them about."""

    gain: Array
    width: Array
    seen: NDArray[np.int64]
    count: Array
    wanted: Callable[[Array], Array]


@dataclass(frozen=True, slots=True, eq=False)
class _Neyman:
    weighted: Array
    errors: float

    def __call__(self, width: Array) -> Array:
        scale = self.weighted.sum(axis=1) * (self.errors / width) ** 2
        return np.asarray(scale[:, None] * self.weighted)


@dataclass(frozen=True, slots=True, eq=False)
class _Sum:
    weighted: Array

    def __call__(self, width: Array) -> Array:
        roots = np.cbrt(self.weighted) ** 2
        return np.asarray((roots.sum(axis=1) / width)[:, None] ** 2 * roots)


def _within(units: int, payoffs: Payoffs, sides: list[_Side], *, least: float = 0.0) -> Array:
    """The demand of the smallest excess, but `least`, that takes at most so many units.

    More where a little less excess jumps from less than half of them to more than all: a policy whose units are not where they are wanted
    now needs many before its width falls at all.
    """
    first = firsts(payoffs.sizes, payoffs.population)
    if least > 0.0:
        all_of_it = _needed(sides, least, payoffs)
        if all_of_it[first].sum() <= units:
            return all_of_it
    low, high = least, max(float(side.width.max()) for side in sides)
    best, beyond = np.zeros(payoffs.sizes), None
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        needed = _needed(sides, middle, payoffs)
        if needed[first].sum() > units:
            low, beyond = middle, needed
        else:
            high, best = middle, needed
    return best if beyond is None or best[first].sum() > 0.5 * units else beyond


def _needed(sides: list[_Side], excess: float, payoffs: Payoffs) -> Array:
    """float64[n_0, …]: more units, so that no gain plus its width is above the player's best gain by more than `excess`."""
    needed = np.zeros(payoffs.sizes)
    for p, side in enumerate(sides):
        allowed = np.maximum(side.gain.max() + excess - side.gain, 1e-12)
        more = np.where((side.width > allowed)[:, None], np.maximum(side.wanted(allowed) - side.count, 0.0), 0.0)
        rows = np.zeros((payoffs.sizes[p], needed.size // payoffs.sizes[p]))
        rows[:, side.seen] = more
        shape = (payoffs.sizes[p], *(n for q, n in enumerate(payoffs.sizes) if q != p))
        np.maximum(needed, np.moveaxis(rows.reshape(shape), 0, p), out=needed)
    return over_orders(np.maximum, needed, payoffs.population)


def _units(payoffs: Payoffs) -> Array:
    """float64[n_0, …]: units of each cell, at least 1; of pooled seat orders the fewest."""
    return over_orders(np.minimum, np.maximum(payoffs.count, 1), payoffs.population).astype(np.float64)


def _rows(values: Array, player: int) -> Array:
    """float64[n_player, rest]."""
    return np.moveaxis(values, player, 0).reshape(values.shape[player], -1)
