"""The worker of `benchmarks.curves`: a run as in a terminal with its curves, and the same run without them.

python -m benchmarks.curves_worker --preset leduc --seed 0
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console
from rich.live import Live

from benchmarks.lines import Lines
from ludus.core import curves
from ludus.driver.runner import run
from ludus.driver.scenario_files import load_scenario
from ludus.storage.reader import Reader
from ludus.storage.store import Store
from ludus.view import report
from ludus.view.progress import RichProgress
from ludus.view.tensorboard import TensorBoardWriter

SHORT = {
    "leduc": ["generations=12"],
    "cartpole": ["response.decisions=25000"],
    "cartpole-dqn": ["response.decisions=10000"],
}
WARM = {
    "leduc": ["generations=1"],
    "cartpole": ["response.decisions=2000"],
    "cartpole-dqn": ["response.decisions=2000"],
}
_PARTS: Sequence[tuple[Any, str]] = (
    (curves, "point"),
    (curves, "extended"),
    (curves, "to_state"),
    (Store, "curve_recorded"),
    (TensorBoardWriter, "learned"),
    (TensorBoardWriter, "task_done"),
    (RichProgress, "learned"),
    (Live, "refresh"),
    (Reader, "curves"),
    (report, "_learners"),
    (report, "_learning"),
)


class Spent:
    """Seconds of the processor, by whichever thread."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            begun = time.thread_time()
            try:
                answer = function(*args, **keywords)
                if name == "curve_recorded":
                    args[0]._flush()  # its rows would be inserted later
                return answer
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.thread_time() - begun

        return call


@contextmanager
def counted(spent: Spent) -> Iterator[None]:
    """The parts of curves, timed."""
    with ExitStack() as stack:
        for where, name in _PARTS:
            stack.enter_context(patch.object(where, name, spent.timed(name, getattr(where, name))))
        yield


@contextmanager
def left_out() -> Iterator[None]:
    """No curves at all."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(curves, "point", lambda *_, **__: curves.EMPTY))
        stack.enter_context(patch.object(curves, "extended", lambda curve, _: curve))
        for where in (TensorBoardWriter, RichProgress):
            stack.enter_context(patch.object(where, "learned", lambda *_: None))
        yield


def measure(preset: str, changes: Sequence[str], seed: int) -> tuple[float, float]:
    """Seconds of the wall and of the processor that a run takes, shown as in a terminal that nobody looks at."""
    wall, processor = time.perf_counter(), time.process_time()
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=40)
    with tempfile.TemporaryDirectory() as folder, closing(RichProgress(console)) as progress:
        run(load_scenario(preset, changes, seed), run_dir=Path(folder) / "run", observer=progress)
    return time.perf_counter() - wall, time.process_time() - processor


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", required=True, choices=SHORT)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    measure(args.preset, WARM[args.preset], args.seed)
    lines = Lines(("ludus", "numpy", "numba", "torch", "rich"))
    spent, changes = Spent(), SHORT[args.preset] if args.short else []
    taken: dict[str, tuple[float, float]] = {}
    for kind in ("with", "without") if args.seed % 2 == 0 else ("without", "with"):
        with counted(spent) if kind == "with" else left_out():
            taken[kind] = measure(args.preset, changes, args.seed)
    seconds = sum(spent.seconds.values())
    lines.figures(
        {
            "share in percent": 100 * seconds / taken["with"][1],
            **{f"seconds in {name}": value for name, value in spent.seconds.items()},
            **{f"wall {kind} curves": wall for kind, (wall, _) in taken.items()},
            **{f"processor {kind} curves": processor for kind, (_, processor) in taken.items()},
        }
    )


if __name__ == "__main__":
    main()
