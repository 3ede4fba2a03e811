"""The families of environments that an id `family/name` may name, and the seam that each family's adapter module has; and the ids of
environments that are given as Python objects."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import Any, Final, Protocol, cast

from ludus.core import machine
from ludus.core.errors import ConfigError
from ludus.core.packages import install_command, missing_package
from ludus.core.parts import Registry, load_entry_point, source_of, source_of_point, target_of
from ludus.envs.base import VectorEnv


class Adapter(Protocol):
    """The interface of a family's module, such as those of `ludus.envs.adapters`. It may also have `faults(name, options)`: sentences on
    what its package gets wrong and results would hide, of which each run warns."""

    def make(self, name: str, *, num_envs: int, **options: Any) -> VectorEnv:
        """Make the vector that `family/name` stands for.

        Args:
            name: What follows `family/` in the id.
            num_envs: Number of environments.
            options: Those of the family and of the environment.

        Returns:
            The vector.

        Raises:
            UnknownName: There is no such environment; with the nearest names.
            ConfigError: The environment does not take an option.
            EnvError: The environment cannot be made.
        """
        ...

    def names(self) -> list[str]:
        """Return the names that may follow `family/` without options, sorted."""
        ...


@dataclass(frozen=True, slots=True)
class Family:
    """A family of environments.

    Attributes:
        module: The adapter's module.
        summary: What it is, in some words.
        example: An id that works.
        needs: The package that the adapter imports; "" if it comes with the adapter.
        extra: What `pip install 'ludus-rl[extra]'` calls it; "" if it comes with Ludus.
        also: What the adapter imports in addition and no extra installs.
        python: Its environments are single Python objects, so that `restarts` applies to them.
        orders_agents: The adapter takes `agent_order`, as `make_env` does, since users register environments there.
        threads: It has threads of its own, so that `workers` does not apply.
        quick: Its names are listed without delay.
        training: Options for training only, which matches after training do not have.
        shaping: Options that set the rewards of learners; of each, the terms that matches count too, with their weights where the option is
            not given (0: none).
        discount: The discount per decision of its tasks; None: 1 where rules end every episode, else 0.99.
    """

    module: str
    summary: str
    example: str
    needs: str = ""
    extra: str = ""
    also: tuple[str, ...] = ()
    python: bool = False
    orders_agents: bool = False
    threads: bool = False
    quick: bool = False
    training: tuple[str, ...] = ()
    shaping: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    discount: float | None = None

    @property
    def installed(self) -> bool:
        return all(importlib.util.find_spec(module) is not None for module in (self.needs, *self.also) if module)

    @property
    def install(self) -> str:
        """Return the command that installs its package; "" if it comes with the adapter."""
        return self.needs and install_command(self.needs, extra=self.extra)


def _registered(point: EntryPoint) -> Family:
    family = load_entry_point(_WHAT, point)
    if not isinstance(family, Family):
        raise ConfigError(
            f"{_WHAT} {point.name!r}{source_of_point(point)}: {target_of(point)} is no ludus.envs.families.Family."
        )
    return family


_WHAT: Final = "family of environments"
FAMILIES: Final = Registry(
    _WHAT,
    "ludus.envs",
    {
        "gymnasium": Family(
            "ludus.envs.adapters.gymnasium",
            "Gymnasium: classic control, Box2D, MuJoCo, whatever is registered",
            "gymnasium/CartPole-v1",
            needs="gymnasium",
            quick=True,
            python=True,
        ),
        "openspiel": Family(
            "ludus.envs.adapters.openspiel",
            "OpenSpiel: board, card and matrix games",
            "openspiel/leduc_poker",
            needs="pyspiel",
            quick=True,
            extra="openspiel",
            training=("openings",),
        ),
    },
    _registered,
)
"""By name. What lies in `ludus.contrib`, and in other distributions, is added by entry points that name a `Family`."""


def adapter(family: str) -> Adapter:
    """Return the module of a family. Raises ConfigError, with what to install, if its package is missing."""
    entry = FAMILIES[family]
    if not entry.installed:
        raise ConfigError(
            f"environments {family}/… need {entry.needs}, which is not installed; `{entry.install}` brings it."
        )
    source = source_of(family, FAMILIES)
    try:
        return cast(Adapter, importlib.import_module(entry.module))
    except ImportError as error:
        raise missing_package(f"{family}/…{source}", error) from error
    except Exception as error:
        if not source:
            raise
        raise ConfigError(
            f"{family}/…{source}: importing {entry.module!r} raised {type(error).__name__}: {error}."
        ) from error


# --------------------------------------------------------------------------------------------------------------------
# Environments that are given as Python objects.

UNNAMED = "object/"
"""What the ids of environments begin with that only the program knows which gave them."""
EXPECTED = (
    "an id such as openspiel/leduc_poker, a ludus.Environment, a Gymnasium or PettingZoo environment, a pyspiel.Game, or a function "
    "that makes an environment"
)


@dataclass(eq=False)
class UserEnvObject:
    """One environment, or one vector, that exists already. turn: how often it was taken into use."""

    env: Any
    turn: int = 0

    @property
    def num_envs(self) -> int:
        return int(getattr(self.env, "num_envs", 1))

    @property
    def size(self) -> str:
        """Return the number of environments in words."""
        return "one environment" if self.num_envs == 1 else f"a vector of {self.num_envs} environments"


def is_openspiel_game(source: Any) -> bool:
    """Whether it is a `pyspiel.Game`."""
    return (loaded := sys.modules.get("pyspiel")) is not None and isinstance(source, loaded.Game)


@contextmanager
def closed_on_error(env: Any) -> Iterator[None]:
    """Close an environment, of any interface, if what is done with it raises: it may hold processes, a port or a window."""
    try:
        yield
    except BaseException:
        with suppress(Exception), machine.time_limit(machine.CLOSING):  # the first error is reported
            env.close()
        raise


def describe_source(source: Any, num_envs: int | None) -> dict[str, Any]:
    """Return the fields of `Environment` for what was given in place of an id. num_envs: that was given. Raises ConfigError for what is
    no environment, class or function."""
    if is_openspiel_game(source):
        from ludus.envs.openspiel.games import game_id  # families are known without OpenSpiel

        return {"id": game_id(source), "source": None}
    if hasattr(source, "reset") and hasattr(source, "step") and not isinstance(source, type):
        user_object = UserEnvObject(source)
        if num_envs not in (None, user_object.num_envs):
            raise ConfigError(
                f"num_envs={num_envs} was given with one object of {type(source).__name__}, which is {user_object.size}. Give a "
                "function that makes them: env=lambda: …"
            )
        bare = getattr(source, "unwrapped", source)  # PettingZoo's have their names in there
        metadata = getattr(bare, "metadata", None)
        name = getattr(getattr(source, "spec", None), "id", None)
        name = str(name or (isinstance(metadata, Mapping) and metadata.get("name")) or type(bare).__name__)
        return {"id": UNNAMED + _plain(name), "source": user_object, "num_envs": user_object.num_envs}
    if not callable(source):
        raise ConfigError(f"{source!r} was given; expected {EXPECTED}.")
    if (import_name := importable(source)) is not None:
        return {"id": import_name, "source": None}
    name = getattr(source, "__qualname__", type(source).__name__).rpartition(".")[2]
    return {"id": UNNAMED + _plain(name), "source": source}


def importable(source: Any) -> str | None:
    """Return `module:name`, where every process finds the class or function; None: only this one has it."""
    module, name = getattr(source, "__module__", None), getattr(source, "__qualname__", "")
    if not module or module == "__main__" or getattr(sys.modules.get(module), name, None) is not source:
        return None
    try:
        return f"{module}:{name}" if importlib.util.find_spec(module) is not None else None
    except (ImportError, ValueError):
        return None


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "environment"
