"""`craftax/<id>`: Craftax and Craftax-Classic (Matthews et al. 2024), survival in an open world, compiled by JAX."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import fields
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from ludus.contrib.envs.functional.factory import functional_vector
from ludus.contrib.envs.functional.game import KEY, AgentViews, StepOutcome, Value, agent_rewards, unbounded_box
from ludus.core.errors import ConfigError, UnknownName, nearest
from ludus.envs.adapters.agent_seats import check_limit
from ludus.envs.base import VectorEnv

__all__ = ["make", "names"]

NAMES: Final = (
    "Craftax-Classic-Pixels-v1",
    "Craftax-Classic-Symbolic-v1",
    "Craftax-Pixels-v1",
    "Craftax-Symbolic-v1",
)
_LIMIT = "max_timesteps"
_ENDLESS = 2**31 - 1


class CraftaxEnv:
    """`FunctionalEnv` over one of Craftax's. Ends at `max_timesteps` are truncation, others termination."""

    def __init__(self, id: str, env: Any, params: Any) -> None:
        self.id, self.masked, self.state = id, False, None
        self._env, self._params = env, params
        self._endless = params.replace(**{_LIMIT: _ENDLESS})
        self._pixels = "-Pixels-" in id
        views, _ = jax.eval_shape(self._reset, KEY)
        observation = views.observation[0]
        box = spaces.Box(0, 1, observation.shape, np.float32) if self._pixels else unbounded_box(observation)
        self.spaces = {"agent_0": (box, spaces.Discrete(int(env.action_space(params).n)))}

    def init(self, key: Value) -> tuple[Value, AgentViews]:
        """Begin an episode as `FunctionalEnv.init` describes."""
        views, state = self._reset(key)
        return state, views

    def step(self, state: Value, actions: tuple[Value, ...], key: Value) -> tuple[Value, AgentViews, StepOutcome]:
        """Step as `FunctionalEnv.step` describes."""
        observation, state, reward, _, _ = self._env.step_env(key, state, actions[0], self._params)
        terminated = self._env.is_terminal(state, self._endless)
        truncated = (state.timestep >= self._params.max_timesteps) & ~terminated
        earned = StepOutcome(agent_rewards(reward, 1, what=self.id), terminated.astype(bool), truncated.astype(bool))
        return state, self._views(observation), earned

    def final(self, state: Value, views: AgentViews) -> tuple[Value, ...]:
        """Return the final observations as `FunctionalEnv.final` describes."""
        return views.observation

    def _reset(self, key: Value) -> tuple[AgentViews, Value]:
        observation, state = self._env.reset_env(key, self._params)
        return self._views(observation), state

    def _views(self, observation: Value) -> AgentViews:
        array = jnp.asarray(observation, jnp.float32)
        if self._pixels:
            array = jnp.moveaxis(array, -1, 0)
        return AgentViews((array,), None, jnp.ones(1, bool))


def make(name: str, *, num_envs: int, **options: Any) -> VectorEnv:
    """Make the vector of an environment of Craftax's.

    Args:
        name: `Craftax-Symbolic-v1` or such.
        num_envs: Number of environments.
        options: Of the environment's parameters (max_timesteps, day_length …), and those of `ludus.envs.adapters.agent_seats.Sides`.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such id.
        ConfigError: An option is not taken.
    """
    if name not in NAMES:
        raise UnknownName("environment of Craftax", name, NAMES)
    id = f"craftax/{name}"

    def make_one(arguments: Mapping[str, Any]) -> CraftaxEnv:
        with redirect_stdout(sys.stderr):  # it tells there that it makes textures
            from craftax.craftax_env import make_craftax_env_from_name

            env = make_craftax_env_from_name(name, auto_reset=False)
        params = env.default_params
        known = [field.name for field in fields(params)]
        for key in arguments:
            if key not in known:
                raise ConfigError(f"unknown option {key!r} for {id}{nearest(key, known)}")
        if _LIMIT in arguments:
            check_limit(_LIMIT, arguments[_LIMIT], none=False)
        return CraftaxEnv(id, env, params.replace(**arguments))

    return functional_vector(id, make_one, num_envs=num_envs, options=options, defaults=_sides)


def _sides(_: Any) -> dict[str, Any]:
    """Return the determinism: worlds are made of noise in floats, which depends on how a vector of a size is compiled."""
    return {"determinism": "vector"}


def names() -> list[str]:
    """Return the ids, sorted."""
    return list(NAMES)
