"""Sides that are left to the engine: the match is then the one that nobody steers on that side, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ludus.core.errors import ConfigError, EnvError, PolicyError
from ludus.core.types import PolicySpec, Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy

pytest.importorskip("gfootball_engine", reason="gfootball is not installed: make football")

from ludus.contrib.football.view import Action

EASY, HARD = len(Action), len(Action) + 1
SEEDS = np.array([7], np.uint64)


def both(**options: Any) -> VectorEnv:
    return make_env("football/5_vs_5", num_envs=1, sides="both", duration=60, second_half=30, **options)


@pytest.fixture(scope="module")
def env() -> Iterator[VectorEnv]:
    """One for all tests: each begins with a reset."""
    made = both(built_in=[0.05, 0.95])
    yield made
    made.close()


def all_choose(step: Timestep, player: int, action: int) -> np.ndarray[Any, Any]:
    return np.full(len(step.due[player].slot), action, np.int32)


def running(k: int) -> int:
    return (Action.RIGHT, Action.SPRINT, Action.TOP_RIGHT, Action.RIGHT)[k % 4]


@pytest.mark.slow
@pytest.mark.parametrize(("action", "difficulty"), [(EASY, 0.05), (HARD, 0.95)])
def test_it_is_the_match_in_which_nobody_steers_that_side(env: VectorEnv, action: int, difficulty: float) -> None:
    alone = make_env("football/5_vs_5", num_envs=1, difficulty=difficulty, duration=60, second_half=30)
    step, other = env.reset(SEEDS, episodes=1), alone.reset(SEEDS, episodes=1)
    for k in range(40):
        assert (step.due[0].observation == other.due[0].observation).all()
        step = env.step((all_choose(step, 0, running(k)), all_choose(step, 1, action)))
        other = alone.step((all_choose(other, 0, running(k)),))
        legal = step.due[1].mask
        assert legal is not None
        assert legal.sum(axis=1).tolist() == [1] * 4
        assert legal[:, action].all()
    alone.close()


def test_when_it_may_be_asked_for(env: VectorEnv) -> None:
    step = env.reset(SEEDS, episodes=1)
    for due in step.due:
        assert due.mask is not None
        assert due.mask[:, EASY:].all()
    step = env.step((all_choose(step, 0, Action.IDLE), all_choose(step, 1, Action.IDLE)))
    for due in step.due:
        assert due.mask is not None
        assert not due.mask[:, EASY:].any()
    with pytest.raises(EnvError, match="illegal action"):
        env.step((all_choose(step, 0, EASY), all_choose(step, 1, Action.IDLE)))


def test_built_in_action_is_idle_where_not_requested(env: VectorEnv) -> None:
    seen = []
    for first in ([EASY, EASY, EASY, HARD], [EASY, EASY, EASY, Action.IDLE], [Action.IDLE] * 4):
        step = env.reset(SEEDS, episodes=1)
        step = env.step((np.array(first, np.int32), all_choose(step, 1, Action.LEFT)))
        for _ in range(5):
            step = env.step((all_choose(step, 0, Action.RIGHT), all_choose(step, 1, Action.LEFT)))
        seen.append(step.due[0].observation.copy())
    assert (seen[0] == seen[2]).all()
    assert (seen[1] == seen[2]).all()


def test_both_sides_may_be_left_and_the_policy_leaves_them(env: VectorEnv) -> None:
    easy = build_policy(PolicySpec("football_built_in", {}), {})
    hard = build_policy(PolicySpec("football_built_in", {"level": 1}), {})
    step = env.reset(SEEDS, episodes=1)
    steps = 0
    while len(step.due[0].slot):
        acts = [
            p.act(d.observation, d.mask, None, np.zeros((4, 1), np.float32))
            for p, d in zip((easy, hard), step.due, strict=True)
        ]
        step = env.step((acts[0].action, acts[1].action))
        steps += 1
    assert acts[0].action.tolist() == [EASY] * 4
    assert acts[1].action.tolist() == [HARD] * 4
    assert 50 < steps <= 61
    assert step.finished.length.tolist() == [steps]


def test_built_in_side_rejects_invalid_options(env: VectorEnv) -> None:
    with pytest.raises(ConfigError, match=r"built_in=.*numbers from 0 to 1"):
        both(built_in=[1.5])
    with pytest.raises(ConfigError, match="built_in was given without masks"):
        both(built_in=[0.5], masks=None)
    with pytest.raises(PolicyError, match="expected level=0, 1"):
        build_policy(PolicySpec("football_built_in", {"level": "hard"}), {})
    third = build_policy(PolicySpec("football_built_in", {"level": 2}), {})
    step = env.reset(SEEDS, episodes=1)
    with pytest.raises(PolicyError, match="asked for level 2, and the environment has fewer difficulties"):
        third.act(step.due[0].observation, step.due[0].mask, None, np.zeros((4, 1), np.float32))
