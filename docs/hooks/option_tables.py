"""Tables of the options of a configuration model: type, default and meaning of each field, from the model and its docstring."""

from __future__ import annotations

import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic.fields import FieldInfo

from ludus.apps.options.fields import default_text, description, fields_of, value_text

FOLDED = 6
"""Inherited options from which on they are folded."""
COMPARISONS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def load_model(name: str) -> type:
    """Return the class of a public name of Ludus, a registered algorithm or learned reward, or `module:Class`."""
    import ludus
    from ludus.algorithms.common.registry import ALGORITHMS
    from ludus.algorithms.rewards.registry import LEARNED_REWARDS
    from ludus.core.parts import resolve_name

    if name in ludus.__all__:
        return typing.cast(type, getattr(ludus, name))
    return typing.cast(type, resolve_name("part", name, {**LEARNED_REWARDS, **ALGORITHMS}))


def option_tables(name: str) -> str:
    """Return the table of the options that a model declares, and that of those it inherits, folded; and of its defaults by environment."""
    from environment_defaults import environment_table

    model = load_model(name)
    own = [field for field in fields_of(model) if field in inspect.get_annotations(model)]
    inherited = [field for field in fields_of(model) if field not in own]
    if not own or len(inherited) < FOLDED:
        return option_table(model, fields_of(model)) + environment_table(model)
    rest = textwrap.indent(option_table(model, inherited), "    ")
    folded = f'??? note "{len(inherited)} inherited options"\n\n{rest}'
    return f"{option_table(model, own)}\n{folded}{environment_table(model)}"


def own_options(name: str) -> str:
    """Return the table of the options that a model itself declares, and that of its defaults by environment."""
    from environment_defaults import environment_table

    model = load_model(name)
    own = option_table(model, [field for field in fields_of(model) if field in inspect.get_annotations(model)])
    return own + environment_table(model)


def option_table(model: type, names: Iterable[str]) -> str:
    """Return a table of options of a model: type, default (marked where it follows from the environment), meaning."""
    from environment_defaults import MARK, environment_options

    fields, governed = fields_of(model), {name.partition(".")[0] for name in environment_options(model)}
    rows = [
        (
            f"`{name}`",
            type_text(fields[name]),
            default_text(fields[name]) + (f"\u00a0{MARK}" if name in governed else ""),
            description(model, name, fields[name]),
        )
        for name in names
    ]
    return markdown_table(("option", "type", "default", "meaning"), rows)


def type_text(info: FieldInfo) -> str:
    """Return a field's type in words, with its bounds."""
    bounds = [
        f"{sign} {value_text(getattr(constraint, name))}"
        for constraint in info.metadata
        for name, sign in COMPARISONS.items()
        if getattr(constraint, name, None) is not None
    ]
    return " ".join([annotation_text(info.annotation), ", ".join(bounds)]).strip()


def annotation_text(annotation: Any) -> str:
    """Return an annotation in words: `int`, `"tanh" or "relu"`, `list of int`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return annotation_text(arguments[0])
    if origin is typing.Literal:
        return ", ".join(f"`{value_text(value)}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        parts = [annotation_text(each) for each in arguments if each is not type(None)]
        return " or ".join(dict.fromkeys([*parts, *(["null"] if type(None) in arguments else [])]))
    if origin is not None and isinstance(origin, type):
        inner = ", ".join(dict.fromkeys(annotation_text(each) for each in arguments if each is not ...))
        return f"{_CONTAINERS.get(origin.__name__, origin.__name__)} of {inner}" if inner else origin.__name__
    if annotation is Any:
        return "any"
    return _WORDS.get(getattr(annotation, "__name__", ""), getattr(annotation, "__name__", str(annotation)))


_CONTAINERS = {"tuple": "list", "Mapping": "mapping", "dict": "mapping", "Sequence": "list"}
_WORDS = {"str": "text", "bool": "true or false", "Schedule": "number or schedule", "NoneType": "null"}


def markdown_table(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "\n".join(f"| {' | '.join(cell(text) for text in line)} |" for line in lines) + "\n"


def cell(text: str) -> str:
    """Return a text that may stand in a cell of a table."""
    parts = re.split(r"(`[^`]*`)", re.sub(r"[ \n]+", " ", text))
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts).replace("|", "\\|")
