"""Names to classes, without import side effects: a table of `module:Class` strings per kind of part."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
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
        hint = f"Is {module!r} on the Python path?"
        if module.endswith(".py"):
            hint = f"Name the module as Python imports it, {module.removesuffix('.py')}:{attribute}."
        elif error.name and not f"{module}.".startswith(f"{error.name}."):
            hint = f"{module!r} imports it; install it."
        raise ConfigError(f"{what} {name!r} could not be imported: {error}. {hint}") from error
    except Exception as error:
        raise ConfigError(f"{what} {name!r}: importing {module!r} raised {type(error).__name__}: {error}.") from error
    if not hasattr(imported, attribute):
        known = [given for given in vars(imported) if not given.startswith("_")]
        raise ConfigError(f"{what} {name!r}: module {module!r} has no {attribute!r}{nearest(attribute, known)}")
    return getattr(imported, attribute)
