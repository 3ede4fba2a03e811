"""The bare limit of functional environments: the package's own step, vmapped and jitted, with a reset where an episode ends, as its users
write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Step = Callable[[], None]


def bare_pgx(name: str, num_envs: int) -> Step:
    """Everybody plays the first legal move."""
    import pgx

    game = pgx.make(name)

    def again(state: Any, action: Any, key: Any) -> Any:
        state = game.step(state, action, key)
        over = state.terminated | state.truncated
        new = game.init(key)
        return jax.tree.map(lambda a, b: jnp.where(over, a, b), new, state)

    step = jax.jit(jax.vmap(again))
    states = [jax.jit(jax.vmap(game.init))(jax.random.split(jax.random.PRNGKey(0), num_envs))]
    keys = [jax.random.PRNGKey(1)]
    split = jax.jit(lambda key: jax.random.split(key, num_envs + 1))

    def play() -> None:
        both = split(keys[0])
        keys[0] = both[0]
        actions = np.asarray(states[0].legal_action_mask).argmax(axis=1)
        states[0] = step(states[0], actions, both[1:])
        np.asarray(states[0].observation)

    return play


def bare_gymnax(name: str, num_envs: int, batches: list[Any]) -> Step:
    """Its own `step`, which resets by itself."""
    import gymnax

    env, params = gymnax.make(name)
    step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
    reset = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))
    _, first = reset(jax.random.split(jax.random.PRNGKey(0), num_envs), params)
    return _played(lambda keys, state, action: step(keys, state, action, params)[:2], first, num_envs, batches)


def bare_jaxmarl(name: str, num_envs: int, batches: list[Any], options: Mapping[str, Any]) -> Step:
    """Its own `step`, which resets by itself. batches: actions [E × agents]; masks are read, too, where there are some."""
    from ludus.contrib.envs.functional.game import KEY
    from ludus.contrib.envs.jaxmarl import _by_name, _legal_moves, _package

    env = _package().make(name, **_by_name(name, options))
    legal = _legal_moves(env, jax.eval_shape(env.reset, KEY)[1])

    def one(key: Any, state: Any, action: Any) -> Any:
        given = {agent: action[i] for i, agent in enumerate(env.agents)}
        seen, state, *rest = env.step(key, state, given)
        return (seen, rest[:2], None if legal is None else legal(state)), state

    step = jax.jit(jax.vmap(one))
    _, first = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.PRNGKey(0), num_envs))
    return _played(step, first, num_envs, [batch.reshape(num_envs, -1) for batch in batches])


def bare_jumanji(name: str, num_envs: int, batches: list[Any]) -> Step:
    """Its own vectors, which reset by themselves. batches: actions [E × agents]."""
    from jumanji.wrappers import VmapAutoResetWrapper

    from ludus.contrib.envs.jumanji import _make, _package

    env = VmapAutoResetWrapper(_make(_package(), name, {}))
    step = jax.jit(env.step)
    states = [jax.jit(env.reset)(jax.random.split(jax.random.PRNGKey(0), num_envs))[0]]
    actions, count = [batch.reshape(num_envs, -1) for batch in batches], [0]

    def play() -> None:
        count[0] += 1
        states[0], timestep = step(states[0], actions[count[0] % 16])
        jax.block_until_ready(timestep)

    return play


def _played(step: Callable[..., Any], first: Any, num_envs: int, batches: list[Any]) -> Step:
    states, keys, count = [first], [jax.random.PRNGKey(1)], [0]
    split = jax.jit(lambda key: jax.random.split(key, num_envs + 1))

    def play() -> None:
        count[0] += 1
        both = split(keys[0])
        keys[0] = both[0]
        seen, states[0] = step(both[1:], states[0], batches[count[0] % 16])
        jax.block_until_ready(seen)

    return play
