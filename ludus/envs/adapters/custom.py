"""`module:Class`, or what was given in its place: a user's own environment, used as it is if it is a vector, and vectorised if it is a
single one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, EnvError
from ludus.core.parts import ENVIRONMENTS, resolve_name
from ludus.core.types import Array, Timestep
from ludus.envs.adapters.agent_seats import Sides, split_options
from ludus.envs.base import VectorEnv
from ludus.envs.families import UserEnvObject, closed_on_error
from ludus.envs.python_vector import release
from ludus.envs.wrappers.base import Wrapper

__all__ = ["make"]

_BOTH = ("reset", "step", "close")
_NEEDS: Mapping[str, tuple[str, ...]] = {  # in the order in which they are looked for
    "Ludus's VectorEnv": ("spec", "num_envs", *_BOTH, "snapshot", "restore"),
    "gymnasium.vector": ("num_envs", "single_observation_space", "single_action_space", *_BOTH),
    "PettingZoo AEC": ("possible_agents", "observation_space", "action_space", "observe", "last", *_BOTH),
    "PettingZoo parallel": ("possible_agents", "observation_space", "action_space", *_BOTH),
    "Gymnasium": ("observation_space", "action_space", *_BOTH),
}
_VECTORS = ("Ludus's VectorEnv", "gymnasium.vector")


def make(
    name: str,
    source: Any = None,
    *,
    num_envs: int,
    restarts: int = 0,
    agent_order: Sequence[str] | None = None,
    **options: Any,
) -> VectorEnv:
    """Make the vector of a user's environment: of the vector that it is, or of single environments.

    Args:
        name: `module:Class`, or `module:function` of a function that makes one.
        source: The class, function or `UserEnvObject` itself; None: `name` is imported.
        num_envs: Number of environments; passed to a class that takes it, which then makes a vector.
        restarts: As in `PythonVectorEnv`; for single environments only.
        agent_order: As in `zoo_vector`; of PettingZoo's interfaces only.
        options: Those of `Sides` that the class does not take itself say who plays whom in an environment of several agents; the others go
            to the class.

    Returns:
        The vector.

    Raises:
        ConfigError: An option is not taken.
        EnvError: The class raises, or has no interface that Ludus plays.
    """
    if isinstance(source, UserEnvObject):
        return _borrow(name, source, num_envs=num_envs, restarts=restarts, order=agent_order, options=options)
    target = resolve_name("environment", name, {}, expected=ENVIRONMENTS, functions=True) if source is None else source
    parameters = _parameters(name, target)
    side_options, rest = _split_side_options(options, parameters)
    if "num_envs" in parameters:
        rest["num_envs"] = num_envs
    build = partial(_build, name, target, rest)
    first = build()
    with closed_on_error(first):
        counts = "num_envs" in parameters
        return _vectorize(
            name, first, build, side_options, num_envs=num_envs, restarts=restarts, counts=counts, order=agent_order
        )


def _vectorize(
    name: str,
    first: Any,
    build: Callable[[], Any],
    side_options: Mapping[str, Any],
    *,
    num_envs: int,
    restarts: int,
    counts: bool,
    order: Sequence[str] | None,
) -> VectorEnv:
    """Make a vector of what was built first. counts: whether it takes num_envs. order: of its agents."""
    kind = _interface(name, first)
    several = kind == "Gymnasium" and isinstance(first.action_space, spaces.Tuple)
    alone = kind == "Gymnasium" and not several
    if (unsupported := [key for key in side_options if key != "statistics" or not alone]) and not (
        several or kind.startswith("PettingZoo")
    ):
        raise ConfigError(
            f"{name} does not take {', '.join(unsupported)}; Ludus takes them itself for environments of several agents only."
        )
    if kind in _VECTORS:
        return _vector(name, kind, first, num_envs=num_envs, restarts=restarts)
    if counts:
        raise EnvError(
            f"{name} takes num_envs and made a single environment ({kind}); leave num_envs to Ludus, or make a vector."
        )
    probes = [first]

    def new_env() -> Any:
        return probes.pop() if probes else build()

    if alone:
        from ludus.envs.adapters.single import single_env

        return single_env(
            new_env, num_envs, id=name, restarts=restarts, statistics=side_options.get("statistics") or ()
        )
    sides, _ = split_options(side_options)
    if several:
        from ludus.envs.adapters.tuple_env import tuple_vector

        return tuple_vector(new_env, num_envs, id=name, sides=sides, restarts=restarts)
    from ludus.envs.adapters.pettingzoo_vector import zoo_vector

    return zoo_vector(new_env, num_envs, id=name, sides=sides, restarts=restarts, agent_order=order)


class BorrowedVectorEnv(Wrapper):
    """A vector of one object that the user still owns: it is not closed, and a vector that had it before can no longer use it."""

    def __init__(self, env: VectorEnv, source: UserEnvObject) -> None:
        super().__init__(env, env.spec)
        source.turn += 1
        self._source, self._turn = source, source.turn

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Reset as `VectorEnv.reset` describes. Raises EnvError once another vector has the object."""
        self._require_turn()
        return super().reset(seeds, episodes=episodes)

    def close(self) -> None:
        """Leave it to its owner."""

    def _before(self, actions: tuple[Array, ...]) -> tuple[Array, ...]:
        self._require_turn()
        return actions

    def _require_turn(self) -> None:
        if self._source.turn != self._turn:
            raise EnvError(
                f"{self.spec.id} is one object, and a second use of it has begun. Give a function that makes an environment: env=lambda: …"
            )


def _borrow(
    name: str,
    source: UserEnvObject,
    *,
    num_envs: int,
    restarts: int,
    order: Sequence[str] | None,
    options: dict[str, Any],
) -> VectorEnv:
    if num_envs != source.num_envs or restarts:
        wanted = f"num_envs={num_envs}" if num_envs != source.num_envs else f"restarts={restarts}"
        raise ConfigError(
            f"{wanted} is asked for, and {name} was given as one object, which is {source.size}. Give a function that makes an "
            "environment: env=lambda: …"
        )
    if _interface(name, source.env) in _VECTORS:
        return BorrowedVectorEnv(
            _vector(name, _interface(name, source.env), source.env, num_envs=num_envs, restarts=0), source
        )
    side_options, rest = _split_side_options(options, {})
    release(source.env)  # by the vector that had it before
    build = partial(_build, name, lambda: source.env, rest)
    return BorrowedVectorEnv(
        _vectorize(name, build(), build, side_options, num_envs=1, restarts=0, counts=False, order=order), source
    )


def _parameters(name: str, target: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters that an environment is made with."""
    if not callable(target):
        raise ConfigError(f"{name} is {target!r}; expected a class, or a function that makes an environment.")
    try:
        return inspect.signature(target).parameters
    except (TypeError, ValueError):
        return {}


def _split_side_options(
    options: Mapping[str, Any], parameters: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (the options of `Sides` that the class does not take itself, the rest)."""
    names = {field.name for field in fields(Sides)} - set(parameters)
    return {k: v for k, v in options.items() if k in names}, {k: v for k, v in options.items() if k not in names}


def _build(name: str, target: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    try:
        inspect.signature(target).bind(**options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} cannot be made with the options {options}: {error}.") from error
    try:
        return target(**options)
    except (ConfigError, EnvError):
        raise
    except (Exception, SystemExit) as error:
        raise EnvError(f"{name} cannot be made: it raised {type(error).__name__}: {error}.") from error


def _interface(name: str, env: object) -> str:
    """Return which of the interfaces an environment has, by what it offers. Raises EnvError, with what each lacks, if none."""
    if env is None or isinstance(env, type):
        raise EnvError(f"{name} made {env!r}, which is no environment; expected an object with reset and step.")
    lacks = {kind: [part for part in needs if not hasattr(env, part)] for kind, needs in _NEEDS.items()}
    if lacks["gymnasium.vector"] and hasattr(env, "num_envs") and hasattr(env, "step_async"):
        raise EnvError(
            f"{name} made a VecEnv of Stable-Baselines3, whose resets take no seed and whose steps return four values. Give what makes one "
            "of its environments: Ludus makes as many as num_envs says."
        )
    if any(base.__name__ == "MultiAgentEnv" and base.__module__.startswith("ray.") for base in type(env).__mro__):
        raise EnvError(
            f"{name} made a MultiAgentEnv of RLlib; Ludus plays PettingZoo's parallel interface: possible_agents, agents, and "
            'observation_space(agent) and action_space(agent) as methods. Ends need no "__all__".'
        )
    for kind, missing in lacks.items():
        if not missing:
            return kind
    reasons = "; ".join(f"{kind} (lacks {', '.join(missing)})" for kind, missing in lacks.items())
    raise EnvError(f"{name} has none of the interfaces that Ludus plays: {reasons}.")


def _vector(name: str, kind: str, env: Any, *, num_envs: int, restarts: int) -> VectorEnv:
    if restarts:
        raise ConfigError(f"restarts={restarts} was given; {name} is a vector that looks after itself. Leave it out.")
    if env.num_envs != num_envs:
        raise EnvError(
            f"{name} was asked for {num_envs} environments and says num_envs={env.num_envs}; let it take num_envs."
        )
    if kind == "gymnasium.vector":
        from ludus.envs.adapters.native import native_env

        return native_env(env, id=name)
    vector: VectorEnv = env
    return vector
