"""Shared parts of the panels: numbers that JSON can hold, packed matrices, and the questions that a panel understands."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, nearest

T = TypeVar("T")

# --------------------------------------------------------------------------------------------------------------------
# Numbers and matrices.

Number = float | None
"""None where nothing is known: JSON has no NaN."""
MAX_POINTS = 600
"""Along an axis of generations."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A matrix for a page: dtype "f4", "u4", "i4" or "u1", little-endian; shape; data in base64. Where few values are different, values
    holds these in base64, and data the place of each entry among them, of dtype places "u1" or "u2"; both are empty else."""

    dtype: str
    shape: tuple[int, ...]
    data: str
    values: str = ""
    places: str = ""


_LARGE = 4096  # entries of a matrix from which on it is looked at whether few values are different
_FEW = 1 << 16


def packed(values: NDArray[Any], dtype: str) -> Packed:
    """values: of any number type; f4 keeps NaN."""
    content = np.ascontiguousarray(values, "|u1" if dtype == "u1" else f"<{dtype}")
    if content.itemsize == 4 and content.size >= _LARGE:
        bits = content.view("<u4").ravel()  # of which NaN is one, too
        if 2 * len(np.unique(bits[:: len(bits) // _LARGE])) <= _LARGE and len(different := np.unique(bits)) <= _FEW:
            places = "u1" if len(different) <= 1 << 8 else "u2"
            place = np.searchsorted(different, bits).astype(f"<{places}")
            return Packed(dtype, values.shape, _base64(place), _base64(different), places)
    return Packed(dtype, values.shape, _base64(content))


def _base64(content: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(content).data).decode("ascii")


def unpacked(matrix: Packed) -> NDArray[Any]:
    """Return what was packed."""
    if not matrix.places:
        return np.frombuffer(base64.b64decode(matrix.data), f"<{matrix.dtype}").reshape(matrix.shape)
    values = np.frombuffer(base64.b64decode(matrix.values), f"<{matrix.dtype}")
    place = np.frombuffer(base64.b64decode(matrix.data), f"<{matrix.places}")
    return np.asarray(values[place].reshape(matrix.shape))


def finite(value: float | None) -> Number:
    """To six digits; None for what is not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def all_finite(values: Iterable[float]) -> list[Number]:
    """Return `finite` of each."""
    return [finite(value) for value in (values.tolist() if isinstance(values, np.ndarray) else values)]


def thin(records: Sequence[T], limit: int) -> list[T]:
    """At most `limit` of them, evenly spread, first and last included."""
    if len(records) <= limit:
        return list(records)
    return [records[k] for k in np.unique(np.linspace(0, len(records) - 1, limit).round().astype(int))]


# --------------------------------------------------------------------------------------------------------------------
# What is asked of a panel: texts by name, as they stand in an address.

Query = Mapping[str, str]


def require_known(query: Query, panel: str, known: Sequence[str] = ()) -> None:
    """Raise ConfigError for a name that the panel does not know."""
    for name in query:
        if name not in known:
            hint = nearest(name, list(known)) if known else "; it takes none."
            raise ConfigError(f"the panel {panel} was asked with {name!r}{hint}")


def whole(query: Query, name: str, default: int, *, least: int, most: int) -> int:
    """Return a whole number in least … most. Raises ConfigError."""
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 18 and least <= int(text) <= most):
        raise ConfigError(f"{name} is {text[:40]!r}; expected a whole number from {least} to {most}.")
    return int(text)


def choice(query: Query, name: str, known: Sequence[str]) -> str:
    """One of these; the first if nothing is given. Raises ConfigError."""
    text = query.get(name, "") or known[0]
    if text not in known:
        raise ConfigError(f"{name} is {text[:40]!r}; expected one of {', '.join(known)}.")
    return text


def part(query: Query, name: str, size: int) -> slice:
    """Return `a:b` within 0 … size, all if nothing is given. Raises ConfigError."""
    text = query.get(name, "")
    if not text:
        return slice(0, size)
    first, mark, end = text.partition(":")
    if not mark or not all(side.isascii() and side.isdigit() and len(side) < 10 for side in (first, end)):
        raise ConfigError(f"{name} is {text[:40]!r}; expected two whole numbers, as in 0:100.")
    return slice(min(int(first), size), max(min(int(end), size), min(int(first), size)))
