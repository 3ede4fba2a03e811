"""Python's and NumPy's global generators, which some packages seed and draw from: exchanged for those of an episode while its environment
runs, so that neighbours in a process do not disturb each other."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


class Generators:
    """The state of both generators, of one episode."""

    def __init__(self, seed: int) -> None:
        self.python = random.Random(seed).getstate()
        self.numpy = np.random.RandomState(seed & 0xFFFFFFFF).get_state()


@contextmanager
def generators_of(own: Generators) -> Iterator[None]:
    """Exchange the process's generators for an episode's while its environment runs."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002  it is the global one that packages draw from
    random.setstate(own.python)
    np.random.set_state(own.numpy)  # noqa: NPY002
    try:
        yield
    finally:
        own.python, own.numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
