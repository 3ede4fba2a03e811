"""Behaviour cloning learns where decisions were recorded: in the same spaces, and an environment that shows the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Space
from test_behaviour_cloning import THREE, game, made_up, sides

from ludus.algorithms.ppo.config import PPO
from ludus.contrib.algorithms.bc.clone import clone
from ludus.contrib.algorithms.bc.demonstrations import check_environment
from ludus.core.errors import ConfigError, DataError
from ludus.envs.config import Environment
from ludus.replay.parquet import Recorded, TrajectoryOrigin

SEEN = Box(-1, 1, (2,), np.float32)


def refused(recorded: Recorded, observation: Space[Any], action: Space[Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        clone(recorded, game(observation, action), PPO(hidden=(4,)).policy)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (Box(-0.1, 0.1, (1,), np.float32), r"actions of Box\(-2.0, 2.0, \(1,\), float32\); .* of Box\(-0.1, 0.1, "),
        (Box(-2, 0.1, (1,), np.float32), "actions of Box"),
        (Box(-np.inf, np.inf, (1,), np.float32), r"of Box\(-inf, inf, .* Use the wrappers and options"),
        (Box(-2, 2, (1,), np.float64), r"of Box\(-2.0, 2.0, \(1,\), float64\)"),
        (Discrete(3), r"of Discrete\(3\)"),
    ],
)
def test_actions_in_other_boxes_are_refused(action: Space[Any], words: str) -> None:
    x, taken = np.zeros((9, 2), np.float32), np.zeros((9, 1), np.float32)
    recorded = made_up(x, taken, space=Box(-2, 2, (1,), np.float32))
    refused(recorded, SEEN, action, words)


def test_numbers_are_no_real_actions() -> None:
    recorded = made_up(np.zeros((9, 2), np.float32), np.zeros(9, np.int32))
    refused(recorded, SEEN, Box(-1, 1, (), np.float32), r"actions of Discrete\(3\)")


def test_observations_of_another_type_are_refused() -> None:
    recorded = sides(20)
    words = r"observations of Box\(-1.0, 1.0, \(2,\), float32\); .* of Box\(0, 255, \(2,\), uint8\)"
    refused(recorded, Box(0, 255, (2,), np.uint8), Discrete(3), words)
    clone(recorded, game(Box(-5, np.inf, (2,), np.float32), Discrete(3)), PPO(hidden=(4,)).policy)


# ------------------------------------------------------------------------------------------ environments


def recorded_in(**settings: Any) -> TrajectoryOrigin:
    environment = Environment(id="tests/made_up", **settings).model_dump(mode="json")
    return replace(sides(2).origin, notes={"seed": 3, "environment": environment})


def check(origin: TrajectoryOrigin, **settings: Any) -> None:
    check_environment(origin, Environment(**{"id": "tests/made_up", **settings}).model_dump(mode="json"))


STACK = {"kind": "frame_stack", "k": 4}


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        ({}, {"id": "tests/other"}, 'recorded with env.id="tests/made_up"; the scenario has "tests/other"'),
        ({}, {"wrappers": [STACK]}, r'env.wrappers=\[\]; the scenario has \[{"kind": "frame_stack", "k": 4}\]'),
        ({"wrappers": [STACK]}, {"wrappers": [{"kind": "frame_stack", "k": 2}]}, "env.wrappers"),
        ({"wrappers": ["grayscale", STACK]}, {"wrappers": [STACK, "grayscale"]}, "env.wrappers"),
        (
            {"options": {"high": 2.0}},
            {"options": {"high": 0.1}},
            'with env.options={"high": 2.0}; the .* {"high": 0.1}',
        ),
        ({"options": {"size": 2}}, {}, "Give env.options as it was, or record in this environment"),
    ],
)
def test_another_environment_is_refused(theirs: dict[str, Any], ours: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check(recorded_in(**theirs), **ours)


@pytest.mark.parametrize(
    "ours",
    [
        {"num_envs": 3, "workers": 2, "deadline": 5.0, "restarts": 1, "tree": "off", "node_limit": 7},
        {"wrappers": [{"kind": "scale_reward", "factor": 2.0}, STACK, "joint_state"]},
        {"options": {"limits": [1, 2], "symmetry": [[0, 1]], "state": True, "statistics": [], "rewards": {"win": 1}}},
    ],
)
def test_unseen_environment_options_may_differ(ours: dict[str, Any]) -> None:
    check(
        recorded_in(wrappers=[STACK], options={"limits": (1, 2)}),
        **{"wrappers": [STACK], "options": {"limits": [1, 2]}, **ours},
    )


@pytest.mark.parametrize("notes", [{}, {"seed": 1, "environment": "at home"}, {"environment": {"machine": "mine"}}])
def test_files_that_do_not_say_where_they_were_recorded_are_taken(notes: dict[str, Any]) -> None:
    recorded = sides(20)
    recorded = Recorded(replace(recorded.origin, notes=notes), recorded.trajectories)
    check(recorded.origin, wrappers=[STACK])
    clone(recorded, THREE, PPO(hidden=(4,)).policy)
