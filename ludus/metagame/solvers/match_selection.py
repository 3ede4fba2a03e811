"""Selection of the matches to play next: those that find out most about a meta-game, until it is known well enough."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.errors import ConfigError
from ludus.core.types import MetaSolution, State
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.base import MetaSolver
from ludus.metagame.solvers.confidence import MIN_UNITS, nash_conv_bounds, payoff_bounds, self_play_known
from ludus.metagame.solvers.normal_form import expected_payoffs, opponent_distribution, seat_orders, swaps
from ludus.metagame.solvers.registry import solve

# --------------------------------------------------------------------------------------------------------------------
# Guesses for the payoffs that were never played, so that a table with missing entries can be solved while it is decided what
# to play. A guess is the player's mean payoff plus an effect of each player's policy: what skill alone predicts,
# and cycles do not. It steers; what a meta-strategy is worth is said by `payoff_bounds`, which knows of no guesses,
# and by what is played.

SWEEPS = 30
RIDGE = 2.0
"""Profiles of average payoff that are added to each policy's own: few results are believed less."""


def impute_missing(payoffs: Payoffs) -> Payoffs:
    """Return the same view with a guess in every missing entry, which counts as one unit without spread. Played and exact cells stay as
    they are.

    Least squares with a ridge over the played profiles, each with equal weight, by sweeps over the players; clipped to the utility range.
    """
    known = payoffs.known
    if known.all():
        return payoffs
    mean = np.where(known, payoffs.mean, 0.0)
    for p, (least, most) in enumerate(payoffs.utility_range):
        guess = np.clip(_additive(mean[p], known), least, most)
        mean[p] = np.where(known, mean[p], guess)
    count = np.where(known, payoffs.count, 1)
    return dataclasses.replace(payoffs, mean=mean, count=count, m2=np.where(known, payoffs.m2, 0.0))


def _additive(values: NDArray[np.float64], known: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return float64[n_0, …]: overall mean plus one effect for each axis' index, fitted where `known`."""
    axes = range(values.ndim)
    middle = float(values[known].mean()) if known.any() else 0.0
    rest = np.where(known, values - middle, 0.0)
    sums = [rest.sum(axis=tuple(a for a in axes if a != axis)) for axis in axes]
    pair_counts = {(a, b): _together(known, a, b) for a in axes for b in axes if a != b}
    number = [known.sum(axis=tuple(a for a in axes if a != axis)) + RIDGE for axis in axes]
    effects = [np.zeros(n) for n in values.shape]
    for _ in range(SWEEPS):
        for a in axes:
            explained = sum((pair_counts[a, b] @ effects[b] for b in axes if b != a), np.zeros(values.shape[a]))
            effects[a] = (sums[a] - explained) / number[a]
    total = np.full(values.shape, middle)
    for axis, effect in enumerate(effects):
        total = total + effect.reshape(tuple(-1 if a == axis else 1 for a in axes))
    return np.asarray(total)


def _together(known: NDArray[np.bool_], a: int, b: int) -> NDArray[np.float64]:
    """Return float64[n_a, n_b]: in how many known profiles index i of axis a meets index j of axis b."""
    counts = known.sum(axis=tuple(axis for axis in range(known.ndim) if axis not in (a, b)), dtype=np.float64)
    return np.asarray(counts if a < b else counts.T)


# --------------------------------------------------------------------------------------------------------------------
# Mirrored blocks: the units of sampling. Players who share a population are interchangeable, so a profile is played
# in every order of their seats; episode k of each order starts from the same seeds. These episodes together are
# block k of the profile. They are not independent of each other (that is their use: luck and the advantage of a
# seat cancel), but blocks are. What is counted, and what intervals are made of, is therefore the block: its value
# for a policy is the policy's mean return over the orders. Other profiles have seeds of their own, so that
# luck averages out over a mixture of opponents, and standard errors of sums over cells may take them for independent.

PolicyProfile = tuple[int, ...]


def mirrored(profile: Sequence[int], population: Sequence[int]) -> tuple[PolicyProfile, ...]:
    """Return the profiles of one block, the given one first, each once."""
    return tuple(dict.fromkeys(tuple(profile[q] for q in order) for order in seat_orders(population)))


def over_orders(reduce: np.ufunc, values: NDArray[Any], population: Sequence[int]) -> NDArray[Any]:
    """Return [n_0, …]: for each profile, what `reduce` (np.maximum or np.minimum) makes of the values [n_0, …] of its block's profiles."""
    for orders in swaps(population):
        values = reduce.reduce([values, *(values.transpose(order) for order in orders)])
    return np.asarray(values)


def first_of_orbit(sizes: Sequence[int], population: Sequence[int]) -> NDArray[np.bool_]:
    """Return bool[n_0, …]: True for one profile of each block, the first in the table."""
    index = np.arange(int(np.prod(sizes, dtype=np.int64))).reshape(sizes)
    return np.asarray(over_orders(np.minimum, index, population) == index)


# --------------------------------------------------------------------------------------------------------------------
# Which cells of a payoff table get the next matches. A goal says how many more
# units each cell should have; `next_cells` turns that into whole units of mirrored blocks within a batch. Steering
# may use estimates that promise nothing; what is promised comes from `payoff_bounds`, and figures that are
# published from matches that did not steer.


@dataclass(frozen=True, slots=True, eq=False)
class CellSelection:
    """profiles int64[k, P], one of each block's (its other seat orders are to be played too), in the order of the table; units int64[k],
    how many more blocks each gets."""

    profiles: NDArray[np.int64]
    units: NDArray[np.int64]


class Goal(Protocol):
    """Purpose of the matches."""

    def demand(self, payoffs: Payoffs, solution: MetaSolution, units: int) -> NDArray[np.float64]:
        """Return float64[n_0, …]: more units for each cell, some `units` in all, one of each block's cells counted (more are scaled down);
        zeros where the goal is reached. The view may have missing entries: a goal that steers by estimates fills them (`impute_missing`),
        one that decides does not take guesses for results."""
        ...


def next_cells(payoffs: Payoffs, solution: MetaSolution, *, goal: Goal, units: int, at_least: int = 1) -> CellSelection:
    """Return the cells that get about `units` more units, in portions of `at_least`; nothing where the goal is reached.

    solution: of the same view, with missing entries `impute_missing`. Largest remainders are rounded up, as far as `units` goes. Raises
    ConfigError for amounts below 1.
    """
    if units < 1 or at_least < 1:
        raise ConfigError(f"adaptive evaluation: {units} units in portions of {at_least}; expected at least 1 of each.")
    first = first_of_orbit(payoffs.sizes, payoffs.population) & ~payoffs.exact
    demand = np.where(first, goal.demand(payoffs, solution, units), 0.0).ravel()
    portions = np.minimum(demand.sum(), units) / max(demand.sum(), 1e-300) * demand / at_least
    blocks = np.floor(portions)
    most = max(units // at_least, 1) - int(blocks.sum())
    left = min(round(float(portions.sum() - blocks.sum())), int((portions > blocks).sum()), most)
    blocks[np.argsort(blocks - portions, kind="stable")[:left]] += 1
    return _cells(blocks.reshape(payoffs.sizes), at_least)


def first_cells(
    payoffs: Payoffs, *, profiles: int | None, rng: np.random.Generator, at_least: int = 1
) -> CellSelection:
    """Return random missing entries, `at_least` units each, so that every policy has been played in at least `profiles` profiles (None: in
    all).

    Solvers need a payoff in every cell and `impute_missing` guesses the others, for which each policy must have met some.
    """
    known = over_orders(np.minimum, payoffs.known, payoffs.population)
    itself = self_play_known(payoffs)
    if itself:
        known |= np.eye(len(known), dtype=np.bool_)
    chosen = np.zeros_like(known)
    wanted_each = known.size if profiles is None else profiles + itself
    for p in range(payoffs.num_players):
        score = np.moveaxis(np.where(known, np.inf, rng.random(payoffs.sizes)), p, 0)
        rows = score.reshape(len(score), -1)
        lacking = np.maximum(wanted_each - np.isinf(rows).sum(axis=1), 0)
        place = np.argsort(np.argsort(rows, axis=1), axis=1)
        wanted = (place < lacking[:, None]) & np.isfinite(rows)
        chosen = over_orders(np.maximum, chosen | np.moveaxis(wanted.reshape(score.shape), 0, p), payoffs.population)
        known = known | chosen
    return _cells((chosen & first_of_orbit(payoffs.sizes, payoffs.population)).astype(np.float64), at_least)


def _cells(portions: NDArray[np.float64], at_least: int) -> CellSelection:
    profiles = np.argwhere(portions > 0)
    return CellSelection(profiles, portions[tuple(profiles.T)].astype(np.int64) * at_least)


# --------------------------------------------------------------------------------------------------------------------
# What adaptive evaluation's matches are for: each goal says how many more units a cell should have.
#
#     MetaStrategy     the cells on which the meta-strategy's NashConv depends: what each policy that may be a best
#                      response earns against the policies that have weight. Policies that cannot be one any more get
#                      nothing, as in successive elimination.
#     UntilConfident   the same until estimates say that the tolerance is reached; then what brings the proven bound
#                      down to it.
#     ResponseGraph    the comparisons of payoffs that are not decided yet, those with the fewest units first
#                      (ResponseGraphUCB of Rowland et al. 2019, with its rule "uniform"): for α-Rank and rankings.

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
    min_units: before a cell has so many, its own M2 is not looked at (see `standard_deviations`).
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
        units = payoffs.count[first_of_orbit(payoffs.sizes, payoffs.population)].sum() / max(payoffs.sizes)
        return float(self.optimism * np.sqrt(2.0 * np.log1p(units)))

    def demand(self, payoffs: Payoffs, solution: MetaSolution, units: int) -> Array:
        """See `Goal`."""
        payoffs, first = impute_missing(payoffs), first_of_orbit(payoffs.sizes, payoffs.population)
        for doubled in range(5):
            demand = _within(units, payoffs, self.sides(payoffs, solution, self.errors(payoffs) * 2**doubled))
            if demand[first].sum() > 0.5 * units:
                break
        return demand

    def sides(self, payoffs: Payoffs, solution: MetaSolution, errors: float) -> list[_Side]:
        """Return each player's policies, their widths being so many standard errors."""
        mean, spread = normal_form.symmetrize(payoffs), standard_deviations(payoffs, self.min_units)
        sides = []
        for p in range(payoffs.num_players):
            weight = opponent_distribution(solution, p).ravel()
            support = np.flatnonzero(weight > NEGLIGIBLE * weight.max())
            count, weighted = _rows(_units(payoffs), p)[:, support], _rows(spread[p], p)[:, support] * weight[support]
            width = errors * np.sqrt((weighted**2 / count).sum(axis=1))
            sides.append(
                _Side(expected_payoffs(mean[p], solution, p), width, support, count, _Neyman(weighted, errors))
            )
        return sides


@dataclass(frozen=True, kw_only=True)
class UntilConfident:
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

    def demand(self, payoffs: Payoffs, solution: MetaSolution, units: int) -> Array:
        """See `Goal`."""
        payoffs = impute_missing(payoffs)
        estimated = self.steer.sides(payoffs, solution, self.steer.errors(payoffs))
        if _needed(estimated, self.tolerance / 4 / payoffs.num_players, payoffs).any():
            return _within(units, payoffs, estimated)
        bounds = payoff_bounds(payoffs, confidence=self.confidence, min_units=self.steer.min_units)
        mean, sides = normal_form.symmetrize(payoffs), []
        for p in range(payoffs.num_players):
            count, weight = _rows(_units(payoffs), p), opponent_distribution(solution, p).ravel()
            widths = bounds.high[p] - mean[p]
            side = _Sum(_rows(widths, p) * weight * np.sqrt(count))
            everything = np.arange(count.shape[1])
            sides.append(
                _Side(
                    expected_payoffs(mean[p], solution, p),
                    expected_payoffs(widths, solution, p),
                    everything,
                    count,
                    side,
                )
            )
        return _within(units, payoffs, sides, least=0.9 * self.tolerance / payoffs.num_players)


@dataclass(frozen=True, kw_only=True)
class ResponseGraph:
    """Cells of undecided comparisons get units until all of them have equally many: two payoffs of a player that differ in its own policy
    alone, or, where two players share a population, the payoffs of i and of j when they meet. Undecided: their simultaneous intervals
    overlap; of what was never played the interval is the utility range, which has to be finite."""

    confidence: float = 0.95
    min_units: int = MIN_UNITS

    def demand(self, payoffs: Payoffs, solution: MetaSolution, units: int) -> Array:
        """See `Goal`."""
        bounds = payoff_bounds(payoffs, confidence=self.confidence, min_units=self.min_units)
        if payoffs.num_players == 2 and normal_form.share_population(payoffs):
            undecided = (bounds.low[0] < bounds.high[1]) & (bounds.low[1] < bounds.high[0])
            undecided &= ~np.eye(len(undecided), dtype=np.bool_)
        else:
            undecided = np.zeros(payoffs.sizes, dtype=np.bool_)
            for p in range(payoffs.num_players):
                undecided |= overlapping(bounds.low[p], bounds.high[p], axis=p)
        wanted = over_orders(np.maximum, undecided & ~payoffs.exact, payoffs.population)
        count = over_orders(np.minimum, payoffs.count, payoffs.population)
        level = _level(count[wanted & first_of_orbit(payoffs.sizes, payoffs.population)], units)
        return np.where(wanted, np.maximum(level - count, 0.0), 0.0)


def _level(count: NDArray[np.int64], units: int) -> float:
    """Return what all of these counts that are below it are raised to by so many units."""
    if not len(count):
        return 0.0
    rising = np.sort(count).astype(np.float64)
    levels = (units + np.cumsum(rising)) / np.arange(1, len(rising) + 1)  # if the first 1, 2, … are raised
    return float(levels[levels > rising][-1])


def standard_deviations(payoffs: Payoffs, min_units: int) -> NDArray[np.float64]:
    """Return float64[P, n_0, …]: standard deviation of one unit; 0 where nothing is uncertain.

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
    if normal_form.share_population(payoffs):
        out = normal_form.symmetrize(dataclasses.replace(payoffs, mean=out))
        if self_play_known(payoffs):
            out[:, range(out.shape[1]), range(out.shape[1])] = 0.0
    return out


def overlapping(low: NDArray[np.float64], high: NDArray[np.float64], *, axis: int) -> NDArray[np.bool_]:
    """Return bool, as `low`: whether an interval overlaps any other along the axis. Equal intervals without width count as decided."""
    order = np.argsort(low, axis=axis, kind="stable")
    starts, ends = (np.moveaxis(np.take_along_axis(a, order, axis), axis, 0) for a in (low, high))
    overlaps = np.zeros(starts.shape, dtype=np.bool_)
    overlaps[1:] = starts[1:] < np.maximum.accumulate(ends, axis=0)[:-1]  # it starts before an earlier one ends
    overlaps[:-1] |= starts[1:] < ends[:-1]  # the next one starts before it ends
    out = np.empty_like(overlaps)
    np.put_along_axis(out, np.moveaxis(order, axis, 0), overlaps, axis=0)
    return np.moveaxis(out, 0, axis)


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One player: for each policy against the others' mixture: gain, width float64[n_p]. profiles: int64[m], the others' profiles that are
    looked at; count float64[n_p, m], and by `required` of widths float64[n_p] the counts that bring them about."""

    gain: Array
    width: Array
    profiles: NDArray[np.int64]
    count: Array
    required: Callable[[Array], Array]


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
    """Return the demand of the smallest excess, but `least`, that takes at most so many units.

    More where a little less excess jumps from less than half of them to more than all: a policy whose units are not where they are wanted
    now needs many before its width falls at all.
    """
    first = first_of_orbit(payoffs.sizes, payoffs.population)
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
    """Return float64[n_0, …]: more units, so that no gain plus its width is above the player's best gain by more than `excess`."""
    needed = np.zeros(payoffs.sizes)
    for p, side in enumerate(sides):
        allowed = np.maximum(side.gain.max() + excess - side.gain, 1e-12)
        more = np.where((side.width > allowed)[:, None], np.maximum(side.required(allowed) - side.count, 0.0), 0.0)
        rows = np.zeros((payoffs.sizes[p], needed.size // payoffs.sizes[p]))
        rows[:, side.profiles] = more
        shape = (payoffs.sizes[p], *(n for q, n in enumerate(payoffs.sizes) if q != p))
        np.maximum(needed, np.moveaxis(rows.reshape(shape), 0, p), out=needed)
    return over_orders(np.maximum, needed, payoffs.population)


def _units(payoffs: Payoffs) -> Array:
    """Return float64[n_0, …]: units of each cell, at least 1; of pooled seat orders the fewest."""
    return over_orders(np.minimum, np.maximum(payoffs.count, 1), payoffs.population).astype(np.float64)


def _rows(values: Array, player: int) -> Array:
    """Return float64[n_player, rest]."""
    return np.moveaxis(values, player, 0).reshape(values.shape[player], -1)


# --------------------------------------------------------------------------------------------------------------------
# Evaluation that goes on until it knows enough: solve, look at the bounds, order the matches that matter, and so
# on.

Reason = Literal["confident", "budget", "nothing to learn"]
LOOKS = 16
"""A batch is at most this part of the budget: who looks twice spends half of it on what a first, noisy solution happened to mix."""


@dataclass(frozen=True, slots=True, eq=False)
class SamplingStanding:
    """State of the knowledge after a step. most: what the solution's NashConv can be, with the stated confidence at all steps together;
    NaN where no tolerance is asked for (`nash_conv_bounds` says it at any time). These matches steered: figures that are published come
    from fresh ones."""

    solution: MetaSolution
    most: float


class AdaptiveEvaluation:
    """Selects what to play in order to solve one meta-game, step by step. It ends when NashConv is at most `tolerance` with `confidence`,
    the budget is spent, or no match matters any more; `reason` then says which, and `standing.solution` is the meta-strategy.

    In units of mirrored blocks: batches of `growth` times what was ordered so far, at least `batch` (or one of `LOOKS` parts of the budget,
    if that is less), at most what `budget` leaves, each cell in portions of `portion`. At first every policy is played in `start` random
    profiles (None: in all), also beyond the budget; what is never played is guessed from these (`impute_missing`), so a new policy does
    not cost a
    whole row.
    """

    def __init__(
        self,
        *,
        solver: MetaSolver,
        budget: int,
        goal: Goal | None = None,
        start: int | None = 10,
        tolerance: float = 0.0,
        confidence: float = 0.95,
        batch: int = 1000,
        growth: float = 0.25,
        portion: int = 1,
        seed: int = 0,
    ) -> None:
        """tolerance: NashConv, in returns; with 0 only the budget ends it. goal: of the matches (None: the NashConv of the meta-strategy).
        Raises ConfigError for what makes no sense."""
        if budget < 0 or batch < 1 or portion < 1 or not growth >= 0.0 or not tolerance >= 0.0:
            raise ConfigError(
                f"adaptive evaluation: budget {budget}, batch {batch}, portion {portion}, growth {growth}, tolerance {tolerance}; "
                "expected a batch and a portion of at least 1, and nothing negative."
            )
        steer = MetaStrategy()
        certain = UntilConfident(tolerance=tolerance, confidence=confidence, steer=steer) if tolerance > 0.0 else None
        self.solver, self.budget, self.goal = solver, budget, goal or certain or steer
        self.tolerance, self.confidence, self.seed = tolerance, confidence, seed
        self._start, self._growth, self._portion = start, growth, portion
        self._batch = min(batch, max(1, budget // LOOKS))
        self.step, self.units = 0, 0
        self.standing: SamplingStanding | None = None
        self.reason: Reason | None = None
        self._warm: Any = None

    def next_cells(self, payoffs: Payoffs) -> CellSelection | None:
        """Return what to play next, given the results of everything that was ordered before; None when it has ended."""
        if self.reason is not None:
            return None
        rng = seeding.generator(self.seed, "adaptive start", self.step)
        cells = first_cells(payoffs, profiles=self._start, at_least=self._portion, rng=rng)
        if len(cells.units):
            return self._ordered(cells)
        if max(payoffs.sizes) == 1:  # nobody has a choice
            self.reason = "nothing to learn"
            return None
        self.standing = self._look(payoffs)
        left = self.budget - self.units
        if self.tolerance > 0.0 and self.standing.most <= self.tolerance:
            self.reason = "confident"
        elif left < max(self._portion, self._batch // 20):
            self.reason = "budget"
        else:
            units = min(max(self._batch, int(self._growth * self.units), self._portion), left)
            cells = next_cells(payoffs, self.standing.solution, goal=self.goal, units=units, at_least=self._portion)
            if len(cells.units):
                return self._ordered(cells)
            self.reason = "nothing to learn"
        return None

    def next_profiles(self, payoffs: Payoffs) -> tuple[tuple[int, ...], ...]:
        """Return the same as a list of profiles; empty when it has ended. They are whole blocks, every seat order of each; one that gets k
        portions is listed k times."""
        cells = self.next_cells(payoffs)
        if cells is None:
            return ()
        return tuple(
            order
            for profile, units in zip(cells.profiles.tolist(), cells.units.tolist(), strict=True)
            for _ in range(units // self._portion)
            for order in mirrored(profile, payoffs.population)
        )

    def _ordered(self, cells: CellSelection) -> CellSelection:
        self.step += 1
        self.units += int(cells.units.sum())
        return cells

    def _look(self, payoffs: Payoffs) -> SamplingStanding:
        rng = seeding.generator(self.seed, "adaptive", self.step)
        solution = solve(self.solver, impute_missing(payoffs), warm=self._warm, rng=rng)
        self._warm = solution.warm
        most = np.nan
        if self.tolerance > 0.0:
            bounds = payoff_bounds(payoffs, confidence=self.confidence)
            _, most = nash_conv_bounds(bounds, payoffs, solution)
        return SamplingStanding(solution, most)

    def state_dict(self) -> State:
        """Enough to go on with the same tasks, once the results of what was ordered are in the table."""
        return {"step": self.step, "units": self.units, "reason": self.reason, "warm": self._warm}

    def load_state_dict(self, state: State) -> None:
        self.step, self.units, self.reason = int(state["step"]), int(state["units"]), state["reason"]
        self._warm, self.standing = state["warm"], None
