"""Long runs: what they take from the machine while they go on, and what a large database costs.

    python -m benchmarks.soak --minutes 45                      all parts, those that train at the same time
    python -m benchmarks.soak --minutes 45 --only league psro   some of them; the others stay as committed

league     main agents and exploiters of Leduc poker, in one process.
psro       PSRO on Leduc poker, with two worker processes.
page       the league again, with the page and ten viewers who ask for all panels whenever they have changed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.machine import ROOT
from benchmarks.soak_processes import Sample, sample
from benchmarks.ui_worker import served
from ludus.storage.database import FILE

COMMAND = "import sys; from ludus.cli.main import script; script()"
APART = 10.0
"""Seconds between samples."""
FRESH = 4.0
"""Minutes in which new processes go on from the state at the end: what they take is what the state takes."""
VIEWERS = 10
_LEAGUE = (
    "leduc-league", "env.num_envs=200", "main_exploiters=1", "league_exploiters=0", "algorithm.hidden=[16,16]",
    "response.episodes=20000", "evaluation.payoffs=simulate", "evaluation.exploitability=off", "evaluation.episodes=100",
)  # fmt: skip
RUNS: dict[str, tuple[str, ...]] = {
    "league": _LEAGUE,
    "psro": (
        "leduc", "env.num_envs=200", "runtime=processes", "runtime.workers=2", "algorithm.hidden=[16,16]", "algorithm.epochs=10",
        "response.episodes=15000", "evaluation.payoffs=simulate", "evaluation.exploitability=off", "evaluation.episodes=20",
    ),
    "page": _LEAGUE,
}  # fmt: skip
"""Part -> what is trained, until it is stopped."""


@contextmanager
def training(run_dir: Path, overrides: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A run that goes on, a new one or where it was, until the end of the block; then it is asked to stop."""
    begin = ["train", *overrides, "generations=1000000", "--run-dir", str(run_dir)]
    line = ["resume", str(run_dir)] if (run_dir / FILE).exists() else begin
    with (run_dir.parent / f"{run_dir.name}.out").open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *line],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=120)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextmanager
def viewed(run_dir: Path) -> Iterator[tuple[int, Callable[[], int]]]:
    """The page, with viewers of a run; the process of its server, and how many answers the viewers have had."""
    while not (run_dir / FILE).exists():
        time.sleep(0.5)
    time.sleep(5.0)  # until its tables are there
    with served(run_dir.parent, cores=os.sched_getaffinity(0)) as server:
        viewers, over = server.viewers(run_dir, VIEWERS), threading.Event()

        async def look() -> None:
            stop = asyncio.Event()
            looking = asyncio.gather(*(viewer.look(stop) for viewer in viewers))
            while not over.is_set() and not looking.done():
                await asyncio.sleep(0.5)
            stop.set()
            await looking

        thread = threading.Thread(target=lambda: asyncio.run(look()))
        thread.start()

        def answers() -> int:
            if not thread.is_alive():
                raise RuntimeError("the viewers have gone")
            return sum(viewer.answers for viewer in viewers)

        try:
            yield server.process.pid, answers
        finally:
            over.set()
            thread.join()


def watch(part: str, folder: Path, *, minutes: float, fresh: float = FRESH) -> None:
    """Watch a part for so many minutes, and then new processes that go on from the same state; samples are written below `folder`."""
    target = folder / part
    target.mkdir(parents=True)
    for name, duration in (("samples", minutes), ("fresh", fresh)):
        samples = list[Sample]()
        for one, answers in observed(part, target / "run", seconds=60.0 * duration):
            samples.append(one)
            document = {"part": part, "answers": answers, "samples": [sample.as_json() for sample in samples]}
            (target / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")


def observed(part: str, run_dir: Path, *, seconds: float) -> Iterator[tuple[Sample, int]]:
    """Yield samples of a part that goes on for so long, and how many answers its viewers have had."""
    begun = time.monotonic()
    with ExitStack() as stack:
        process = stack.enter_context(training(run_dir, RUNS[part]))
        roots = [process.pid]
        answers: Callable[[], int] = int  # none
        if part == "page":
            server, answers = stack.enter_context(viewed(run_dir))
            roots.append(server)
        while (now := time.monotonic() - begun) < seconds:
            time.sleep(min(APART, seconds - now))
            if process.poll() is not None:
                raise RuntimeError(f"{part}: the run ended with exit code {process.returncode}: {run_dir}")
            yield sample(roots, run_dir, begun=begun), answers()


def main(argv: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=45.0, help="of each run that trains")
    parser.add_argument("--only", nargs="+", choices=tuple(RUNS), default=tuple(RUNS), help="parts that are measured")
    parser.add_argument("--folder", type=Path, help="where runs are written and stay; by default a temporary folder")
    options = parser.parse_args(argv)
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        threads = [
            threading.Thread(target=watch, args=(part, folder), kwargs={"minutes": options.minutes})
            for part in options.only
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
