"""R-NaD's reward transformation (Perolat et al. 2022, "Mastering the game of Stratego", supplement A): a player pays η log(π/π_reg) for
each of its actions, and is paid as much for each of its opponent's, so that a zero-sum game stays one."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.data.trajectories import Trajectories

Floats = NDArray[np.float64]


def regularised(trajectories: Trajectories, reward: Floats, cost: Floats, *, opponents: bool) -> Floats:
    """Rewards float64[N] of rows that cost float64[N] = η log(π(a|s) / π_reg(a|s)).

    opponents: pay each row's cost to the other seats' segments of the same episode, where they are in the trajectories: to the last
    decision at or before it. (What the opponent does before a player's first decision is not in its hands, and is left out.)
    """
    out = reward - cost
    if opponents:
        order = np.argsort(trajectories.episode, kind="stable")
        _pay(out, cost, trajectories.start, trajectories.t, trajectories.seat, trajectories.episode, order)
    return out


@njit(cache=True)
def _pay(out, cost, start, t, seat, episode, order):  # type: ignore[no-untyped-def]
    begin = 0
    while begin < len(order):
        end = begin
        while end < len(order) and episode[order[end]] == episode[order[begin]]:
            end += 1
        for receiver in order[begin:end]:
            for payer in order[begin:end]:
                if seat[receiver] == seat[payer]:
                    continue
                last = start[receiver] - 1
                for k in range(start[payer], start[payer + 1]):
                    while last + 1 < start[receiver + 1] and t[last + 1] <= t[k]:
                        last += 1
                    if last >= start[receiver]:
                        out[last] += cost[k]
        begin = end
