"""Names to classes, without import side effects: a table of `module:Class` strings per kind of part."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.errors import ConfigError, UnknownName, article, nearest


def load(what: str, name: str, table: Mapping[str, str]) -> Any:
    """The object that `name` stands for: a name of `table`, or `module:Class` of the user's own.

    Raises UnknownName with the nearest names, or ConfigError if the module or class cannot be imported.
    """
    target = table.get(name, name)
    if ":" not in target:
        raise UnknownName(what, name, table, hint=f"{article(what).capitalize()} of your own is named module:Class")
    module, _, attribute = target.partition(":")
    if not module or not attribute:
        raise ConfigError(f"{what} {name!r} is no name; {article(what)} of your own is named module:Class.")
    try:
        imported = importlib.import_module(module)
    except ImportError as error:
        if module.endswith(".py"):
            hint = f". Name the module as Python imports it, {module.removesuffix('.py')}:{attribute}."
        elif error.name and not f"{module}.".startswith(f"{error.name}."):
            hint = f". {module!r} imports it; install it."
        else:
            hint = look_again(error.name or module)
        raise ConfigError(f"{what} {name!r} could not be imported: {error}{hint}") from error
    except Exception as error:
        raise ConfigError(f"{what} {name!r}: importing {module!r} raised {type(error).__name__}: {error}.") from error
    if not hasattr(imported, attribute):
        known = [given for given in vars(imported) if not given.startswith("_")]
        raise ConfigError(f"{what} {name!r}: module {module!r} has no {attribute!r}{nearest(attribute, known)}")
    return getattr(imported, attribute)


def look_again(module: str) -> str:
    """The end of a sentence about a module that is not there: the nearest one that is, and where Python looked."""
    package, _, name = module.rpartition(".")
    # pkgutil would keep where "" was when it was first asked.
    everywhere = [entry or str(Path.cwd()) for entry in sys.path]
    places = getattr(sys.modules.get(package), "__path__", ()) if package else everywhere
    known = {found.name for found in pkgutil.iter_modules(places)}
    close = [f"{package}.{found}".lstrip(".") for found in difflib.get_close_matches(name, known, n=1, cutoff=0.75)]
    if close:
        return f"; did you mean {close[0]!r}?"
    if package:
        return f". {package!r} has no such module."
    here = Path.cwd()
    if any(Path(entry).resolve() == here for entry in sys.path):
        return f". Python looked in the working directory, {here}, and on its path; PYTHONPATH adds folders."
    return f". The working directory, {here}, is not on Python's path; PYTHONPATH=. adds it."
