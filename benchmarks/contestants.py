"""Who is measured, and one measured repetition: a worker in a process of its own, pinned to one core.

A worker prints the lines of `benchmarks.lines`; whatever else it prints is ignored. Its figures are what it says in
`figures` lines, and beside them:

    cold seconds     process start to the end of its imports and compilation
    wall seconds     process start to end
    cpu seconds      what it had of the processor; much less than wall seconds says that the machine was busy
    peak MB          largest resident set; at least the harness's own (some 30 MB), which Linux counts until the worker's program starts
    seconds to X     first passage: the clock when the curve's nash_conv is first at most X; infinite if it never is
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.lines import STARTED_AT
from benchmarks.machine import ROOT

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")


def seconds_to(target: float) -> str:
    """Name of the first-passage figure."""
    return f"seconds to {target:g}"


@dataclass(frozen=True, slots=True)
class Contestant:
    """A worker to be measured: `python -m module *arguments --seed S`, once per seed.

    peer: folder under benchmarks/peers whose environment runs it; None for Ludus and bare limits (this interpreter).
    targets: NashConv values whose first passage becomes a figure.
    quick_seeds, quick_arguments: the smaller version of `--quick`; no seeds: its committed figures are used instead.
    """

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    peer: str | None = None
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    quick_seeds: tuple[int, ...] = (0,)
    quick_arguments: tuple[str, ...] = ()
    targets: tuple[float, ...] = ()
    timeout_s: float = 900.0
    pinned: bool = True

    def command(self, *, seed: int, quick: bool) -> list[str]:
        """What is run, after the interpreter."""
        extra = self.quick_arguments if quick else ()
        return ["-m", self.module, *self.arguments, *extra, "--seed", str(seed)]


@dataclass(frozen=True, slots=True)
class Repetition:
    """One run: named figures, the curve by column, versions of what ran, and what went wrong, if anything did."""

    seed: int
    figures: dict[str, float]
    curve: dict[str, list[float]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    error: str | None = None


def measure(contestant: Contestant, *, python: Path, core: int, seed: int, quick: bool) -> Repetition:
    """Runs one repetition. A crash gives an error and no figures; a timeout gives an error and what was seen till then."""
    started = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [str(python), *contestant.command(seed=seed, quick=quick)],
            cwd=ROOT,
            env=_environment(pinned=contestant.pinned),
            stdout=subprocess.PIPE,
            stderr=errors,
            preexec_fn=(lambda: os.sched_setaffinity(0, {core})) if contestant.pinned else None,
        )
        timer = threading.Timer(contestant.timeout_s, process.kill)
        try:
            timer.start()
            output = process.stdout.read().decode() if process.stdout else ""
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            expired = not timer.is_alive()
            timer.cancel()
            if process.returncode is None:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()
        wall = time.perf_counter() - started
        if process.returncode and not expired:
            errors.seek(0)
            sys.stderr.write(f"{contestant.name} failed:\n{errors.read().decode(errors='replace')[-4000:]}\n")
            return Repetition(seed=seed, figures={}, error=f"exit status {process.returncode}")
    measured = {
        "wall seconds": wall,
        "cpu seconds": usage.ru_utime + usage.ru_stime,
        "peak MB": usage.ru_maxrss / 1024,
    }
    error = f"stopped after {contestant.timeout_s:g} s" if expired else None
    return read(output, seed=seed, measured=measured, targets=contestant.targets, error=error)


def _environment(*, pinned: bool) -> dict[str, str]:
    threads = dict.fromkeys(THREADS, "1") if pinned else {}
    return {**os.environ, **threads, STARTED_AT: repr(time.time())}


def read(
    output: str, *, seed: int, measured: dict[str, float], targets: tuple[float, ...], error: str | None = None
) -> Repetition:
    """Turns a worker's output into a repetition; only its numbers and versions get in."""
    figures = dict(measured)
    curve: dict[str, list[float]] = {}
    versions: dict[str, str] = {}
    for line in output.splitlines():
        content = _content(line)
        kind = content.pop("kind", None)
        if kind == "start":
            figures["cold seconds"] = float(content["cold_seconds"])
            versions = {str(name): str(version) for name, version in content["versions"].items()}
        elif kind == "point":
            for column, value in content.items():
                curve.setdefault(column, []).append(float(value))
        elif kind == "figures":
            figures.update({name: float(value) for name, value in content.items()})
    figures.update({seconds_to(target): first_passage(curve, target) for target in targets})
    return Repetition(seed=seed, figures=figures, curve=curve, versions=versions, error=error)


def _content(line: str) -> dict[str, Any]:
    """The object of a worker's line; nothing for anything else, half a line of a killed worker included."""
    if not line.startswith('{"kind"'):
        return {}
    try:
        return dict(json.loads(line))
    except json.JSONDecodeError:
        return {}


def first_passage(curve: dict[str, list[float]], target: float) -> float:
    """Seconds at the first point whose nash_conv is at most `target`; infinite if there is none."""
    points = zip(curve.get("seconds", ()), curve.get("nash_conv", ()), strict=True)
    return next((seconds for seconds, value in points if value <= target), math.inf)
