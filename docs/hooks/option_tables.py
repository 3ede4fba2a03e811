"""Tables of the options of a configuration model: type, default and meaning of each field, from the model and its docstring."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

ENTRY = re.compile(r"(\w+(?:, \w+)*): (.*)")
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


def fields_of(model: type) -> Mapping[str, FieldInfo]:
    """Return the fields of a pydantic model, or of a dataclass as if it were one."""
    if issubclass(model, BaseModel):
        return model.model_fields
    if not dataclasses.is_dataclass(model):
        return {}
    hints = typing.get_type_hints(model)
    return {
        field.name: FieldInfo.from_annotated_attribute(hints[field.name], _dataclass_default(field))
        for field in dataclasses.fields(model)
        if field.init
    }


def _dataclass_default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return ... if field.default is dataclasses.MISSING else field.default


def description(model: type, field: str, info: FieldInfo) -> str:
    """Return what a field means; "" if nothing says it.

    That is the entry of the nearest class in which it has the same default: an entry that speaks of another default is that of another
    algorithm. Without one it is the entry of the most general class, or the field's own description.
    """
    entries = [
        (base, text)
        for base in model.__mro__
        if (text := attributes(base).get(field, "")) and not text.startswith(("See ", "see "))
    ]
    same = [text for base, text in entries if field in fields_of(base) and _is_equal(fields_of(base)[field], info)]
    return next(iter([*same, *(text for _, text in reversed(entries))]), info.description or "")


def _is_equal(one: FieldInfo, other: FieldInfo) -> bool:
    return bool(one.get_default(call_default_factory=True) == other.get_default(call_default_factory=True))


def attributes(model: type) -> dict[str, str]:
    """Return the entries of a class's `Attributes:` section, each on one line."""
    doc = inspect.cleandoc(model.__dict__.get("__doc__") or "")
    section = re.search(r"^Attributes:\n((?:    .*\n?|\n)*)", doc, re.MULTILINE)
    entries: dict[str, str] = {}
    for entry in _entries(section[1] if section else ""):
        if match := ENTRY.match(entry):
            entries |= dict.fromkeys(match[1].split(", "), match[2])
    return entries


def _entries(section: str) -> Iterator[str]:
    """Yield the entries of a section, whose lines are joined."""
    lines: list[str] = []
    for line in section.splitlines():
        if re.match(r"    \S", line) and lines:
            yield " ".join(lines)
            lines = []
        if line.strip():
            lines.append(line.strip())
    if lines:
        yield " ".join(lines)


def default_text(info: FieldInfo) -> str:
    """Return a field's default as a file has it."""
    value = info.get_default(call_default_factory=True)
    return "required" if value is PydanticUndefined or value is ... else f"`{value_text(value)}`"


def value_text(value: Any) -> str:
    """Return a value as YAML has it, a schedule as its start and end."""
    from ludus.algorithms.common.config import Schedule

    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Schedule):
        start, end = f"{value.start:g}", value.end
        return start if end is None or end == value.start else f"{start}\u00a0→\u00a0{end:g}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(value_text(each) for each in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {value_text(each)}' for key, each in value.items())}}}"
    if isinstance(value, BaseModel):
        chosen = {name: getattr(value, name) for name in type(value).model_fields if name in value.model_fields_set}
        return value_text(chosen) if chosen else type(value).__name__
    return str(value) or '""'


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
