"""`highway/…`, `momaland/…`, `craftax/…` and `xland/…` against modules that speak their packages' interfaces."""

from __future__ import annotations

import random
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

import brought_games
import numpy as np
import pytest
from refusals import Refusal, check_refusals

from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.envs.base import VectorEnv
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env


@pytest.fixture(autouse=True)
def _packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    brought_games.install_highway(monkeypatch)
    brought_games.install_momaland(monkeypatch, tmp_path)


@pytest.fixture
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX is imported for these, which takes seconds."""
    brought_games.install_craftax(monkeypatch)
    brought_games.install_xland(monkeypatch)
    monkeypatch.setattr("ludus.contrib.envs.functional.factory._programs", OrderedDict())


def begun(id: str, *, num_envs: int = 1, **options: Any) -> tuple[VectorEnv, Any]:
    env = make_env(id, num_envs=num_envs, **options)
    return env, env.reset(np.arange(5, 5 + num_envs, dtype=np.uint64))


def play(env: VectorEnv, timestep: Any, *actions: int) -> Any:
    return env.step(
        tuple(np.array([a][: len(due.slot)], np.int64) for a, due in zip(actions, timestep.due, strict=True))
    )


@pytest.mark.parametrize(
    ("id", "options"),
    [
        ("highway/intersection-multi-agent-v1", {"controlled_vehicles": 3}),
        ("highway/intersection-multi-agent-v0", {"teams": "one", "flatten": False}),
        ("momaland/mobeach_v0", {"num_agents": 3}),
        ("momaland/moturns_v0", {"weights": {"a": [1.0, 0.0], "b": [0.5, 2.0]}}),
    ],
)
def test_satisfies_vector_env_contract(id: str, options: dict[str, Any]) -> None:
    check_env(lambda n: make_env(id, num_envs=n, **options), num_envs=3, steps=20)


@pytest.mark.slow
@pytest.mark.usefixtures("_compiled")
@pytest.mark.parametrize(
    "id", ["craftax/Craftax-Symbolic-v1", "craftax/Craftax-Classic-Pixels-v1", "xland/MiniGrid-Empty-5x5"]
)
def test_compiled_ones_satisfy_vector_env_contract(id: str) -> None:
    check_env(lambda n: make_env(id, num_envs=n), num_envs=3, steps=20)


def test_vehicles_are_paid_each_or_alike() -> None:
    totals = {}
    for version in (0, 1):
        env, timestep = begun(f"highway/intersection-multi-agent-v{version}", duration=9)
        game: Any = env.game(0)  # type: ignore[attr-defined]
        game.places = [0, -3]
        timestep = play(env, timestep, 2, 0)
        timestep = play(env, timestep, 2, 0)  # the first one has arrived, and is paid from now on
        assert timestep.due[0].observation.shape == (1, 4)
        totals[version] = [float(timestep.due[p].reward[0]) for p in range(2)]
    assert totals == {0: [0.25, 0.25], 1: [1, 0]}


def test_a_collision_ends_the_scene_and_a_limit_truncates() -> None:
    env, timestep = begun("highway/intersection-multi-agent-v1")
    game: Any = env.game(0)  # type: ignore[attr-defined]
    game.places, game.time = [0, -2], 5  # a collision in the last step
    timestep = play(env, timestep, 0, 2)
    assert [timestep.ended[p].terminated.tolist() for p in range(2)] == [[True], [True]]
    assert timestep.finished.returns.tolist() == [[-5, -5]]
    env, timestep = begun("highway/intersection-multi-agent-v1", duration=1, render=True)
    timestep = play(env, timestep, 0, 0)
    assert timestep.ended[0].terminated.tolist() == [False]
    assert env.render(0).shape == (2, 2, 3)  # type: ignore[attr-defined]


def test_objectives_are_weighed_and_counted() -> None:
    env, timestep = begun("momaland/moturns_v0", weights=[0.5, 2.0])
    assert env.spec.statistics == ("objective_0", "objective_1")
    timestep = play(env, timestep, 1, 0)
    timestep = play(env, timestep, 0, 1)
    assert timestep.finished.returns.tolist() == [[1, 4]]
    assert timestep.finished.statistics.tolist() == [[[2, 0], [0, 2]]]
    env, timestep = begun("momaland/moturns_v0")
    timestep = play(env, timestep, 1, 0)
    assert play(env, timestep, 0, 1).finished.returns.tolist() == [[1, 1]]


def test_environments_that_draw_from_global_generators_do_not_share_them() -> None:
    random.seed(3)
    together, both = begun("momaland/mobeach_v0", num_envs=2)
    alone = make_env("momaland/mobeach_v0", num_envs=1)
    one = alone.reset(np.array([6], np.uint64))
    for _ in range(6):
        rows = both.due[0].observation[both.due[0].slot == 1]
        np.testing.assert_array_equal(rows, one.due[0].observation)
        both = together.step((np.zeros(2, np.int64),) * 2)
        one = alone.step((np.zeros(1, np.int64),) * 2)
    assert random.random() == random.Random(3).random()


@pytest.mark.slow
@pytest.mark.usefixtures("_compiled")
def test_limits_of_craftax_truncate() -> None:
    env, timestep = begun("craftax/Craftax-Symbolic-v1", max_timesteps=2)
    for _ in range(2):
        timestep = play(env, timestep, 0)
    assert timestep.ended[0].terminated.tolist() == [False]
    assert timestep.finished.returns.tolist() == [[2]]
    env, timestep = begun("craftax/Craftax-Pixels-v1")
    assert timestep.due[0].observation.shape == (1, 3, 4, 5)
    while not len(timestep.finished.environment):
        timestep = play(env, timestep, 1)
    assert timestep.ended[0].terminated.tolist() == [True]


@pytest.mark.slow
@pytest.mark.usefixtures("_compiled")
def test_goals_of_xland_are_drawn(tmp_path: Path) -> None:
    file = tmp_path / "rules"
    file.write_text("")
    env, timestep = begun("xland/XLand-MiniGrid-R1-9x9", num_envs=8, benchmark=str(file))
    assert timestep.due[0].observation.shape == (8, 25, 3, 3)
    first = env.step((np.ones(8, np.int64),))
    assert 0 < len(first.finished.environment) < 8  # goals in steps 1 and 2
    np.testing.assert_allclose(first.finished.returns, 1 - 0.9 / 4, atol=1e-6)
    assert first.finished.terminated.all()
    env, timestep = begun("xland/MiniGrid-Empty-5x5", max_steps=3)
    for _ in range(3):
        timestep = env.step((np.zeros(1, np.int64),))
    assert timestep.finished.terminated.tolist() == [False]


def test_names() -> None:
    assert list_envs("highway") == [f"highway/{id}" for id in brought_games.HIGHWAY]
    assert list_envs("momaland") == ["momaland/mobeach_v0", "momaland/moturns_v0"]


def test_refusals() -> None:
    refused: list[Refusal] = [
        ("highway/highway-v0", {}, UnknownName, "intersection-multi-agent-v0"),
        ("highway/intersection-multi-agent-v1", {"durations": 3}, ConfigError, "duration"),
        ("highway/intersection-multi-agent-v1", {"state": True}, ConfigError, "has no state"),
        ("momaland/mobeech_v0", {}, UnknownName, "mobeach_v0"),
        ("momaland/mobeach_v0", {"weights": [1.0]}, ConfigError, "has 2 objectives"),
        ("momaland/mobeach_v0", {"weights": {"agent_0": [1, 1]}}, ConfigError, "agent_0, agent_1: each needs some"),
        ("momaland/mobeach_v0", {"weights": [1, "x"]}, ConfigError, "a number for each"),
        ("momaland/moturns_v0", {"api": "parallel"}, ConfigError, "has no such interface for moturns_v0"),
    ]
    check_refusals(partial(make_env, num_envs=1), refused)


@pytest.mark.slow
@pytest.mark.usefixtures("_compiled")
def test_names_and_refusals_of_compiled_ones() -> None:
    assert list_envs("xland") == ["xland/MiniGrid-Empty-5x5"]
    assert "craftax/Craftax-Symbolic-v1" in list_envs("craftax")
    refused: list[Refusal] = [
        ("craftax/Craftax-v1", {}, UnknownName, "Craftax-"),
        ("craftax/Craftax-Symbolic-v1", {"max_timestep": 3}, ConfigError, "max_timesteps"),
        ("craftax/Craftax-Symbolic-v1", {"max_timesteps": 0}, ConfigError, "max_timesteps=0"),
        ("xland/MiniGrid-Empty-6x6", {}, UnknownName, "MiniGrid-Empty-5x5"),
        ("xland/MiniGrid-Empty-5x5", {"benchmark": "trivial-21k"}, ConfigError, "has a goal of its own"),
        ("xland/XLand-MiniGrid-R1-9x9", {}, ConfigError, "needs benchmark=NAME"),
        ("xland/XLand-MiniGrid-R1-9x9", {"benchmark": "trivial"}, UnknownName, "trivial-21k"),
        ("xland/XLand-MiniGrid-R1-9x9", {"benchmark": "trivial-21k"}, EnvError, "cannot be read: no network"),
        ("xland/MiniGrid-Empty-5x5", {"view": 3}, ConfigError, "view_size"),
    ]
    check_refusals(partial(make_env, num_envs=1), refused)
