"""Spaces as JSON: Discrete, MultiDiscrete, MultiBinary and Box."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space
from numpy.typing import NDArray

from ludus.errors import DataError


def space_to_json(space: Space[Any]) -> dict[str, Any]:
    """What `space_from_json` makes an equal space of; bounds that are infinite are null, and those that are all one are one number.
    Raises DataError for another kind of space."""
    if isinstance(space, Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, MultiDiscrete):
        kind = space.dtype.str
        return {"kind": "multi_discrete", "nvec": space.nvec.tolist(), "start": space.start.tolist(), "dtype": kind}
    if isinstance(space, MultiBinary):
        return {"kind": "multi_binary", "n": space.n if isinstance(space.n, int) else list(space.shape)}
    if isinstance(space, Box):
        sides = {"low": _bound(space.low), "high": _bound(space.high)}
        return {"kind": "box", "shape": list(space.shape), "dtype": space.dtype.str, **sides}
    raise DataError(f"the space {space} was given; Discrete, MultiDiscrete, MultiBinary and Box can be written.")


def space_from_json(found: Mapping[str, Any]) -> Space[Any]:
    """Raises DataError for another kind, KeyError, TypeError or ValueError for a damaged one."""
    kind = found["kind"]
    if kind == "discrete":
        return Discrete(int(found["n"]), start=int(found["start"]))
    if kind == "multi_discrete":
        nvec, start = np.array(found["nvec"]), np.array(found["start"])
        return MultiDiscrete(nvec, dtype=np.dtype(found["dtype"]).type, start=start)
    if kind == "multi_binary":
        return MultiBinary(found["n"])
    if kind == "box":
        shape, dtype = tuple(found["shape"]), np.dtype(found["dtype"])
        low, high = _full(found["low"], shape, dtype, -np.inf), _full(found["high"], shape, dtype, np.inf)
        return Box(low, high, shape, dtype.type)
    raise DataError(f"its space is of the kind {kind!r}, which this version does not know")


def _bound(side: NDArray[Any]) -> Any:
    flat = [value if np.isfinite(value) else None for value in side.ravel().tolist()]
    return flat[0] if flat and all(value == flat[0] for value in flat) else flat


def _full(side: Any, shape: tuple[int, ...], dtype: np.dtype[Any], infinite: float) -> NDArray[Any]:
    if not isinstance(side, list):
        return np.full(shape, infinite if side is None else side, dtype)
    return np.array([infinite if value is None else value for value in side], dtype).reshape(shape)
