"""OpenSpiel's games as arrays beside OpenSpiel's own states, move by move: everything that a player or a learner is shown must be equal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.types import Timestep
from ludus.envs.openspiel.games import load_game
from ludus.envs.openspiel.states import TERMINAL, ChanceStream, OpenSpielGame
from ludus.envs.registry import make_env


def compare(
    name: str, *, moves: int, tensors: str = "auto", seed: int = 0, num_envs: int = 32, openings: int = 0
) -> int:
    """Play at random in both until so many moves were made; how many that were.

    Compared before each move: who is to move, legal actions, the tensor of each player to move. At each end: returns, rewards, length.
    Every 16 steps: OpenSpiel's serialised states (histories, chance included) with those that the vector's moves lead to.

    Args:
        name: A game string, without `openspiel/`.
        moves: Moves of all environments together; simultaneous moves of a step are one.
        tensors: As the option `observation`.
        seed: Of the players and of chance.
        num_envs: Number of environments.
        openings: As the option.

    Raises:
        AssertionError: Something differs.
    """
    options: dict[str, Any] = {"observation": tensors, "openings": openings}
    env = make_env(f"openspiel/{name}", num_envs=num_envs, tree="off", fast="on", **options)
    beside = _States(name, num_envs, tensors, openings)
    rng = np.random.default_rng(seed)
    seeds = rng.integers(2**63, size=num_envs, dtype=np.uint64)
    timestep = env.reset(seeds)
    beside.reset(seeds)
    done = steps = 0
    while done < moves:
        beside.check(timestep, f"{name}, {tensors}, seed {seed}, step {steps}")
        if steps % 16 == 0:
            for e, state in enumerate(beside.states):
                assert env.state(e).serialize() == state.serialize(), f"{name}: histories of environment {e} differ"
        actions = [np.array([_pick(mask, rng) for mask in due.mask], np.int64) for due in timestep.due]
        beside.apply(timestep, actions)
        timestep = env.step(tuple(actions))
        done += num_envs
        steps += 1
    return done


def _pick(mask: NDArray[np.bool_], rng: np.random.Generator) -> int:
    legal = np.flatnonzero(mask)
    return int(legal[int(rng.random() * len(legal))])


class _States:
    """OpenSpiel's states of the same seeds."""

    def __init__(self, name: str, num_envs: int, tensors: str, openings: int) -> None:
        game = load_game(name)
        self._game = OpenSpielGame(game, openings)
        full = tensors != "observation" and game.get_type().provides_information_state_tensor
        self._tensor = "information_state_tensor" if full else "observation_tensor"
        self._ended: list[tuple[int, list[float], int]] = []  # environment, returns, length
        self._length = [0] * num_envs
        self._decided = np.zeros((game.num_players(), num_envs), np.bool_)

    def reset(self, seeds: NDArray[np.uint64]) -> None:
        self._chance = [ChanceStream(int(seed)) for seed in seeds]
        self.states = [self._begin(chance) for chance in self._chance]

    def _begin(self, chance: ChanceStream) -> Any:
        state = self._game.new_state(chance)
        chance.play(state)
        return state

    def check(self, timestep: Timestep, when: str) -> None:
        """Raise AssertionError unless the timestep shows these states."""
        expected = [
            [e for e, s in enumerate(self.states) if p in self._game.movers(s)] for p in range(self._game.players)
        ]
        for p, due in enumerate(timestep.due):
            assert due.slot.tolist() == expected[p], f"{when}: player {p} is to move in other environments"
            for row, e in enumerate(due.slot.tolist()):
                state = self.states[e]
                assert due.mask is not None
                assert np.flatnonzero(due.mask[row]).tolist() == state.legal_actions(p), (
                    f"{when}: legal actions, {state}"
                )
                tensor = np.array(getattr(state, self._tensor)(p), np.float32)
                assert np.array_equal(due.observation[row], tensor), f"{when}: the tensor of player {p}, {state}"
            assert np.array_equal(due.first, ~self._decided[p, due.slot]), f"{when}: first decisions"
            self._decided[p, due.slot] = True
            assert not due.reward.any(), f"{when}: a reward before the end"
        self._check_ends(timestep, when)

    def _check_ends(self, timestep: Timestep, when: str) -> None:
        finished = timestep.finished
        rows = list(
            zip(finished.environment.tolist(), finished.returns.tolist(), finished.length.tolist(), strict=True)
        )
        assert rows == self._ended, f"{when}: {rows} ended, not {self._ended}"
        returns = {e: values for e, values, _ in self._ended}
        for p, closed in enumerate(timestep.ended):
            paid = np.array([returns[e][p] for e in closed.slot.tolist()], np.float32)
            assert np.array_equal(closed.reward, paid), f"{when}: rewards at the end"

    def apply(self, timestep: Timestep, actions: list[NDArray[np.int64]]) -> None:
        """Make the moves, and chance's; what ends begins again."""
        self._ended = []
        chosen = dict(self._chosen(timestep, actions))
        for e, moves in sorted(chosen.items()):
            state = self.states[e]
            if state.is_simultaneous_node():
                state.apply_actions([moves[p] for p in range(self._game.players)])
            else:
                state.apply_action(moves[state.current_player()])
            self._length[e] += 1
            if self._chance[e].play(state) == TERMINAL:
                self._ended.append((e, state.returns(), self._length[e]))
                self._chance[e].renew()
                self.states[e], self._length[e] = self._begin(self._chance[e]), 0
                self._decided[:, e] = False

    @staticmethod
    def _chosen(timestep: Timestep, actions: list[NDArray[np.int64]]) -> Iterator[tuple[int, dict[int, int]]]:
        by_environment: dict[int, dict[int, int]] = {}
        for p, due in enumerate(timestep.due):
            for e, action in zip(due.slot.tolist(), actions[p].tolist(), strict=True):
                by_environment.setdefault(e, {})[p] = action
        yield from by_environment.items()
