"""α-Rank's stationary distribution over the profiles or the policies of a large game, by iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

SETTLED = 1e-3
"""Share of the whole mass that a step may still move."""
MAX_STEPS = 400


@dataclass(frozen=True, slots=True, eq=False)
class _Replies:
    """What one player may change to, profiles in rows by its policy: order, place int64[n, m], which rows sorted by payoff, and its
    inverse; first, last int64[n, m]: of each sorted row, where those of an equal payoff begin, and end."""

    player: int
    order: Places
    place: Places
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
    shape = mean.shape[1:]
    replies = [_replies(table, player, tie) for player, table in enumerate(mean)]
    rate = np.zeros(shape)
    for reply in replies:
        better, equal = len(reply.order) - reply.last, reply.last - reply.first - 1
        rate += _back(better + 0.5 * equal, reply, shape)
    inside = np.zeros(mean[0].size, np.bool_)
    inside[component] = True
    inside = inside.reshape(shape)
    if len(component) == 1:
        return inside.ravel().astype(np.float64)
    return _settled(lambda flow: np.asarray(sum(_inflow(flow, reply, shape) for reply in replies)), rate, inside)


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
    """Return the stationary distribution of the moves within closed states, flattened. inflow: what arrives at each state, of the mass per
    move that leaves each. rate: moves out of each state."""
    flow = inside / np.maximum(rate, 0.5)
    for _ in range(MAX_STEPS):
        flow /= (flow * rate).sum()  # visits of the chain of moves, which stays nowhere
        arriving = inflow(flow)
        moved = np.abs(arriving - flow * rate).sum()
        # Half of it waits: moves may alternate.
        flow = np.where(inside, (flow + arriving / np.maximum(rate, 0.5)) / 2, 0.0)
        if moved < SETTLED:
            return np.asarray((flow / flow.sum()).ravel())
    return None


def _replies(table: Floats, player: int, tie: float) -> _Replies:
    payoff = np.moveaxis(table, player, 0).reshape(table.shape[player], -1)
    order = np.argsort(payoff, axis=0, kind="stable")
    place = np.empty_like(order)
    rows = np.arange(len(order))[:, None]
    np.put_along_axis(place, order, np.broadcast_to(rows, order.shape), 0)
    new = np.diff(np.take_along_axis(payoff, order, 0), axis=0) > tie
    starts = np.concatenate([np.ones_like(new[:1], shape=(1, order.shape[1])), new])
    first = np.maximum.accumulate(np.where(starts, rows, 0), axis=0)
    ends = np.concatenate([new, np.ones_like(new[:1], shape=(1, order.shape[1]))])
    last = np.minimum.accumulate(np.where(ends, rows + 1, len(order))[::-1], axis=0)[::-1]
    return _Replies(player, order, place, first, last)


def _inflow(flow: Floats, reply: _Replies, shape: tuple[int, ...]) -> Floats:
    sorted_flow = np.take_along_axis(np.moveaxis(flow, reply.player, 0).reshape(reply.order.shape), reply.order, 0)
    total = np.concatenate([np.zeros((1, sorted_flow.shape[1])), np.cumsum(sorted_flow, axis=0)])
    below, upto = np.take_along_axis(total, reply.first, 0), np.take_along_axis(total, reply.last, 0)
    return _back(below + 0.5 * (upto - below - sorted_flow), reply, shape)


def _back(values: Floats, reply: _Replies, shape: tuple[int, ...]) -> Floats:
    """Return values of sorted rows as the profiles lie."""
    rest = tuple(size for axis, size in enumerate(shape) if axis != reply.player)
    return np.moveaxis(np.take_along_axis(values, reply.place, 0).reshape(len(values), *rest), 0, reply.player)
