"""`check_bot`: what keeps the contract passes, what breaks it is told."""

from __future__ import annotations

import pytest

from ludus.core.errors import PolicyError, ScenarioError
from ludus.testing.bot import check_bot


@pytest.mark.parametrize(
    ("bot", "env"),
    [
        ("own_bots:First,last=true", "openspiel/kuhn_poker"),
        ("own_bots:Drawn", "openspiel/leduc_poker"),
        ("own_bots:Drawn", "openspiel/matrix_rps"),
        ("own_bots:Pole", "gymnasium/CartPole-v1"),
        ("mcts,simulations=5", "openspiel/connect_four"),
        ("ismcts,simulations=5", "openspiel/leduc_poker"),
        ("uniform_random", "openspiel/kuhn_poker(players=3)"),
        ("fixed_action_preference", "openspiel/matrix_rps"),
        ("uniform_restricted_actions,policy_name=AlwaysRaise", "openspiel/leduc_poker"),
    ],
)
def test_bots_that_keep_the_contract(bot: str, env: str) -> None:
    check_bot(bot, env, episodes=4)


@pytest.mark.parametrize(
    ("bot", "error", "words"),
    [
        ("own_bots:GlobalChance", AssertionError, "draws from the global streams"),
        ("own_bots:OwnChance", AssertionError, "plays other moves in the same episodes as player 0"),
        ("own_bots:Remembers", AssertionError, "plays an episode otherwise after others, as player 0"),
        ("own_bots:Raises", PolicyError, "no idea"),
        ("mcts", ScenarioError, "'mcts' cannot play"),
    ],
)
def test_bots_that_break_it(bot: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        check_bot(bot, "openspiel/leduc_poker")
