"""The compiled parts of publishing. Slots are environment × agents + index of the agent, of one player."""

from __future__ import annotations

import numpy as np
from numba import njit

from ludus import seeding

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True)
def episode_seed(seed, episode):  # type: ignore[no-untyped-def]
    """The seed of one episode of an environment, a function of both numbers alone."""
    return seeding.mix(seed ^ seeding.mix(_GOLDEN * (episode + np.uint64(1))))


@njit(cache=True, fastmath={"reassoc"})
def all_finite(values):  # type: ignore[no-untyped-def]
    """Whether the sum of float[n] is finite: it is not if an entry is not. Entries may be too large together: then look at each."""
    total = values.dtype.type(0)
    for i in range(len(values)):
        total += values[i]
    return np.isfinite(total)


@njit(cache=True)
def first_not_finite(reward):  # type: ignore[no-untyped-def]
    """The first slot with such a reward, or -1."""
    for s in range(len(reward)):
        if not np.isfinite(reward[s]):
            return s
    return -1


@njit(cache=True)
def first_without(mask, due):  # type: ignore[no-untyped-def]
    """The first due slot without a legal action, or -1."""
    for s in range(len(due)):
        if due[s] and not mask[s].any():
            return s
    return -1


@njit(cache=True)  # fmt: skip
def settle(  # type: ignore[no-untyped-def]
    agents, tick, now, player, due, reward, gone, over, pending, is_open, seen, decided, returns, stamp, length,
    slot, paid, first, end_slot, end_reward, end_terminated,
):  # fmt: skip
    """Pays, closes and opens the decisions of one player. Returns (due rows, closed rows), written to the last six arrays."""
    rows = 0
    closed = 0
    for s in range(len(due)):
        e = s // agents
        earned = reward[s]
        if earned != 0.0:
            returns[e, player] += earned
            reward[s] = 0.0
        how = gone[s]
        if over[e] != 0 and how == 0:
            how = over[e]
        if is_open[s]:
            pending[s] += earned
            if how != 0:
                end_slot[closed] = s
                end_reward[closed] = pending[s]
                end_terminated[closed] = how == 1
                closed += 1
                is_open[s] = False
        if how != 0:
            seen[s] = False
            gone[s] = 0
        if due[s]:
            slot[rows] = s
            paid[rows] = pending[s] if is_open[s] else 0.0
            first[rows] = not seen[s]
            rows += 1
            pending[s] = 0.0
            is_open[s] = True
            seen[s] = True
            decided[s] = now
            if stamp[e] != tick:
                stamp[e] = tick
                length[e] += 1
    return rows, closed
