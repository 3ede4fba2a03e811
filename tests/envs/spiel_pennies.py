"""An OpenSpiel game in Python as users write and register them: matching pennies for a stake."""

from __future__ import annotations

import numpy as np
import pyspiel

_TYPE = pyspiel.GameType(
    short_name="python_pennies_for",
    long_name="Matching pennies for a stake",
    dynamics=pyspiel.GameType.Dynamics.SIMULTANEOUS,
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
    parameter_specification={"stake": 1},
)


class Pennies(pyspiel.Game):
    def __init__(self, parameters=None):
        self.stake = (parameters or {}).get("stake", 1)
        info = pyspiel.GameInfo(
            num_distinct_actions=2,
            max_chance_outcomes=0,
            num_players=2,
            min_utility=-float(self.stake),
            max_utility=float(self.stake),
            utility_sum=0.0,
            max_game_length=1,
        )
        super().__init__(_TYPE, info, parameters or {})

    def new_initial_state(self):
        return State(self)

    def make_py_observer(self, iig_obs_type=None, params=None):
        return Observer()


class State(pyspiel.State):
    def __init__(self, game):
        super().__init__(game)
        self.stake, self.chosen = game.stake, []

    def current_player(self):
        return pyspiel.PlayerId.TERMINAL if self.chosen else pyspiel.PlayerId.SIMULTANEOUS

    def _legal_actions(self, player):
        return [0, 1]

    def _apply_actions(self, actions):
        self.chosen = list(actions)

    def _action_to_string(self, player, action):
        return ("heads", "tails")[action]

    def is_terminal(self):
        return bool(self.chosen)

    def returns(self):
        won = 0.0 if not self.chosen else self.stake * (1.0 if self.chosen[0] == self.chosen[1] else -1.0)
        return [won, -won]

    def __str__(self):
        return f"chosen {self.chosen}"


class Observer:
    def __init__(self):
        self.tensor = np.zeros(2, np.float32)
        self.dict = {"player": self.tensor}

    def set_from(self, state, player):
        self.tensor[:] = np.arange(2) == player

    def string_from(self, state, player):
        return f"player {player}"


pyspiel.register_game(_TYPE, Pennies)
