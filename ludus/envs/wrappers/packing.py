"""Snapshots of wrapped vectors: the inner vector's bytes beside named arrays, in safetensors' format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ludus.errors import EnvError
from ludus.types import Array

_INNER = "inner"


def pack(inner: bytes, columns: Mapping[str, Array]) -> bytes:
    """One byte string for both."""
    arrays = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    packed: bytes = save({_INNER: np.frombuffer(inner, np.uint8), **arrays})
    return packed


def unpack(packed: bytes, *, names: Iterable[str], what: str) -> tuple[bytes, dict[str, Array]]:
    """(inner, columns) again. Raises EnvError if it is no such byte string, or has other columns than `names`."""
    try:
        arrays: dict[str, Array] = load(packed)
    except SafetensorError as error:
        raise EnvError(f"a snapshot of {what} cannot be read: {error}; was it cut or changed?") from error
    if arrays.keys() != {_INNER, *names}:
        raise EnvError(f"a snapshot of {what} was made under other wrappers; restore into an equal vector.")
    inner = arrays.pop(_INNER)
    return inner.tobytes(), arrays
