"""The sequence form of a two-player game (von Stengel 1996), built once with pyspiel: what the peers share.

A *sequence* of a player is one of its (information state, action) pairs, or the empty sequence 0. A policy is a
realisation plan r over sequences: r[0] = 1, and r[q] = r[parent of q] × probability of q's action. The expected return of
player 0 is then r0ᵀ A r1, where A (sparse) sums chance × return over the terminal histories; so every payoff of two
populations is two sparse products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyspiel
from numpy.typing import NDArray
from scipy.sparse import csr_array

Floats = NDArray[np.float64]


@dataclass(slots=True)
class Sequences:
    """One player's sequences, parents before children; `first[i] : first[i] + len(actions[i])` are those of state i."""

    key: list[str] = field(default_factory=list)
    actions: list[list[int]] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=lambda: [-1])
    index: dict[str, int] = field(default_factory=dict)

    def add(self, *, key: str, actions: list[int], parent: int) -> int:
        """The id of an information state, added with its sequences when it is new."""
        if key not in self.index:
            self.index[key] = len(self.key)
            self.key.append(key)
            self.actions.append(actions)
            self.first.append(len(self.parent))
            self.parent.extend([parent] * len(actions))
        return self.index[key]


class SequenceForm:
    """Players' sequences, player 0's payoff matrix, and how policies become realisation plans and back."""

    def __init__(self, game: pyspiel.Game) -> None:
        self.players = (Sequences(), Sequences())
        entries: dict[tuple[int, int], float] = {}
        self._walk(game.new_initial_state(), (0, 0), 1.0, entries)
        rows, columns = zip(*entries, strict=True)
        shape = (len(self.players[0].parent), len(self.players[1].parent))
        self.payoff = csr_array((list(entries.values()), (rows, columns)), shape=shape)
        self.payoff_transposed = csr_array(self.payoff.T)
        self._levels = tuple(_levels(np.array(p.parent)) for p in self.players)
        self._parent = tuple(np.array(p.parent) for p in self.players)
        self._uniform = tuple(np.array([1.0 / len(a) for a in p.actions for _ in a]) for p in self.players)
        self._rows = tuple(_row_maker(p) for p in self.players)

    def _walk(
        self, state: pyspiel.State, at: tuple[int, int], chance: float, entries: dict[tuple[int, int], float]
    ) -> None:
        if state.is_terminal():
            entries[at] = entries.get(at, 0.0) + chance * state.player_return(0)
        elif state.is_chance_node():
            for action, probability in state.chance_outcomes():
                self._walk(state.child(action), at, chance * probability, entries)
        else:
            player = state.current_player()
            own = self.players[player]
            actions = state.legal_actions()
            info = own.add(key=state.information_state_string(), actions=actions, parent=at[player])
            for offset, action in enumerate(actions):
                mine = own.first[info] + offset
                after = (mine, at[1]) if player == 0 else (at[0], mine)
                self._walk(state.child(action), after, chance, entries)

    def uniform(self, player: int) -> Floats:
        """The realisation plan of the uniform policy."""
        return self._plan(player, self._uniform[player])

    def pure(self, player: int, best: Mapping[str, int]) -> Floats:
        """The realisation plan of a deterministic policy, given as key -> action; the first action where it is silent."""
        own = self.players[player]
        behaviour = np.zeros(len(own.parent) - 1)
        for key, actions, first in zip(own.key, own.actions, own.first, strict=True):
            chosen = best.get(key)
            behaviour[first - 1 + (actions.index(chosen) if chosen is not None else 0)] = 1.0
        return self._plan(player, behaviour)

    def _plan(self, player: int, behaviour: Floats) -> Floats:
        plan = np.ones(len(behaviour) + 1)
        for level in self._levels[player]:
            plan[level] = plan[self._parent[player][level]] * behaviour[level - 1]
        return plan

    def behavior(self, player: int, plan: Floats, *, tremble: float = 0.0) -> Floats:
        """Action probabilities per sequence but the empty one; uniform where the plan does not reach.

        With a tremble, every decision is uniform with that probability, so that every sequence is reached.
        """
        reach = plan[self._parent[player][1:]]
        uniform = self._uniform[player]
        played = np.where(reach > 0, plan[1:] / np.where(reach > 0, reach, 1.0), uniform)
        return np.minimum((1.0 - tremble) * played + tremble * uniform, 1.0)  # pyspiel refuses 1 + rounding

    def policy_dict(self, player: int, plan: Floats, *, tremble: float = 0.0) -> dict[str, list[tuple[int, float]]]:
        """The plan as pyspiel wants it: key -> [(action, probability)]."""
        probabilities = self.behavior(player, plan, tremble=tremble).tolist()
        return {key: [(a, probabilities[i]) for a, i in pairs] for key, pairs in self._rows[player]}


def _levels(parent: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Sequences by depth, the empty one left out, so that a plan is a few gathers instead of a loop."""
    depth = np.zeros(len(parent), dtype=int)
    for sequence in range(1, len(parent)):
        depth[sequence] = depth[parent[sequence]] + 1
    return [np.flatnonzero(depth == d) for d in range(1, int(depth.max()) + 1)]


def _row_maker(own: Sequences) -> list[tuple[str, list[tuple[int, int]]]]:
    """Per information state its key and (action, index into the behaviour vector)."""
    return [
        (key, [(action, first - 1 + offset) for offset, action in enumerate(actions)])
        for key, actions, first in zip(own.key, own.actions, own.first, strict=True)
    ]
