"""Environments by id: `family/name` of a family of `ludus.envs.families`, or `module:Class` of the user's own."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

from ludus.core.errors import ConfigError, UnknownName, one_line
from ludus.core.packages import extra_of, missing_package
from ludus.core.parts import missing_contrib, own_name_hint
from ludus.core.process_settings import users_code
from ludus.core.types import EnvSpec
from ludus.envs.base import VectorEnv
from ludus.envs.families import FAMILIES, UNNAMED, Family, UserEnvObject, adapter, closed_on_error

__all__ = ["TreeChoice", "list_envs", "make_env"]

TreeChoice: TypeAlias = Literal["auto", "on", "off"]
_TREE = ("auto", "on", "off")


def make_env(
    id: str,
    *,
    num_envs: int,
    tree: TreeChoice = "auto",
    node_limit: int = 1_000_000,
    fast: TreeChoice = "auto",
    workers: int = 0,
    deadline: float | None = None,
    restarts: int = 0,
    wrappers: Sequence[Mapping[str, Any]] = (),
    source: Any = None,
    **options: Any,
) -> VectorEnv:
    """Make a vector of environments.

    Args:
        id: `gymnasium/CartPole-v1`, `openspiel/kuhn_poker(players=3)`, or `module:Class` of a Gymnasium, PettingZoo or Ludus environment.
        num_envs: Number of environments.
        tree: Whether a game of OpenSpiel is compiled into arrays: "auto" (where its tree is small enough), "on" or "off".
        node_limit: Nodes of the largest tree that is compiled.
        fast: Whether another game of OpenSpiel is played by its rules as arrays: "auto" (where somebody has written them), "on" or "off".
        workers: Number of subprocesses that the environments are distributed over; 0: all are in this process.
        deadline: Seconds that a step may take in a subprocess before that counts as hung; None: no limit.
        restarts: Number of faults of environments that are repaired, their episodes truncated, before the vector raises.
        wrappers: Mappings {"kind": name, …} of `ludus.envs.wrappers`, the innermost first.
        source: What an id `object/NAME` stands for, as `Environment` has it.
        options: Those of the family and of the environment.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such environment, family or wrapper; with the nearest names.
        ConfigError: A parameter or an option is wrong, or a package is missing.
        EnvError: The environment cannot be made.
    """
    return make_vector(
        id,
        num_envs=num_envs,
        tree=tree,
        node_limit=node_limit,
        fast=fast,
        workers=workers,
        deadline=deadline,
        restarts=restarts,
        wrappers=wrappers,
        source=source,
        options=options,
    )


def make_vector(
    id: str,
    *,
    num_envs: int,
    tree: TreeChoice,
    node_limit: int,
    fast: TreeChoice,
    workers: int,
    deadline: float | None,
    restarts: int,
    wrappers: Sequence[Mapping[str, Any]],
    source: Any,
    options: Mapping[str, Any],
    agent_order: Sequence[str] | None = None,
    look: Callable[[EnvSpec], None] | None = None,
) -> VectorEnv:
    """Make a vector as `make_env` does. agent_order: names of all agents, in the order in which those of PettingZoo's interfaces are
    listed; None: the environment's own order. look: is called with the specification before there are wrappers, and may raise."""
    if tree not in _TREE:
        raise ConfigError(f"tree={tree!r} was given; allowed: {', '.join(_TREE)}.")
    if num_envs < 1:
        raise ConfigError(f"num_envs={num_envs} was given; at least 1 is needed.")
    if workers < 0 or restarts < 0 or (deadline is not None and deadline <= 0):
        raise ConfigError(
            f"workers={workers}, restarts={restarts}, deadline={deadline} were given; counts start at 0 and a deadline is positive."
        )
    family, name = ("", id) if id.startswith(UNNAMED) else _parse(id)
    if name == id and id.startswith(UNNAMED):
        _check_source(id, source, workers=workers)
    options = _with_tree(id, family, dict(options), tree=tree, node_limit=node_limit, fast=fast)
    entry = FAMILIES.get(family)
    make = partial(
        _make,
        family,
        name,
        source,
        restarts=restarts if workers == 0 else 0,
        options=options,
        agent_order=agent_order,
    )
    env = _in_workers(make, id, entry, num_envs, workers=workers, deadline=deadline, restarts=restarts)
    if look is not None:
        with closed_on_error(env):
            look(env.spec)
    if wrappers:
        from ludus.envs.wrappers.registry import wrap

        env = wrap(env, wrappers)
    return env


def list_envs(family: str | None = None) -> list[str]:
    """List the ids that need no options.

    Args:
        family: One family; None: all that are installed.

    Returns:
        Ids `family/name`, sorted by family and name.

    Raises:
        UnknownName: There is no such family.
        ConfigError: The family's package is not installed.
    """
    if family is not None:
        if family not in FAMILIES:
            raise UnknownName("family of environments", family, FAMILIES, hint=missing_contrib())
        try:
            return [f"{family}/{name}" for name in adapter(family).names()]
        except ImportError as error:
            raise missing_package(f"{family}/…", error) from error
    return [id for name, entry in sorted(FAMILIES.items()) if entry.installed for id in list_envs(name)]


def extra_needed(id: str) -> str:
    """Return the extra that brings an environment, or the command where no extra does; "" of what the core plays, and of the user's own.
    Raises UnknownName for an unknown family."""
    family, name = _parse(id)
    if not family:
        return ""
    if family == "gymnasium":
        from ludus.envs.adapters.gymnasium import needed_package

        return extra_of(needed_package(name))
    return FAMILIES[family].extra or FAMILIES[family].install


def package_faults(id: str, options: Mapping[str, Any]) -> list[str]:
    """Return what an environment's package gets wrong and its adapter passes through, a sentence each: its function `faults` says."""
    family, name = _parse(id)
    faults = getattr(adapter(family), "faults", None) if family else None
    return [] if faults is None else list(faults(name, options))


def require_trainable(id: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an environment that a new run should not train on unless asked: its adapter's `require_trainable` says why."""
    family, name = _parse(id)
    if family and (require := getattr(adapter(family), "require_trainable", None)):
        require(name, options)


def _parse(id: str) -> tuple[str, str]:
    """Return (family, name); the family of a user's own is ""."""
    family, slash, name = id.partition("/")
    if slash and family in FAMILIES:
        return family, name
    if ":" in id and not slash:
        return "", id
    listed = [other for other, entry in sorted(FAMILIES.items()) if entry.installed and entry.quick]
    known = [f"{other}/{name}" for other in FAMILIES] if slash else [i for other in listed for i in list_envs(other)]
    raise UnknownName("environment", id, known, hint=own_name_hint("environment"))


def _with_tree(
    id: str, family: str, options: dict[str, Any], *, tree: TreeChoice, node_limit: int, fast: TreeChoice
) -> dict[str, Any]:
    if family == "openspiel":
        return {"tree": tree, "node_limit": node_limit, "fast": fast, **options}
    if wrong := [f"{name}=on" for name, choice in (("tree", tree), ("fast", fast)) if choice == "on"]:
        raise ConfigError(f"{wrong[0]} was given; only OpenSpiel's games can be compiled, and {id} is none. Use auto.")
    return options


def _check_source(id: str, source: Any, *, workers: int) -> None:
    """Raise ConfigError without it, or if subprocesses are to have it and it cannot be sent to them."""
    if source is None:
        raise ConfigError(
            f"the environment {id} was given as a Python object, which no file holds. Continue with ludus.resume(run, env=…), given the "
            "same object or function. A function in a module, named module:function, is found by every command."
        )
    if workers == 0:
        return
    try:
        if isinstance(source, UserEnvObject):
            raise TypeError("it is one object, and they need one each")
        pickle.dumps(source)
    except Exception as error:
        raise ConfigError(
            f"workers={workers} was given, and the environment {id} cannot be sent to subprocesses: {one_line(error)}. Put a function that "
            "makes it into a module, and name it module:function."
        ) from error


def _make(
    family: str,
    name: str,
    source: Any,
    *,
    num_envs: int,
    restarts: int,
    options: Mapping[str, Any],
    agent_order: Sequence[str] | None = None,
) -> VectorEnv:
    """Return one vector in this process. A function of plain data, so that a subprocess can be told to call it."""
    if not family:
        from ludus.envs.adapters import custom

        with users_code():
            return custom.make(name, source, num_envs=num_envs, restarts=restarts, agent_order=agent_order, **options)
    if FAMILIES[family].orders_agents:
        options = {**options, "agent_order": agent_order}
    if FAMILIES[family].python:
        options = {**options, "restarts": restarts}
    elif restarts:
        other = "" if FAMILIES[family].threads else ", or give workers=1 or more: then a subprocess is restarted"
        raise ConfigError(
            f"restarts={restarts} was given; environments {family}/… are stepped together and cannot be restarted one by one. "
            f"Leave it out{other}."
        )
    try:
        with users_code():
            return adapter(family).make(name, num_envs=num_envs, **options)
    except ImportError as error:
        raise missing_package(f"{family}/{name}", error) from error


def _in_workers(
    make: partial[VectorEnv],
    id: str,
    entry: Family | None,
    num_envs: int,
    *,
    workers: int,
    deadline: float | None,
    restarts: int,
) -> VectorEnv:
    if workers == 0:
        if deadline is not None:
            raise ConfigError(
                f"deadline={deadline} was given with workers=0; a hung environment can only be ended in a subprocess. "
                "Give workers=1 or more."
            )
        return make(num_envs=num_envs)
    if entry is not None and entry.threads:
        raise ConfigError(f"workers={workers} was given; {id} has threads of its own. Leave workers out.")
    from ludus.envs.processes.vector import SubprocessVectorEnv

    return SubprocessVectorEnv(make, num_envs, workers=workers, deadline=deadline, restarts=restarts)
