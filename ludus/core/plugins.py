"""Names that installed distributions add to the library's, by entry points of their metadata. What lies in `ludus.contrib` is found in the
same way, by the entry points of Ludus's own distribution."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import Any, TypeVar

from ludus.core.errors import ConfigError
from ludus.core.packages import DISTRIBUTION

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
