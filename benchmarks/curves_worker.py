"""The worker of `benchmarks.curves`: a run as in a terminal with its curves, and the same run without them.

python -m benchmarks.curves_worker --preset leduc --seed 0
"""

from __future__ import annotations

import argparse
import io
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console
from rich.live import Live

from benchmarks.lines import Lines
from ludus.apps.common.progress import RichProgress
from ludus.apps.ui.figures import learning_curves as figures
from ludus.core import recorders
from ludus.runs.runner import run
from ludus.runs.scenario_files import load_scenario
from ludus.storage.reader import Reader
from ludus.storage.store import Store

SHORT = {
    "leduc": ["generations=15"],
    "cartpole": ["response.decisions=40000"],
    "cartpole-dqn": ["response.decisions=8000"],
}
WARM = {
    "leduc": ["generations=1"],
    "cartpole": ["response.decisions=2000"],
    "cartpole-dqn": ["response.decisions=2000"],
}
_PARTS: Sequence[tuple[Any, str]] = (
    (recorders.CurveRecorder, "add"),
    (recorders.CurveRecorder, "curve"),
    (recorders, "to_state"),
    (Store, "curve_recorded"),
    (RichProgress, "learned"),
    (RichProgress, "task_done"),
    (Reader, "curves"),
    (figures, "learned"),
)
_PICTURE = (Live, "refresh")


class Spent:
    """Seconds of the processor in calls, by whichever thread; what one calls of the others is its own."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._inside = threading.local()

    def timed(self, where: Any, name: str) -> Callable[..., Any]:
        function, label = getattr(where, name), f"{where.__name__.rpartition('.')[2]}.{name}"

        def call(*args: Any, **keywords: Any) -> Any:
            if getattr(self._inside, "one", False):
                return function(*args, **keywords)
            self._inside.one = True
            begun = time.thread_time()
            try:
                answer = function(*args, **keywords)
                if name == "curve_recorded":
                    args[0]._flush()  # its rows would be inserted later
                return answer
            finally:
                self.seconds[label] = self.seconds.get(label, 0.0) + time.thread_time() - begun
                self.calls[label] = self.calls.get(label, 0) + 1
                self._inside.one = False

        return call


@contextmanager
def counted(spent: Spent, parts: Iterable[tuple[Any, str]]) -> Iterator[None]:
    """These, timed."""
    with ExitStack() as stack:
        for where, name in parts:
            stack.enter_context(patch.object(where, name, spent.timed(where, name)))
        yield


@contextmanager
def left_out() -> Iterator[None]:
    """No curves at all."""
    with ExitStack() as stack:
        for where, name in (
            (recorders.CurveRecorder, "add"),
            (RichProgress, "learned"),
        ):
            stack.enter_context(patch.object(where, name, lambda *_, **__: None))
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
    changes = SHORT[args.preset] if args.short else []
    spent, plain = Spent(), Spent()
    taken: dict[str, tuple[float, float]] = {}
    for kind in ("with", "without") if args.seed % 2 == 0 else ("without", "with"):
        parts = counted(spent, (*_PARTS, _PICTURE)) if kind == "with" else counted(plain, (_PICTURE,))
        with parts, left_out() if kind == "without" else nullcontext():
            taken[kind] = measure(args.preset, changes, args.seed)
    frames, without = spent.calls["Live.refresh"], plain.seconds["Live.refresh"] / plain.calls["Live.refresh"]
    spent.seconds["Live.refresh"] = max(
        0.0, spent.seconds["Live.refresh"] - frames * without
    )  # the table's is not the curves'
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
