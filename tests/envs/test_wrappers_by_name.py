"""Wrappers by name, and what is said about mistakes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gymnasium.spaces import Discrete
from python_games import Turns, spec
from wrapped_games import SEEDS, Wrap, poker, screens, teams, turns

from ludus.core.errors import ConfigError, EnvError
from ludus.envs import wrappers as w
from ludus.envs.base import VectorEnv
from ludus.envs.python_vector import PythonVectorEnv
from ludus.envs.registry import make_env


def test_wrap_applies_in_order_and_passes_the_rest_on() -> None:
    env = w.wrap(screens(2), [{"kind": "grayscale"}, "flatten_observation", {"kind": "frame_stack", "k": 2}])
    assert env.spec.agents[0].observation.shape == (2, 24)
    env.reset(SEEDS)
    assert env.render(1) == "frame 0"  # type: ignore[attr-defined]
    assert env.snapshot() is None
    assert env.waited == env.restarts == 0  # type: ignore[attr-defined]
    made = make_env("openspiel/kuhn_poker", num_envs=2, tree="off", wrappers=[{"kind": "frame_stack", "k": 2}])
    assert made.spec.agents[0].observation.shape == (2, 11)


def test_a_snapshot_of_other_wrappers_is_refused() -> None:
    env = w.frame_stack(poker(2), 2)
    env.reset(SEEDS)
    snapshot = env.snapshot()
    assert snapshot is not None
    with pytest.raises(EnvError, match="made under other wrappers"):
        w.clip_reward(poker(2)).restore(snapshot)
    with pytest.raises(EnvError, match="cannot be read"):
        w.frame_stack(poker(2), 2).restore(snapshot[:20])


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"kind": "frame_stak", "k": 2}, "unknown wrapper 'frame_stak'; did you mean 'frame_stack'"),
        ({"kind": "frame_stack", "n": 2}, r"unknown key 'n' \(known: k, pad, players\)"),
        ({"kind": "frame_stack"}, "wrapper 'frame_stack' needs 'k'"),
        ({"kind": "frame_stack", "k": 0}, "k=0 was given; a whole number from 1 on"),
        ({"kind": "frame_stack", "k": 2, "pad": "x"}, "pad='x' was given; allowed: first, zeros"),
        ({"kind": "frame_stack", "k": 2, "players": [5]}, r"players=\[5\] was given; .* has the players \[0, 1\]"),
        ({"k": 2}, "with `kind`"),
        (3, "given 3"),
        ({"kind": "test_wrappers_by_name:SEEDS"}, "is no function"),
        (
            {"kind": "test_wrappers_by_name:no_vector"},
            r"returned int, which is no vector of environments: it lacks `num_envs`, `spec`, close",
        ),
        (
            {"kind": "grayscale"},
            r"grayscale takes images uint8\[height, width, 3 or 1\]; player 0 .* sees float32\[2\]",
        ),
        ({"kind": "resize"}, r"resize takes images .* sees float32\[2\]"),
        ({"kind": "resize", "height": -1}, "height=-1 was given"),
        ({"kind": "scale_reward", "factor": 0}, "factor=0 was given"),
        ({"kind": "scale_reward", "factor": float("nan")}, "factor=nan was given; a finite number"),
        ({"kind": "clip_reward", "low": 1}, "low <= 0 <= high is needed"),
        ({"kind": "time_limit", "steps": 0}, "steps=0 was given"),
        ({"kind": "agent_ids"}, "no player of tests/python_game has several agents"),
        ({"kind": "mask_actions", "allowed": [3]}, r"allowed=\[3\] was given; a list of actions from 0 to 2"),
        ({"kind": "mask_actions", "allowed": []}, r"allowed=\[\] was given"),
        ({"kind": "group_players", "mapping": {"agent_7": 0}}, "'agent_7' fits no agent .*; did you mean 'agent_1'"),
        ({"kind": "group_players", "mapping": {"agent_0": 0}}, "nothing fits agent 'agent_1'"),
        ({"kind": "group_players", "mapping": {"*": 1}}, "number them 0, 1, 2 … without gaps"),
        ({"kind": "group_players", "mapping": {"*": -1}}, "given the player -1"),
        ({"kind": "group_players", "mapping": ["x"]}, "agents to players is needed"),
    ],
)
def test_mistakes(entry: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        w.wrap(turns(1), [entry])


def test_players_are_not_torn_apart_and_need_equal_spaces() -> None:
    with pytest.raises(ConfigError, match="players are merged, not torn apart"):
        w.group_players(teams(1), {"agent_0": 0, "*": 1})
    odd = spec([0, 1])
    odd = replace(odd, agents=(odd.agents[0], replace(odd.agents[1], action=Discrete(5))))
    env = PythonVectorEnv(Turns, 1, spec=odd, masked=(True, True))
    with pytest.raises(ConfigError, match="would both be player 0 and have other spaces"):
        w.group_players(env, {"*": 0})


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: w.frame_stack(env, 2),
        w.flatten_observation,
        w.scale_observation,
        lambda env: w.mask_actions(env, [0]),
        lambda env: w.group_players(env, {"*": 0}),
    ],
)
def test_compiled_games_show_ids_and_are_refused(wrap: Wrap) -> None:
    with pytest.raises(ConfigError, match=r'is compiled: its observations are ids .* Give tree="off"'):
        wrap(make_env("openspiel/kuhn_poker", num_envs=1))


def no_vector(env: VectorEnv) -> int:
    return env.num_envs


def test_a_vector_that_cannot_be_wrapped_is_closed() -> None:
    env = turns(1)
    env.reset(SEEDS[:1])
    with pytest.raises(ConfigError):
        w.wrap(env, ["flatten_observation", {"kind": "frame_stack", "k": -1}])
    with pytest.raises(EnvError, match="has not been reset yet"):
        env.render(0)


def test_resize_takes_no_frames_for_channels() -> None:
    grey = w.frame_stack(w.grayscale(screens(1)), 2)
    with pytest.raises(ConfigError, match=r"sees uint8\[2, 4, 6\], .* Put resize before frame_stack"):
        w.wrap(grey, [{"kind": "resize", "height": 2, "width": 3}])
