"""The cycles of a weighted graph, strongest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LONGEST = 8
"""Edges of a cycle that is returned."""


def strongest_cycles(weight: NDArray[np.float64], most: int) -> list[list[int]]:
    """Return cycles, those first whose weakest edge is strongest: edges join the graph by falling weight, and each that closes cycles
    gives a shortest of them, if that has at most `LONGEST` edges and no cycle has more than half of its vertices already.

    Args:
        weight: float64[n, n], of the edge from row to column; no edge where it is NaN or at most 0.
        most: Cycles that are returned.
    """
    edge = np.nan_to_num(weight) > 0.0
    np.fill_diagonal(edge, False)
    source, target = np.nonzero(edge)
    falling = np.argsort(-weight[source, target], kind="stable")
    reached = np.eye(len(weight), dtype=np.bool_)  # from row to column
    after: list[list[int]] = [[] for _ in range(len(weight))]
    cycles: list[list[int]] = []
    for a, b in zip(source[falling].tolist(), target[falling].tolist(), strict=True):
        if reached[b, a]:
            cycle = _shortest_way(after, b, a)
            if len(cycle) <= LONGEST and all(2 * len({*cycle} & {*other}) <= len(cycle) for other in cycles):
                cycles.append(cycle)
            if len(cycles) == most:
                break
        after[a].append(b)
        reached |= reached[:, a, None] & reached[b]
    return cycles


def _shortest_way(after: Sequence[Sequence[int]], start: int, end: int) -> list[int]:
    """Return the vertices from start to end, both included. Some way must be there."""
    before = {start: start}
    waiting = deque([start])
    while waiting and end not in before:
        at = waiting.popleft()
        for neighbor in after[at]:
            if neighbor not in before:
                before[neighbor] = at
                waiting.append(neighbor)
    way = [end]
    while way[-1] != start:
        way.append(before[way[-1]])
    return way[::-1]
