"""The run that `benchmarks.faults` disturbs: a user's, whose parts say which process they are in and whose driver says what it does.

    python -m benchmarks.faults_run FOLDER train|resume PACE [KEY=VALUE ...]

    FOLDER/run      its directory
    FOLDER/parts    a file NAME.PID for every part that was made, by the name of its class, whatever node it lives on
    FOLDER/steps    a line a step: the seconds of the machine's monotonic clock
    PACE            seconds that the run rests after each step

Exit status as of `ludus`: 2 and one line if it ended with an error.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import in_full
from ludus.core.errors import LudusError
from ludus.core.types import Metrics
from ludus.runs.runner import resume, run
from ludus.runs.scenario import PSRO
from ludus.runs.scenario_runtime import RuntimeChoice
from ludus.storage.base import NullObserver, RunSummary

SCENARIO = """
env: {id: openspiel/kuhn_poker, num_envs: 16, tree: "off"}
algorithm: {kind: ppo, batch: 32, epochs: 1, hidden: [8]}
response: {episodes: 4000}
evaluation: {payoffs: simulate, episodes: 400, exploitability: "off"}
generations: 3
checkpoints: {iterations: 10}
runtime: {shards: 4, restarts: 1000}
"""
"""Whole episodes, so that a worker's portion that is played again comes out the same."""


class Announced:
    """A part's factory that says which process it is in, before it makes the part."""

    def __init__(self, factory: Callable[[Any], Any], folder: Path) -> None:
        self.__qualname__ = factory.__qualname__
        self._factory, self._folder = factory, folder

    def __call__(self, spec: Any) -> Any:
        (self._folder / f"{self.__qualname__}.{os.getpid()}").touch()
        return self._factory(spec)


class Steps(NullObserver):
    """Writes when something went on. pace: seconds of rest after a step."""

    def __init__(self, folder: Path, pace: float) -> None:
        self._pace = pace
        self._file = (folder / "steps").open("a", buffering=1)

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
        self._file.write(f"{time.monotonic()}\n")
        time.sleep(self._pace)

    def run_finished(self, summary: RunSummary) -> None:
        self._file.write(f"{time.monotonic()}\n")

    def message(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def announce(folder: Path) -> None:
    """Have every part of every runtime of this process announced, where parts are processes."""
    folder.mkdir(exist_ok=True)
    build = RuntimeChoice.build

    def announcing(choice: RuntimeChoice, *, learns: bool) -> Any:
        runtime: Any = build(choice, learns=learns)
        spawn = runtime.spawn

        def spawn_announced(factory: Any, spec: Any, **options: Any) -> Any:
            return spawn(factory if choice.kind == "inprocess" else Announced(factory, folder), spec, **options)

        runtime.spawn = spawn_announced
        return runtime

    RuntimeChoice.build = announcing  # type: ignore[method-assign]


def scenario(changes: Sequence[str] = ()) -> PSRO:
    """What is run."""
    return in_full(SCENARIO, changes)


def main(argv: Sequence[str]) -> int:
    folder, command, pace, *changes = argv
    announce(Path(folder) / "parts")
    actions: Mapping[str, Callable[..., object]] = {
        "train": lambda **options: run(scenario(changes), **options),
        "resume": lambda run_dir, **options: resume(run_dir, changes, **options),
    }
    try:
        actions[command](run_dir=Path(folder) / "run", observer=Steps(Path(folder), float(pace)), report=False)
    except LudusError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
