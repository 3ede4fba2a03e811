"""The vector of functional environments: rows, ends, seeds and devices, on a game that is worked out by hand; who loads JAX."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import torch
from jax_games import Relay, check_on_a_device, relay

from ludus.contrib.envs.functional.factory import functional_vector
from ludus.contrib.envs.functional.game import agent_rewards
from ludus.core.errors import EnvError
from ludus.core.seeding import keys
from ludus.envs.device_vector import OffersDevice
from ludus.testing.env import check_env

SEEDS = keys(5, "functional", count=2)


def test_functional_envs_satisfy_vector_env_contract() -> None:
    check_env(relay, num_envs=2, steps=20)


def test_an_episode_by_hand() -> None:
    env = relay(2)
    timestep = env.reset(SEEDS, episodes=1)
    draws = timestep.due[0].observation[::2, 1].copy()
    assert len(set(draws.tolist())) == 2
    choices = {t: [1, 0] for t in (0, 2, 4)}  # of b_0 in both environments
    for t in range(5):
        a, b = timestep.due
        assert a.slot.tolist() == ([0, 1, 2, 3] if t < 2 else [0, 2])
        assert b.slot.tolist() == ([0, 1] if t % 2 == 0 else [])
        assert a.observation[:, 0].tolist() == [t] * len(a.slot)
        assert a.observation[:, 1].tolist() == np.repeat(draws, len(a.slot) // 2).tolist()
        assert a.mask is not None
        assert a.mask.tolist() == (
            [[True, True, False], [True, False, False]] * 2 if t < 2 else [[True, True, False]] * 2
        )
        assert a.reward.tolist() == [t] * len(a.slot)
        assert b.reward.tolist() == ([20 * c if t else 0 for c in (1, 0)] if t % 2 == 0 else [])
        assert timestep.state is not None
        assert timestep.state.tolist() == [[t], [t]]
        timestep = env.step((np.zeros(len(a.slot), int), np.array(choices.get(t, []), int)))
    # The first environment is truncated after five steps. a_1 acted in two of them: what was paid later is its own, too.
    assert timestep.finished.environment.tolist() == [0]
    assert timestep.finished.returns.tolist() == [[30.0, 50.0]]
    assert timestep.finished.length.tolist() == [5]
    assert timestep.finished.terminated.tolist() == [False]
    a, b = timestep.ended
    assert a.slot.tolist() == [0, 1]
    assert a.reward.tolist() == [5.0, 2 + 3 + 4 + 5]
    assert a.terminated.tolist() == [False, False]
    assert a.observation[:, 0].tolist() == [5, 105]  # as `final` has it
    assert b.reward.tolist() == [10.0]
    assert timestep.final_state is not None
    assert timestep.final_state.tolist() == [[5]]
    assert timestep.due[0].slot.tolist() == [2]  # the first is idle
    for _ in range(2):
        rows = timestep.due[1].slot
        timestep = env.step((np.zeros(1, int), np.zeros(len(rows), int)))
    assert timestep.finished.terminated.tolist() == [True]
    assert timestep.finished.returns.tolist() == [[56.0, 0.0]]
    assert timestep.ended[0].terminated.all()
    assert [len(due.slot) for due in timestep.due] == [0, 0]


def test_each_episode_has_its_seed() -> None:
    """Episode k of an environment is drawn from (its seed, k), whoever else there is and whatever came before."""

    def draws(seeds: list[int], choice: int) -> list[list[float]]:
        env, out = relay(len(seeds)), [[] for _ in seeds]  # type: list[list[float]]
        timestep = env.reset(np.array(seeds, np.uint64))
        for _ in range(15):
            a = timestep.due[0]
            for slot, row, first in zip(a.slot, a.observation, a.first, strict=True):
                if first and slot % 2 == 0:
                    out[slot // 2].append(float(row[1]))
            actions = np.zeros(len(a.slot), int), np.full(len(timestep.due[1].slot), choice)
            timestep = env.step(actions)
        return out

    one, two = draws([11, 12], 0), draws([12, 13], 1)  # episodes of seven steps, and of five
    assert [len(row) for row in (*one, *two)] == [3, 3, 3, 3]
    assert one[1][:3] == two[0][:3]
    assert len({*one[0], *one[1], *two[1]}) == 9


@pytest.mark.parametrize("episodes", [None, 2])
def test_on_a_device_it_is_the_same(episodes: int | None) -> None:
    env = relay(2)
    assert isinstance(env, OffersDevice)
    assert check_on_a_device(env, "cpu", steps=16, episodes=episodes) >= 4


def test_faults_are_clear_errors() -> None:
    env = relay(2)
    with pytest.raises(EnvError, match="before reset"):
        env.step((np.zeros(4, int), np.zeros(2, int)))
    env.reset(SEEDS)
    with pytest.raises(EnvError, match="3 actions for 4 due"):
        env.step((np.zeros(3, int), np.zeros(2, int)))
    with pytest.raises(EnvError, match="illegal action 2"):
        env.step((np.array([0, 0, 2, 0]), np.zeros(2, int)))
    assert env.snapshot() is None
    device = env.on_device(torch.device("cpu"), num_envs=2)
    with pytest.raises(EnvError, match="before reset"):
        device.step(())
    with pytest.raises(EnvError, match="at least 1"):
        device.reset(1, episodes=0)
    with pytest.raises(EnvError, match=r"JAX .* sees no device cuda:7.*pip install"):
        env.on_device(torch.device("cuda:7"), num_envs=2)


def short_lived(factor: int) -> Any:
    """A function whose place in memory, and so what it is printed as, the next one may have."""
    return lambda agent: factor * int(agent[-1])


TEAMS = [
    {"a": ["a_0", "a_1"], "b": ["b_0"]},
    {"b": ["b_0"], "a": ["a_0", "a_1"]},
    {0: ["a_0", "a_1"], "b": ["b_0"]},
    lambda agent: agent[0],
    lambda agent: 0,
]


def test_a_program_is_that_of_its_players() -> None:
    def sizes(teams: Any) -> list[int]:
        env = functional_vector("toy/relay", lambda _: Relay(), num_envs=1, options={"teams": teams})
        return [len(env.spec.agents_of(p)) for p in range(env.spec.num_players)]

    assert [sizes(teams) for teams in TEAMS] == [[2, 1], [1, 2], [2, 1], [2, 1], [3]]
    assert [sizes(short_lived(k)) for k in range(2)] == [[3], [2, 1]]


@pytest.mark.slow
def test_nothing_else_loads_jax() -> None:
    line = (
        "import sys, ludus, ludus.cli.main, ludus.envs.registry, ludus.algorithms.common.registry; "
        "from ludus.envs.registry import make_env; "
        "make_env('openspiel/kuhn_poker', num_envs=1); print([m for m in ('jax', 'pgx', 'jaxmarl') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_a_reward_is_one_number_for_each_agent_or_for_all() -> None:
    assert agent_rewards(np.float64(2), 3, what="toy").tolist() == [2, 2, 2]
    assert agent_rewards(np.array([[1.0], [2.0]]), 2, what="toy").tolist() == [1, 2]
    with pytest.raises(
        EnvError, match=r"toy rewards 1 agents with numbers of shape \(2,\); expected one finite number"
    ):
        agent_rewards(np.zeros(2), 1, what="toy")
