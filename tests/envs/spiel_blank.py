"""An OpenSpiel game whose tensors say nothing: player 0 chooses two bits, one after the other, and player 1 guesses the first."""

from __future__ import annotations

import numpy as np
import pyspiel

_TYPE = pyspiel.GameType(
    short_name="python_blank_bits",
    long_name="Bits behind blank tensors",
    dynamics=pyspiel.GameType.Dynamics.SEQUENTIAL,
    chance_mode=pyspiel.GameType.ChanceMode.DETERMINISTIC,
    information=pyspiel.GameType.Information.IMPERFECT_INFORMATION,
    utility=pyspiel.GameType.Utility.ZERO_SUM,
    reward_model=pyspiel.GameType.RewardModel.TERMINAL,
    max_num_players=2,
    min_num_players=2,
    provides_information_state_string=True,
    provides_information_state_tensor=True,
    provides_observation_string=False,
    provides_observation_tensor=False,
    parameter_specification={},
)
_INFO = pyspiel.GameInfo(
    num_distinct_actions=2,
    max_chance_outcomes=0,
    num_players=2,
    min_utility=-1.0,
    max_utility=1.0,
    utility_sum=0.0,
    max_game_length=3,
)


class Bits(pyspiel.Game):
    def __init__(self, parameters=None):
        super().__init__(_TYPE, _INFO, parameters or {})

    def new_initial_state(self):
        return State(self)

    def make_py_observer(self, iig_obs_type=None, params=None):
        return Observer()


class State(pyspiel.State):
    def __init__(self, game):
        super().__init__(game)
        self.moves = []

    def current_player(self):
        return (0, 0, 1, pyspiel.PlayerId.TERMINAL)[len(self.moves)]

    def _legal_actions(self, player):
        return [0, 1]

    def _apply_action(self, action):
        self.moves.append(action)

    def _action_to_string(self, player, action):
        return str(action)

    def is_terminal(self):
        return len(self.moves) == 3

    def returns(self):
        won = 0.0 if len(self.moves) < 3 else (-1.0 if self.moves[0] == self.moves[2] else 1.0)
        return [won, -won]

    def __str__(self):
        return f"moves {self.moves}"


class Observer:
    def __init__(self):
        self.tensor = np.zeros(1, np.float32)
        self.dict = {"nothing": self.tensor}

    def set_from(self, state, player):
        pass

    def string_from(self, state, player):
        return f"player {player}: {state.moves if player == 0 else '?'}"


pyspiel.register_game(_TYPE, Bits)
