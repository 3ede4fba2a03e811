"""Conditions on steps: what they mean, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ludus.apps.episodes.breakpoints import NAMES, Known, StepScope, parse_breakpoint
from ludus.core.errors import ConfigError

KNOWN = Known(players=2, observation=3, columns=("x", "y", "speed"))


@dataclass
class Made:
    """A decision."""

    player: int
    agent: int
    action: Any
    observation: Any
    prob: float = 0.25
    logp: float = -1.5
    value: float = 2.0
    legal: int = 3


STEP = StepScope(
    step=4,
    reward=np.array([1.0, -1.0]),
    returns=np.array([3.0, -3.0]),
    due=np.array([True, False]),
    terminated=True,
    truncated=False,
    decisions=(
        Made(0, 0, np.array(2), np.array([0.5, -1.0, 7.0])),
        Made(0, 1, np.array(1), np.array([0.0, 0.0, 0.0]), prob=np.nan, value=np.nan),
    ),
)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("reward[0] > 0", True),
        ("reward[1] > 0", False),
        ("return[0] == 3 and return[1] == -3", True),
        ("step >= 4", True),
        ("step % 2 == 1", False),
        ("due[0] and not due[1]", True),
        ("terminated or truncated", True),
        ("truncated", False),
        ("action == 2", True),
        ("action == 3", False),
        ("player == 0 and agent == 1 and action == 1", True),
        ("agent == 1 and action == 2", False),  # not of two decisions at once
        ("observation[2] > 6", True),
        ('observation["speed"] > 6 and observation["y"] < 0', True),
        ("prob < 0.3", True),
        ("prob > 0.3", False),  # a NaN is not
        ("value / 2 == 1", True),
        ("logp < -1 < reward[0] <= 1", True),
        ("legal == 3", True),
        ("reward < 0", False),  # of the decision's own player
        ("reward > 0", True),
        ("abs(reward[1]) == max(0, 1, min(5, 2) - 1)", True),
        ("step // 3 + step / 8 * 2 == 2", True),
        ("step / 0 > 0 or step // 0 < 0 or step % 0 == 0", False),
        ("-step < 0 and +step > 0 and True", True),
    ],
)
def test_conditions_that_hold(text: str, holds: bool) -> None:
    assert parse_breakpoint(text, KNOWN).holds(STEP) is holds


def test_without_a_decision_what_is_asked_of_one_does_not_hold() -> None:
    nobody = StepScope(0, np.zeros(2), np.zeros(2), np.zeros(2, np.bool_), False, False)
    assert not parse_breakpoint("action != 7", KNOWN).holds(nobody)
    assert parse_breakpoint("reward[0] == 0", KNOWN).holds(nobody)


def test_of_one_player_a_name_needs_no_number() -> None:
    alone = Known(players=1, observation=1)
    condition = parse_breakpoint("return > 2 and reward >= 1", alone)
    assert not condition.of_decisions
    one = StepScope(0, np.array([1.0]), np.array([3.0]), np.array([True]), False, False)
    assert condition.holds(one)
    with pytest.raises(ConfigError, match=r"does not name what is seen, so 'x' is not known; write observation\[0\]"):
        parse_breakpoint('observation["x"] > 0', alone)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no condition was given"),
        ("reward[0] >", "cannot be read: invalid syntax"),
        ("reward[0] = 1", "cannot be read"),
        ("rewards[0] > 1", "unknown name in a condition 'rewards'; did you mean 'reward'?"),
        ("reward[2] > 0", "there are 2 players, from 0 to 1"),
        ("reward[-1] > 0", "a whole number was expected in reward[-1]"),
        ("observation[3] > 0", "there are 3 numbers, from 0 to 2"),
        ('observation["sped"] > 0', "unknown column of observations 'sped'; did you mean 'speed'?"),
        ("observation > 0", "write observation[0]"),
        ("step[0] > 0", "step is one number; leave [ ] out"),
        ("action in (1, 2)", "is not a comparison of numbers"),
        ("step is 3", "is not a comparison of numbers"),
        ("'a' == 'a'", "'a' is no number"),
        ("step ** 9 > 1", "'step ** 9' is not a part of conditions"),
        ("~step > 1", "'~step' is not a part of conditions"),
        ("sum(1, 2) > 0", "there is no function 'sum'; there are abs, min or max"),
        ("abs(1, 2) > 0", "abs takes one number"),
        ("max(step) > 0", "max takes two numbers or more"),
        ("__import__('os').system('ls')", "there is no function"),
        ("().__class__", "is not a part of conditions"),
        ("(lambda: 1)()", "there is no function"),
        ("[x for x in (1,)]", "is not a part of conditions"),
        ("(step := 3) > 1", "is not a part of conditions"),
        ("step > 1 if step else 2", "is not a part of conditions"),
        ("(" * 220 + "1" + ")" * 220, "cannot be read"),
        ("1 + " * 200 + "1", "500 are allowed"),
        (f"reward[0] * 1{'0' * 400} > 0", "a number of 401 digits is too large"),
    ],
)
def test_malformed_conditions_are_rejected(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_breakpoint(text, KNOWN)
    assert words in str(error.value)


def test_a_wrong_condition_is_told_the_names() -> None:
    with pytest.raises(ConfigError, match=", ".join(NAMES)):
        parse_breakpoint("step ** 2", KNOWN)


def test_vectors_of_actions_are_asked_by_number() -> None:
    known = Known(players=1, observation=1, action=2)
    step = StepScope(
        0,
        np.zeros(1),
        np.zeros(1),
        np.array([True]),
        False,
        False,
        (Made(0, 0, np.array([0.5, -0.5]), np.zeros(1)),),
    )
    assert parse_breakpoint("action[1] < 0", known).holds(step)
    with pytest.raises(ConfigError, match=r"write action\[0\] to action\[1\]"):
        parse_breakpoint("action < 0", known)
