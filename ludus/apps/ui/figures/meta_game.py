"""The meta-game of a run: its members, what they earn against each other, and how they are mixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ludus.core.errors import RunError
from ludus.metagame.analysis.clusters import Clusters, cluster_rows
from ludus.metagame.solvers.confidence import MIN_UNITS, mean_bounds
from ludus.storage.base import RunInfo
from ludus.storage.reader import Reader
from ludus.storage.records import PayoffLog, StoredPolicy, policy_key

Floats = NDArray[np.float64]
T = TypeVar("T")
PARTS = ("policies", "matches", "payoffs", "generations")
"""Of a `Position`, what a meta-game is made of."""
CONFIDENCE = 0.95
"""Of each interval by itself, at all times at once."""
NEGLIGIBLE = 1e-4
"""Share of the utility range: smaller differences are noise of an equilibrium, and shown as none."""
_CELLS = 1 << 17  # of which intervals are computed at a time
_ODD = np.uint64(0x9E3779B97F4A7C15)  # a multiplier that mixes bits
ALIKE = 0.01
"""Distance, as a share of the payoffs' range, within which policies are alike, however clear the clusters are."""


@dataclass(frozen=True, eq=False)
class MetaGame:
    """members: of each population, in order. log: what is known of each profile. marginals: [P] float64[n_p] of the last generation, 0 for
    policies that came after it. generation: its number; None before the first one. rated: of each population, float64[n] the ratings that
    the run stored last, NaN for policies that have none. joint: float64[n_0, …] of a joint meta-strategy, else None.
    """

    info: RunInfo
    members: tuple[tuple[StoredPolicy, ...], ...]
    log: PayoffLog
    marginals: tuple[Floats, ...]
    generation: int | None
    rated: tuple[Floats, ...]
    joint: Floats | None = None
    _cache: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` makes of this meta-game, made once."""
        if name not in self._cache:
            self._cache[name] = make()
        value: T = self._cache[name]
        return value

    def forget(self, *names: str) -> None:
        """Free what was made once: what is large, and used by one panel."""
        for name in names:
            self._cache.pop(name, None)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return [P] policies per player."""
        return self.log.sizes

    @property
    def players(self) -> int:
        return self.info.players

    @property
    def symmetric(self) -> bool:
        """Return whether two players draw from one population."""
        return self.players == 2 and len(set(self.info.population)) == 1

    def players_of(self, population: int) -> list[int]:
        """Return who draw from it."""
        return [player for player, own in enumerate(self.info.population) if own == population]

    def names(self, player: int) -> list[str]:
        """Return ids of the policies that can play for a player."""
        return [stored.record.ref.policy for stored in self.members[self.info.population[player]]]

    @cached_property
    def mean(self) -> Floats:
        """Return float64[P, n_0, …], NaN where an entry is missing. Where two players draw from one population, a seat order that was never
        played has what the other one gave, and a policy that never met itself half of a constant sum."""
        mean = self.log.mean
        if not self.symmetric:
            return mean
        swapped = mean[::-1].transpose(0, 2, 1)
        filled = np.where(np.isnan(mean), swapped, mean)
        own = np.arange(self.sizes[0])
        if self.info.zero_sum and np.isfinite(filled).any():  # two copies share a constant sum equally
            total = float(np.nanmean(filled.sum(axis=0)))
            filled[:, own, own] = np.where(np.isnan(filled[:, own, own]), total / 2, filled[:, own, own])
        return filled

    def returns(self, player: int) -> tuple[float, float]:
        """Return the least and the largest one of a player; infinite where the run does not say."""
        return self.info.utility_range[player] if self.info.utility_range else (-np.inf, np.inf)

    def negligible(self, player: int) -> float:
        """Return the difference of a player's returns that is not worth showing: `NEGLIGIBLE` of the utility range; of what was earned,
        where that is infinite."""
        low, high = self.returns(player)
        if not (np.isfinite(low) and np.isfinite(high)):
            known = self.mean[player][np.isfinite(self.mean[player])]
            low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
        return NEGLIGIBLE * (high - low)

    def half_width(self, player: int) -> Floats:
        """Return float32[n_0, …]: of the interval of each mean; 0 where it is exact, NaN where nobody played, or the utility range is
        infinite and a single unit was played. See `half_widths`. Where means of both seat orders are taken, each is so wide that both hold
        together."""
        return self.once(f"half width {player}", lambda: self._half_width(player))

    def _half_width(self, player: int) -> Floats:
        log, returns = self.log, self.returns(player)
        alpha = (1.0 - CONFIDENCE) / (2 if self.symmetric else 1)
        count, mean, m2, exact = log.count.ravel(), log.mean[player].ravel(), log.m2[player].ravel(), log.exact.ravel()
        half = np.empty(count.size, "f4")
        for start in range(0, len(half), _CELLS):
            some = slice(start, start + _CELLS)
            half[some] = half_widths(count[some], mean[some], m2[some], exact[some], returns, alpha=alpha)
        return half.reshape(log.sizes)

    def earned(self, player: int) -> Floats:
        """Return float64[n_p]: by each policy of a player against the last meta-strategies of the others. NaN where a missing entry has
        weight."""
        return self.expected(self.mean[player], player)

    def expected(self, values: Floats, *players: int) -> Floats:
        """Return float64[n_p, …] for the policies of these players, in rising order: expectation of values [n_0, …] over what the last
        meta-strategies have the others play, together where they are joint. NaN where a missing entry has weight."""
        if self.joint is None:
            return against(values, self.marginals, keep=players)
        return _beside(values, self.joint.sum(axis=players), players)

    def opponents(self, player: int) -> Floats:
        """Return float64[n_q, …] over the other players' policies: with what probability the last meta-strategies play them."""
        if self.joint is not None:
            return np.asarray(self.joint.sum(axis=player))
        probability = np.ones(())
        for other in (other for other in range(self.players) if other != player):
            probability = np.multiply.outer(probability, self.marginals[other])
        return probability

    def summed(self, values: Floats, *players: int) -> Floats:
        """As `expected`: the sum of values over all that the others may play."""
        if self.joint is None:
            return against(values, [(row > 0).astype(np.float64) for row in self.marginals], keep=players)
        return _beside(values, (self.joint.sum(axis=players) > 0).astype(np.float64), players)


def meta_game(reader: Reader) -> MetaGame:
    """As it is now. Raises RunError if the database is damaged."""
    return reader.remembered("meta-game", lambda: _meta_game(reader), of=PARTS)


def _meta_game(reader: Reader) -> MetaGame:
    with reader.moment():
        info, policies, last = reader.info(), reader.policies(), reader.last_generation()
        log, ratings = reader.payoff_log(), reader.ratings(last=True)
    if last is not None and len(last.marginals) != info.players:
        raise RunError(f"the database of {str(reader.run_dir)!r} holds a generation of another number of players.")
    members = tuple(
        tuple(stored for stored in policies if stored.record.ref.population == population)
        for population in range(max(info.population, default=-1) + 1)
    )
    marginals, joint = tuple(np.zeros(size) for size in log.sizes), None
    if last is not None and last.joint is not None:
        joint = np.zeros(log.sizes)
        joint[tuple(slice(size) for size in last.sizes)] = last.joint[tuple(slice(size) for size in log.sizes)]
    if last is not None:
        for row, marginal in zip(marginals, last.marginals, strict=True):
            row[: len(marginal)] = marginal[: len(row)]
    rating_of = {(entry.population, entry.policy): entry.rating for entry in ratings}
    rated = tuple(
        np.array([rating_of.get(policy_key(stored.record.ref), np.nan) for stored in population], np.float64)
        for population in members
    )
    return MetaGame(info, members, log, marginals, None if last is None else last.number, rated, joint)


def against(mean: Floats, marginals: Sequence[Floats], *, keep: tuple[int, ...]) -> Floats:
    """Expectation of `mean` [n_0, …] over the marginals of all axes but `keep` (in rising order). NaN where a missing entry has weight."""
    result = mean
    for axis in reversed(range(mean.ndim)):
        if axis in keep:
            continue
        support = np.flatnonzero(marginals[axis])
        if len(support) == 0:
            return np.full([n for k, n in enumerate(mean.shape) if k in keep], np.nan)
        result = np.tensordot(result.take(support, axis=axis), marginals[axis][support], axes=(axis, 0))
    return result


def _beside(values: Floats, weight: Floats, players: tuple[int, ...]) -> Floats:
    """Return weighted sum of values [n_0, …] over the profiles of all but these players, weight [n_q, …]. NaN where a missing entry has
    weight."""
    played = np.flatnonzero(weight)
    axes = tuple(range(len(players)))
    rows = np.moveaxis(values, players, axes).reshape(*(values.shape[player] for player in players), -1)
    total: Floats = rows[..., played] @ weight.ravel()[played]
    return total


def half_widths(
    count: NDArray[np.int64],
    mean: Floats,
    m2: Floats,
    exact: NDArray[np.bool_],
    utility_range: tuple[float, float],
    *,
    alpha: float = 1.0 - CONFIDENCE,
) -> Floats:
    """Return half of the widest side of each of `mean_intervals`."""
    low, high = mean_intervals(count, mean, m2, exact, utility_range, alpha=alpha)
    return np.maximum(mean - low, high - mean)


def mean_intervals(
    count: NDArray[np.int64],
    mean: Floats,
    m2: Floats,
    exact: NDArray[np.bool_],
    utility_range: tuple[Floats | float, Floats | float],
    *,
    alpha: float,
) -> tuple[Floats, Floats]:
    """Return the low and high ends of the intervals of means.

    Where returns are bounded these are confidence sequences (`ludus.metagame.solvers.confidence`), which hold at all times at once, so
    that they may be watched while more is played. Where they are not, they are normal, and hold at one time only.

    Args:
        count: int[…] of units.
        mean, m2: float64[…].
        exact: bool[…], computed: its interval is the mean.
        utility_range: Least and largest return, each for all or of the shape of `mean`.
        alpha: How often each interval may fail.

    Returns:
        (low, high), float64[…]; NaN where there is no unit, or one without a bound.
    """
    ends = np.where(exact, mean, np.nan), np.where(exact, mean, np.nan)
    sampled = ~exact & (count > 0)
    n, values, spread = count[sampled], mean[sampled], m2[sampled]
    ranges = [end[sampled] if isinstance(end, np.ndarray) else end for end in utility_range]
    if all(np.isfinite(end).all() for end in ranges):
        # wins and losses of equally many games: few are
        at, back = _different(n, values, spread, *(end for end in ranges if isinstance(end, np.ndarray)))
        least, most = (end[at] if isinstance(end, np.ndarray) else end for end in ranges)
        bounds = mean_bounds(n[at], values[at], spread[at], least=least, most=most, alpha=alpha, min_units=MIN_UNITS)
        for end, bound in zip(ends, bounds, strict=True):
            end[sampled] = bound[back]
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            half = np.where(n > 1, float(ndtri(1.0 - alpha / 2)) * np.sqrt(spread / (n * (n - 1.0))), np.nan)
        ends[0][sampled], ends[1][sampled] = values - half, values + half
    return ends


def _different(*columns: NDArray[np.generic]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places of the rows that differ, and for each row which of these it is like. columns: of 8 bytes an entry."""
    code = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        code = (code ^ (code >> np.uint64(29)) ^ np.ascontiguousarray(column).view(np.uint64)) * _ODD
    _, first, back = np.unique(code, return_index=True, return_inverse=True)
    if all(np.array_equal(column[first][back], column) for column in columns):
        return first, back
    every = np.arange(len(code))  # two that differ have one code
    return every, every


def payoff_rows(game: MetaGame, population: int) -> Floats:
    """Return float64[n, m]: what each policy of a population earns, for each player that draws from it, against each policy of each other
    player, where those who are left mix by the last meta-strategies. NaN where that is unknown."""
    blocks = []
    for own in game.players_of(population):
        for other in (player for player in range(game.players) if player != own):
            block = game.expected(game.mean[own], *sorted((own, other)))
            blocks.append(block if own < other else block.T)
        if game.players == 1:
            blocks.append(game.mean[own][:, None])
        if game.symmetric:
            break  # the other seat says the same, up to luck
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)


def clusters_of(game: MetaGame, population: int) -> Clusters:
    """Of a population, by how far apart what they earn is."""
    rows = payoff_rows(game, population)
    known = rows[np.isfinite(rows)]
    noise = max(game.negligible(player) for player in game.players_of(population))
    return cluster_rows(rows, alike=max(noise, ALIKE * float(np.ptp(known))) if len(known) else 0.0)
