"""`gymnasium/<id>`: the contract on every kind of space, agreement with plain loops, and wrong ids and options."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from refusals import Refusal, check_refusals
from starcraft import install

from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.core.seeding import keys
from ludus.envs.adapters.native import NativeVectorEnv
from ludus.envs.adapters.single import single_env
from ludus.envs.base import SupportsRender
from ludus.envs.python_vector import PythonVectorEnv, SingleAgentVectorEnv
from ludus.envs.registry import list_envs, make_env
from ludus.envs.spaces import observation_space
from ludus.testing.env import check_env

SEEDS = keys(1, "gymnasium", count=2)

KINDS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {},
    "CartPole-v0": {"vector": "python", "max_episode_steps": 7},
    "Pendulum-v1": {"max_episode_steps": 10},  # Box actions, truncated
    "FrozenLake-v1": {},  # one-hot
    "Taxi-v4": {"max_episode_steps": 9},  # masks
    "Blackjack-v1": {},  # Tuple
    "LunarLander-v3": {},
    "InvertedPendulum-v5": {},
}


@pytest.mark.parametrize("name", KINDS)
def test_gymnasium_envs_satisfy_vector_env_contract(name: str) -> None:
    check_env(lambda n: make_env(f"gymnasium/{name}", num_envs=n, **KINDS[name]), num_envs=3, steps=40)


def test_native_where_there_is_one() -> None:
    def kind(**options: Any) -> type:
        return type(make_env("gymnasium/CartPole-v1", num_envs=2, **options))

    assert kind() is kind(vector="native") is NativeVectorEnv
    assert issubclass(kind(vector="python"), PythonVectorEnv)
    assert kind(restarts=1) is PythonVectorEnv
    assert type(make_env("gymnasium/Acrobot-v1", num_envs=2)) is SingleAgentVectorEnv
    spec = make_env("gymnasium/CartPole-v1", num_envs=2).spec
    assert (spec.determinism, spec.max_decisions, spec.num_players, len(spec.agents)) == ("vector", 500, 1, 1)
    assert make_env("gymnasium/Taxi-v4", num_envs=1, max_episode_steps=5).spec.max_decisions == 5
    assert make_env("gymnasium/CartPole-v1", num_envs=1, max_episode_steps=5).spec.max_decisions == 5


def test_vectors_that_do_not_work_are_left() -> None:
    """Those of phys2d: when one environment restarts, all others stand still for a step."""
    pytest.importorskip("flax")
    assert type(make_env("gymnasium/phys2d/Pendulum-v0", num_envs=2)) is SingleAgentVectorEnv


@pytest.mark.parametrize("name", ["CartPole-v0", "Pendulum-v1", "FrozenLake-v1", "InvertedPendulum-v5"])
def test_one_agent_is_stepped_as_several_are(name: str) -> None:
    """Environments with one agent and without masks have a loop of their own, unless faults are repaired."""
    options = {**KINDS[name], "vector": "python"}
    short, long = (make_env(f"gymnasium/{name}", num_envs=3, restarts=n, **options) for n in (0, 1))
    assert (type(short), type(long)) == (SingleAgentVectorEnv, PythonVectorEnv)
    seeds, rng = keys(1, "gymnasium", count=3), np.random.default_rng(0)
    quota = np.array([1, 2, 9])  # some fall idle
    steps = [env.reset(seeds, episodes=quota) for env in (short, long)]
    for _ in range(25):
        assert_same(*steps)
        if not len(steps[0].due[0].slot):
            break
        space = short.spec.agents[0].action
        space.seed(int(rng.integers(1000)))
        actions = np.array([space.sample() for _ in steps[0].due[0].slot])
        steps = [env.step((actions,)) for env in (short, long)]


def assert_same(one: Any, other: Any) -> None:
    """Of records of arrays, and tuples of them."""
    if isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif is_dataclass(one):
        for field in fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name))
    else:
        assert one == other


class Witness(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Notes the seeds of its resets."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.seeds: list[int] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        assert seed is not None
        self.seeds.append(seed)
        return super().reset(seed=seed)


@pytest.mark.parametrize("name", ["FrozenLake-v1", "MountainCarContinuous-v0", "Blackjack-v1", "Taxi-v4"])
def test_agrees_with_a_plain_loop(name: str) -> None:
    """The same seeds and actions give the rewards and observations of `gymnasium.make`, step by step."""
    made: list[Witness] = []

    def make() -> gymnasium.Env[Any, Any]:
        made.append(Witness(gymnasium.make(name, max_episode_steps=8)))
        return made[-1]

    env = single_env(make, 1, id=name)
    bare = gymnasium.make(name, max_episode_steps=8)
    encode = observation_space(bare.observation_space, what=name)[1] or (lambda value: value)
    bare.action_space.seed(3)
    timestep, episodes = env.reset(SEEDS[:1]), 0
    seen, info = bare.reset(seed=made[0].seeds[-1])
    total = length = 0.0
    for _ in range(60):
        due = timestep.due[0]
        np.testing.assert_allclose(due.observation[0], encode(seen), rtol=1e-6)
        if "action_mask" in info:
            assert due.mask is not None
            assert due.mask[0].tolist() == info["action_mask"].astype(bool).tolist()
        action = bare.action_space.sample(info.get("action_mask"))
        timestep = env.step((np.array([action]),))
        seen, reward, terminated, truncated, info = bare.step(action)
        total, length = total + float(reward), length + 1
        if not (terminated or truncated):
            assert timestep.due[0].reward[0] == np.float32(reward)
            assert not len(timestep.ended[0].slot)
            continue
        ended, finished = timestep.ended[0], timestep.finished
        np.testing.assert_allclose(ended.observation[0], encode(seen), rtol=1e-6)
        assert (ended.reward[0], ended.terminated[0]) == (np.float32(reward), terminated)
        if truncated and "action_mask" in info:
            assert ended.mask is not None
            assert ended.mask[0].tolist() == info["action_mask"].astype(bool).tolist()
        assert (finished.returns[0, 0], finished.length[0]) == (pytest.approx(total), length)
        episodes, total, length = episodes + 1, 0.0, 0.0
        seen, info = bare.reset(seed=made[0].seeds[-1])
    assert episodes >= 7
    assert len(set(made[0].seeds)) == len(made[0].seeds)  # every episode has a seed of its own


class Spaces(gymnasium.Env[Any, Any]):
    """Ends, terminated and truncated, after three steps; notes its actions."""

    def __init__(self, action: Any, observation: Any = None) -> None:
        self.action_space = action
        self.observation_space = Box(0, 9, (1,), np.float64) if observation is None else observation
        self.done: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.done = []
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.done.append(action)
        over = len(self.done) == 3
        return np.full(1, len(self.done)), 1, over, over, {}


@pytest.mark.parametrize(
    "space",
    [
        Discrete(3, start=-1),
        MultiDiscrete([2, 3]),
        MultiDiscrete([2, 2], start=[1, 5]),
        MultiBinary(3),
        MultiBinary((2, 2)),
        Box(-2, 2, (2, 2)),
        Box(-np.inf, np.inf, (1,), np.float32),
    ],
)
def test_action_spaces(space: Any) -> None:
    check_env(lambda n: single_env(lambda: Spaces(space), n, id="spaces"), num_envs=2, steps=12)


def test_actions_count_from_the_start_of_their_space_and_ends_count_as_terminated() -> None:
    made = Spaces(Discrete(3, start=-1))
    env = single_env(lambda: made, 1, id="spaces")
    env.reset(SEEDS[:1])
    env.step((np.array([0]),))
    env.step((np.array([2]),))
    assert made.done == [-1, 1]
    timestep = env.step((np.array([1]),))
    assert timestep.finished.terminated.tolist() == [True]
    assert timestep.ended[0].observation.tolist() == [[3]]
    assert timestep.ended[0].observation.dtype == np.float32


@pytest.mark.parametrize(("id", "vector"), [("gymnasium/CartPole-v1", "native"), ("gymnasium/FrozenLake-v1", "python")])
def test_render(id: str, vector: str) -> None:
    env = make_env(id, num_envs=2, vector=vector, render=True)
    assert isinstance(env, SupportsRender)
    env.reset(SEEDS)
    shown = env.render(1)
    assert isinstance(shown, np.ndarray)
    assert shown.dtype == np.uint8
    assert shown.ndim == 3
    env.close()
    make_env(id, num_envs=2, vector=vector, render=True, render_mode="rgb_array").close()
    env = make_env(id, num_envs=2, vector=vector)
    env.reset(SEEDS)
    with pytest.raises(EnvError, match="make it with render=True"):
        env.render(1)  # type: ignore[attr-defined]


WRONG: dict[str, Refusal] = {
    "module": (
        "no_such_module:Env-v0",
        {},
        ConfigError,
        "could not be imported: No module named 'no_such_module'",
    ),
    "option": (
        "CartPole-v1",
        {"vektor": "python"},
        ConfigError,
        "'vektor' for gymnasium/CartPole-v1; did you mean 'vector'",
    ),
    "python option": ("FrozenLake-v1", {"slippery": 1}, ConfigError, "'slippery' for .*; did you mean 'is_slippery'"),
    "value": ("FrozenLake-v1", {"map_name": "7x7"}, EnvError, "cannot be made with the options {'map_name': '7x7'}"),
    "not installed": (
        "Ant-v9",
        {},
        UnknownName,
        r"did you mean 'Ant-v5'\?$",
    ),  # nothing older, which moved to another package
    "limit": ("CartPole-v1", {"max_episode_steps": 0}, ConfigError, "max_episode_steps=0 .* at least 1"),
    "limit's type": ("CartPole-v1", {"max_episode_steps": "x"}, ConfigError, "max_episode_steps='x' .* whole number"),
    "half a step": ("Pendulum-v1", {"max_episode_steps": 2.5}, ConfigError, "max_episode_steps=2.5 .* whole number"),
    "vector": ("CartPole-v1", {"vector": "fast"}, ConfigError, "allowed: auto, native, python"),
    "no native": ("Taxi-v4", {"vector": "native"}, ConfigError, "has no vector of its own"),
    "broken native": ("phys2d/CartPole-v1", {"vector": "native"}, ConfigError, "no vector of its own that works"),
    "restarts": ("CartPole-v1", {"vector": "native", "restarts": 1}, ConfigError, "Use vector=python"),
}


def test_wrong_ids_and_options() -> None:
    check_refusals(lambda name, **options: make_env(f"gymnasium/{name}", num_envs=2, **options), WRONG.values())


def test_names_are_current_and_need_nothing() -> None:
    names = list_envs("gymnasium")
    assert {"gymnasium/CartPole-v1", "gymnasium/Ant-v5", "gymnasium/Taxi-v4"} <= set(names)
    assert not {"gymnasium/CartPole-v0", "gymnasium/Ant-v3", "gymnasium/GymV21Environment-v0"} & set(names)


def test_a_module_that_registers_its_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import gymnasium\ngymnasium.register('Own-v0', 'gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv')\n"
    (tmp_path / "registers_own.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert make_env("gymnasium/registers_own:Own-v0", num_envs=1).spec.id == "gymnasium/registers_own:Own-v0"
    finally:
        gymnasium.registry.pop("Own-v0", None)


class Mario(gymnasium.Env[Any, Any]):
    """Shows itself as Super Mario Bros. does: a coloured screen, 256 states of the joypad, infos."""

    observation_space = Box(0, 255, (240, 256, 3), np.uint8)
    action_space = Discrete(256)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.x = 0
        return self._screen(), {}

    def step(self, action: int) -> Any:
        assert self.action_space.contains(action)
        right = action >> 7
        self.x += right
        return self._screen(), float(right), self.x == 3, False, {"x_pos": self.x, "flag_get": self.x == 3}

    def _screen(self) -> Any:
        return np.full((240, 256, 3), self.x, np.uint8)


def test_super_mario_by_a_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of its own, which this Python is too old for, registers it with Gymnasium."""
    install(monkeypatch, "gym_super_mario_bros", SuperMarioBrosEnv=Mario)
    entry = gymnasium.envs.registration.EnvSpec(
        "SuperMarioBros-v0",
        "gym_super_mario_bros:SuperMarioBrosEnv",
        max_episode_steps=9_999_999,
        nondeterministic=True,
        disable_env_checker=True,
    )
    monkeypatch.setitem(gymnasium.registry, "SuperMarioBros-v0", entry)

    def make(num_envs: int) -> Any:
        return make_env("gymnasium/gym_super_mario_bros:SuperMarioBros-v0", num_envs=num_envs)

    check_env(make, num_envs=2, steps=6)
    env = make(1)
    env.reset(SEEDS[:1])
    env.step((np.array([128]),))
    env.step((np.array([127]),))
    timestep = env.step((np.array([255]),))
    assert timestep.due[0].observation.shape == (1, 240, 256, 3)
    assert timestep.due[0].observation.max() == 2
    timestep = env.step((np.array([128]),))
    assert timestep.finished.terminated.tolist() == [True]
    assert timestep.ended[0].reward.tolist() == [1.0]


def test_an_id_that_only_this_process_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script registers it, and subprocesses do not run that again."""
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    gymnasium.register("OnlyHere-v0", "gymnasium.envs.classic_control.cartpole:CartPoleEnv")
    make_env("gymnasium/OnlyHere-v0", num_envs=1).close()
    said = "unknown Gymnasium environment 'OnlyHere-v0'.* since no other runs the script.* gymnasium/module:OnlyHere-v0"
    with pytest.raises(ConfigError, match=said):
        make_env("gymnasium/OnlyHere-v0", num_envs=1, workers=1)
