"""`ale/<game>`: the contract, agreement with ALE's vector itself, ends, options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from installed import require
from refusals import Refusal, check_refusals

from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.core.seeding import keys
from ludus.envs.adapters.native import AsyncNativeVectorEnv
from ludus.envs.base import VectorEnv
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env

require("ale_py")

SEEDS = keys(1, "ale", count=2)
SHORT = {"noop_max": 3, "max_num_frames_per_episode": 20, "threads": 1}  # 20 frames are 5 decisions


def vector(name: str, n: int, **options: Any) -> VectorEnv:
    return make_env(f"ale/{name}", num_envs=n, **{**SHORT, **options})


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"batch_size": 1}, marks=pytest.mark.long),
        pytest.param({"grayscale": False, "stack_num": 1}, marks=pytest.mark.long),
        pytest.param({"continuous": True}, marks=pytest.mark.long),
        {"episodic_life": True, "threads": 2},
    ],
)
def test_ale_satisfies_vector_env_contract(options: dict[str, Any]) -> None:
    check_env(lambda n: vector("breakout", n, **options), num_envs=2, steps=12)


@pytest.mark.slow
def test_agrees_with_a_plain_loop() -> None:
    """Observations, rewards and final observations are those of ALE's vector with these seeds."""
    from ale_py import vector_env as vectors

    bare = vectors.AtariVectorEnv(
        "pong", 2, noop_max=3, max_num_frames_per_episode=20, num_threads=1, autoreset_mode="SameStep"
    )
    env = vector("pong", 2)
    seen, _ = bare.reset(seed=np.array([int(s % 2**31) for s in SEEDS]))
    timestep = env.reset(SEEDS)
    rng, ends = np.random.default_rng(0), 0
    for _ in range(14):
        np.testing.assert_array_equal(timestep.due[0].observation, seen)
        assert timestep.due[0].observation.shape == (2, 4, 84, 84)
        acted = rng.integers(0, 6, 2)
        timestep = env.step((acted,))
        seen, reward, terminated, truncated, info = bare.step(acted)
        over = terminated | truncated
        assert timestep.ended[0].slot.tolist() == np.flatnonzero(over).tolist()
        assert timestep.ended[0].terminated.tolist() == terminated[over].tolist()
        finals = info["final_obs"] if over.any() else seen
        np.testing.assert_array_equal(timestep.ended[0].observation, finals[over])
        np.testing.assert_array_equal(timestep.ended[0].reward, reward[over])
        np.testing.assert_array_equal(timestep.due[0].reward, np.where(over, 0, reward))
        ends += int(over.sum())
    assert ends >= 4


@pytest.mark.slow
def test_a_second_reset_while_steps_are_under_way() -> None:
    """All environments begin anew, as those of a vector that was just made do; nothing comes from the old episodes."""
    fresh = vector("breakout", 2).reset(SEEDS).due[0].observation
    env = vector("breakout", 2, batch_size=1)
    for _ in range(2):
        timestep, begun = env.reset(SEEDS), set[int]()
        while len(begun) < 2:
            due = timestep.due[0]
            slot = int(due.slot[0])
            if slot not in begun:
                assert due.first.tolist() == [True]
                np.testing.assert_array_equal(due.observation[0], fresh[slot])
            begun.add(slot)
            timestep = env.step((np.zeros(1, np.int64),))


@pytest.mark.slow
def test_kinds_and_render() -> None:
    env = vector("pong", 2)
    spec = env.spec
    assert (spec.determinism, spec.num_players) == ("environment", 1)
    assert spec.agents[0].observation.dtype == np.uint8
    assert type(vector("pong", 2, batch_size=1)) is AsyncNativeVectorEnv
    with pytest.raises(EnvError, match="has not been reset"):
        env.render(0)  # type: ignore[attr-defined]
    timestep = env.reset(SEEDS)
    shown = env.render(1)  # type: ignore[attr-defined]
    assert shown.shape == (84, 84, 3)
    np.testing.assert_array_equal(shown[:, :, 0], timestep.due[0].observation[1, -1])


def test_names() -> None:
    assert {"ale/pong", "ale/ms_pacman", "ale/breakout"} <= set(list_envs("ale"))


WRONG: dict[str, Refusal] = {
    "typo": ("Pong", {}, UnknownName, "'Pong'; did you mean 'pong'"),
    "option": ("pong", {"stack": 4}, ConfigError, "'stack' for ale/pong; did you mean 'stack_num'"),
    "count": ("pong", {"frameskip": 0}, ConfigError, "frameskip=0 .* at least 1"),
    "crash": ("pong", {"stack_num": 0}, ConfigError, "stack_num=0 .* at least 1"),  # ends the process in ALE
    "flag": ("pong", {"grayscale": "x"}, ConfigError, "grayscale='x' .* expected bool, such as True"),
    "type": ("pong", {"img_height": 84.0}, ConfigError, "img_height=84.0 .* expected int, such as 84"),
    "probability": ("pong", {"repeat_action_probability": 2.0}, ConfigError, "=2.0 .* expected 0 to 1"),
    "lives": (
        "pong",
        {"life_loss_info": True, "batch_size": 1},
        ConfigError,
        "batch_size=1 of 2; .* episodic_life=true",
    ),
    "batch": ("pong", {"batch_size": 3}, ConfigError, "batch_size=3 .* expected 1 to num_envs=2"),
}


def test_wrong_ids_and_options() -> None:
    check_refusals(lambda name, **options: vector(name, 2, **options), WRONG.values())


def test_a_vector_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __init__(self, game: str, num_envs: int, img_height: int = 84, **_: Any) -> None:
            raise MemoryError("too large")

    monkeypatch.setattr("ludus.contrib.envs.ale.AtariVectorEnv", Broken)
    with pytest.raises(EnvError, match=r"ale/pong cannot be made .*'img_height': 900.*: MemoryError: too large"):
        make_env("ale/pong", num_envs=1, img_height=900)
