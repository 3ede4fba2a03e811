"""What a benchmark's worker prints: one JSON object per line, read by `benchmarks.harness`. Standard library only.

{"kind": "start", "cold_seconds": s, "versions": {...}}   after imports and compilation; the clock starts here
{"kind": "point", "seconds": s, ...numbers}               progress: one point of a curve
{"kind": "figures", ...numbers}                           results that are no curve, any number of times
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

STARTED_AT = "BENCHMARK_STARTED_AT"
"""Environment variable by which the harness says when (seconds since the epoch) it started the process."""


class Lines:
    """A worker's clock and its output. Made after the imports (and compilation) that are to be reported apart."""

    def __init__(self, packages: Iterable[str] = ()) -> None:
        started = os.environ.get(STARTED_AT)
        cold = time.time() - float(started) if started else time.process_time()
        self._say("start", {"cold_seconds": cold, "versions": versions(packages)})
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the start, those in `aside` left out."""
        return time.perf_counter() - self._start

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Stops the clock for work that only the measurement needs, such as judging a contestant's NashConv."""
        before = time.perf_counter()
        try:
            yield
        finally:
            self._start += time.perf_counter() - before

    def point(self, **numbers: float) -> None:
        """One point of the curve, stamped with the clock."""
        self._say("point", {"seconds": self.seconds, **numbers})

    def figures(self, figures: dict[str, float]) -> None:
        """Results by name."""
        self._say("figures", figures)

    @staticmethod
    def _say(kind: str, content: dict[str, float] | dict[str, object]) -> None:
        print(json.dumps({"kind": kind, **content}), flush=True)


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Installed versions of the named distributions; those that are not installed are left out."""
    found = {}
    for package in packages:
        if package == "ludus" and package in sys.modules:  # its distribution has another name
            found[package] = sys.modules[package].__version__
            continue
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
