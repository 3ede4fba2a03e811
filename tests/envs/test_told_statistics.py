"""Statistics that Gymnasium's and PettingZoo's environments tell in `info` at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from own_games import Corridor
from zoo_games import Relay, Shift

from ludus.core.errors import ConfigError, EnvError
from ludus.envs.adapters.custom import make
from ludus.envs.base import VectorEnv
from ludus.envs.registry import make_env
from ludus.testing.env import check_env

SEEDS = np.arange(1, dtype=np.uint64)


class Paces(Corridor):
    """Tells how often it went on, and how often it stood."""

    told: Any = None

    def reset(self, **options: Any) -> Any:
        self.paces = [0, 0]
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        seen, reward, terminated, truncated, _ = super().step(action)
        self.paces[int(action)] += 1
        info = {"statistics": self.told or {"went": self.paces[1], "stood": self.paces[0]}} if terminated else {}
        return seen, reward, terminated, truncated, info


class ToldShift(Shift):
    """Each is told at its end how many steps it worked."""

    def step(self, actions: Any) -> Any:
        before = list(self.agents)
        shown, rewards, terminated, truncated, infos = super().step(actions)
        infos = {a: {"statistics": {"steps": self.t}} if terminated[a] or truncated[a] else {} for a in before}
        return shown, rewards, terminated, truncated, infos


class ToldRelay(Relay):
    """scout_1 is told the moves of the game; nobody else is told anything."""

    def step(self, action: Any) -> None:
        super().step(action)
        for agent in self.agents:
            self.infos[agent] = {"statistics": {"moves": self.moves}} if agent == "scout_1" else {}


def first_end(env: VectorEnv) -> list[Any]:
    """Statistics of the first episode, whose players always play 1."""
    timestep = env.reset(SEEDS)
    while not len(timestep.finished.environment):
        timestep = env.step(tuple(np.ones(len(due.slot), np.int64) for due in timestep.due))
    assert timestep.finished.statistics is not None
    return timestep.finished.statistics[0].tolist()  # type: ignore[no-any-return]


def test_of_a_single_agent() -> None:
    env = make("own", Paces, num_envs=1, statistics=["stood", "went"], length=2)
    env.reset(SEEDS)
    for action in (0, 1, 0, 1):
        timestep = env.step((np.array([action]),))
    assert timestep.finished.statistics is not None
    assert timestep.finished.statistics.tolist() == [[[2, 2]]]
    check_env(lambda n: make("own", Paces, num_envs=n, statistics=["stood", "went"]), num_envs=2, steps=20)


def test_a_name_that_is_never_told_is_not_known() -> None:
    assert np.isnan(first_end(make("own", Paces, num_envs=1, statistics=["went", "stood", "ran"]))[0][2])


@pytest.mark.parametrize(
    ("options", "totals"),
    [
        ({}, [[2], [4], [4]]),
        ({"teams": "one"}, [[10]]),
        ({"teams": {"a": ["worker_1"], "b": ["worker_0", "worker_2"]}}, [[4], [6]]),
    ],
)
def test_a_players_are_the_sums_of_its_agents(options: dict[str, Any], totals: list[list[float]]) -> None:
    env = make("own", ToldShift, num_envs=1, statistics=["steps"], **options)
    assert first_end(env) == totals
    assert first_end(env) == totals  # nothing is left over


def test_in_turns() -> None:
    env = make("own", ToldRelay, num_envs=1, statistics=["moves"])
    found = first_end(env)
    assert found[1] == [7]
    assert np.isnan(found[0]).all()
    assert np.isnan(found[2]).all()


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"fell": 1}, "expected a mapping with some of went, stood"),
        (3, "expected a mapping"),
        ({"went": "far"}, "expected numbers"),
        ({"went": np.inf}, "an infinite 'went'"),
    ],
)
def test_malformed_episode_statistics_raise_one_error(told: Any, words: str) -> None:
    def made() -> Paces:
        env = Paces(1)
        env.told = told
        return env

    with pytest.raises(EnvError, match=words):
        first_end(make("own", made, num_envs=1, statistics=["went", "stood"]))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("gymnasium/CartPole-v1", {"statistics": ["a", "a"]}, "a list of different names"),
        ("gymnasium/CartPole-v1", {"statistics": "goals"}, "a list of different names"),
        ("gymnasium/CartPole-v1", {"statistics": ["a"], "vector": "native"}, "vector=python"),
        ("own_games:Corridors", {"statistics": ["a"]}, "does not take statistics"),
        ("own_games:Couple", {"statistics": ["a"]}, "counts nothing by name"),
        ("pettingzoo/connect_four_v3", {"statistics": [1]}, "a list of different names"),
    ],
)
def test_options_that_cannot_be(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_env(name, num_envs=1, **options)


def test_registered_environments_take_names_too() -> None:
    env = make_env("gymnasium/CartPole-v1", num_envs=1, statistics=["falls"])
    assert env.spec.statistics == ("falls",)
    assert np.isnan(first_end(env)).all()
    env.close()
