"""α-Rank's stationary distribution over the profiles or the policies of a large game, by iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

SETTLED = 1e-3
"""Share of the whole mass that a step may still move."""
MAX_STEPS = 400


@dataclass(frozen=True, slots=True, eq=False)
class _Replies:
    """What one player may change to. order: int64[n, m], the profiles' places, a column for those that differ in the player's policy alone,
    sorted by its payoff. first, last: int64[profiles], of each profile the place in [n + 1, m] of its column and of the row at which those
    of an equal payoff begin, and of the row after their end."""

    order: Places
    first: Places
    last: Places


def iterated_masses(mean: Floats, tie: float, component: Places) -> Floats | None:
    """Return float64[profiles] in C order, the stationary distribution of α-Rank's chain for infinite alpha (Rowland et al. 2019, section
    2: of a player's deviations, better ones take over always, equal ones half the time, worse ones never), within one closed strongly
    connected component. None if it has not settled to `SETTLED` after `MAX_STEPS`.

    A step takes time linear in the profiles: in the order of a player's payoffs all that flows to a profile from worse ones is a running
    sum.

    Args:
        mean: float64[P, n_0, …], all known.
        tie: Difference within which payoffs are equal.
        component: int64[k], places of its profiles in C order.
    """
    inside = np.zeros(mean[0].size, np.bool_)
    inside[component] = True
    if len(component) == 1:
        return inside.astype(np.float64)
    replies = [_replies(table, player, tie) for player, table in enumerate(mean)]
    rate = np.zeros(inside.size)
    for reply in replies:
        count, width = reply.order.shape
        rate += count - (reply.first // width + reply.last // width + 1) / 2  # better ones, and half of the equal ones
    return _settled(lambda flow: np.asarray(sum(_inflow(flow, reply) for reply in replies)), rate, inside)


def iterated_policy_masses(gain: Floats, tie: float, component: Places) -> Floats | None:
    """Return the same over the policies of one population, float64[n].

    Args:
        gain: float64[n, n], what the column's policy earns more than the row's when they meet; the diagonal does not matter.
        tie: Difference within which payoffs are equal.
        component: int64[k], policies of the component.
    """
    move = np.where(gain > tie, np.float32(1.0), np.where(gain >= -tie, np.float32(0.5), np.float32(0.0)))
    np.fill_diagonal(move, 0.0)
    inside = np.zeros(len(gain), np.bool_)
    inside[component] = True
    if len(component) == 1:
        return inside.astype(np.float64)
    rate = move.sum(axis=1, dtype=np.float64)
    return _settled(lambda flow: np.asarray(flow.astype(np.float32) @ move, np.float64), rate, inside)


def _settled(inflow: Callable[[Floats], Floats], rate: Floats, inside: NDArray[np.bool_]) -> Floats | None:
    """Return the stationary distribution of the moves within closed states. inflow: what arrives at each state, of the mass per
    move that leaves each. rate: moves out of each state."""
    flow = inside / np.maximum(rate, 0.5)
    for _ in range(MAX_STEPS):
        flow /= (flow * rate).sum()  # visits of the chain of moves, which stays nowhere
        arriving = inflow(flow)
        moved = np.abs(arriving - flow * rate).sum()
        # Half of it waits: moves may alternate.
        flow = np.where(inside, (flow + arriving / np.maximum(rate, 0.5)) / 2, 0.0)
        if moved < SETTLED:
            return np.asarray(flow / flow.sum())
    return None


def _replies(table: Floats, player: int, tie: float) -> _Replies:
    def columns(values: NDArray[Any]) -> NDArray[Any]:
        return np.moveaxis(values, player, 0).reshape(table.shape[player], -1)

    payoff, profiles = columns(table), columns(np.arange(table.size).reshape(table.shape))
    order = np.argsort(payoff, axis=0, kind="stable")
    count, width = order.shape
    rows = np.arange(count)[:, None]
    new = np.diff(np.take_along_axis(payoff, order, 0), axis=0) > tie
    edge = np.ones((1, width), np.bool_)
    first = np.maximum.accumulate(np.where(np.concatenate([edge, new]), rows, 0), axis=0)
    last = np.minimum.accumulate(np.where(np.concatenate([new, edge]), rows + 1, count)[::-1], axis=0)[::-1]
    order = np.take_along_axis(profiles, order, 0)
    return _Replies(order, *(_by_profile(row * width + np.arange(width), order) for row in (first, last)))


def _by_profile(values: Places, order: Places) -> Places:
    """Return values of sorted rows as the profiles lie."""
    out = np.empty(order.size, np.int64)
    out[order] = values
    return out


def _inflow(flow: Floats, reply: _Replies) -> Floats:
    """Return what arrives, float64[profiles]: all of what is worse, and half of what is equal."""
    total = np.zeros((len(reply.order) + 1, reply.order.shape[1]))
    np.cumsum(flow.take(reply.order), axis=0, out=total[1:])
    return (total.take(reply.first) + total.take(reply.last) - flow) / 2
