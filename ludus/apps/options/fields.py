"""Fields of a configuration model, and their meanings from its docstring."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

_ENTRY = re.compile(r"(\w+(?:, \w+)*): (.*)")


def fields_of(model: type) -> Mapping[str, FieldInfo]:
    """Return the fields of a pydantic model, or of a dataclass as if it were one; none of any other class."""
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


@cache
def attributes(model: type) -> Mapping[str, str]:
    """Return the entries of a class's `Attributes:` section, each on one line."""
    doc = inspect.cleandoc(model.__dict__.get("__doc__") or "")
    section = re.search(r"^Attributes:\n((?:    .*\n?|\n)*)", doc, re.MULTILINE)
    entries: dict[str, str] = {}
    for entry in _entries(section[1] if section else ""):
        if match := _ENTRY.match(entry):
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
