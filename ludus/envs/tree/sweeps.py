"""Exact computations over the sequence form, as compiled sweeps in float64.

Realisation plans and best responses follow von Stengel, "Efficient computation of behavior strategies" (1996); a mixture of
policies at the root is the same mixture of their plans (Kuhn's theorem).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import kernel
from ludus.core.ties import TIE
from ludus.envs.tree.tree_arrays import Outcomes, unique_columns

_TOLERANCE = 1e-5  # rows of float32 softmaxes pass, forgotten actions do not


@kernel
def realize(parent, start, action, table, plan):  # type: ignore[no-untyped-def]
    """Write plan[s], the product of the player's own probabilities along s. Returns the first row that is no distribution, or -1."""
    plan[0] = 1.0
    for i in range(len(parent)):
        above = plan[parent[i]]
        total = 0.0
        for s in range(start[i], start[i + 1]):
            p = table[i, action[s]]
            if not p >= 0.0:
                return i
            total += p
            plan[s] = above * p
        if not abs(total - 1.0) <= _TOLERANCE:
            return i
    return -1


@kernel
def behave(start, action, plan, table):  # type: ignore[no-untyped-def]
    """Write the conditional probabilities of a plan; uniform over legal actions where the plan does not come."""
    for i in range(len(start) - 1):
        total = 0.0
        for s in range(start[i], start[i + 1]):
            total += plan[s]
        for s in range(start[i], start[i + 1]):
            table[i, action[s]] = plan[s] / total if total > 0.0 else 1.0 / (start[i + 1] - start[i])


@kernel
def gradient_two(own, other, weight, plan, scale, gradient):  # type: ignore[no-untyped-def]
    """Add to gradient[s] what sequence s earns (times its own plan) against the other's plan; two players. own: rising."""
    last, total = 0, gradient[0]
    for u in range(len(own)):
        if own[u] != last:
            gradient[last] = total
            last, total = own[u], gradient[own[u]]
        total += scale * weight[u] * plan[other[u]]
    gradient[last] = total


@kernel
def stakes_two(own, other, weight, plan, scale, gradient, stake):  # type: ignore[no-untyped-def]
    """Do the same as `gradient_two`, and add to stake[s] the size of each term: what is at stake there, as `ludus.core.ties` counts it."""
    last, total, size = 0, gradient[0], stake[0]
    for u in range(len(own)):
        if own[u] != last:
            gradient[last], stake[last] = total, size
            last, total, size = own[u], gradient[own[u]], stake[own[u]]
        earned = scale * weight[u] * plan[other[u]]
        total += earned
        size += abs(earned)
    gradient[last], stake[last] = total, size


@kernel
def stakes_many(player, sequence, weight, plans, offset, scale, gradient, stake):  # type: ignore[no-untyped-def]
    """Do the same as `stakes_two` for any number of players; `plans` are concatenated, player q's from offset[q] on."""
    for u in range(sequence.shape[1]):
        earned = scale * weight[u]
        for q in range(sequence.shape[0]):
            if q != player:
                earned *= plans[offset[q] + sequence[q, u]]
        gradient[sequence[player, u]] += earned
        stake[sequence[player, u]] += abs(earned)


@kernel
def respond(parent, start, action, gradient, stake, table):  # type: ignore[no-untyped-def]
    """Write the best action of every information state, bottom-up, the lowest of equals, into the zero `table`. Returns the best value.
    Upwards goes what the best of equals earns, so that no choice between them shows above."""
    for i in range(len(parent) - 1, -1, -1):
        most, at_stake = gradient[start[i]], stake[start[i]]
        for s in range(start[i] + 1, start[i + 1]):
            most = max(most, gradient[s])
            at_stake = max(at_stake, stake[s])
        best, least = start[i], most - TIE * at_stake
        for s in range(start[i], start[i + 1]):
            if gradient[s] >= least:
                best = s
                break
        table[i, action[best]] = 1.0
        gradient[parent[i]] += most
        stake[parent[i]] += at_stake
    return gradient[0]


@kernel
def climb(parent, start, gradient):  # type: ignore[no-untyped-def]
    """Return the value of `respond` only."""
    for i in range(len(parent) - 1, -1, -1):
        most = gradient[start[i]]
        for s in range(start[i] + 1, start[i + 1]):
            most = max(most, gradient[s])
        gradient[parent[i]] += most
    return gradient[0]


@kernel
def first_alike(plans, plan, tolerance):  # type: ignore[no-untyped-def]
    """Return the first row of float64[n, S] that differs from float64[S] nowhere by more than the tolerance; n if there is none."""
    for k in range(len(plans)):
        alike = True
        for s in range(len(plan)):
            if not abs(plans[k, s] - plan[s]) <= tolerance:
                alike = False
                break
        if alike:
            return k
    return len(plans)


@kernel
def value_two(first, second, weight, plan0, plan1, out):  # type: ignore[no-untyped-def]
    """Write out[p], the expected return of player p; two players."""
    for p in range(2):
        total = 0.0
        for u in range(len(first)):
            total += weight[p, u] * plan0[first[u]] * plan1[second[u]]
        out[p] = total


@kernel
def contract(coefficient, sequence, group, plan, out):  # type: ignore[no-untyped-def]
    """Sum one player's sequences out: out[p, group[u]] += coefficient[p, u] * plan[sequence[u]]."""
    for p in range(coefficient.shape[0]):
        for u in range(len(sequence)):
            out[p, group[u]] += coefficient[p, u] * plan[sequence[u]]


# --------------------------------------------------------------------------------------------------------------------
# Payoffs of all profiles of stacked plans: the terminals' weights, contracted with one player's plans after the
# other.


@dataclass(frozen=True, slots=True, eq=False)
class TreeLevel:
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
    levels: tuple[TreeLevel, ...]


def plan_contraction(outcomes: Outcomes, order: Sequence[int]) -> Contraction:
    """Prepare to sum players out in this order."""
    columns, levels = outcomes.sequence[list(order)], []
    for player in order[:-1]:
        representative, group = unique_columns(columns[1:])
        levels.append(TreeLevel(player, np.ascontiguousarray(columns[0]), group, len(representative)))
        columns = columns[1:, representative]
    levels.append(TreeLevel(order[-1], np.ascontiguousarray(columns[0]), np.zeros(columns.shape[1], np.int64), 1))
    return Contraction(outcomes.weight, tuple(levels))


def expand(
    coefficient: NDArray[np.float64], levels: tuple[TreeLevel, ...], stacks: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return payoffs float64[P, n of each level's player], of coefficient float64[P, G] of the first level and stacks[p] float64[n_p,
    S_p]."""
    level = levels[0]
    stack = stacks[level.player]
    if len(levels) == 1:  # its sequences are distinct by now: one dense product does the rest
        dense = np.zeros((len(coefficient), stack.shape[1]))
        dense[:, level.sequence] = coefficient
        return dense @ stack.T
    out = np.empty((len(coefficient), *(len(stacks[later.player]) for later in levels)))
    for i, plan in enumerate(stack):
        rest = np.zeros((len(coefficient), level.groups))
        contract(coefficient, level.sequence, level.group, np.ascontiguousarray(plan, np.float64), rest)
        out[:, i] = expand(rest, levels[1:], stacks)
    return out
