"""`xland/<id>`: XLand-MiniGrid (Nikulin et al. 2024), grid worlds whose goals and rules are drawn, and MiniGrid's tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from ludus.contrib.envs.functional.factory import functional_vector
from ludus.contrib.envs.functional.game import KEY, AgentViews, StepOutcome, Value, agent_rewards
from ludus.core.errors import ConfigError, EnvError, UnknownName, nearest, one_line
from ludus.envs.adapters.agent_seats import check_limit
from ludus.envs.base import VectorEnv

__all__ = ["make", "names"]

_DRAWN = "XLand-"  # what the ids of environments begin with whose goals and rules come from a benchmark
_LIMIT = "max_steps"
_UNSEEN = ("ruleset", "render_mode")  # parameters that are no options


class XLandEnv:
    """`FunctionalEnv` over one of XLand-MiniGrid's. Observations are one-hot planes [tiles + colours, view, view].

    rulesets: a `xminigrid.benchmarks.Benchmark` from which each episode draws, or None.
    """

    def __init__(self, id: str, env: Any, params: Any, rulesets: Any) -> None:
        from xminigrid.core.constants import NUM_COLORS, NUM_TILES

        self.id, self.masked, self.state = id, False, None
        self._env, self._params, self._rulesets = env, params, rulesets
        self._planes = NUM_TILES, NUM_COLORS
        views, _ = jax.eval_shape(self._reset, KEY)
        box = spaces.Box(0, 1, views.observation[0].shape, np.float32)
        self.spaces = {"agent_0": (box, spaces.Discrete(int(env.num_actions(params))))}

    def init(self, key: Value) -> tuple[Value, AgentViews]:
        """Begin an episode as `FunctionalEnv.init` describes."""
        views, state = self._reset(key)
        return state, views

    def step(self, state: Value, actions: tuple[Value, ...], key: Value) -> tuple[Value, AgentViews, StepOutcome]:
        """Step as `FunctionalEnv.step` describes. The state is the package's timestep."""
        timestep = self._env.step(self._params, state, actions[0])
        terminated = timestep.last() & (timestep.discount == 0)
        truncated = timestep.last() & ~terminated
        earned = StepOutcome(agent_rewards(timestep.reward, 1, what=self.id), terminated, truncated)
        return timestep, self._views(timestep), earned

    def final(self, state: Value, views: AgentViews) -> tuple[Value, ...]:
        """Return the final observations as `FunctionalEnv.final` describes."""
        return views.observation

    def _reset(self, key: Value) -> tuple[AgentViews, Value]:
        params = self._params
        if self._rulesets is not None:
            key, ruleset_key = jax.random.split(key)
            params = params.replace(ruleset=self._rulesets.sample_ruleset(ruleset_key))
        timestep = self._env.reset(params, key)
        return self._views(timestep), timestep

    def _views(self, timestep: Value) -> AgentViews:
        tiles, colours = (
            jax.nn.one_hot(timestep.observation[..., k], count, dtype=jnp.float32)
            for k, count in enumerate(self._planes)
        )
        return AgentViews((jnp.moveaxis(jnp.concatenate([tiles, colours], -1), -1, 0),), None, jnp.ones(1, bool))


def make(name: str, *, num_envs: int, benchmark: str | None = None, **options: Any) -> VectorEnv:
    """Make the vector of an environment of XLand-MiniGrid's.

    Args:
        name: `MiniGrid-DoorKey-8x8`, `XLand-MiniGrid-R1-9x9` or such.
        num_envs: Number of environments.
        benchmark: Where the goals and rules of `XLand-…` are drawn from in each episode: a name of the package's, which it downloads
            and unpickles, or the path of such a file.
        options: Of the environment's parameters (max_steps, view_size, height, width …), and those of
            `ludus.envs.adapters.agent_seats.Sides`.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such id.
        ConfigError: An option is not taken, or `benchmark` is missing.
        EnvError: The benchmark cannot be read.
    """
    if name not in _registered():
        raise UnknownName("environment of XLand-MiniGrid", name, _registered())
    id = f"xland/{name}"
    if name.startswith(_DRAWN) != (benchmark is not None):
        problem = (
            "needs benchmark=NAME or a path, else it has no goal" if benchmark is None else "has a goal of its own"
        )
        raise ConfigError(
            f"{id} {problem}; goals and rules of {_DRAWN}… are drawn from a benchmark of the package (trivial-21k, small-1m …)."
        )

    def make_one(arguments: Mapping[str, Any]) -> XLandEnv:
        import xminigrid

        rest = dict(arguments)
        rulesets = None if "benchmark" not in rest else _benchmark(id, rest.pop("benchmark"))
        _, params = xminigrid.make(name)
        known = [field.name for field in fields(params) if field.name not in _UNSEEN]
        for key in rest:
            if key not in known:
                raise ConfigError(f"unknown option {key!r} for {id}{nearest(key, [*known, 'benchmark'])}")
            check_limit(key, rest[key], none=False)
        env, params = xminigrid.make(name, **rest)
        return XLandEnv(id, env, params, rulesets)

    benchmark_option = {} if benchmark is None else {"benchmark": benchmark}
    return functional_vector(id, make_one, num_envs=num_envs, options={**benchmark_option, **options})


def names() -> list[str]:
    """Return the ids that need no benchmark, sorted."""
    return sorted(name for name in _registered() if not name.startswith(_DRAWN))


def _registered() -> tuple[str, ...]:
    import xminigrid

    return tuple(xminigrid.registered_environments())


def _benchmark(id: str, name: str) -> Any:
    from xminigrid import benchmarks

    try:
        if Path(name).is_file():
            return benchmarks.load_benchmark_from_path(name)
        if name not in benchmarks.registered_benchmarks():
            raise UnknownName("benchmark of XLand-MiniGrid", name, benchmarks.registered_benchmarks())
        return benchmarks.load_benchmark(name)
    except OSError as error:
        raise EnvError(
            f"{id}: the benchmark {name!r} cannot be read: {one_line(error)}. The package downloads it once; load it where there is a "
            "network, or give the path of the file."
        ) from error
