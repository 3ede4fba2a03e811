"""A two-player game that pays along the way; it is never registered with OpenSpiel."""

import pyspiel

ORDER = (0, 1, 1, 0)
TYPE = pyspiel.GameType(
    short_name="tree_toy_paying",
    long_name="Pays along the way",
    dynamics=pyspiel.GameType.Dynamics.SEQUENTIAL,
    chance_mode=pyspiel.GameType.ChanceMode.DETERMINISTIC,
    information=pyspiel.GameType.Information.PERFECT_INFORMATION,
    utility=pyspiel.GameType.Utility.GENERAL_SUM,
    reward_model=pyspiel.GameType.RewardModel.REWARDS,
    max_num_players=2,
    min_num_players=2,
    provides_information_state_string=True,
    provides_information_state_tensor=False,
    provides_observation_string=False,
    provides_observation_tensor=False,
    parameter_specification={},
)
INFO = pyspiel.GameInfo(
    num_distinct_actions=2,
    max_chance_outcomes=0,
    num_players=2,
    min_utility=-1.0,
    max_utility=3.5,
    utility_sum=None,
    max_game_length=len(ORDER),
)


class PayingGame(pyspiel.Game):
    """Players 0, 1, 1, 0 move; a mover gets 1 + action and the other -0.5, at once."""

    def __init__(self) -> None:
        super().__init__(TYPE, INFO, {})

    def new_initial_state(self) -> "PayingState":
        return PayingState(self)


class PayingState(pyspiel.State):
    def __init__(self, game: PayingGame) -> None:
        super().__init__(game)
        self.moves: list[int] = []

    def current_player(self) -> int:
        return int(pyspiel.PlayerId.TERMINAL) if self.is_terminal() else ORDER[len(self.moves)]

    def is_terminal(self) -> bool:
        return len(self.moves) == len(ORDER)

    def _legal_actions(self, player: int) -> list[int]:
        return [0, 1]

    def _apply_action(self, action: int) -> None:
        self.moves.append(action)

    def _reward(self, k: int) -> list[float]:
        return [1.0 + self.moves[k] if p == ORDER[k] else -0.5 for p in range(2)]

    def rewards(self) -> list[float]:
        return self._reward(len(self.moves) - 1) if self.moves else [0.0, 0.0]

    def returns(self) -> list[float]:
        return [sum(self._reward(k)[p] for k in range(len(self.moves))) for p in range(2)]

    def information_state_string(self, player: int | None = None) -> str:
        return "".join(map(str, self.moves))

    def _action_to_string(self, player: int, action: int) -> str:
        return str(action)

    def __str__(self) -> str:
        return self.information_state_string()
