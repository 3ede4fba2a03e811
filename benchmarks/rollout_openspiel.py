"""Loops over OpenSpiel's own API, as limits for the general path: decisions per second, self-play at random, one state at a time."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np


def bare(game_name: str) -> Callable[[int], int]:
    """A loop with tensors: apply, legal actions, the mover's observation; plays so many episodes and returns the decisions."""
    import pyspiel

    game = pyspiel.load_game(game_name)
    kind = game.get_type()
    name = "information_state_tensor" if kind.provides_information_state_tensor else "observation_tensor"

    def play(episodes: int) -> int:
        rng = random.Random(0)
        decisions = 0
        for _ in range(episodes):
            state = game.new_initial_state()
            while not state.is_terminal():
                mover = state.current_player()
                getattr(state, name)(mover)
                actions = state.legal_actions()
                state.apply_action(actions[int(rng.random() * len(actions))])
                decisions += 1
            state.returns()
        return decisions

    return play


def rl_environment(game_name: str) -> Callable[[int], int]:
    """OpenSpiel's own loop for learning agents: `open_spiel.python.rl_environment`."""
    from open_spiel.python import rl_environment as rl

    env = rl.Environment(game_name)

    def play(episodes: int) -> int:
        rng = random.Random(0)
        decisions = 0
        for _ in range(episodes):
            step = env.reset()
            while not step.last():
                actions = step.observations["legal_actions"][step.current_player()]
                step = env.step([actions[int(rng.random() * len(actions))]])
                decisions += 1
        return decisions

    return play


def calls(game_name: str, num_envs: int) -> Callable[[int], float]:
    """Only the calls that a vector of games needs: apply, who is to move, returns and a new state at an end, legal actions, the tensor into
    a reused array. Their seconds per decision over so many steps; actions are chosen outside of the clock."""
    from time import perf_counter

    import pyspiel

    game = pyspiel.load_game(game_name)
    kind = game.get_type()
    seen = pyspiel.IIGObservationType(
        perfect_recall=kind.provides_information_state_tensor,
        public_info=True,
        private_info=pyspiel.PrivateInfoType.SINGLE_PLAYER,
    )
    observation = pyspiel._Observation(game, game.make_observer(seen, {}))
    tensor = np.frombuffer(observation, np.float32)
    rows = np.empty((num_envs, len(tensor)), np.float32)

    def play(steps: int) -> float:
        rng = random.Random(0)
        states = [game.new_initial_state() for _ in range(num_envs)]
        legal = [state.legal_actions() for state in states]
        seconds = 0.0
        for _ in range(steps):
            moves = [actions[int(rng.random() * len(actions))] for actions in legal]
            begun = perf_counter()
            for e, move in enumerate(moves):
                state = states[e]
                state.apply_action(move)
                mover = state.current_player()
                if mover == pyspiel.PlayerId.TERMINAL:
                    state.returns()
                    states[e] = state = game.new_initial_state()
                    mover = state.current_player()
                observation.set_from(state, mover)
                rows[e] = tensor
                legal[e] = state.legal_actions()
            seconds += perf_counter() - begun
        return seconds / (steps * num_envs)

    return play
