"""Observations of a native vector, in whatever space, written into one array with a row for each environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from ludus.errors import EnvError
from ludus.types import Array

Write = Callable[[Any, Array], None]
"""(batched observations, out [n, *shape]) -> None."""


def batch_writer(space: Space[Any], *, what: str) -> Write:
    """What writes a batch of a space's observations as `ludus.envs.spaces.observation_space` announces them: Boxes as they are,
    everything else flattened, in the order of `gymnasium.spaces.flatten`. It raises ValueError, TypeError or LookupError for what is not
    in the space (Boxes may be left). Raises EnvError for spaces whose batches are no arrays."""
    if isinstance(space, spaces.Box):
        return _copy
    return _flat(space, what)


def _copy(batch: Any, out: Array) -> None:
    values = np.asarray(batch)
    if values.shape != out.shape:
        raise ValueError(f"they are of shape {values.shape}; expected {out.shape}")
    out[...] = values


def _flat(space: Space[Any], what: str) -> Write:
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return lambda batch, out: np.copyto(out, np.asarray(batch).reshape(out.shape), casting="unsafe")
    if isinstance(space, spaces.Discrete):
        start, count = int(space.start), np.array([space.n])
        return lambda batch, out: _one_hot(np.asarray(batch).reshape(-1, 1) - start, out, count, np.zeros(1, np.int64))
    if isinstance(space, spaces.MultiDiscrete):
        sizes = space.nvec.ravel()
        offset, first = np.concatenate(([0], np.cumsum(sizes)[:-1])), space.start.ravel()
        return lambda batch, out: _one_hot(np.asarray(batch).reshape(len(out), -1) - first, out, sizes, offset)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return _joined([(key, spaces.flatdim(part), _flat(part, what)) for key, part in parts])
    raise EnvError(f"observations of {what} contain {space}, whose batches are not arrays; give vector=python.")


def _one_hot(index: Array, out: Array, sizes: Array, offset: Array) -> None:
    """index: int[n, k] from 0; a one at offset + index in each of the k parts of out's rows."""
    if ((index < 0) | (index >= sizes)).any():
        raise ValueError(f"{index.tolist()} (counted from 0) must be below {sizes.tolist()}")
    out.fill(0)
    np.put_along_axis(out, index + offset, 1, axis=1)


def _joined(parts: list[tuple[Any, int, Write]]) -> Write:
    def write(batch: Any, out: Array) -> None:
        begin = 0
        for key, width, part in parts:
            part(batch[key], out[:, begin : begin + width])
            begin += width

    return write
