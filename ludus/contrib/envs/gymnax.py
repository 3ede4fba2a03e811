"""`gymnax/<id>`: gymnax's classic control, bsuite, MinAtar and others, single agents compiled by JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp

from ludus.core.errors import ConfigError, UnknownName, nearest
from ludus.envs.adapters.agent_seats import check_limit
from ludus.envs.base import VectorEnv
from ludus.envs.functional.factory import functional_vector
from ludus.envs.functional.game import KEY, Earned, Seen, Value, flat, own_space, shown_space

__all__ = ["make", "names"]


class GymnaxEnv:
    """`FunctionalEnv` over one of gymnax's. Ends after `max_steps_in_episode` are truncation, others termination."""

    def __init__(self, id: str, env: Any, params: Any) -> None:
        self.id, self.masked, self.state = id, False, None
        self._env, self._params = env, params
        self._tells = hasattr(env, "is_truncated")  # from gymnax 1.0 on
        seen, _ = jax.eval_shape(self._reset, KEY)
        action = own_space(env.action_space(params), what=f"the agent of {id}")
        self.spaces = {"agent_0": (shown_space(jax.eval_shape(flat, seen)), action)}

    def init(self, key: Value) -> tuple[Value, Seen]:
        """See `FunctionalEnv.init`."""
        observation, state = self._reset(key)
        return state, _seen(observation)

    def step(self, state: Value, actions: tuple[Value, ...], key: Value) -> tuple[Value, Seen, Earned]:
        """See `FunctionalEnv.step`."""
        observation, state, reward, done, _ = self._env.step_env(key, state, actions[0], self._params)
        if self._tells:
            truncated = self._env.is_truncated(state, self._params)
            terminated = done
        else:  # which counts the time that an episode may take among its ends
            late = state.time >= self._params.max_steps_in_episode
            truncated = done & late & ~self._env.is_terminal(state.replace(time=0), self._params)
            terminated = done & ~truncated
        earned = Earned(jnp.asarray(reward).reshape(1), terminated.astype(bool), (truncated & ~terminated).astype(bool))
        return state, _seen(observation), earned

    def final(self, state: Value, seen: Seen) -> tuple[Value, ...]:
        """See `FunctionalEnv.final`."""
        return seen.observation

    def _reset(self, key: Value) -> tuple[Value, Value]:
        observation, state = self._env.reset_env(key, self._params)
        return observation, state


def _seen(observation: Value) -> Seen:
    return Seen((flat(observation),), None, jnp.ones(1, bool))


def make(name: str, *, num_envs: int, **options: Any) -> VectorEnv:
    """`name` is `CartPole-v1` or such. options: of the environment's parameters (max_steps_in_episode …), those that its class takes, and
    those of `ludus.envs.adapters.agent_seats.Sides`. Raises UnknownName, ConfigError for options that are not taken."""
    known = names()
    if name not in known:
        raise UnknownName("environment of gymnax", name, known)

    def made(given: Mapping[str, Any]) -> GymnaxEnv:
        import gymnax

        _, params = gymnax.make(name)
        ours = [field.name for field in fields(params)]
        of_params = {key: value for key, value in given.items() if key in ours}
        for key, value in of_params.items():
            if isinstance(getattr(params, key), int | float) and not isinstance(value, int | float):
                raise ConfigError(f"{key}={value!r} was given for gymnax/{name}; expected a number.")
        if "max_steps_in_episode" in of_params:
            check_limit("max_steps_in_episode", of_params["max_steps_in_episode"], none=False)
        rest = {key: value for key, value in given.items() if key not in ours}
        try:
            env, params = gymnax.make(name, **rest)
        except TypeError as error:
            unknown = min(rest)
            raise ConfigError(f"unknown option {unknown!r} for gymnax/{name}{nearest(unknown, ours)}") from error
        return GymnaxEnv(f"gymnax/{name}", env, params.replace(**of_params))

    return functional_vector(f"gymnax/{name}", made, num_envs=num_envs, options=options, defaults=_sides)


def _sides(env: Any) -> dict[str, Any]:
    """Physics in floats is the same to the last bit only in a vector of the same size; vectors of other sizes were seen to differ."""
    whole = env.id.endswith(("-MinAtar", "-bsuite"))
    return {"determinism": "environment" if whole else "vector"}


def names() -> list[str]:
    """The ids that gymnax registers, sorted."""
    import gymnax

    return sorted(gymnax.registered_envs)
