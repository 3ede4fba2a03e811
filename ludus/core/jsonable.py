"""Records as JSON, in the one form that pages, files and streams share: keys are the names of fields, and what is not finite is null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np


def parse_json(content: str | bytes) -> Any:
    """Return what JSON text says.

    Args:
        content: The text, or its bytes in UTF-8.

    Raises:
        ValueError: It is no JSON, or nested too deeply.
    """
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def to_json(value: Any) -> bytes:
    """Compact UTF-8. value: of what `to_builtins` takes."""
    try:
        text = _text(value)
    except (ValueError, TypeError):  # seldom: most numbers are finite, and most keys are text
        text = _text(to_builtins(value))
    return text.encode(errors="replace")  # the name of a folder need not be text


def to_builtins(value: Any) -> Any:
    """Return records, arrays, mappings, lists, texts and numbers as the plain data that JSON has. Raises TypeError for others."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): to_builtins(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_builtins(one) for one in value]
    return to_builtins(_opened(value))


def _text(value: Any) -> str:
    return json.dumps(value, default=_opened, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _opened(value: Any) -> Any:
    """Return what a record or an array holds, as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return {key: getattr(value, name) for name, key in _keys(type(value))}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return list(value)
    if isinstance(value, Path):
        return value.name  # no path of a machine leaves it
    raise TypeError(f"{type(value).__name__} has no form in JSON")


@cache
def _keys(kind: Any) -> tuple[tuple[str, str], ...]:
    """Return (name, key) of a record's fields; `return_` and `from_` stand for words that Python keeps to itself."""
    return tuple((field.name, field.name.rstrip("_")) for field in fields(kind))
