"""`rware/…`: the contract, agreement with a plain loop, ends, and what is refused."""

from __future__ import annotations

from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from gymnasium import registry
from gymnasium.envs.registration import load_env_creator
from gymnasium.spaces import MultiDiscrete
from refusals import Refusal, check_refusals
from zoo_replay import paid_as_in_a_plain_loop

from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env

ID = "rware/rware-tiny-2ag-v2"


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"teams": "one", "reward_type": "global"}])
def test_rware_satisfies_vector_env_contract(options: dict[str, Any]) -> None:
    check_env(lambda n: make_env(ID, num_envs=n, max_steps=12, **options), num_envs=2, steps=40, team="split")


@pytest.mark.slow
def test_a_plain_loop_is_paid_the_same() -> None:
    options = {"max_steps": 300, "layout": ".xx.\n.gg.\n....", "request_queue_size": 1}
    spec = registry["rware-tiny-2ag-v2"]
    make = partial(load_env_creator(spec.entry_point), **{**spec.kwargs, **options})
    found = paid_as_in_a_plain_loop(make_env(ID, num_envs=1, **options), make, episodes=3)
    assert [len(played.steps) for played in found] == [300] * 3
    assert sum(sum(played.returns) for played in found) > 0


def test_a_warehouse_never_ends_by_itself() -> None:
    env = make_env(ID, num_envs=1, max_steps=2)
    timestep = env.reset(np.array([1], np.uint64))
    for _ in range(2):
        timestep = env.step((np.zeros(1, np.int64), np.zeros(1, np.int64)))
    assert timestep.finished.terminated.tolist() == [False]
    assert timestep.ended[0].terminated.tolist() == [False]


def test_messages_and_images() -> None:
    talking = make_env(ID, num_envs=1, msg_bits=2)
    assert talking.spec.agents[0].action == MultiDiscrete([5, 2, 2])
    timestep = talking.reset(np.array([1], np.uint64))
    talking.step((np.array([[1, 0, 1]]), np.array([[0, 1, 1]])))
    assert timestep.due[0].slot.tolist() == [0]
    seeing = make_env("rware/rware-img-tiny-2ag-v2", num_envs=1)
    assert seeing.spec.agents[0].observation.shape == (5, 3, 3)


REFUSED: list[Refusal] = [
    ("rware/rware-tiny-99ag-v2", {}, UnknownName, "did you mean 'rware-tiny-9ag-v2'"),
    (ID, {"reward_type": "shared"}, ConfigError, "reward_type='shared' was given"),
    (ID, {"max_stepps": 3}, ConfigError, "no option 'max_stepps'; did you mean 'max_steps'"),
    ("rware/rware-tiny-19ag-easy-v2", {}, EnvError, "Cannot take a larger sample"),  # 38 requests, 32 shelves
]


def test_rware_rejects_invalid_ids_and_options() -> None:
    check_refusals(partial(make_env, num_envs=1), REFUSED)


def test_rware_lists_its_environments() -> None:
    assert len(list_envs("rware")) == 4 * 19 * 3  # sizes, agents and difficulties


@pytest.mark.long
def test_each_number_of_agents_satisfies_vector_env_contract() -> None:
    """Sizes and difficulties take turns: each size comes with each difficulty."""
    for agents, size, difficulty in zip(
        range(1, 20), cycle(["tiny", "small", "medium", "large"]), cycle(["-easy", "", "-hard"]), strict=False
    ):
        id = f"rware/rware-{size}-{agents}ag{difficulty}-v2"
        check_env(lambda n, id=id: make_env(id, num_envs=n, max_steps=5), num_envs=2, steps=12)  # type: ignore[misc]
