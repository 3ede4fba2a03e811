"""Names to classes, without import side effects: a table of `module:Class` strings per kind of part."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from ludus.errors import ConfigError, UnknownName, article


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
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ConfigError(
            f"{what} {name!r} could not be imported: {error}. Is {module!r} on the Python path?"
        ) from error
    except AttributeError as error:
        raise ConfigError(f"{what} {name!r}: module {module!r} has no {attribute!r}.") from error
