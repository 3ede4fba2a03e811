"""Two rounds of sealed bids for two bidders, as an OpenSpiel game: `import benchmarks.sealed_bids` registers "python_sealed_bids".

In each round every bidder is dealt a value of 1 to `VALUES` of its own, which only it sees, and bids at most the money that it has left of
`MONEY` for both rounds. The higher bid wins the value and is paid, a tie sells nothing, and both bids become public. A bidder earns its
profit minus the other's.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import pyspiel

VALUES: Final = 4
MONEY: Final = 4
ROUNDS: Final = 2
NAME: Final = "python_sealed_bids"

_DEALS = tuple(itertools.product(range(1, VALUES + 1), range(1, VALUES + 1)))
_TYPE = pyspiel.GameType(
    short_name=NAME,
    long_name="Sealed bids in two rounds",
    dynamics=pyspiel.GameType.Dynamics.SIMULTANEOUS,
    chance_mode=pyspiel.GameType.ChanceMode.EXPLICIT_STOCHASTIC,
    information=pyspiel.GameType.Information.IMPERFECT_INFORMATION,
    utility=pyspiel.GameType.Utility.ZERO_SUM,
    reward_model=pyspiel.GameType.RewardModel.TERMINAL,
    min_num_players=2,
    max_num_players=2,
    provides_information_state_string=True,
    provides_information_state_tensor=True,
    provides_observation_string=False,
    provides_observation_tensor=False,
    parameter_specification={},
)
_INFO = pyspiel.GameInfo(
    num_distinct_actions=MONEY + 1,
    max_chance_outcomes=len(_DEALS),
    num_players=2,
    min_utility=-float(ROUNDS * VALUES + MONEY),
    max_utility=float(ROUNDS * VALUES + MONEY),
    utility_sum=0.0,
    max_game_length=ROUNDS,
)


class SealedBids(pyspiel.Game):
    """The game."""

    def __init__(self, params: dict[str, Any] | None = None) -> None:
        super().__init__(_TYPE, _INFO, params or {})

    def new_initial_state(self) -> SealedBidsState:
        """Before the first deal."""
        return SealedBidsState(self)

    def make_py_observer(self, iig_obs_type: Any = None, params: Any = None) -> SealedBidsObserver:
        """What a bidder knows."""
        return SealedBidsObserver()


class SealedBidsState(pyspiel.State):
    """deals, bids: a pair of each round so far. money, profit: of each bidder."""

    def __init__(self, game: SealedBids) -> None:
        super().__init__(game)
        self.deals: list[tuple[int, int]] = []
        self.bids: list[tuple[int, int]] = []
        self.money = [MONEY, MONEY]
        self.profit = [0, 0]

    def current_player(self) -> int:
        """Chance deals, then both bid."""
        if self.is_terminal():
            return int(pyspiel.PlayerId.TERMINAL)
        chance = len(self.deals) == len(self.bids)
        return int(pyspiel.PlayerId.CHANCE if chance else pyspiel.PlayerId.SIMULTANEOUS)

    def is_terminal(self) -> bool:
        """After the bids of the last round."""
        return len(self.bids) == ROUNDS

    def chance_outcomes(self) -> list[tuple[int, float]]:
        """All pairs of values are as likely."""
        return [(deal, 1 / len(_DEALS)) for deal in range(len(_DEALS))]

    def returns(self) -> list[float]:
        """Profit beyond the other's."""
        ahead = float(self.profit[0] - self.profit[1]) if self.is_terminal() else 0.0
        return [ahead, -ahead]

    def _legal_actions(self, player: int) -> list[int]:
        return list(range(self.money[player] + 1))

    def _apply_action(self, action: int) -> None:
        self.deals.append(_DEALS[action])

    def _apply_actions(self, actions: list[int]) -> None:
        first, second = (int(action) for action in actions)
        self.bids.append((first, second))
        if first != second:
            winner = int(second > first)
            self.money[winner] -= (first, second)[winner]
            self.profit[winner] += self.deals[-1][winner] - (first, second)[winner]

    def _action_to_string(self, player: int, action: int) -> str:
        return f"deal {_DEALS[action]}" if player == pyspiel.PlayerId.CHANCE else f"bid {action}"

    def __str__(self) -> str:
        return f"deals {self.deals}, bids {self.bids}"


class SealedBidsObserver:
    """One-hot: the bidder, its value of each round, both bids of each round that is over."""

    def __init__(self) -> None:
        self.tensor = np.zeros(2 + ROUNDS * (VALUES + 2 * (MONEY + 1)), np.float32)
        self.dict = {"observation": self.tensor}

    def set_from(self, state: SealedBidsState, player: int) -> None:
        """Writes what `player` knows into `tensor`."""
        self.tensor.fill(0)
        self.tensor[player] = 1
        values = self.tensor[2 : 2 + ROUNDS * VALUES].reshape(ROUNDS, VALUES)
        for round, deal in enumerate(state.deals):
            values[round, deal[player] - 1] = 1
        known = self.tensor[2 + ROUNDS * VALUES :].reshape(ROUNDS, 2, MONEY + 1)
        for round, bids in enumerate(state.bids):
            known[round, 0, bids[0]] = known[round, 1, bids[1]] = 1

    def string_from(self, state: SealedBidsState, player: int) -> str:
        """The same in words."""
        return f"bidder {player}, values {[deal[player] for deal in state.deals]}, bids {state.bids}"


pyspiel.register_game(_TYPE, SealedBids)
