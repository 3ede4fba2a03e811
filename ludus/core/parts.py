"""Parts of a scenario by name and as data: `"nash"`, `{kind: nash, tolerance: 1e-3}`, `{kind: my.module:Solver}`, or an object. Installed
distributions add names by entry points of their metadata; what lies in `ludus.contrib` is found so, too."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import importlib.util
import os
import pkgutil
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from pathlib import Path
from types import FunctionType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from ludus.core.config import explain
from ludus.core.errors import ConfigError, UnknownName, article, join_or, nearest
from ludus.core.former_names import present_name
from ludus.core.packages import DISTRIBUTION, is_known, missing_package
from ludus.core.process_settings import users_code

# --------------------------------------------------------------------------------------------------------------------
# Tables of parts: names of the library's own, and of installed distributions'.


V_co = TypeVar("V_co", covariant=True)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_CONTRIB = "ludus.contrib."


def target_of(point: EntryPoint) -> str:
    """Return what an entry point names, `module:object`."""
    return f"{point.module}:{point.attr}"


class Registry(Mapping[str, V_co]):
    """Names of one kind of part: those of the library, then those that installed distributions add.

    The metadata of distributions is read when a name is not the library's own, or all are listed: once in a process, some milliseconds.

    Args:
        what: such a part, in words ("algorithm").
        group: of the entry points, whose values are `module:object` (`ludus.algorithms`).
        own: the library's names.
        value: what stands for an entry point in the mapping; called at each look-up.
    """

    def __init__(
        self,
        what: str,
        group: str,
        own: Mapping[str, V_co],
        value: Callable[[EntryPoint], V_co] = target_of,  # type: ignore[assignment]
    ) -> None:
        self.what, self.group, self.own, self.value = what, group, own, value

    def __getitem__(self, name: str) -> V_co:
        if name in self.own:
            return self.own[name]
        if not _NAME.fullmatch(name):  # `module:Class`, an id with a slash: nobody can add these
            raise KeyError(name)
        return self.value(self.added[name])

    def __contains__(self, name: object) -> bool:
        return name in self.own or (isinstance(name, str) and bool(_NAME.fullmatch(name)) and name in self.added)

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from self.added

    def __len__(self) -> int:
        return len(self.own) + len(self.added)

    @cached_property
    def added(self) -> Mapping[str, EntryPoint]:
        """Entry points of installed distributions, by name.

        Raises:
            ConfigError: for a name that is the library's or another distribution's too, or cannot be one.
        """
        points: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            if point.name in self.own:
                raise ConfigError(
                    f"{_distribution(point)} registers the {self.what} {point.name!r}, which Ludus has itself. Uninstall it, or ask "
                    "its author for another name."
                )
            if not (_NAME.fullmatch(point.name) and point.module and point.attr):
                raise ConfigError(
                    f"{_distribution(point)} registers the {self.what} {point.name!r} as {point.value!r}; a name of letters, digits, "
                    "'_', '.' and '-' was expected, and module:object."
                )
            other = points.setdefault(point.name, point)
            if target_of(other) != target_of(point):
                raise ConfigError(
                    f"{_distribution(other)} and {_distribution(point)} both register the {self.what} {point.name!r}. Uninstall one "
                    "of them."
                )
        return points


def source_of(name: str, table: Mapping[str, Any]) -> str:
    """Return whose a name is, to follow it in a message: " of the distribution NAME VERSION"; "" where Ludus or the user wrote it."""
    if not isinstance(table, Registry) or name in table.own or name not in table:
        return ""
    return source_of_point(table.added[name])


def source_of_point(point: EntryPoint) -> str:
    """As `source_of`, of what an entry point names."""
    return "" if target_of(point).startswith(_CONTRIB) else f" of {_distribution(point)}"


@cache
def missing_contrib() -> str:
    """Return what to say beside a name that nobody knows where the entry points of Ludus's own distribution are not there, as of a source
    tree that is on Python's path without having been installed; else ""."""
    with suppress(PackageNotFoundError):
        if any(target_of(point).startswith(_CONTRIB) for point in distribution(DISTRIBUTION).entry_points):
            return ""
    return (
        "What lies in ludus.contrib is not registered in this environment, since Ludus is not installed there, or was before it had entry "
        "points; `make install` (or `pip install -e .`) in its source tree registers it"
    )


def _distribution(point: EntryPoint) -> str:
    dist = point.dist
    return "a distribution" if dist is None else f"the distribution {dist.name} {dist.version}"


# --------------------------------------------------------------------------------------------------------------------
# Names to classes, without import side effects: a table of `module:Class` strings per kind of part.


Expected: TypeAlias = tuple[type | tuple[str, ...], ...]
"""What a class may be: it has all methods of one of these protocols, or those that are named, or is derived from a class."""
ENVIRONMENTS: Expected = (("reset", "step"),)
"""Environments, of whatever interface."""


def resolve_name(
    what: str, name: str, table: Mapping[str, str], *, expected: Expected | None = None, functions: bool = False
) -> Any:
    """Return the object that `name` stands for: a name of `table`, or `module:Class` of the user's own.

    Args:
        what: Such a part, in words.
        name: As it is in a scenario or a stored file.
        table: The registered names.
        expected: What a class of the user's own must be; (): any class, or, with `functions`, none. None: `name` was written in code, and
            may stand for anything.
        functions: Whether it may be a function, too, which the named module must define itself.

    Raises:
        UnknownName: There is no such name; with the nearest ones.
        ConfigError: The module or class cannot be imported, or is not what is expected; of what an installed distribution registers, with
            the distribution's name.
    """
    target = table.get(name, name)
    if ":" not in target:
        raise UnknownName(what, name, table, hint=own_name_hint(what))
    label = f"{what} {name!r}{source_of(name, table)}"
    if expected is None or target != name:
        return _imported(label, what, target)
    _check_module(label, what, target)
    value = _imported(label, what, target)
    if isinstance(value, type) and (expected or not functions):
        _check_class(name, what, value, expected)
    elif functions:
        _check_function(label, what, present_name(target).partition(":")[0], value)
    else:
        raise ConfigError(f"{name!r} is no class. {own_name_hint(what)}.")
    return value


_TARGET = re.compile(r"(?!bot:)[\w.-]+:[A-Za-z_]\w*")  # as `ludus.core.trust` looks for them
_FUNCTIONS_OF_LUDUS = ("ludus.testing.", "ludus.envs.")
"""Modules whose functions a scenario may name as environments, teams, wrappers and masks; others do other things when they are called."""


def _check_module(label: str, what: str, target: str) -> None:
    """Raise ConfigError for a name that is none, and for a module of Python's own, before it is imported."""
    if not _TARGET.fullmatch(target):
        raise ConfigError(f"{label} is no name. {own_name_hint(what)}.")
    package = target.partition(":")[0].partition(".")[0]
    if package not in sys.stdlib_module_names:
        return
    spec = importlib.util.find_spec(package)
    place = (spec and spec.origin) or ""
    if spec is not None and (not os.path.isabs(place) or Path(place).is_relative_to(sysconfig.get_path("stdlib"))):
        raise ConfigError(
            f"{label}: {package!r} belongs to Python, and {article(what)} is never of it. Name a custom module."
        )


def _check_class(name: str, what: str, cls: type, expected: Expected) -> None:
    """Raise ConfigError for a class that is none of the expected: it is called with what a file says, whatever it does."""
    if not expected or any(_fits(cls, kind) for kind in expected):
        return
    bases = [kind for kind in expected if isinstance(kind, type) and not _is_protocol(kind)]
    if bases:
        raise ConfigError(
            f"{name!r} is no {what}: derive it from {join_or([f'{base.__module__}.{base.__qualname__}' for base in bases])}."
        )
    lacking = min(
        ([f"{m}()" for m in _methods(kind) if not callable(getattr(cls, m, None))] for kind in expected), key=len
    )
    where = next((f" (see {kind.__module__}.{kind.__name__})" for kind in expected if isinstance(kind, type)), "")
    raise ConfigError(f"{name!r} is not {article(what)}: it lacks {', '.join(lacking)}{where}.")


def _check_function(label: str, what: str, module: str, value: Any) -> None:
    """Raise ConfigError for what is no function of the module itself, and for one of Ludus that does something else."""
    function = getattr(value, "py_func", value)  # of what numba has compiled
    if not isinstance(function, FunctionType):
        raise ConfigError(f"{label} is no function of {module!r} but {article(type(value).__name__)}. Name a function.")
    if function.__module__ != module:
        raise ConfigError(
            f"{label}: {module!r} does not define it but has it from {function.__module__!r}. Name a function where it is defined."
        )
    if module.partition(".")[0] == "ludus" and not module.startswith(_FUNCTIONS_OF_LUDUS):
        raise ConfigError(f"{label} is a function of Ludus, and not {article(what)}.")


def _fits(cls: type, kind: type | tuple[str, ...]) -> bool:
    if isinstance(kind, type) and not _is_protocol(kind):
        return issubclass(cls, kind)
    return all(callable(getattr(cls, name, None)) for name in _methods(kind))


def _is_protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def _methods(kind: type | tuple[str, ...]) -> list[str]:
    """Return the public methods of a protocol, or those that are named."""
    if isinstance(kind, tuple):
        return list(kind)
    names = sorted({name for base in _bases(kind) for name in vars(base) if not name.startswith("_")})
    return [name for name in names if callable(getattr(kind, name))]


def load_entry_point(what: str, point: EntryPoint) -> Any:
    """Return what an entry point names. Raises ConfigError, with its distribution's name, if that cannot be imported."""
    return _imported(f"{what} {point.name!r}{source_of_point(point)}", what, target_of(point))


def _imported(label: str, what: str, target: str) -> Any:
    """label: what was asked for, and by which name; begins messages. what: such a part, in words."""
    module, _, attribute = target.partition(":")
    if not module or not attribute:
        raise ConfigError(f"{label} is no name. {own_name_hint(what)}.")
    try:
        with users_code():
            imported = importlib.import_module(module)
    except ImportError as error:
        if (present := present_name(target)) != target:
            return _imported(label, what, present)
        if module.startswith("ludus.") and is_known((error.name or "").partition(".")[0]):
            raise missing_package(label, error) from error
        if module.endswith(".py"):
            hint = f". Name the module as Python imports it, {module.removesuffix('.py')}:{attribute}."
        elif error.name and present_name(error.name) != error.name:
            hint = f". {error.name!r} is now {present_name(error.name)!r}."
        elif error.name and not f"{module}.".startswith(f"{error.name}."):
            hint = f". {module!r} imports it; install it."
        else:
            hint = module_hint(error.name or module)
        raise ConfigError(f"{label} could not be imported: {error}{hint}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{label}: importing {module!r} raised {type(error).__name__}: {error}.") from error
    if not hasattr(imported, attribute):
        known = [global_name for global_name in vars(imported) if not global_name.startswith("_")]
        raise ConfigError(f"{label}: module {module!r} has no {attribute!r}{nearest(attribute, known)}")
    return getattr(imported, attribute)


def own_name_hint(what: str) -> str:
    """Return how a part of one's own is named, to be said beside a name that nobody knows; and that Ludus is not installed, if that may
    be why nobody does."""
    own = f"{article(what).capitalize()} of your own is named module:Class"
    return f"{missing}. {own}" if (missing := missing_contrib()) else own


def module_hint(module: str) -> str:
    """Return the end of a sentence about a module that is not there: the nearest one that is, and where Python looked."""
    package, _, name = module.rpartition(".")
    # pkgutil would keep where "" was when it was first asked.
    everywhere = [entry or str(Path.cwd()) for entry in sys.path]
    places = getattr(sys.modules.get(package), "__path__", ()) if package else everywhere
    known = {module_info.name for module_info in pkgutil.iter_modules(places)}
    close = [
        f"{package}.{module_info}".lstrip(".")
        for module_info in difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    ]
    if close:
        return f"; did you mean {close[0]!r}?"
    if package:
        return f". {package!r} has no such module."
    working_directory = Path.cwd()
    if any(Path(entry).resolve() == working_directory for entry in sys.path):
        return (
            f". Python looked in the working directory, {working_directory}, and on its path; PYTHONPATH adds folders."
        )
    return f". The working directory, {working_directory}, is not on Python's path; PYTHONPATH=. adds it."


# --------------------------------------------------------------------------------------------------------------------
# Parts of a scenario as data: `"nash"`, `{kind: nash, tolerance: 1e-3}`, `{kind: my.module:Solver}` or an object. A
# part's class is a `Config` model or a frozen dataclass; its options are its fields, all of them JSON values.


def build_part(what: str, value: Any, table: Mapping[str, str], expected: Expected = ()) -> Any:
    """Return the part that `value` describes. expected: as `resolve_name` takes it. Raises UnknownName or ConfigError with the nearest
    right name."""
    if isinstance(value, type):
        return build_from_class(what, value)
    if value is None or isinstance(value, bool | int | float | list | tuple):
        raise ConfigError(_expected(what, value))
    if not isinstance(value, str | Mapping):
        return value
    options = {"kind": value} if isinstance(value, str) else dict(value)
    kind = options.pop("kind", None)
    if not isinstance(kind, str):
        raise ConfigError(_expected(what, value))
    cls = resolve_name(what, kind, table, expected=expected)
    if not isinstance(cls, type):  # must not be called, whatever it does
        raise ConfigError(f"{kind!r} is no class; {article(what)} of your own is named module:Class.")
    if strange := [key for key in options if not isinstance(key, str)]:
        raise ConfigError(f"{what} {kind!r}: unknown key {strange[0]!r}; its keys are words.")
    return _made(what, kind, cls, options)


def build_from_class(what: str, cls: type) -> Any:
    """Return a part that was given as its class: with its defaults. Raises ConfigError if it needs options."""
    try:
        return _made(what, cls.__qualname__, cls, {})
    except ConfigError as error:
        name = cls.__name__
        raise ConfigError(
            f"the class {name} was given, and {article(what)} cannot be made of it without options ({str(error).rstrip('.')}). Give an "
            f"object, {name}(…)."
        ) from error


def _made(what: str, kind: str, cls: type, options: Mapping[str, Any]) -> Any:
    if issubclass(cls, BaseModel):
        return cls(**options)
    if not dataclasses.is_dataclass(cls):
        return _called(what, kind, cls, options)
    known = [f.name for f in dataclasses.fields(cls) if f.init]
    for name in options:
        if name not in known:
            raise ConfigError(f"{what} {kind!r}: unknown key {name!r}{nearest(name, known)}")
    try:
        return TypeAdapter(cls).validate_python(options)
    except ValidationError as error:
        raise ConfigError(f"{what} {kind!r}: {explain(error, BaseModel)}") from None


def _expected(what: str, value: Any) -> str:
    return f"{article(what)} was expected, by name or as a mapping with `kind`; given {value!r}."


def _called(what: str, kind: str, cls: Any, options: Mapping[str, Any]) -> Any:
    try:
        return cls(**options)
    except TypeError as error:
        raise ConfigError(f"{what} {kind!r} cannot be made of the options {dict(options)}: {error}") from error


def registered_name(part: Any, table: Mapping[str, str]) -> str:
    """Return the name under which `build_part` finds the part's class."""
    cls = type(part)
    path = f"{cls.__module__}:{cls.__qualname__}"
    named = (name for name, target in table.items() if target == path)
    elsewhere = (name for name in table if _is_class(cls, name, table))  # imports what it looks at
    return next(named, None) or next(elsewhere, path)


def _is_class(cls: type, name: str, table: Mapping[str, str]) -> bool:
    """Return whether a name stands for a class. What needs a package that is not installed is no class that somebody has made an object
    of."""
    try:
        return resolve_name("part", name, table) is cls
    except ConfigError:
        return False


def require(part: object, what: str, protocols: tuple[type, ...], table: Mapping[str, str]) -> None:
    """Raise ConfigError unless the part, given as `what`, has what one of these protocols asks for."""
    if not isinstance(part, protocols):
        raise ConfigError(f"{registered_name(part, table)!r} is not {article(what)}: {missing(part, *protocols)}.")


def missing(part: object, *protocols: type) -> str:
    """Of a part that has not all that one of the protocols asks for: what it lacks of the one that it is nearest to, and where that is
    described, as the end of a sentence."""
    protocol, names = min(((p, _missing(part, p)) for p in protocols), key=lambda pair: len(pair[1]))
    return f"it lacks {', '.join(names)} (see {protocol.__module__}.{protocol.__name__})"


def _missing(part: object, protocol: type) -> list[str]:
    """As the check of protocols decides it: fields, then methods with brackets."""
    bases = _bases(protocol)
    names = {name for base in bases for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    public = sorted(name for name in names if not name.startswith("_"))
    methods = [name for name in public if callable(getattr(protocol, name, None))]
    fields = [f"`{name}`" for name in public if name not in methods and not hasattr(part, name)]
    return [*fields, *(f"{name}()" for name in methods if getattr(part, name, None) is None)]


def _bases(protocol: type) -> list[type]:
    return [base for base in protocol.__mro__ if base not in (Protocol, Generic, object)]


def with_options(part: Any, options: Mapping[str, Any]) -> Any:
    """Return the same part with other values of these options, rounded where whole ones are expected. Raises ConfigError for an option that
    it does not have, or a value that it refuses."""
    if not options:
        return part
    whole = {name for name in options if type(getattr(part, name, None)) is int}
    options = {name: round(value) if name in whole else value for name, value in options.items()}
    if isinstance(part, BaseModel):
        return type(part)(**{**{name: getattr(part, name) for name in type(part).model_fields}, **options})
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        raise ConfigError(f"{type(part).__name__} has no options that could be changed; given {', '.join(options)}.")
    known = [f.name for f in dataclasses.fields(part) if f.init]
    for name in options:
        if name not in known:
            raise ConfigError(f"{type(part).__name__} has no option {name!r}{nearest(name, known)}")
    return dataclasses.replace(part, **options)


def dump_part(part: Any, table: Mapping[str, str]) -> dict[str, Any]:
    """Return the mapping that `build_part` makes an equal part from."""
    kind = registered_name(part, table)
    if isinstance(part, BaseModel):
        return {"kind": kind, **part.model_dump(mode="json")}
    fields = dataclasses.asdict(part) if dataclasses.is_dataclass(part) and not isinstance(part, type) else {}
    return {"kind": kind, **fields}
