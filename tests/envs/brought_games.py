"""Modules that are found where highway-env, MOMAland, Craftax and XLand-MiniGrid would be, with small environments that speak their
interfaces."""

from __future__ import annotations

import random
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces


def put(patch: pytest.MonkeyPatch, **modules: dict[str, Any]) -> None:
    """Let imports find these modules, whose names have __ for a dot."""
    for name, content in modules.items():
        full = name.replace("__", ".")
        module = ModuleType(full)
        vars(module).update({"__spec__": ModuleSpec(full, None), "__path__": [], **content})
        patch.setitem(sys.modules, full, module)


# --------------------------------------------------------------------------------------------------------------------
# highway-env: vehicles that drive until one collides or all have arrived.


class Crossing:
    """A vehicle moves by its action (0 to 2), arrives at 4 and is then paid 1 in each step; two that stand on the same field crash."""

    def __init__(self, config: dict[str, Any], render_mode: str | None = None) -> None:
        self.config = {**self.default_config(), **config}
        self.render_mode = render_mode
        count = self.config["controlled_vehicles"]
        self.action_space = spaces.Tuple([spaces.Discrete(3)] * count)
        self.observation_space = spaces.Tuple([spaces.Box(-99, 99, (2, 2), np.float32)] * count)

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        return {"controlled_vehicles": 2, "duration": 6}

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        rng = np.random.default_rng(seed)
        self.time, count = 0, self.config["controlled_vehicles"]
        self.places = [-int(k + count * rng.integers(2)) for k in range(count)]
        return self._see(), {}

    def step(self, actions: tuple[int, ...]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.places = [place + action for place, action in zip(self.places, actions, strict=True)]
        crashed = len({place for place in self.places if place < 4}) < sum(place < 4 for place in self.places)
        rewards = tuple(-5.0 * crashed + (place >= 4) for place in self.places)
        info = {"agents_rewards": rewards, "agents_terminated": tuple(place >= 4 for place in self.places)}
        ended = crashed or all(place >= 4 for place in self.places)
        return self._see(), float(np.mean(rewards)), ended, self.time >= self.config["duration"], info

    def render(self) -> Any:
        return np.zeros((2, 2, 3), np.uint8)

    def close(self) -> None: ...

    def _see(self) -> Any:
        return tuple(np.array([[place, self.time], self.places[:2]], np.float32) for place in self.places)


HIGHWAY = [f"intersection-multi-agent-v{k}" for k in range(3)]


def install_highway(patch: pytest.MonkeyPatch) -> None:
    put(patch, highway_env={"_register_highway_envs": lambda: None, "Crossing": Crossing})
    for id in HIGHWAY:
        spec = gymnasium.envs.registration.EnvSpec(id, "highway_env:Crossing")
        patch.setitem(gymnasium.registry, id, spec)


# --------------------------------------------------------------------------------------------------------------------
# MOMAland: two objectives, and Python's global generator.


class Beach:
    """Parallel: agents stand left or right; pays (who stands alone, who moved). The start is drawn from the global generator."""

    def __init__(self, num_agents: int = 2, steps: int = 3) -> None:
        self.possible_agents = self.agents = [f"agent_{k}" for k in range(num_agents)]
        self.steps = steps
        self.unwrapped, self.render_mode = self, None

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 9, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reward_space(self, agent: str) -> Any:
        return spaces.Box(-1, 1, (2,))

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if seed is not None:
            random.seed(seed)
        self.agents, self.time = list(self.possible_agents), 0
        self.sides = {agent: random.randrange(2) for agent in self.agents}
        return self._see(), {}

    def step(self, actions: dict[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        before, self.sides, self.time = self.sides, dict(actions), self.time + 1
        alone = {agent: list(self.sides.values()).count(side) == 1 for agent, side in self.sides.items()}
        rewards = {
            agent: np.array([alone[agent], side != before[agent]], np.float32) for agent, side in actions.items()
        }
        over = self.time >= self.steps + random.randrange(2)
        ends = dict.fromkeys(self.agents, over)
        if over:
            self.agents = []
        return self._see(), rewards, dict.fromkeys(ends, False), ends, {agent: {} for agent in ends}

    def close(self) -> None: ...

    def _see(self) -> Any:
        return {agent: np.array([self.sides[agent], self.time], np.float32) for agent in self.possible_agents}


class Turns:
    """AEC: each of two agents says 0 or 1 once; the first is paid (their sum, 0), the second (0, their sum)."""

    metadata: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.possible_agents = ["a", "b"]
        self.unwrapped, self.render_mode = self, None

    observation_space = Beach.observation_space
    action_space = Beach.action_space
    reward_space = Beach.reward_space

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.said = ["a", "b"], []
        self.agent_selection = "a"
        self._clear()

    def observe(self, agent: str) -> Any:
        return np.array([len(self.said), sum(self.said)], np.float32)

    def step(self, action: int | None) -> None:
        if action is None:
            self.agents.remove(self.agent_selection)
            self.agent_selection = self.agents[0] if self.agents else self.agent_selection
            return
        self.said.append(int(action))
        self.agent_selection = "b" if len(self.said) == 1 else "a"
        if len(self.said) == 2:
            self.rewards = {"a": np.array([sum(self.said), 0.0]), "b": np.array([0.0, sum(self.said)])}
            self.terminations = dict.fromkeys("ab", True)

    def last(self) -> Any:
        raise AssertionError("it adds vectors")

    def close(self) -> None: ...

    def _clear(self) -> None:
        self.rewards: dict[str, Any] = {agent: np.zeros(2) for agent in "ab"}
        self.terminations, self.truncations = dict.fromkeys("ab", False), dict.fromkeys("ab", False)
        self.infos: dict[str, Any] = {agent: {} for agent in "ab"}


def install_momaland(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """The package's modules are looked for as files."""
    (folder / "momaland" / "envs").mkdir(parents=True)
    for file, line in {
        "__init__.py": "",
        "envs/__init__.py": "",
        "envs/mobeach_v0.py": "from brought_games import Beach as parallel_env\n",
        "envs/moturns_v0.py": "from brought_games import Turns as env\n",
    }.items():
        (folder / "momaland" / file).write_text(line)
    for name in ("momaland", "momaland.envs", "momaland.envs.mobeach_v0", "momaland.envs.moturns_v0"):
        patch.delitem(sys.modules, name, raising=False)
    patch.syspath_prepend(str(folder))


# --------------------------------------------------------------------------------------------------------------------
# Craftax and XLand-MiniGrid: functions that JAX compiles.


def install_craftax(patch: pytest.MonkeyPatch) -> None:
    import jax
    import jax.numpy as jnp
    from flax import struct

    class Params(struct.PyTreeNode):
        max_timesteps: int = 5
        day_length: int = 3

    class State(struct.PyTreeNode):
        timestep: Any
        health: Any

    class World:
        """A step with action 1 costs health, of which there are 1 to 3; pays 1 for action 0."""

        default_params = Params()

        def action_space(self, params: Params) -> Any:
            return SimpleNamespace(n=2)

        def reset_env(self, key: Any, params: Params) -> tuple[Any, Any]:
            state = State(jnp.int32(0), jax.random.randint(key, (), 1, 4))
            return self.see(state), state

        def step_env(self, key: Any, state: Any, action: Any, params: Params) -> tuple[Any, Any, Any, Any, Any]:
            state = State(state.timestep + 1, state.health - action)
            return self.see(state), state, jnp.float32(action == 0), self.is_terminal(state, params), {}

        def is_terminal(self, state: Any, params: Params) -> Any:
            return (state.timestep >= params.max_timesteps) | (state.health <= 0)

        def see(self, state: Any) -> Any:
            return jnp.stack([state.timestep, state.health]).astype(jnp.float32)

    class Pixels(World):
        def see(self, state: Any) -> Any:
            return jnp.zeros((4, 5, 3)) + state.timestep / 9

    def make(name: str, auto_reset: bool) -> Any:
        assert not auto_reset
        return (Pixels if "Pixels" in name else World)()

    put(patch, craftax={}, craftax__craftax_env={"make_craftax_env_from_name": make})


def install_xland(patch: pytest.MonkeyPatch) -> None:
    import jax
    import jax.numpy as jnp
    from flax import struct

    class Params(struct.PyTreeNode):
        max_steps: int = struct.field(pytree_node=False, default=4)
        view_size: int = struct.field(pytree_node=False, default=3)
        ruleset: Any = 0

    class TimeStep(struct.PyTreeNode):
        state: Any
        goal: Any
        reward: Any
        discount: Any
        over: Any
        observation: Any

        def last(self) -> Any:
            return self.over

    class Grid:
        """Action 1 in step `goal` ends it."""

        def num_actions(self, params: Params) -> int:
            return 2

        def reset(self, params: Params, key: Any) -> Any:
            return self.at(jnp.int32(0), jnp.int32(params.ruleset), 0.0, 1.0, jnp.bool_(False), params)

        def step(self, params: Params, timestep: Any, action: Any) -> Any:
            t = timestep.state + 1
            won = (action == 1) & (t == timestep.goal)
            reward = jnp.where(won, 1 - 0.9 * t / params.max_steps, 0.0)
            return self.at(t, timestep.goal, reward, jnp.where(won, 0.0, 1.0), won | (t == params.max_steps), params)

        def at(self, t: Any, goal: Any, reward: Any, discount: Any, over: Any, params: Params) -> Any:
            observation = (
                jnp.zeros((params.view_size, params.view_size, 2), jnp.uint8).at[0, 0].set(t.astype(jnp.uint8))
            )
            return TimeStep(t, goal, jnp.float32(reward), jnp.float32(discount), over, observation)

    class Benchmark:
        def sample_ruleset(self, key: Any) -> Any:
            return jax.random.randint(key, (), 1, 3)

    def make(id: str, **options: Any) -> tuple[Grid, Params]:
        return Grid(), Params(ruleset=0 if id.startswith("XLand") else 2).replace(**options)

    def load(name: str) -> Any:
        raise OSError("no network")

    benchmarks = {
        "load_benchmark": load,
        "load_benchmark_from_path": lambda path: Benchmark(),
        "registered_benchmarks": lambda: ("trivial-21k",),
    }
    names = lambda: ("MiniGrid-Empty-5x5", "XLand-MiniGrid-R1-9x9")  # noqa: E731
    put(
        patch,
        xminigrid={"make": make, "registered_environments": names},
        xminigrid__benchmarks=benchmarks,
        xminigrid__core={},
        xminigrid__core__constants={"NUM_TILES": 13, "NUM_COLORS": 12},
    )
    vars(sys.modules["xminigrid"])["benchmarks"] = sys.modules["xminigrid.benchmarks"]
