"""What the parts of `benchmarks.gpu` have in common: a worker's options, and how one is asked.

A part is a module with KINDS, what a worker measures by name; contestants(device), who is measured there; and bars(GPU=…), what is wanted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from benchmarks.harness import Bar, Contestant, Medians, Missing


@dataclass(frozen=True, slots=True)
class Options:
    """Of a worker. device: as torch names it. quick: on a GPU fewer repetitions; on a CPU small enough for seconds."""

    device: str
    seed: int
    quick: bool

    @property
    def small(self) -> bool:
        """On a CPU only the code is looked at."""
        return self.device == "cpu"


Measure = Callable[[Options], Mapping[str, float]]


class Part(Protocol):
    """A module of this benchmark."""

    KINDS: Mapping[str, Measure]

    def contestants(self, device: str) -> tuple[Contestant, ...]: ...

    def bars(self, *, gpu: bool) -> tuple[Bar, ...]: ...


def unbuilt(name: str, wanted: str, why: str, *, unit: str = "") -> Bar:
    """A bar that nothing is measured for yet, and why."""

    def value(_: Medians) -> float:
        raise Missing(why)

    return Bar(name, wanted, value, unit=unit, why=why)


def contestant(name: str, kind: str, device: str, **more: Any) -> Contestant:
    """A worker of one kind."""
    given = {"seeds": (0, 1, 2), "quick_arguments": ("--quick",), **more}
    return Contestant(name, "benchmarks.gpu", ("--worker", kind, "--device", device), **given)


def median_seconds(run: Callable[[], object], *, orders: int) -> float:
    """Of so many calls, each of which must end by reading something back, after one that is not counted."""
    run()  # loads kernels, and takes memory
    found = []
    for _ in range(orders):
        begun = time.perf_counter()
        run()
        found.append(time.perf_counter() - begun)
    return median(found)
