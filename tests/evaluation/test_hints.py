"""Whose hints are given by default, and what a search says of moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyspiel
import pytest

from ludus.apps.play.run_game import RunGame
from ludus.core.types import MetaSolution
from ludus.policies.bots import SupportsMoveStatistics, parse_bot


@pytest.mark.parametrize(("probs", "who"), [([0.5, 0.5], "@meta"), ([0.0, 1.0], "@meta"), ([1.0, 0.0], "@best")])
def test_the_random_policy_of_the_start_gives_no_hints_while_there_are_others(probs: list[float], who: str) -> None:
    """Of two members the first was not trained."""
    members = [SimpleNamespace(trained=False), SimpleNamespace(trained=True)]
    game = object.__new__(RunGame)
    game.run = cast(
        Any,
        SimpleNamespace(
            population=(0,),
            members={0: members},
            trained=lambda record: record.trained,
            solution=MetaSolution((np.array(probs),), 0.0),
        ),
    )
    assert game.default_hints(0) == who


def test_a_search_says_what_moves_are_worth() -> None:
    """x has two in the first row, and moves: the third wins."""
    state = pyspiel.load_game("tic_tac_toe").new_initial_state()
    for action in (0, 3, 1, 4):
        state.apply_action(action)
    bot: Any = parse_bot("mcts-200").make()
    assert isinstance(bot, SupportsMoveStatistics)
    bot.restart(0, 1)
    said = bot.move_statistics(state)
    assert said[2][1] == 1.0
    assert max(said, key=lambda action: said[action][0]) == 2
    assert sum(share for share, _ in said.values()) == pytest.approx(1)
    assert all(-1 <= value <= 1 for _, value in said.values())
    assert not isinstance(parse_bot("ismcts-50").make(), SupportsMoveStatistics)
