"""`gymnax/<id>`: gymnax's classic control, bsuite, MinAtar and others, single agents compiled by JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp

from ludus.contrib.envs.functional.factory import functional_vector
from ludus.contrib.envs.functional.game import (
    KEY,
    AgentViews,
    StepOutcome,
    Value,
    agent_rewards,
    flat,
    to_gymnasium_space,
    unbounded_box,
)
from ludus.core.errors import ConfigError, EnvError, UnknownName, nearest
from ludus.envs.adapters.agent_seats import check_limit
from ludus.envs.base import VectorEnv

__all__ = ["make", "names"]

_FETCHED = ("MNISTBandit-bsuite",)  # which loads its pictures from the network when it is made
_ENDLESS = 2**31 - 1


class GymnaxEnv:
    """`FunctionalEnv` over one of gymnax's. Ends after `max_steps_in_episode` are truncation, others termination."""

    def __init__(self, id: str, env: Any, params: Any) -> None:
        self.id, self.masked, self.state = id, False, None
        self._env, self._params = env, params
        self._tells = hasattr(env, "is_truncated")  # from gymnax 1.0 on
        self._endless = params.replace(max_steps_in_episode=_ENDLESS)
        observation, state = jax.eval_shape(self._reset, KEY)
        # MinAtar's states remember that a step was the last one: the limit must not be among its reasons.
        self._step_params = self._endless if hasattr(state, "terminal") and not self._tells else params
        action = to_gymnasium_space(env.action_space(params), what=f"the agent of {id}")
        self.spaces = {"agent_0": (unbounded_box(jax.eval_shape(flat, observation)), action)}

    def init(self, key: Value) -> tuple[Value, AgentViews]:
        """Begin an episode as `FunctionalEnv.init` describes."""
        observation, state = self._reset(key)
        return state, _views(observation)

    def step(self, state: Value, actions: tuple[Value, ...], key: Value) -> tuple[Value, AgentViews, StepOutcome]:
        """Step as `FunctionalEnv.step` describes."""
        observation, state, reward, done, _ = self._env.step_env(key, state, actions[0], self._step_params)
        if self._tells:
            truncated = self._env.is_truncated(state, self._params)
            terminated = done
        else:  # which counts the limit among an episode's ends
            late = state.time >= self._params.max_steps_in_episode
            truncated = late & ~self._env.is_terminal(state, self._endless)
            terminated = done & ~truncated
            truncated &= done | (self._step_params is self._endless)
        earned = StepOutcome(
            agent_rewards(reward, 1, what=self.id), terminated.astype(bool), (truncated & ~terminated).astype(bool)
        )
        return state, _views(observation), earned

    def final(self, state: Value, views: AgentViews) -> tuple[Value, ...]:
        """Return the final observations as `FunctionalEnv.final` describes."""
        return views.observation

    def _reset(self, key: Value) -> tuple[Value, Value]:
        observation, state = self._env.reset_env(key, self._params)
        return observation, state


def _views(observation: Value) -> AgentViews:
    return AgentViews((flat(observation),), None, jnp.ones(1, bool))


def make(name: str, *, num_envs: int, **options: Any) -> VectorEnv:
    """Make the vector of an environment of gymnax's.

    Args:
        name: `CartPole-v1` or such.
        num_envs: Number of environments.
        options: Of the environment's parameters (max_steps_in_episode …), those that its class takes, and those of
            `ludus.envs.adapters.agent_seats.Sides`.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such id.
        ConfigError: An option is not taken.
        EnvError: What the environment loads from the network is not there.
    """
    if name not in _registered():
        raise UnknownName("environment of gymnax", name, names())

    def make_one(arguments: Mapping[str, Any]) -> GymnaxEnv:
        import gymnax

        try:
            _, params = gymnax.make(name)
        except OSError as error:
            raise EnvError(
                f"gymnax/{name} loads its pictures from the network when it is made, which failed: {error}. Make it once where "
                "there is a network, or play another bandit, such as gymnax/BernoulliBandit-misc."
            ) from error
        parameter_names = [field.name for field in fields(params)]
        parameter_values = {key: value for key, value in arguments.items() if key in parameter_names}
        for key, value in parameter_values.items():
            if isinstance(getattr(params, key), int | float) and not isinstance(value, int | float):
                raise ConfigError(f"{key}={value!r} was given for gymnax/{name}; expected a number.")
        if "max_steps_in_episode" in parameter_values:
            check_limit("max_steps_in_episode", parameter_values["max_steps_in_episode"], none=False)
        rest = {key: value for key, value in arguments.items() if key not in parameter_names}
        try:
            env, params = gymnax.make(name, **rest)
        except TypeError as error:
            unknown = min(rest)
            raise ConfigError(
                f"unknown option {unknown!r} for gymnax/{name}{nearest(unknown, parameter_names)}"
            ) from error
        return GymnaxEnv(f"gymnax/{name}", env, params.replace(**parameter_values))

    return functional_vector(f"gymnax/{name}", make_one, num_envs=num_envs, options=options, defaults=_sides)


def _sides(env: Any) -> dict[str, Any]:
    """Return the determinism: physics in floats is bitwise identical only in vectors of the same size."""
    whole = env.id.endswith(("-MinAtar", "-bsuite"))
    return {"determinism": "environment" if whole else "vector"}


def names() -> list[str]:
    """Return the ids that gymnax registers, sorted, except those that load data from the network."""
    return sorted(_registered() - {*_FETCHED})


def _registered() -> set[str]:
    import gymnax

    return set(gymnax.registered_envs)
