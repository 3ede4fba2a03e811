"""A limit of steps truncates, unless the episode is really over in its last permitted step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from last_steps import check_last_step, first_end
from mpe2 import simple_tag_v3
from pettingzoo import make as pettingzoo_make

from ludus.envs.adapters.gymnasium import quiet

PURSUIT: dict[str, Any] = {
    "x_size": 7, "y_size": 7, "n_evaders": 1, "n_pursuers": 8, "n_catch": 1, "surround": False, "freeze_evaders": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("id", "limit", "most", "options"),
    [
        ("gymnasium/CartPole-v1", "max_episode_steps", 200, {}),
        ("lbf/Foraging-5x5-2p-1f-v3", "max_episode_steps", 2000, {}),
        ("mpe2/simple_tag_v3", "max_cycles", 200, {"terminate_on_success": True}),
        ("pettingzoo/pursuit_v5", "max_cycles", 100, PURSUIT),
        ("pettingzoo/multiwalker_v9", "max_cycles", 500, {}),
        pytest.param("pettingzoo/knights_archers_zombies_v11", "max_cycles", 900, {}, marks=pytest.mark.slow),
    ],
)
def test_true_end_in_the_last_permitted_step_terminates(
    id: str, limit: str, most: int, options: dict[str, Any]
) -> None:
    check_last_step(id, limit, most=most, **options)


def test_mpe2_calls_success_in_the_last_step_a_truncation() -> None:
    """Why Ludus looks itself. If this fails, MPE2 has changed, and `_terminate_late_success` may go."""
    env: Any = simple_tag_v3.parallel_env(max_cycles=1, terminate_on_success=True)
    for seed in range(200):
        env.reset(seed=seed)
        *_, terminated, truncated, _ = env.step(dict.fromkeys(env.agents, 0))
        if env.aec_env.unwrapped.scenario.is_terminal(env.aec_env.unwrapped.world):
            break
    else:
        pytest.fail("no one was caught in the first step of 200 episodes")
    assert (set(terminated.values()), set(truncated.values())) == ({False}, {True})


def test_multiwalker_calls_its_limit_a_termination() -> None:
    """Why Ludus looks itself, and what it makes of it."""
    with quiet():  # Box2D's bindings warn
        env: Any = pettingzoo_make("parallel", "sisl/multiwalker-v9", max_cycles=3)
    env.reset(seed=0)
    nothing = np.zeros(4, np.float32)
    ends = [env.step(dict.fromkeys(env.agents, nothing))[2:4] for _ in range(3)]
    assert [set(terminated.values()) for terminated, _ in ends] == [{False}, {False}, {True}]
    assert set(ends[-1][1].values()) == {False}
    assert first_end("pettingzoo/multiwalker_v9", max_cycles=3, teams="one") == (3, False)
    assert first_end("pettingzoo/multiwalker_v9", max_cycles=3, api="aec") == (9, False)


def test_pursuit_calls_the_last_capture_in_the_last_step_a_truncation() -> None:
    """Why Ludus looks itself. If this fails, PettingZoo has changed, and `_terminate_late_capture` may go."""
    env: Any = pettingzoo_make("parallel", "sisl/pursuit-v5", max_cycles=1, **PURSUIT)
    for seed in range(100):
        env.reset(seed=seed)
        *_, terminated, truncated, _ = env.step(dict.fromkeys(env.agents, 4))
        if env.aec_env.unwrapped.env.is_terminal:
            break
    else:
        pytest.fail("no one was caught in the first step of 100 episodes")
    assert (set(terminated.values()), set(truncated.values())) == ({False}, {True})
