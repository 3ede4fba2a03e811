"""What is asked of weights wherever they are kept: copies that nobody can write to, and equality to the bit."""

from __future__ import annotations

import numpy as np

from ludus.types import Array, Weights


def read_only(weights: Weights) -> Weights:
    """Read-only copies; arrays that own their memory and are read-only already are kept."""
    return {name: _read_only_array(array) for name, array in weights.items()}


def _read_only_array(array: Array) -> Array:
    array = np.asarray(array)
    if array.flags.owndata and not array.flags.writeable:
        return array
    copy = np.array(array, order="C")
    copy.setflags(write=False)
    return copy


def same_weights(a: Weights, b: Weights) -> bool:
    """Equal names, dtypes, shapes and bits (NaN equals itself)."""
    if a.keys() != b.keys():
        return False
    pairs = [(np.asarray(a[name]), np.asarray(b[name])) for name in a]
    return all(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in pairs)
