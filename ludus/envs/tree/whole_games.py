"""Whole games of a compiled tree on a device, as they are learned from: node by node, by tables, without a number that is read back.

    thresholds of all tables --one look-up a node--> nodes [K + 1, E] --> decisions, rewards, lengths

A game is its nodes, so that a step makes nothing else; what a learner needs is taken from all nodes together. Chance is one of those who
play by a table. `TreeDeviceEnv` plays by actions instead, one step of all who are to move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ludus.backend.device import to_device
from ludus.envs.tree.game_tree import GameTree
from ludus.envs.tree.stepping import TreeGames, keys, uniform_bits
from ludus.envs.tree.tree_arrays import Nodes


class TablePlaces(NamedTuple):
    """Where the thresholds of each player's tables lie in one tensor, behind those of chance: first the learner's, then the others'.

    Attributes:
        learner: By player; -1 where the learner does not play.
        others: By player, of the first of its tables.
    """

    learner: tuple[int, ...]
    others: tuple[int, ...]


class Games(NamedTuple):
    """E whole games, K moves each at most.

    Attributes:
        node: int64[K + 1, E], where each is after k moves of players and chance; a game that is over stays.
        move: int64[K, E], which child each move took.
    """

    node: Tensor
    move: Tensor


class Decisions(NamedTuple):
    """What a player does in games.

    Attributes:
        due: bool[K + 1, E], where it is to move.
        state: int64[K + 1, E], its information state there, an id of the enumeration; elsewhere any of its own.
        action: int64[K, E], what it does there; elsewhere any.
        worth: float64[K + 1, E], the rewards that it has got by then.
    """

    due: Tensor
    state: Tensor
    action: Tensor
    worth: Tensor


class WholeGames:
    """Games of one tree on a device.

    Args:
        tree: The game.
        games: The same game, as it is stepped there.
    """

    def __init__(self, tree: GameTree, games: TreeGames) -> None:
        self.tree, self.games, self.device = tree, games, games.device
        nodes, offset = tree.arrays.nodes, np.array(tree.enumeration.offset)
        own_ids = np.minimum(offset[:-1], offset[-1] - 1)  # of a player who never moves, another's
        self._first_id: list[int] = own_ids.tolist()
        self._state = to_device(nodes.info.astype(np.int64), self.device)
        self._begins = to_device(nodes.width > 0, self.device)  # a step of the environment
        self._action = to_device(_actions(tree.arrays.rank), self.device)
        ends = nodes.terminal >= 0
        worth = np.zeros((len(ends), tree.num_players)) if tree.arrays.so_far is None else tree.arrays.so_far.copy()
        worth[ends] = tree.arrays.returns[nodes.terminal[ends]]
        self._worth = to_device(worth, self.device)
        self._moves = torch.arange(games.lengths.steps, device=self.device)
        self._always: dict[int, bool] = {}
        self._siblings = torch.arange(max(1, int(nodes.degree.max())), device=self.device)

    # ------------------------------------------------------------------------------------------ tables

    def width(self, player: int) -> int:
        """Return how many thresholds one table of a player has."""
        return self.tree.num_sequences(player) - 1

    def always_decides(self, player: int) -> bool:
        """Return whether a player has a decision in every game."""
        if player not in self._always:
            self._always[player] = not _ends_without(self.tree.arrays.nodes, player)
        return self._always[player]

    def places(self, learners: Sequence[int], tables: Sequence[int]) -> TablePlaces:
        """Return where thresholds lie.

        Args:
            learners: Whom the learner plays.
            tables: By player, how many tables the others have.
        """
        at, learner, others = len(self.games.board.below), [], []
        for p in range(self.tree.num_players):
            learner.append(at if p in learners else -1)
            at += self.width(p) if p in learners else 0
        for p, count in enumerate(tables):
            others.append(at)
            at += count * self.width(p)
        return TablePlaces(tuple(learner), tuple(others))

    # ------------------------------------------------------------------------------------------ games

    def play(self, thresholds: Tensor, places: TablePlaces, table: Tensor, seed: Tensor) -> Games:
        """Play E games.

        Args:
            thresholds: int64[n], of chance and of all tables.
            places: Where they are.
            table: int64[P, E], which of a player's tables plays its part: 0 the learner's, k + 1 the others' k.
            seed: int64[], which decides them; the same on every device.
        """
        board, siblings, envs = self.games.board, self._siblings, table.shape[1]
        first = torch.where(board.chance, board.child, 0).long()
        shift = [torch.zeros_like(table[0])]
        for p in range(self.tree.num_players):
            base, others = max(places.learner[p], 0), places.others[p]
            first = torch.where(board.who == p, self.games.first_sequence(p) + base, first)
            other = others - base + (table[p] - 1) * self.width(p)
            shift.insert(p, torch.where(table[p] > 0, other, 0))
        # of each node in one row: who moves, its first threshold, how many there are but the last one, its first child
        rows = torch.stack([board.who, first, board.width.long() - 1, board.child.long()], 1)
        by_player, number = torch.stack(shift), torch.arange(envs, device=self.device)
        bits = uniform_bits(keys(seed, number)[None], self._moves[:, None])[:, :, None]  # [K, E, 1]
        below = torch.cat([thresholds, torch.zeros_like(siblings)])
        node, nodes, moves = torch.zeros_like(number), [torch.zeros_like(number)], []
        for k in range(len(self._moves)):
            who, entry, most, child = rows.index_select(0, node).unbind(1)
            entry = entry + by_player.gather(0, who[None])[0]
            is_beyond = (bits[k] >= below[entry[:, None] + siblings]) & (siblings < most[:, None])
            move = is_beyond.sum(1)
            node = child + move
            nodes.append(node)
            moves.append(move)
        return Games(torch.stack(nodes), torch.stack(moves))

    def decisions(self, games: Games, player: int) -> Decisions:
        """Return what a player does in games."""
        due = self.games.board.who[games.node] == player
        state = torch.where(due, self._state[games.node], self._first_id[player])
        action = self._action[state[:-1], games.move.clamp(max=self._action.shape[1] - 1)]
        return Decisions(due, state, action, self._worth[:, player][games.node])

    def over(self, games: Games) -> Tensor:
        """Return bool[K, E], the move that ended a game."""
        ended = self.games.board.row[games.node] >= 0
        return ended[1:] & ~ended[:-1]

    def returns(self, games: Games) -> Tensor:
        """Return float64[E, P]."""
        return self._worth[games.node[-1]]

    def lengths(self, games: Games) -> Tensor:
        """Return int64[E], steps of the environment; players who move simultaneously make one."""
        return self._begins[games.node[:-1]].sum(0)

    def count_decisions(self, games: Games) -> Tensor:
        """Return int64[], decisions of all players."""
        return (self.games.board.who[games.node] < self.tree.num_players).sum()


def _ends_without(nodes: Nodes, player: int) -> bool:
    """Return whether a game can end without a decision of a player."""
    level = np.array([0])  # reached without one
    while len(level):
        if (nodes.terminal[level] >= 0).any():
            return True
        level = level[nodes.player[level] != player]
        first, count = nodes.child[level].astype(np.int64), nodes.degree[level].astype(np.int64)
        level = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum())
    return False


def _actions(rank: np.ndarray) -> np.ndarray:
    """Return int64[I, W], the action of each child of an information state; W: children, at most. rank: [I, A], -1 where illegal."""
    state, action = np.nonzero(rank >= 0)
    out = np.zeros((len(rank), int(rank.max(initial=0)) + 1), np.int64)
    out[state, rank[state, action]] = action
    return out
