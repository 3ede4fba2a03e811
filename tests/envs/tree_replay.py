"""A reference for one environment of a tree (the same game through pyspiel, one state at a time), and random play."""

from collections.abc import Iterator

import numpy as np
import pyspiel

from ludus.core.seeding import mix, uniform
from ludus.core.types import Enumeration, Timestep
from ludus.envs.tree.game_tree import GameTree
from ludus.envs.tree.vector import TreeVectorEnv

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Replay:
    """One environment played through pyspiel, with chance drawn as the contract says; the reference for one slot."""

    def __init__(self, game: object, tree: GameTree, seed: int) -> None:
        self.game, self.tree, self.seed = game, tree, np.uint64(seed)
        self.players = range(tree.num_players)
        table: Enumeration = tree.enumeration
        self.ids = [{table.key[i]: i for i in range(*table.ids(p).indices(len(table.key)))} for p in self.players]
        self.episode = -1
        self.begin()

    def begin(self) -> None:
        self.episode += 1
        with np.errstate(over="ignore"):
            self.key = np.uint64(mix(self.seed ^ np.uint64(mix(GOLDEN * np.uint64(self.episode + 1)))))
        self.events = self.length = 0
        self.state = self.game.new_initial_state()
        self.open = [False for _ in self.players]
        self.pending = [0.0 for _ in self.players]
        self.chance()

    def chance(self) -> None:
        while self.state.is_chance_node():
            u, total = uniform(self.key, np.uint64(self.events)), 0.0
            self.events += 1
            outcomes = self.state.chance_outcomes()
            for outcome, prob in outcomes:
                total += prob
                if u < total or outcome == outcomes[-1][0]:
                    break
            self.state.apply_action(outcome)
            self.earn()

    def earn(self) -> None:
        for p, reward in enumerate(self.state.rewards()):
            self.pending[p] += reward

    def movers(self) -> list[int]:
        if self.state.is_simultaneous_node():
            return [p for p in self.players if self.state.legal_actions(p)]
        return [self.state.current_player()]

    def due(self) -> dict[int, tuple[int, float, bool]]:
        """player -> (id, reward, first); the open decisions of these players are renewed."""
        rows = {}
        for p in self.movers():
            first = not self.open[p]
            key = self.state.information_state_string(p)
            rows[p] = (self.ids[p][key], 0.0 if first else self.pending[p], first)
            self.open[p], self.pending[p] = True, 0.0
        return rows

    def step(self, actions: dict[int, int]) -> tuple[dict[int, float], tuple[list[float], int] | None]:
        """(player -> reward of the decision that closes, (returns, length) if the episode ended)."""
        self.length += 1
        if self.state.is_simultaneous_node():
            self.state.apply_actions([actions.get(p, pyspiel.INVALID_ACTION) for p in self.players])
        else:
            self.state.apply_action(actions[self.state.current_player()])
        self.earn()
        self.chance()
        if not self.state.is_terminal():
            return {}, None
        ended = {p: self.pending[p] for p in self.players if self.open[p]}
        result = self.state.returns(), self.length
        self.begin()
        return ended, result


def legal(tree: GameTree, timestep: Timestep, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """One random legal action for each due decision."""
    noise = [rng.random((len(d.slot), tree.num_actions)) for d in timestep.due]
    return tuple(
        np.where(tree.enumeration.mask[d.observation], n, -1.0).argmax(axis=1)
        for d, n in zip(timestep.due, noise, strict=True)
    )


def play(env: TreeVectorEnv, tree: GameTree, timestep: Timestep, seed: int) -> Iterator[Timestep]:
    """Random steps until nothing is due."""
    rng = np.random.default_rng(seed)
    while any(len(d.slot) for d in timestep.due):
        timestep = env.step(legal(tree, timestep, rng))
        yield timestep
