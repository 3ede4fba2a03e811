"""`jaxmarl/<id>`: JaxMARL's SMAX, Overcooked, Hanabi, particle environments and others, compiled by JAX."""

from __future__ import annotations

import importlib
import inspect
import io
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import Space

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
from ludus.core.errors import ConfigError, UnknownName, nearest
from ludus.envs.base import VectorEnv

__all__ = ["make", "names"]

_STATE, _SHAPED = "world_state", "shaped_reward"
_BRAX = ("ant_4x2", "halfcheetah_6x1", "hopper_3x1", "humanoid_9|8", "walker2d_2x3")
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        _BRAX, "JaxMARL has given it up with Brax; play such bodies as mamujoco/…, `ludus list envs mamujoco`"
    ),
    "LearnedPolicyEnemySMAX": "it wants the network of an enemy; play jaxmarl/SMAX, where the enemy is a player",
    "storm": "agents of it are shown no observations of their own",
    "storm_2p": "its step ends in no observation by agent",
    "storm_np": "agents of it are shown no observations of their own",
}


class JaxmarlEnv:
    """`FunctionalEnv` over one of JaxMARL's. An end at its limit of steps is truncation, unless the battle is over then, or the riddle
    told. Units that are dead, and agents that have arrived, are due until then, as in JaxMARL's own learners: so a team is rewarded when it
    earns."""

    def __init__(self, id: str, env: Any, *, shaped: float = 0.0) -> None:
        """Wrap an environment. shaped: the weight of its own shaped rewards (Overcooked's)."""
        self.id, self._env, self._shaped = id, env, shaped
        self._agents = [str(agent) for agent in env.agents]
        observations, state = jax.eval_shape(env.reset, KEY)
        self._legal = _legal_moves(env, state)
        self.masked = self._legal is not None
        world = observations.get(_STATE)
        self.state: Space[Any] | None = None if world is None else unbounded_box(jax.eval_shape(flat, world))
        self.spaces = {}
        for agent in self._agents:
            action = to_gymnasium_space(env.action_space(agent), what=f"agent {agent!r} of {id}")
            self.spaces[agent] = (unbounded_box(jax.eval_shape(flat, observations[agent])), action)
        self._limit = getattr(env, "max_steps", None) or getattr(env, "num_outer_steps", None)

    def init(self, key: Value) -> tuple[Value, AgentViews]:
        """Begin an episode as `FunctionalEnv.init` describes."""
        observations, state = self._env.reset(key)
        return state, self._views(observations, state)

    def step(self, state: Value, actions: tuple[Value, ...], key: Value) -> tuple[Value, AgentViews, StepOutcome]:
        """Step as `FunctionalEnv.step` describes."""
        agent_actions = dict(zip(self._agents, actions, strict=True))
        observations, state, rewards, dones, info = self._env.step_env(key, state, agent_actions)
        done = jnp.asarray(dones["__all__"]).astype(bool).reshape(())
        reward = jnp.concatenate([agent_rewards(rewards[agent], 1, what=self.id) for agent in self._agents])
        if self._shaped:
            on_the_way = [jnp.asarray(info[_SHAPED][agent], jnp.float32).reshape(()) for agent in self._agents]
            reward += self._shaped * jnp.stack(on_the_way)
        truncated = done & self._late(state) & ~self._decided(state, reward)
        return state, self._views(observations, state), StepOutcome(reward, done & ~truncated, truncated)

    def final(self, state: Value, views: AgentViews) -> tuple[Value, ...]:
        """Return the final observations as `FunctionalEnv.final` describes."""
        return views.observation

    def _views(self, observations: Mapping[str, Value], state: Value) -> AgentViews:
        mask = None
        if self._legal is not None:
            legal = self._legal(state)
            mask = tuple(jnp.asarray(legal[agent]).astype(bool) for agent in self._agents)
        due = jnp.ones(len(self._agents), bool)
        if hasattr(state, "cur_player_idx"):  # Hanabi's agents take turns
            due = jnp.arange(len(self._agents)) == state.seat_order[jnp.argmax(state.cur_player_idx)]
        world = flat(observations[_STATE]) if self.state is not None else None
        return AgentViews(tuple(flat(observations[agent]) for agent in self._agents), mask, due, world)

    def _late(self, state: Value) -> Value:
        """Whether the episode has taken the time that it may."""
        inner: Any = getattr(state, "state", state)
        if self._limit is None or not hasattr(inner, "step"):
            return jnp.bool_(False)
        return (inner.outer_t if hasattr(inner, "outer_t") else inner.step) >= self._limit

    def _decided(self, state: Value, reward: Value) -> Value:
        """Whether an episode that is over would be so at any time."""
        inner: Any = getattr(state, "state", state)
        if hasattr(inner, "unit_alive"):
            allies = self._env.num_allies
            return ~inner.unit_alive[:allies].any() | ~inner.unit_alive[allies:].any()
        if hasattr(inner, "bulb_state"):
            return (reward != 0).any()
        if hasattr(inner, "move_term"):  # robots that have arrived or collided, now or before
            return (inner.goal_reached | inner.move_term | inner.term).all()
        return jnp.bool_(False)


def _legal_moves(env: Any, state: Any) -> Callable[[Value], Any] | None:
    """Return a function from a state to legal moves; None: all are legal."""
    for name in ("get_legal_moves", "get_avail_actions"):
        tell: Callable[[Value], Any] | None = getattr(env, name, None)
        if tell is None:
            continue
        try:
            legal = jax.eval_shape(tell, state)
        except NotImplementedError:
            continue
        known = isinstance(legal, dict) and all(agent in legal for agent in env.agents)
        if known and all(hasattr(env.action_space(agent), "n") for agent in env.agents):
            return tell
    return None


def make(name: str, *, num_envs: int, **options: Any) -> VectorEnv:
    """Make the vector of an environment of JaxMARL's.

    Args:
        name: What JaxMARL registers, such as `SMAX` or `overcooked`.
        num_envs: Number of environments.
        options: Of its class, among them scenario (SMAX: a map such as 3m) and layout (Overcooked: a kitchen such as cramped_room) by name;
            shaped_rewards (Overcooked: the weight of the package's shaped rewards, default 0), package_rewards (simple_tag and facmac with
            several prey: true for the rewards as JaxMARL computes them, default false); and those of
            `ludus.envs.adapters.agent_seats.Sides`, teams by default prefix for SMAX (allies, enemies).

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such id.
        ConfigError: An option is not taken, or Ludus does not play the environment.
    """
    jaxmarl = _package()
    if name in _REFUSED:
        raise ConfigError(f"jaxmarl/{name} is not played: {_REFUSED[name]}.")
    if name not in jaxmarl.registered_envs:
        raise UnknownName("environment of JaxMARL", name, names())
    if name.startswith("JaxRobotarium"):
        raise ConfigError(
            f"jaxmarl/{name} needs jaxrobotarium, which is installed from its repository only; Ludus has not tried it."
        )

    def make_one(arguments: Mapping[str, Any]) -> JaxmarlEnv:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Overcooked says that there is a newer one
            options = dict(arguments)
            shaped = _share(name, options.pop("shaped_rewards", 0.0))
            own_rewards = _switched_off(name, options)
            env = jaxmarl.make(name, **_by_name(name, options))
            if name.startswith(_PREY) and not own_rewards:
                env.rewards = partial(_rewards_of_chase, env)
            if name.startswith("MPE_"):
                _check_particles(name, env, options)
            return JaxmarlEnv(f"jaxmarl/{name}", env, shaped=shaped)

    return functional_vector(f"jaxmarl/{name}", make_one, num_envs=num_envs, options=options, defaults=_sides)


def names() -> list[str]:
    """Return the ids that JaxMARL registers and that can be made without options, sorted."""
    jaxmarl = _package()
    return sorted(
        name for name in jaxmarl.registered_envs
        if name not in _REFUSED and not name.startswith("JaxRobotarium")
    )  # fmt: skip


def _package() -> Any:
    """Import JaxMARL. Its first import prints what it does not find, and replaces the streams in use by the interpreter's first ones."""
    if "jaxmarl" not in sys.modules:
        streams = sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__
        unread: Any = io.StringIO()
        sys.stdout = sys.__stdout__ = unread  # type: ignore[misc]
        try:
            importlib.import_module("jaxmarl")
        finally:
            sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__ = streams  # type: ignore[misc]
    return importlib.import_module("jaxmarl")


def _share(name: str, value: Any) -> float:
    """Return the weight of shaped rewards."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"shaped_rewards={value!r} was given; expected a number, 0 for none.")
    if value and not name.startswith("overcooked"):
        raise ConfigError(f"shaped_rewards={value!r} was given; jaxmarl/{name} has none. Leave it out.")
    return float(value)


def _by_name(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, with what names a map or a kitchen as what JaxMARL takes for it."""
    out = dict(options)
    if isinstance(chosen := out.get("scenario"), str):
        from jaxmarl.environments.smax.smax_env import MAP_NAME_TO_SCENARIO

        out["scenario"] = _look_up("map", chosen, MAP_NAME_TO_SCENARIO)
    if name == "overcooked" and isinstance(chosen := out.get("layout"), str):
        from jaxmarl.environments.overcooked import overcooked_layouts

        out["layout"] = _look_up("kitchen", chosen, overcooked_layouts)
    _check_options(name, out)
    return out


def _look_up(what: str, name: str, known: Mapping[str, Any]) -> Any:
    if name not in known:
        raise UnknownName(what, name, list(known))
    return known[name]


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigError for what no class of the environment's takes; some swallow whatever they are given."""
    from jaxmarl import registration

    kinds = {"SMAX": ("SMAX",), "HeuristicEnemySMAX": ("HeuristicEnemySMAX", "SMAX")}.get(name)
    if kinds is None:
        return
    known = {key for kind in kinds for key in inspect.signature(getattr(registration, kind)).parameters} - {
        "env_kwargs"
    }
    if unknown := sorted(set(options) - known):
        raise ConfigError(f"unknown option {unknown[0]!r} for jaxmarl/{name}{nearest(unknown[0], sorted(known))}")


_PARTICLES = {
    *("rad", "moveable", "silent", "collide", "mass", "accel", "max_speed", "u_noise", "c_noise", "damping"),
    *("contact_force", "contact_margin"),
}
"""What particle environments take without naming it."""


def _check_particles(name: str, env: Any, options: Mapping[str, Any]) -> None:
    """Raise ConfigError for what no class of the environment's takes; they swallow whatever they are given."""
    named = {key for kind in type(env).__mro__[:-1] for key in inspect.signature(kind).parameters}
    known = _PARTICLES | (named - {"kwargs"})
    if unknown := sorted(set(options) - known):
        raise ConfigError(f"unknown option {unknown[0]!r} for jaxmarl/{name}{nearest(unknown[0], sorted(known))}")


_PREY = ("MPE_simple_tag", "MPE_simple_facmac")
"""What the ids of chases begin with: adversaries touch prey."""


def _switched_off(name: str, options: dict[str, Any]) -> bool:
    """Take `package_rewards` out of the options and return it: whether a chase pays as JaxMARL computes it."""
    value = options.pop("package_rewards", False)
    if not isinstance(value, bool):
        raise ConfigError(f"package_rewards={value!r} was given; expected true or false.")
    if value and not name.startswith(_PREY):
        raise ConfigError(f"package_rewards=true was given; the rewards of jaxmarl/{name} are JaxMARL's. Leave it out.")
    return value


def _rewards_of_chase(env: Any, state: Value) -> dict[str, Value]:
    """Return the rewards of a chase: every touch pays 10 to each adversary, costs the prey that is touched 10, and prey pays for
    leaving the arena. JaxMARL 0.2.0 looks for the touches of prey i in row (adversaries + i) of a table that has a row for each prey, and
    JAX takes the last row instead: with several prey, all pay for the touches of the last one."""
    adversaries = env.num_adversaries
    prey = adversaries + jnp.arange(env.num_good_agents)
    of_prey = jax.vmap(env.is_collision, in_axes=(None, 0, None))
    touches = jax.vmap(of_prey, in_axes=(0, None, None))(prey, jnp.arange(adversaries), state).sum(axis=1)
    rewards = dict.fromkeys(env.adversaries, 10 * touches.sum())
    for i, agent in enumerate(env.good_agents):
        outside = env.map_bounds_reward(jnp.abs(state.p_pos[adversaries + i])).sum()
        rewards[agent] = -10 * touches[i] - outside
    return rewards


def faults(name: str, _options: Mapping[str, Any]) -> list[str]:
    """Return what JaxMARL gets wrong in an environment and its results would hide."""
    if not name.startswith("MPE_simple_facmac"):
        return []
    return [
        f"jaxmarl/{name}: a script of the package moves the prey whatever agent_… does (jaxmarl 0.2.0), so players of prey learn nothing."
    ]


def _sides(env: Any) -> dict[str, Any]:
    """Return the determinism and the sides of battles: physics in floats is bitwise identical only in vectors of the same size."""
    name = env.id.partition("/")[2]
    physics = name.startswith("MPE_") or "SMAX" in name or name == "jaxnav" or name in _BRAX
    sides: dict[str, Any] = {"determinism": "vector" if physics else "environment"}
    return sides | (_of_battle(env) if "SMAX" in name else {})


def _of_battle(env: JaxmarlEnv) -> dict[str, Any]:
    """Return the sides of a battle. A team's return is that of each unit, times its units: at most 1 for the health that it takes, and
    the bonus."""
    inner = env._env
    bonus, counts = float(inner.won_battle_bonus), [inner.num_allies, inner.num_enemies]
    if inner.use_self_play_reward:
        ranges = [(-bonus * count, bonus * count) for count in counts]
    else:
        ranges = [(0.0, (1.0 + bonus) * count) for count in counts]
    teams = sum(any(agent.startswith(side) for agent in env.spaces) for side in ("ally", "enemy"))
    return {"teams": "prefix", "utility_range": ranges[:teams] if teams > 1 else ranges[0]}
