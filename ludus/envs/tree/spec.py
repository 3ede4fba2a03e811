"""What a compiled game tells the rest of Ludus about itself."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyspiel
from gymnasium.spaces import Box, Discrete

from ludus.envs.tree.arrays import Arrays, Nodes
from ludus.envs.tree.walk import CHANCE, TERMINAL, Walk, title
from ludus.types import AgentSpec, Enumeration, EnvSpec

_SYMMETRY_NODES = 50_000  # larger trees are not searched for symmetry; each player then stands alone


def describe(game: Any, *, walked: Walk, arrays: Arrays) -> EnvSpec:
    """The `EnvSpec` of a compiled game, with its enumeration."""
    players = len(walked.legal)
    enumeration = Enumeration(
        observation=np.concatenate(walked.observation),
        mask=arrays.rank >= 0,
        offset=tuple(int(n) for n in np.cumsum([0, *map(len, walked.legal)])),
        key=tuple(key for keys in walked.key for key in keys),
    )
    utility = game.get_type().utility
    low, high = _bounds(enumeration.observation)
    space = Box(low, high, enumeration.observation.shape[1:], np.float32)
    action = Discrete(enumeration.mask.shape[1])
    return EnvSpec(
        id=f"openspiel/{title(game)}",
        agents=tuple(AgentSpec(f"player_{p}", p, space, action) for p in range(players)),
        utility_range=_utility(game, arrays),
        symmetry=_groups(enumeration, arrays),
        zero_sum=utility in (pyspiel.GameType.Utility.ZERO_SUM, pyspiel.GameType.Utility.CONSTANT_SUM),
        enumeration=enumeration,
        max_decisions=arrays.max_decisions,
    )


def _utility(game: Any, arrays: Arrays) -> tuple[tuple[float, float], ...]:
    """OpenSpiel's bounds, widened where a terminal lies outside of them (cliff_walking with a short horizon, say)."""
    low = np.minimum(arrays.returns.min(axis=0), game.min_utility())
    high = np.maximum(arrays.returns.max(axis=0), game.max_utility())
    return tuple((float(a), float(b)) for a, b in zip(low, high, strict=True))


def _bounds(observation: Any) -> tuple[float, float]:
    """All observations are known, so the space is as tight as one pair of numbers can make it; never empty."""
    return min(0.0, float(observation.min(initial=0.0))), max(1.0, float(observation.max(initial=1.0)))


def _groups(enumeration: Enumeration, arrays: Arrays) -> tuple[tuple[int, ...], ...]:
    """Interchangeable players: swapping two of them maps the tree onto itself, with equal tensors under equal local ids."""
    groups: list[list[int]] = []
    for player in range(len(enumeration.offset) - 1):
        for group in groups:
            if _interchangeable(enumeration, arrays, group[0], player):
                group.append(player)
                break
        else:
            groups.append([player])
    return tuple(tuple(group) for group in groups)


def _interchangeable(enumeration: Enumeration, arrays: Arrays, first: int, second: int) -> bool:
    if len(arrays.nodes.player) > _SYMMETRY_NODES:
        return False
    a, b = enumeration.ids(first), enumeration.ids(second)
    same = np.array_equal(enumeration.observation[a], enumeration.observation[b])
    if not same or not np.array_equal(enumeration.mask[a], enumeration.mask[b]):
        return False
    swap = list(range(len(enumeration.offset) - 1))
    swap[first], swap[second] = second, first
    pairs = [(0, 0)]
    while pairs:
        more = _mirror(enumeration, arrays, swap, *pairs.pop())
        if more is None:
            return False
        pairs += more
    return True


def _mirror(enumeration: Enumeration, arrays: Arrays, swap: list[int], x: int, y: int) -> list[tuple[int, int]] | None:
    """Pairs of nodes that must be mirror images if x and y are; None if these two are not. Chance events map to themselves."""
    nodes = arrays.nodes
    kind = int(nodes.player[x])
    if nodes.width[x] != nodes.width[y] or nodes.degree[x] != nodes.degree[y]:
        return None
    if kind < 0 and kind != nodes.player[y]:
        return None
    if arrays.so_far is not None and not np.array_equal(arrays.so_far[x], arrays.so_far[y][swap]):
        return None
    if kind == TERMINAL:
        here, there = arrays.returns[nodes.terminal[x]], arrays.returns[nodes.terminal[y]]
        return [] if np.array_equal(here, there[swap]) else None
    if kind == CHANCE:
        ours, theirs = _children(nodes, x), _children(nodes, y)
        same = np.array_equal(nodes.cumulative[ours], nodes.cumulative[theirs])
        return list(zip(ours, theirs, strict=True)) if same else None
    return _mirror_block(enumeration, nodes, swap, x, y)


def _mirror_block(
    enumeration: Enumeration, nodes: Nodes, swap: list[int], x: int, y: int
) -> list[tuple[int, int]] | None:
    """As `_mirror` where one player or several at once move."""
    chains = [[node] for node in (x, y)]
    for chain in chains:
        while len(chain) < nodes.width[x]:
            chain.append(int(nodes.child[chain[-1]]))
    here, there = ({int(nodes.player[n]): n for n in chain} for chain in chains)
    if {swap[p] for p in here} != set(there):
        return None
    for p, node in here.items():
        mine, other = nodes.info[node] - enumeration.offset[p], nodes.info[there[swap[p]]] - enumeration.offset[swap[p]]
        if mine != other:
            return None
    pairs = []
    for moves in itertools.product(*(range(nodes.degree[n]) for n in chains[0])):
        by_player = {swap[p]: move for p, move in zip(here, moves, strict=True)}
        pairs.append((_after(nodes, x, moves), _after(nodes, y, tuple(by_player[q] for q in there))))
    return pairs


def _children(nodes: Nodes, node: int) -> list[int]:
    return list(range(int(nodes.child[node]), int(nodes.child[node] + nodes.degree[node])))


def _after(nodes: Nodes, node: int, moves: tuple[int, ...]) -> int:
    for move in moves:
        node = int(nodes.child[node]) + move
    return node
