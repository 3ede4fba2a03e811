"""The scripted football side as a policy and as a bot by name."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.contrib.football.bots import FootballScript, _allowed
from ludus.contrib.football.view import Action
from ludus.core.errors import PolicyError
from ludus.core.types import PolicySpec
from ludus.policies.bots import parse_bot
from ludus.policies.registry import build_policy

SPEC = PolicySpec("football_script", {})


def mask(*legal: Action) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    out = np.zeros((1, len(Action)), np.bool_)
    out[0, list(legal)] = True
    return out


def test_a_bot_by_name_is_this_policy() -> None:
    bot = parse_bot("football_script,shot=0.5,chasers=1")
    spec = bot.policy_spec()
    assert spec == PolicySpec("football_script", {"shot": 0.5, "chasers": 1})
    assert isinstance(build_policy(spec, {}), FootballScript)
    assert build_policy(spec, {}).weights() == {}


@pytest.mark.parametrize("config", [{"shoot": 0.5}, {"shot": "far"}, {"shot": True}])
def test_other_options_are_refused(config: dict[str, object]) -> None:
    with pytest.raises(PolicyError, match=f"{next(iter(config))}=.* expected numbers for some of shot, hurried_shot"):
        build_policy(PolicySpec("football_script", config), {})


def test_other_observations_are_refused() -> None:
    with pytest.raises(PolicyError, match="those of football/… with the option observation: features"):
        build_policy(SPEC, {}).act(np.zeros((1, 115), np.float32), None, None, np.zeros((1, 1), np.float32))


@pytest.mark.parametrize(
    ("wanted", "legal", "played"),
    [
        (Action.LONG_PASS, (Action.IDLE, Action.SHORT_PASS, Action.SHOT), Action.SHORT_PASS),
        (Action.SHORT_PASS, (Action.IDLE, Action.SHOT), Action.SHOT),
        (Action.SHOT, (Action.IDLE, Action.RIGHT), Action.IDLE),
        (Action.RIGHT, (Action.IDLE, Action.SHORT_PASS), Action.IDLE),
        (Action.RIGHT, (Action.IDLE, Action.RIGHT), Action.RIGHT),
    ],
)
def test_illegal_choice_falls_back_to_a_legal_action(wanted: Action, legal: tuple[Action, ...], played: Action) -> None:
    assert _allowed(np.array([wanted], np.int32), mask(*legal)) == [played]


def test_other_modes_are_refused() -> None:
    with pytest.raises(PolicyError, match="'football_script' has no mode 'best'; it has explore, greedy"):
        build_policy(SPEC, {}).act(
            np.zeros((1, 232), np.float32), None, None, np.zeros((1, 1), np.float32), mode="best"
        )
