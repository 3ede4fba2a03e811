"""Payoffs of all profiles of stacked plans: the terminals' weights, contracted with one player's plans after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.envs.tree import sweeps
from ludus.envs.tree.arrays import Outcomes, unique_columns


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One player's part of a contraction: G tuples of (this player's, later players') sequences. sequence int32[G]: this
    player's. group int64[G]: which of the `groups` tuples of later players remains when this player is summed out."""

    player: int
    sequence: NDArray[np.int32]
    group: NDArray[np.int64]
    groups: int


@dataclass(frozen=True, slots=True, eq=False)
class Contraction:
    """Levels in the order in which players are summed out, and the terminals' weights float64[P, U] of the first level."""

    weight: NDArray[np.float64]
    levels: tuple[Level, ...]


def contraction(outcomes: Outcomes, order: Sequence[int]) -> Contraction:
    """Prepare to sum players out in this order."""
    columns, levels = outcomes.sequence[list(order)], []
    for player in order[:-1]:
        representative, group = unique_columns(columns[1:])
        levels.append(Level(player, np.ascontiguousarray(columns[0]), group, len(representative)))
        columns = columns[1:, representative]
    levels.append(Level(order[-1], np.ascontiguousarray(columns[0]), np.zeros(columns.shape[1], np.int64), 1))
    return Contraction(outcomes.weight, tuple(levels))


def expand(
    coefficient: NDArray[np.float64], levels: tuple[Level, ...], stacks: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """coefficient float64[P, G] of the first level, stacks[p] float64[n_p, S_p] -> float64[P, n of each level's player]."""
    level = levels[0]
    stack = stacks[level.player]
    if len(levels) == 1:  # its sequences are distinct by now: one dense product does the rest
        dense = np.zeros((len(coefficient), stack.shape[1]))
        dense[:, level.sequence] = coefficient
        return dense @ stack.T
    out = np.empty((len(coefficient), *(len(stacks[later.player]) for later in levels)))
    for i, plan in enumerate(stack):
        rest = np.zeros((len(coefficient), level.groups))
        sweeps.contract(coefficient, level.sequence, level.group, np.ascontiguousarray(plan, np.float64), rest)
        out[:, i] = expand(rest, levels[1:], stacks)
    return out
