"""Actions of several dimensions, and Boxes of whole numbers: policies choose flat numbers from 0, environments have what they announced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import SyncVectorEnv

import ludus
from ludus.envs.adapters.agent_seats import Sides
from ludus.envs.adapters.native import native_env
from ludus.envs.adapters.pettingzoo_vector import zoo_vector
from ludus.envs.adapters.single import single_env
from ludus.envs.base import VectorEnv
from ludus.testing.env import check_env

SEEN = Box(0, 9, (1,), np.float32)
# the space -> the flat action that is chosen, what the environment must have, how many values each number has
FORMS: dict[str, tuple[Any, list[int], Any, list[int]]] = {
    "two dimensions": (MultiDiscrete(np.array([[2, 3], [4, 5]])), [1, 2, 0, 4], [[1, 2], [0, 4]], [2, 3, 4, 5]),
    "and a start": (
        MultiDiscrete(np.array([[2, 3]]), start=np.array([[10, 20]])),
        [1, 2],
        [[11, 22]],
        [2, 3],
    ),
    "bits": (MultiBinary((2, 2)), [1, 0, 0, 1], [[1, 0], [0, 1]], [2, 2, 2, 2]),
    "whole Box": (Box(-1, 2, (2,), np.int32), [0, 3], [-1, 2], [4, 4]),
    "unlike Box": (Box(np.array([[0], [5]]), np.array([[1], [7]]), (2, 1), np.int64), [1, 2], [[1], [7]], [2, 3]),
    "one number": (Box(3, 5, (), np.int16), [2], 5, [3]),
}


class Wanting(gymnasium.Env[Any, Any]):
    """Pays 1 for one action, which has the dtype and the shape of its space; three steps."""

    observation_space = SEEN

    def __init__(self, space: Any, wanted: Any) -> None:
        self.action_space, self.wanted = space, wanted

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(np.asarray(action)), action  # of one number, vectors make scalars
        self.t += 1
        return np.zeros(1, np.float32), float(np.array_equal(action, self.wanted)), self.t == 3, False, {}


class WantingPair:
    """The same, by PettingZoo's parallel interface."""

    possible_agents: ClassVar[list[str]] = ["a", "b"]

    def __init__(self, space: Any, wanted: Any) -> None:
        self.one = Wanting(space, wanted)

    def observation_space(self, agent: str) -> Any:
        return SEEN

    def action_space(self, agent: str) -> Any:
        return self.one.action_space if agent == "a" else Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        first, info = self.one.reset(seed=seed)
        return dict.fromkeys(self.agents, first), {a: info for a in self.agents}

    def step(self, actions: Any) -> Any:
        shown, reward, over, _, _ = self.one.step(actions["a"])
        both = self.possible_agents
        self.agents = [] if over else list(both)
        ends = dict.fromkeys(both, over), dict.fromkeys(both, False)
        return dict.fromkeys(both, shown), {"a": reward, "b": 0.0}, *ends, {a: {} for a in both}

    def close(self) -> None:
        return None


def vectors(name: str) -> dict[str, Callable[[int], VectorEnv]]:
    space, _, wanted, _ = FORMS[name]
    return {
        "single": lambda n: single_env(lambda: Wanting(space, wanted), n, id="wanting"),
        "several agents": lambda n: zoo_vector(lambda: WantingPair(space, wanted), n, id="wanting", sides=Sides()),
        "vector": lambda n: native_env(SyncVectorEnv([lambda: Wanting(space, wanted)] * n), id="wanting"),
    }


@pytest.mark.parametrize("kind", ["single", "several agents", "vector"])
@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_chosen_flat(name: str, kind: str) -> None:
    _, chosen, _, counts = FORMS[name]
    make = vectors(name)[kind]
    check_env(make, num_envs=2, steps=8)
    env = make(2)
    assert env.spec.agents[0].action == (MultiBinary(len(counts)) if name == "bits" else MultiDiscrete(counts))
    timestep = env.reset(np.zeros(2, np.uint64))
    for right in (True, False, True):
        rows = np.array([chosen if right else [0] * len(chosen)] * 2)
        others = [np.zeros(2, np.int64)] * (env.spec.num_players - 1)
        timestep = env.step((rows, *others))
    assert timestep.finished.returns[:, 0].tolist() == [2, 2]
    env.close()


def test_many_whole_numbers_stay_a_box() -> None:
    space = Box(0, 2**31, (1,), np.int64)
    assert single_env(lambda: Wanting(space, [0]), 1, id="wide").spec.agents[0].action == space


def test_they_can_be_learned() -> None:
    space, _, wanted, _ = FORMS["whole Box"]
    learner = ludus.learner("ppo", env=lambda: Wanting(space, wanted), batch=60, batch_unit="decisions")
    metrics = learner.update(learner.collect())
    assert np.isfinite(metrics["loss"])
    learner.close()
