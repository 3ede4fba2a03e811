"""The compiled parts of writing trajectories.

slots int64[n, 3] is the state of one player's slots (-1 means none): OPEN, the row of its last decision, whose reward is still to come;
SEGMENT, the one that its rows go to; MINE, 1 where the learner plays. clock int64[E, 2] is the environments': STEP, the last step in
which one had a decision due, and TIME, how many such steps its episode has had. place int32[rows, 2] says each row's SEGMENT_OF and
T. head int64[segments, 6] says each segment's TAIL, SEAT, AGENT, EPISODE, VERSION and ENDING, the row of its tail observation.

Writers hand them over as a table of addresses, made by `table`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.addresses import addresses, flat_at

OPEN, SEGMENT, MINE = 0, 1, 2
STEP, TIME = 0, 1
SEGMENT_OF, T = 0, 1
TAIL, SEAT, AGENT, EPISODE, VERSION, ENDING = 0, 1, 2, 3, 4, 5
HEAD = 6
_TERMINATED, _TRUNCATED, _CUT = 0, 1, 2


class Written(NamedTuple):
    """What a table of addresses is made of. picked, opened: int64[slots], scratch that `settle` and `append` answer in."""

    slots: NDArray[np.int64]
    reward: NDArray[np.float32]
    place: NDArray[np.int32]
    head: NDArray[np.int64]
    picked: NDArray[np.int64]
    opened: NDArray[np.int64]
    clock: NDArray[np.int64]
    episode: NDArray[np.int64]

    def table(self) -> NDArray[np.int64]:
        """For the kernels, as long as these arrays stay."""
        return addresses(*self)


_SLOTS, _REWARD, _PLACE, _HEAD, _PICKED, _OPENED, _CLOCK, _INDEX = range(8)


@njit(cache=True)
def settle(end_slot, end_reward, terminated, slot, reward, first, tail, table):  # type: ignore[no-untyped-def]
    """Ended rows, then due rows, pay their slots' open decisions. `picked` gets the ended rows whose segments close; their observations
    are to be written to the tails from row `tail` on. Returns how many closed, and how many due rows paid, or -1 - slot where a first
    decision finds one still open."""
    slots, rewards = flat_at(table, _SLOTS, np.int64).reshape(-1, 3), flat_at(table, _REWARD, np.float32)
    head, picked = flat_at(table, _HEAD, np.int64).reshape(-1, HEAD), flat_at(table, _PICKED, np.int64)
    closed = 0
    for i in range(len(end_slot)):
        s = end_slot[i]
        row, segment = slots[s, OPEN], slots[s, SEGMENT]
        if row >= 0:
            rewards[row] = end_reward[i]
            head[segment, TAIL] = _TERMINATED if terminated[i] else _TRUNCATED
            head[segment, ENDING] = tail + closed
            picked[closed] = i
            closed += 1
            slots[s, OPEN] = -1
            slots[s, SEGMENT] = -1
    paid = 0
    for i in range(len(slot)):
        row = slots[slot[i], OPEN]
        if row >= 0:
            if first[i]:
                return closed, -1 - slot[i]
            rewards[row] = reward[i]
            slots[slot[i], OPEN] = -1
            paid += 1
    return closed, paid


@njit(cache=True)
def tick(slot, agents, clock, step):  # type: ignore[no-untyped-def]
    """The clocks of the environments of `slot` go on, unless they have done so in this step. Returns how many did."""
    ticks = 0
    for i in range(len(slot)):
        e = slot[i] // agents
        if clock[e, STEP] != step:
            clock[e, STEP] = step
            clock[e, TIME] += 1
            ticks += 1
    return ticks


@njit(cache=True)
def append(slot, agents, step, row, segment, player, agent, version, table):  # type: ignore[no-untyped-def]
    """Rows for the learner's decisions, from `row` on; new segments, from `segment` on, where a slot has none; and `tick`. agent: number
    of the player's first one. picked: the due rows taken; opened: the slots that opened a segment. Returns (rows, segments, ticks)."""
    slots, place = flat_at(table, _SLOTS, np.int64).reshape(-1, 3), flat_at(table, _PLACE, np.int32).reshape(-1, 2)
    head, picked = flat_at(table, _HEAD, np.int64).reshape(-1, HEAD), flat_at(table, _PICKED, np.int64)
    opened, clock = flat_at(table, _OPENED, np.int64), flat_at(table, _CLOCK, np.int64).reshape(-1, 2)
    episode = flat_at(table, _INDEX, np.int64)
    taken = fresh = ticks = 0
    for i in range(len(slot)):
        s = slot[i]
        e = s if agents == 1 else s // agents
        if clock[e, STEP] != step:
            clock[e, STEP] = step
            clock[e, TIME] += 1
            ticks += 1
        if not slots[s, MINE]:
            continue
        if slots[s, SEGMENT] < 0:
            new = segment + fresh
            slots[s, SEGMENT] = new
            head[new, TAIL], head[new, SEAT], head[new, AGENT] = _CUT, player, agent + s - e * agents
            head[new, EPISODE], head[new, VERSION] = episode[e], version
            opened[fresh] = s
            fresh += 1
        picked[taken] = i
        place[row + taken, SEGMENT_OF] = slots[s, SEGMENT]
        place[row + taken, T] = clock[e, TIME] - 1
        slots[s, OPEN] = row + taken
        taken += 1
    return taken, fresh, ticks


@njit(cache=True)
def sort_by_segment(place, is_open, segments):  # type: ignore[no-untyped-def]
    """Stable counting sort of the closed rows by segment: (rows in order, start[segments + 1])."""
    start = np.zeros(segments + 1, np.int64)
    for r in range(len(place)):
        if not is_open[r]:
            start[place[r, SEGMENT_OF] + 1] += 1
    for s in range(segments):
        start[s + 1] += start[s]
    at = start[:-1].copy()
    order = np.empty(start[segments], np.int64)
    for r in range(len(place)):
        if not is_open[r]:
            s = place[r, SEGMENT_OF]
            order[at[s]] = r
            at[s] += 1
    return order, start
