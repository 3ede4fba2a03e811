"""Intervals of what policies earn against a meta-strategy, and the ranks that they leave open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ludus.apps.ui.figures.meta_game import CONFIDENCE, Floats, MetaGame, mean_intervals
from ludus.core.ties import TIE
from ludus.metagame.solvers.confidence import half_width

Kind = Literal["sequence", "student"]
KINDS: Final[tuple[Kind, ...]] = ("sequence", "student")
"""sequence: 95% confidence sequences, valid at any time, also while matches are added. student: ordinary 95% intervals by Student's t,
valid at one time that was chosen beforehand."""
MAX_CELLS = 1 << 16
"""Payoffs that are looked at together."""


@dataclass(frozen=True, slots=True, eq=False)
class SampledPayoffs:
    """The sampled payoffs that the mean returns of a population's policies are a weighted sum of, one entry a payoff.

    Attributes:
        policy: int64[c], which policy's mean return it is a part of.
        weight: float64[c], by which its squared error counts.
        count, mean, m2: [c] of its units, in returns of the player who earns it.
        exact: bool[c], whether it was computed.
        least, most: float64[c], the player's utility range; infinite where the run does not say.
    """

    policy: NDArray[np.int64]
    weight: Floats
    count: NDArray[np.int64]
    mean: Floats
    m2: Floats
    exact: NDArray[np.bool_]
    least: Floats
    most: Floats


def mean_return_intervals(game: MetaGame, population: int, mean: Floats, kind: Kind) -> tuple[Floats, Floats]:
    """Return the low and high ends of the intervals of mean returns against the last meta-strategies.

    The errors of different payoffs are independent, so their squares add, each times its squared weight. A confidence sequence has two
    unequal sides, which add by themselves (Zou and Donner 2008, "Construction of confidence limits about effect measures", Statistics in
    Medicine 27): one opponent gives the payoff's own interval. The sum is as valid at any time as the parts while their counts grow
    together, for a fixed meta-strategy: a mean's error is a Brownian motion in the inverse of its count, nearly, and so is a weighted sum
    of them in its variance. Student's intervals have Welch's (1947) degrees of freedom. Both end at the utility range.

    Args:
        game: The meta-game.
        population: Whose policies.
        mean: float64[n], their mean returns.
        kind: Of the intervals.

    Returns:
        (low, high), float64[n] each; NaN where a payoff with weight is unknown, or nothing bounds it.
    """
    players = game.players_of(population)
    parts = (part for player in players for part in sampled_payoffs(game, player))
    ranges = np.mean([game.returns(player) for player in players], axis=0)
    if kind == "student":
        below = above = _student(parts, len(mean))
    else:
        below, above = _sequence(parts, len(mean))
    known = np.isfinite(mean)
    low, high = np.maximum(mean - below, ranges[0]), np.minimum(mean + above, ranges[1])
    return (np.where(known & np.isfinite(low), low, np.nan), np.where(known & np.isfinite(high), high, np.nan))


def _sequence(parts: Iterator[SampledPayoffs], policies: int) -> tuple[Floats, Floats]:
    squares = np.zeros((2, policies))
    for part in parts:
        low, high = mean_intervals(
            part.count, part.mean, part.m2, part.exact, (part.least, part.most), alpha=1.0 - CONFIDENCE
        )
        for k, side in enumerate((part.mean - low, high - part.mean)):
            squares[k] += np.bincount(part.policy, part.weight * side**2, minlength=policies)
    below, above = np.sqrt(squares)
    return below, above


def _student(parts: Iterator[SampledPayoffs], policies: int) -> Floats:
    variance, spread = np.zeros(policies), np.zeros(policies)
    for part in parts:
        freedom = np.maximum(part.count - 1.0, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            # One unit says nothing of the variance: then the largest that the utility range allows.
            own = np.where(part.count > 1, part.m2 / (part.count * freedom), (part.most - part.least) ** 2 / 4)
        own = part.weight * np.where(part.exact, 0.0, own)
        variance += np.bincount(part.policy, own, minlength=policies)
        spread += np.bincount(part.policy, own**2 / freedom, minlength=policies)
    return half_width(variance, spread)


def sampled_payoffs(game: MetaGame, player: int) -> Iterator[SampledPayoffs]:
    """Yield what the mean returns of a player's policies are made of, some policies at a time.

    Weights are those of a mean over the players of the population. Where one policy sits at several seats of a profile, its returns there
    are of the same episodes: their errors may add instead of their squares, which their number bounds (Cauchy and Schwarz). In a game of
    constant sum of two, those of a policy against itself cancel.
    """
    probability = game.opponents(player) if game.players > 1 else np.ones(1)
    support = np.nonzero(probability) if game.players > 1 else ()
    share = probability[support] if support else probability
    for policies in np.array_split(np.arange(game.sizes[player]), 1 + game.sizes[player] * len(share) // MAX_CELLS):
        cell = [np.tile(axis, len(policies)) for axis in support]
        cell.insert(player, np.repeat(policies, len(share)))
        yield _sampled_payoffs(game, player, tuple(cell), np.tile(share, len(policies)))


def _sampled_payoffs(game: MetaGame, player: int, cell: tuple[NDArray[np.int64], ...], share: Floats) -> SampledPayoffs:
    """cell: int64[c] of each player, profiles; share: float64[c], how likely the others play so."""
    seats = game.players_of(game.info.population[player])
    policy, log = cell[player], game.log
    repeats = np.sum([cell[seat] == policy for seat in seats], axis=0).astype(np.float64)
    weight = repeats * (share / len(seats)) ** 2
    earner = np.full(len(policy), player)
    if game.symmetric:
        other, own = 1 - player, cell[0] == cell[1]
        if game.info.zero_sum:
            difference = share[own] - game.opponents(other)[policy[own]]
            weight[own] = difference**2 / 8  # half of it from each of the two seats
        swap = np.isnan(log.mean[(player, *cell)])
        # `MetaGame.mean` takes what one seat order gave for both where the other was never played.
        weight[(swap | np.isnan(log.mean[(other, *cell[::-1])])) & ~own] *= 2
        earner[swap] = other
        cell = (np.where(swap, cell[1], cell[0]), np.where(swap, cell[0], cell[1]))
    used = weight > 0
    cell, policy, weight, earner = tuple(axis[used] for axis in cell), policy[used], weight[used], earner[used]
    ranges = np.array([game.returns(p) for p in range(game.players)])[earner]
    at = (earner, *cell)
    return SampledPayoffs(policy, weight, log.count[cell], log.mean[at], log.m2[at], log.exact[cell], *ranges.T)


def rank_intervals(low: Floats, high: Floats) -> NDArray[np.int64]:
    """Return the ranks that intervals of scores leave open.

    As LMArena ranks models (Chiang et al. 2024, "Chatbot Arena", arXiv:2403.04132, section 5): one is better than another where its
    interval lies wholly above the other's. The best rank is one more than how many are better, the worst is all but those that it is
    better than. Each interval holds with 95% by itself, not all of them together.

    Args:
        low: float64[n], of the intervals, NaN where unknown.
        high: float64[n].

    Returns:
        int64[n, 2], (best, worst) from 1 on; 0 where the interval is unknown.
    """
    known = np.isfinite(low) & np.isfinite(high)
    ranks = np.zeros((len(low), 2), np.int64)
    if known.any():
        lows, highs = np.sort(low[known]), np.sort(high[known])
        tie = TIE * float(highs[-1] - lows[0])
        ranks[known, 0] = 1 + len(lows) - np.searchsorted(lows, high[known] + tie, side="right")
        ranks[known, 1] = len(highs) - np.searchsorted(highs, low[known] - tie, side="left")
    return ranks
