"""`gymnasium/<id>`: whatever is registered with Gymnasium; native vectors where there are any, single environments otherwise."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec as Registered

from ludus.core.errors import ConfigError, EnvError, UnknownName, nearest
from ludus.core.packages import is_known, missing_package
from ludus.core.parts import module_hint
from ludus.envs.adapters.native import native_env
from ludus.envs.adapters.single import single_env
from ludus.envs.base import VectorEnv

ONLY_THERE = (
    "One that a script registers is there in its own process alone, since no other runs the script: register it in a module, and name it "
    "gymnasium/module:{id}"
)
_VECTOR = ("auto", "native", "python")
_NEEDS = {"box2d": "Box2D", "mujoco": "mujoco", "phys2d": "jax", "tabular": "jax"}  # packages of Gymnasium's groups


def make(
    name: str,
    *,
    num_envs: int,
    restarts: int = 0,
    vector: str = "auto",
    render: bool = False,
    statistics: Sequence[str] = (),
    **options: Any,
) -> VectorEnv:
    """Make the vector of a registered environment.

    Args:
        name: A registered id, or `module:id`, where importing the module registers it.
        num_envs: Number of environments.
        restarts: As in `PythonVectorEnv`.
        vector: "native" takes the vector that the environment has, "python" single environments; "auto" takes the native one if there is
            one and `restarts` is 0.
        render: Whether it is made able to render.
        statistics: As in `single_env`; not with native vectors.
        options: Of `gymnasium.make`.

    Returns:
        The vector.

    Raises:
        UnknownName: No such id is registered.
        ConfigError: An option is not taken.
        EnvError: The environment cannot be made or played.
    """
    id = f"gymnasium/{name}"
    if vector not in _VECTOR:
        raise ConfigError(f"vector={vector!r} was given for {id}; allowed: {', '.join(_VECTOR)}.")
    entry = registered(name)
    if vector == "native" and not _brings_vector(entry):
        raise ConfigError(f"vector=native was given; {id} has no vector of its own that works. Use auto or python.")
    if vector == "native" and restarts:
        raise ConfigError(
            f"restarts={restarts} was given with vector=native; {id} is then stepped together and cannot be restarted one by one. "
            "Use vector=python."
        )
    if vector == "native" and statistics:
        raise ConfigError(f"statistics={statistics!r} was given with vector=native; give vector=python for them.")
    limit = options.get("max_episode_steps", entry.max_episode_steps)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ConfigError(f"max_episode_steps={limit!r} was given for {id}; expected a whole number of at least 1.")
    if vector == "python" or not _brings_vector(entry) or restarts or statistics:
        build = partial(gymnasium.make, entry, disable_env_checker=True)
        build = partial(build, **{**(_rendering(id, entry, build, options) if render else {}), **options})
        make_single = partial(_build_env, id, entry, build, options)
        return single_env(make_single, num_envs, id=id, restarts=restarts, statistics=statistics)
    rendering = {"render_mode": "rgb_array"} if render else {}
    arguments: dict[str, Any] = {"vectorization_mode": "vector_entry_point", **rendering, **options}
    native = partial(gymnasium.make_vec, entry, num_envs, **arguments)
    return native_env(_build_env(id, entry, native, options), id=id, max_decisions=limit)


def names() -> list[str]:
    """Return the registered ids that can be made without options: the current ones, whose packages are installed."""
    newest: dict[tuple[str | None, str], int] = {}
    for entry in gymnasium.registry.values():
        known = entry.namespace, entry.name
        newest[known] = max(entry.version or 0, newest.get(known, 0))
    current = (e for e in gymnasium.registry.values() if (e.version or 0) == newest[e.namespace, e.name])
    return sorted(entry.id for entry in current if _own(entry))


def registered(name: str) -> Registered:
    """Return the registry's entry. Raises UnknownName with the nearest ids, ConfigError for a module that cannot be imported."""
    module, _, id = name.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        with quiet():
            return gymnasium.spec(id)
    except ImportError as error:
        if error.name == module and not is_known(module):  # the user's own
            raise ConfigError(f"gymnasium/{name} could not be imported: {error}{module_hint(module)}") from error
        raise missing_package(f"gymnasium/{name}", error) from error
    except (gymnasium.error.Error, ValueError) as error:
        hint = f"Atari's are registered by their package: gymnasium/ale_py:{id}" if id.startswith("ALE/") else ""
        if not hint and not nearest(id, names()).startswith("; did you mean"):
            hint = ONLY_THERE.format(id=id)
        raise UnknownName("Gymnasium environment", id, names(), hint=hint) from error


def _brings_vector(entry: Registered) -> bool:
    """Whether it has a vector of its own that works. Gymnasium 1.4.0's of phys2d do not: when one environment restarts, all others stay
    where they were."""
    entry_point = entry.vector_entry_point
    return entry_point is not None and not str(entry_point).startswith("gymnasium.envs.phys2d.")


def _build_env(id: str, entry: Registered, build: Callable[[], Any], options: Mapping[str, Any]) -> Any:
    """Return what `build` makes, with clear errors."""
    try:
        with quiet():
            return build()
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise missing_package(id, error) from error
    except Exception as error:
        wrong = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if wrong is not None and wrong.group(1) in options:
            known = {"render", "vector", "statistics", *_parameters(entry)} - {"render_mode"}
            raise ConfigError(f"unknown option {wrong.group(1)!r} for {id}{nearest(wrong.group(1), known)}") from error
        raise EnvError(
            f"{id} cannot be made with the options {dict(options)}: {type(error).__name__}: {error}."
        ) from error


def _rendering(id: str, entry: Registered, build: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, str]:
    """Return the render mode that gives images, or text where there is none."""
    probe = _build_env(id, entry, partial(build, **options), options)
    modes = probe.metadata.get("render_modes", ())
    probe.close()
    for mode in ("rgb_array", "ansi"):
        if mode in modes:
            return {"render_mode": mode}
    raise ConfigError(f"render=True was given; {id} gives neither images nor text (render modes {list(modes)}).")


def _parameters(entry: Registered) -> list[str]:
    """Return the options that an environment names in its constructor."""
    creator = (
        entry.entry_point
        if callable(entry.entry_point)
        else gymnasium.envs.registration.load_env_creator(str(entry.entry_point))
    )
    return [
        name
        for name, p in inspect.signature(creator).parameters.items()
        if p.kind is not p.VAR_KEYWORD and name != "self"
    ]


def _own(entry: Registered) -> bool:
    """Whether it is made without options, by a package that is installed."""
    if callable(entry.entry_point) or entry.entry_point is None:
        return False  # stand-ins for what has moved to other packages, and functions that need options
    needed = _needed_package(entry)
    return not needed or importlib.util.find_spec(needed) is not None


def needed_package(name: str) -> str:
    """Return the module that one of Gymnasium's own environments needs besides Gymnasium; "" without. Raises UnknownName."""
    return _needed_package(registered(name))


def _needed_package(entry: Registered) -> str:
    group = re.match(r"gymnasium\.envs\.(\w+)", str(entry.entry_point))
    return _NEEDS.get(group[1], "") if group else ""


@contextmanager
def quiet() -> Iterator[None]:
    """Silences what Gymnasium says about bounds of Boxes and about ids that are not the newest version (they were asked for), and what
    Box2D's bindings say when they are imported, which ends the process where warnings are errors."""
    with warnings.catch_warnings():
        for message in (".*(out of date|latest versioned|precision lowered).*", "builtin type .* has no __module__"):
            warnings.filterwarnings("ignore", message=message)
        yield
