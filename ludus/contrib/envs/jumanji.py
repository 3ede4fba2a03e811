"""`jumanji/<id>`: Jumanji's robot warehouse, foraging, connector, cleaner and its puzzles, compiled by JAX."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import Space, spaces

from ludus.contrib.envs.functional.factory import functional_vector
from ludus.contrib.envs.functional.game import (
    KEY,
    AgentViews,
    StepOutcome,
    Value,
    agent_rewards,
    flat,
    unbounded_box,
)
from ludus.core.errors import ConfigError, EnvError, UnknownName, nearest
from ludus.envs.adapters.agent_seats import check_limit
from ludus.envs.base import VectorEnv

__all__ = ["make", "names"]

_ENDLESS = 2**31 - 1
_BESIDE = ("action_mask", "step_count")
_FLOATS = ("BinPack-v2", "CVRP-v1", "Knapsack-v1", "MultiCVRP-v0", "TSP-v1")
_FETCHED = ("Sokoban-v0",)  # which loads its levels from the network when it is made


class JumanjiEnv:
    """`FunctionalEnv` over one of Jumanji's. Where an action is one number for each of `num_agents`, these are agents; a reward for all of
    them is each one's. Otherwise there is one agent. An end at `time_limit` is truncation, unless the episode is really over in that step;
    others are as Jumanji has them."""

    def __init__(self, id: str, env: Any, *, time_limit: int | None = None) -> None:
        """Wrap an environment. time_limit: steps of an episode; None: as the environment has it."""
        self.id, self._env = id, env
        self.state = None
        _, first = jax.eval_shape(env.reset, KEY)
        values: Any = getattr(env.action_spec, "num_values", None)
        agents: Any = getattr(env, "num_agents", None)
        self._team = values is not None and agents is not None and np.shape(values) == (agents,)
        self._agents = int(agents) if self._team else 1
        self.masked = hasattr(first.observation, "action_mask")
        self._counts = () if self._team else _several(values, first.observation if self.masked else None)
        self._limit = getattr(env, "time_limit", None) if time_limit is None else time_limit
        if self._limit is not None:
            env.time_limit = _ENDLESS  # Jumanji calls an end at the limit termination: `step` looks at the limit itself
        observations = jax.eval_shape(self._observations, first.observation)
        action = spaces.Discrete(int(np.max(values))) if self._team else self._action(values)
        self.spaces = {f"agent_{i}": (unbounded_box(observations[i]), action) for i in range(self._agents)}

    def _action(self, values: Any) -> Space[Any]:
        """Return the action space of the only agent."""
        if self._counts:
            return spaces.Discrete(int(np.prod(self._counts)))
        if values is None:
            spec = self._env.action_spec
            low, high = (
                np.broadcast_to(np.asarray(end, np.float32), spec.shape) for end in (spec.minimum, spec.maximum)
            )
            return spaces.Box(low, high, spec.shape, np.float32)
        return spaces.MultiDiscrete(np.asarray(values)) if np.ndim(values) else spaces.Discrete(int(values))

    def init(self, key: Value) -> tuple[Value, AgentViews]:
        """Begin an episode as `FunctionalEnv.init` describes."""
        state, timestep = self._env.reset(key)
        return state, self._views(timestep.observation)

    def step(self, state: Value, actions: tuple[Value, ...], key: Value) -> tuple[Value, AgentViews, StepOutcome]:
        """Step as `FunctionalEnv.step` describes. Jumanji's states hold a key of their own, made of the episode's."""
        action = jnp.stack(actions) if self._team else actions[0]
        if self._counts:
            action = jnp.stack(jnp.unravel_index(action, self._counts))
        state, timestep = self._env.step(state, action)
        over = timestep.last()
        late = jnp.bool_(False)
        if self._limit is not None:
            late = getattr(state, "step_count", getattr(timestep.observation, "step_count", 0)) >= self._limit
        truncated = jnp.where(over, (timestep.discount != 0).any(), late)
        reward = agent_rewards(timestep.reward, self._agents, what=self.id)
        return state, self._views(timestep.observation), StepOutcome(reward, over & ~truncated, truncated)

    def final(self, state: Value, views: AgentViews) -> tuple[Value, ...]:
        """Return the final observations as `FunctionalEnv.final` describes."""
        return views.observation

    def _views(self, observation: Value) -> AgentViews:
        """Return what agents see. Agents without a legal action (MMST's, when connected) are not due, unless no agent has one."""
        due, mask = jnp.ones(self._agents, bool), None
        if self.masked:
            legal = observation.action_mask.astype(bool).reshape(self._agents, -1)
            has_action = legal.any(axis=1)
            due, mask = has_action | ~has_action.any(), tuple(legal | ~has_action[:, None])
        return AgentViews(self._observations(observation), mask, due)

    def _observations(self, observation: Value) -> tuple[Value, ...]:
        """Return what each agent sees; of a step's number its share of the time limit."""
        if not hasattr(observation, "_asdict") and not hasattr(observation, "keys"):
            return (flat(observation),)
        parts = dict(observation._asdict() if hasattr(observation, "_asdict") else observation)
        rest = {name: value for name, value in parts.items() if name not in _BESIDE}
        clock = {}
        if "step_count" in parts and self._limit:
            clock = {"clock": parts["step_count"] / self._limit}
        if not self._team:
            return (flat(rest if len(rest) == 1 else {**rest, **clock}),)
        kind = type(self._env).__name__
        if kind == "Connector":
            return tuple(_connector_planes(rest["grid"], i) for i in range(self._agents))
        if kind == "Cleaner":
            return tuple(_cleaner_planes(rest["grid"], rest["agents_locations"], i) for i in range(self._agents))
        if "agents_view" in rest:
            return tuple(flat({"view": view, **clock}) for view in rest["agents_view"])
        who = jnp.eye(self._agents)
        return tuple(flat({**rest, **clock, "who": who[i]}) for i in range(self._agents))


def _several(values: Any, observation: Any) -> tuple[int, ...]:
    """Return the counts of an action's numbers that one mask holds together, in as many dimensions: they are played as one number. ()
    for others."""
    if values is None or observation is None or np.ndim(values) == 0:
        return ()
    counts = tuple(int(n) for n in np.ravel(values))
    return counts if len(counts) > 1 and observation.action_mask.shape == counts else ()


def _connector_planes(grid: Value, agent: int) -> Value:
    """Return float32[6, rows, columns]: own path, head and goal, then those of all others. Jumanji numbers them 1, 2, 3 for the first
    agent, 4, 5, 6 for the next one …"""
    whose, what = (grid - 1) // 3, (grid - 1) % 3
    own, other_agents = (grid > 0) & (whose == agent), (grid > 0) & (whose != agent)
    return jnp.stack([side & (what == kind) for side in (own, other_agents) for kind in range(3)]).astype(jnp.float32)


def _cleaner_planes(grid: Value, locations: Value, agent: int) -> Value:
    """Return float32[5, rows, columns]: dirty, clean, wall, where the agent is, how many of the others are there."""
    everybody = jnp.zeros(grid.shape, jnp.float32).at[locations[:, 0], locations[:, 1]].add(1.0)
    own = jnp.zeros(grid.shape, jnp.float32).at[locations[agent, 0], locations[agent, 1]].set(1.0)
    return jnp.concatenate(
        [jnp.stack([grid == kind for kind in range(3)]).astype(jnp.float32), own[None], (everybody - own)[None]]
    )


# --------------------------------------------------------------------------------------------------------------------
# Making one.


class _NoViewer:
    """In place of Jumanji's viewers, which ask Matplotlib for what it no longer has."""


def make(name: str, *, num_envs: int, **options: Any) -> VectorEnv:
    """Make the vector of an environment of Jumanji's.

    Args:
        name: What Jumanji registers, such as `RobotWarehouse-v0`.
        num_envs: Number of environments.
        options: Of its class (time_limit …), generator: {…}, the arguments of its generator of episodes that differ from the default
            (num_agents, grid_size …), and those of `ludus.envs.adapters.agent_seats.Sides`.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such id.
        ConfigError: An option is not taken.
    """
    jumanji = _package()
    if name not in jumanji.registered_environments():
        raise UnknownName("environment of Jumanji", name, names())

    def make_one(arguments: Mapping[str, Any]) -> JumanjiEnv:
        env, limit = _make(jumanji, name, arguments), arguments.get("time_limit")
        if limit is not None:
            check_limit("time_limit", limit, none=False)
        return JumanjiEnv(f"jumanji/{name}", env, time_limit=limit)

    return functional_vector(f"jumanji/{name}", make_one, num_envs=num_envs, options=options, defaults=_sides)


def _sides(env: Any) -> dict[str, Any]:
    """Return the determinism: sums of floats are bitwise identical only in vectors of the same size."""
    return {"determinism": "vector" if env.id.partition("/")[2] in _FLOATS else "environment"}


def names() -> list[str]:
    """Return the ids that Jumanji registers, sorted, except those that load levels from the network."""
    return sorted(set(_package().registered_environments()) - {*_FETCHED})


def _package() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pkg_resources, which it asks for its pictures
        import jumanji

    return jumanji


def _make(jumanji: Any, name: str, arguments: Mapping[str, Any]) -> Any:
    from jumanji.registration import _REGISTRY

    module, _, kind = _REGISTRY[name].entry_point.partition(":")
    known = set(inspect.signature(getattr(importlib.import_module(module), kind).__init__).parameters) - {"self"}
    if unknown := sorted(set(arguments) - known):
        raise ConfigError(
            f"unknown option {unknown[0]!r} for jumanji/{name}{nearest(unknown[0], sorted(known - {'viewer'}))}"
        )
    fixed = {"viewer": _NoViewer()} if "viewer" in known else {}
    options = dict(arguments)
    parts = options.pop("generator", None)
    env = jumanji.make(name, **fixed, **options)
    if parts is None:
        return env
    if not isinstance(parts, Mapping):
        raise ConfigError(f"generator={parts!r} was given; expected a mapping of what it is made with.")
    return jumanji.make(name, **fixed, **options, generator=_generator(env, name, parts))


def _generator(env: Any, name: str, parts: Mapping[str, Any]) -> Any:
    """Return the environment's generator, made again with some arguments changed."""
    old = getattr(env, "_generator", None) or getattr(env, "generator", None)
    if old is None:
        raise EnvError(f"jumanji/{name} has no generator; leave the option out.")
    known = [key for key in inspect.signature(type(old).__init__).parameters if key != "self"]
    if unknown := sorted(set(parts) - set(known)):
        raise ConfigError(f"generator: unknown option {unknown[0]!r} for jumanji/{name}{nearest(unknown[0], known)}")
    arguments = {key: getattr(old, key, getattr(old, f"_{key}", None)) for key in known}
    return type(old)(**{**{key: value for key, value in arguments.items() if value is not None}, **parts})
