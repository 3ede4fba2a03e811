"""One tree of random streams: a stream is named by the run's seed and a path of names and numbers.

Two different paths give independent streams; the same path always gives the same stream, in any process.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import kernel

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def key(seed: int, *path: int | str) -> int:
    """Return a 64-bit key for `path` under `seed` (BLAKE2b of their text)."""
    text = "/".join([str(int(seed)), *(f"{type(p).__name__}:{p}" for p in path)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def generator(seed: int, *path: int | str) -> np.random.Generator:
    """Return a NumPy generator (PCG64) for `path` under `seed`."""
    return np.random.Generator(np.random.PCG64(key(seed, *path)))


def keys(seed: int, *path: int | str, count: int) -> NDArray[np.uint64]:
    """`count` independent keys, uint64[count], for the items (environments, say) below `path`."""
    return generator(seed, *path).integers(0, 2**64, size=count, dtype=np.uint64)


@kernel
def mix(x: np.uint64) -> np.uint64:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): uint64 -> uint64, usable in compiled code."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel
def uniform(key: np.uint64, counter: np.uint64) -> float:
    """Return a uniform in [0, 1) from a key and a counter; the same for the same pair, independent across pairs."""
    return float(mix(mix(key + _GOLDEN * (counter + np.uint64(1))) ^ _GOLDEN) >> np.uint64(11)) * 1.1102230246251565e-16


@kernel
def uniforms(keys: NDArray[np.uint64], counters: NDArray[np.uint64]) -> NDArray[np.float64]:
    """`uniform` of each pair: uint64[n], uint64[n] -> float64[n]."""
    out = np.empty(len(keys))
    for i in range(len(keys)):
        out[i] = uniform(keys[i], counters[i])
    return out
