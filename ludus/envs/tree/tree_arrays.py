"""The flat arrays of a compiled game tree, and how they are made from an enumerated game."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import kernel
from ludus.core.errors import EnvError
from ludus.envs.tree.walk import TERMINAL, EnumeratedGame

_ROUNDING = 8 * float(np.finfo(np.float64).eps)  # of each term of a sum, which is itself a product of some chances


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """N nodes, parents before children, the children of a node adjacent.

    player int8[N]: who moves (-1 chance, -4 terminal). info int32[N]: global information state id, -1 without.
    child int32[N]: first child (-1 at terminals), degree int32[N]: number of children. width int8[N]: how many players move
    simultaneously from here (1 at a turn, 0 at chance, terminals and inside an expanded simultaneous node). cumulative float64[N]:
    under a chance parent, the probability of this sibling and those before it. terminal int32[N]: row in `returns`, or -1.
    """

    player: NDArray[np.int8]
    info: NDArray[np.int32]
    child: NDArray[np.int32]
    degree: NDArray[np.int32]
    width: NDArray[np.int8]
    cumulative: NDArray[np.float64]
    terminal: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """One player's sequence form (von Stengel 1996). Sequence 0 is empty; the others are (information state, action).

    parent int32[I_p]: the sequence that leads to each state; always smaller than the state's own sequences.
    start int32[I_p + 1]: sequences start[i] .. start[i + 1] - 1 are the legal actions of state i, rising.
    action int32[S_p]: the action of each sequence, -1 for the empty one.
    """

    parent: NDArray[np.int32]
    start: NDArray[np.int32]
    action: NDArray[np.int32]

    @property
    def count(self) -> int:
        """Return S_p, the empty sequence included."""
        return len(self.action)


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Terminals merged by the sequences that lead to them: sequence int32[P, U], and weight float64[P, U], the sum of chance
    reach × return per player. Tuples at which all returns are 0 are left out."""

    sequence: NDArray[np.int32]
    weight: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Arrays:
    """A compiled tree. rank int16[I, A]: the place of an action among the legal ones, -1 if illegal. returns float64[T, P].
    so_far float64[N, P]: rewards summed up to each node, or None if rewards come only at its end."""

    nodes: Nodes
    rank: NDArray[np.int16]
    returns: NDArray[np.float64]
    so_far: NDArray[np.float64] | None
    sequences: tuple[Sequences, ...]
    outcomes: Outcomes
    max_decisions: int


def build(enumerated: EnumeratedGame, *, num_actions: int, name: str) -> Arrays:
    """Renumber an enumerated game, link it, and merge its terminals. Raises EnvError if a player forgets something."""
    order = np.argsort(enumerated.parent, kind="stable")  # siblings adjacent, parents still first
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    parent = np.where(enumerated.parent[order] < 0, -1, place[enumerated.parent[order]]).astype(np.int32)
    player, info, prob = enumerated.player[order], enumerated.info[order], enumerated.prob[order]
    num_players = len(enumerated.legal)
    starts = [np.cumsum([1, *map(len, legal)], dtype=np.int32) for legal in enumerated.legal]
    offset = np.cumsum([0, *map(len, enumerated.legal)], dtype=np.int32)
    first = np.concatenate([s[:-1] for s in starts]) if offset[-1] else np.zeros(0, np.int32)
    glob = np.where(info >= 0, info + offset[np.maximum(player, 0)], -1).astype(np.int32)

    n = len(order)
    child, degree, cumulative = np.full(n, -1, np.int32), np.zeros(n, np.int32), np.ones(n)
    _link(parent, player, prob, child, degree, cumulative)
    sequence, own = np.zeros((n, num_players), np.int32), np.zeros((n, num_players), np.int32)
    reach, before = np.ones(n), np.full(len(first), -1, np.int32)
    forgetful = _sequences(parent, player, glob, child, prob, first, sequence, own, reach, before)
    if forgetful >= 0:
        who = int(player[forgetful])
        raise EnvError(
            f"{name} lacks perfect recall: player {who} reaches information state {enumerated.key[who][info[forgetful]]!r} by "
            "different sequences of own actions, and exact solutions need perfect recall. With tree=auto or off it is stepped."
        )
    ends = np.flatnonzero(player == TERMINAL)
    terminal = np.full(len(order), -1, np.int32)
    terminal[ends] = np.arange(len(ends), dtype=np.int32)
    row = np.cumsum(enumerated.player == TERMINAL) - 1  # walking order -> row of `returns`
    returns = enumerated.returns[row[order[ends]]]
    return Arrays(
        nodes=Nodes(player, glob, child, degree, enumerated.width[order], cumulative, terminal),
        rank=_rank(enumerated.legal, num_actions),
        returns=returns,
        so_far=None if enumerated.so_far is None else enumerated.so_far[order],
        sequences=tuple(
            Sequences(before[offset[p] : offset[p + 1]], starts[p], _actions(enumerated.legal[p]))
            for p in range(num_players)
        ),
        outcomes=_merge(sequence[ends], reach[ends, None] * returns),
        max_decisions=int(own.max(initial=0)),
    )


def _rank(legal: list[list[list[int]]], num_actions: int) -> NDArray[np.int16]:
    rows = [actions for of_player in legal for actions in of_player]
    count = np.fromiter(map(len, rows), np.int64, len(rows))
    column = np.fromiter(chain.from_iterable(rows), np.int64, int(count.sum()))
    place = np.arange(len(column)) - np.repeat(np.cumsum(count) - count, count)
    rank = np.full((len(rows), num_actions), -1, np.int16)
    rank[np.repeat(np.arange(len(rows)), count), column] = place
    return rank


def _actions(legal: list[list[int]]) -> NDArray[np.int32]:
    return np.array([-1, *chain.from_iterable(legal)], np.int32)


def unique_columns(columns: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group the columns of int32[k, n]. Returns (one index of each distinct column, in lexicographic order; int64[n] which of them each
    column is)."""
    order = np.lexsort(columns[::-1])
    ordered = columns[:, order]
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(fresh) - 1
    return order[fresh], group


def _merge(sequence: NDArray[np.int32], weight: NDArray[np.float64]) -> Outcomes:
    representative, group = unique_columns(sequence.T)
    total, size = np.zeros((2, len(representative), weight.shape[1]))
    np.add.at(total, group, weight)
    np.add.at(size, group, np.abs(weight))
    terms = np.bincount(group, minlength=len(representative))
    total[np.abs(total) <= _ROUNDING * terms[:, None] * size] = 0.0  # what cancels leaves nothing, not a last bit
    nonzero = (total != 0).any(axis=1)
    return Outcomes(np.ascontiguousarray(sequence[representative[nonzero]].T), np.ascontiguousarray(total[nonzero].T))


# Room for answers is made outside of the kernels: each kind of array that they make themselves costs a new process some
# hundredths of a second of compilation.


@kernel
def _link(parent, player, prob, child, degree, cumulative):  # type: ignore[no-untyped-def]
    """Write first children (-1 so far), degrees (0), and cumulative probabilities under chance (1)."""
    for c in range(1, len(parent)):
        x = parent[c]
        if degree[x] == 0:
            child[x] = c
        degree[x] += 1
        if player[x] == -1:
            cumulative[c] = prob[c] + (cumulative[c - 1] if degree[x] > 1 else 0.0)


@kernel
def _sequences(parent, player, info, child, prob, first, sequence, own, reach, before):  # type: ignore[no-untyped-def]
    """Write every node's sequences int32[N, P] (0 so far), own decisions [N, P] (0) and chance reach [N] (1), and the sequence before
    each information state [I] (-1). Answers a node at which a player has forgotten something, or -1."""
    for c in range(len(parent)):
        x = parent[c]
        if x >= 0:
            for p in range(sequence.shape[1]):
                sequence[c, p] = sequence[x, p]
                own[c, p] = own[x, p]
            reach[c] = reach[x] * prob[c]
            p = player[x]
            if p >= 0:
                sequence[c, p] = first[info[x]] + c - child[x]
                own[c, p] += 1
        q = player[c]
        if q >= 0:
            if before[info[c]] == -1:
                before[info[c]] = sequence[c, q]
            elif before[info[c]] != sequence[c, q]:
                return c
    return -1
