"""The compiled parts of writing trajectories. `mine`, `open_row` and `segment` are per slot of one player; -1 means none.

A slot's open row is its last decision, whose reward is still to come; its segment is the one that its rows go to.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def credit(slot, reward, first, open_row, rewards):  # type: ignore[no-untyped-def]
    """Due rows pay their slots' open decisions. Returns how many, or -1 - slot where a first decision finds one still open."""
    paid = 0
    for i in range(len(slot)):
        row = open_row[slot[i]]
        if row >= 0:
            if first[i]:
                return -1 - slot[i]
            rewards[row] = reward[i]
            open_row[slot[i]] = -1
            paid += 1
    return paid


@njit(cache=True)
def close(slot, reward, terminated, open_row, segment, rewards, tail, closed_row, closed_segment):  # type: ignore[no-untyped-def]
    """Ended rows pay and close; `closed_row`, `closed_segment` get the ended rows and segments concerned. Returns how many."""
    closed = 0
    for i in range(len(slot)):
        row = open_row[slot[i]]
        if row >= 0:
            rewards[row] = reward[i]
            open_row[slot[i]] = -1
            tail[segment[slot[i]]] = 0 if terminated[i] else 1
            closed_row[closed] = i
            closed_segment[closed] = segment[slot[i]]
            segment[slot[i]] = -1
            closed += 1
    return closed


@njit(cache=True)
def append(slot, mine, agents, began, step, row, next_segment, open_row, segment, row_segment, t, picked, opened):  # type: ignore[no-untyped-def]
    """Rows for the learner's decisions, from `row` on; new segments, from `next_segment` on, where a slot has none.

    picked: the due rows taken; opened: the due rows that opened a segment. Returns (rows, segments)."""
    taken = 0
    fresh = 0
    for i in range(len(slot)):
        s = slot[i]
        if not mine[s]:
            continue
        if segment[s] < 0:
            segment[s] = next_segment + fresh
            opened[fresh] = i
            fresh += 1
        picked[taken] = i
        row_segment[row + taken] = segment[s]
        t[row + taken] = step - began[s // agents]
        open_row[s] = row + taken
        taken += 1
    return taken, fresh


@njit(cache=True)
def sort_by_segment(row_segment, is_open, segments):  # type: ignore[no-untyped-def]
    """Stable counting sort of the closed rows by segment: (rows in order, start[segments + 1])."""
    start = np.zeros(segments + 1, np.int64)
    for r in range(len(row_segment)):
        if not is_open[r]:
            start[row_segment[r] + 1] += 1
    for s in range(segments):
        start[s + 1] += start[s]
    place = start[:-1].copy()
    order = np.empty(start[segments], np.int64)
    for r in range(len(row_segment)):
        if not is_open[r]:
            s = row_segment[r]
            order[place[s]] = r
            place[s] += 1
    return order, start
