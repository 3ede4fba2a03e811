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

COMMAND = "import sys; from ludus.cli.main import script; script()"
APART = 10.0
"""Seconds between samples."""
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
    """A run that goes on until the end of the block; then it is asked to stop."""
    line = ["train", *overrides, "generations=1000000", "--run-dir", str(run_dir)]
    with (run_dir.parent / f"{run_dir.name}.out").open("wb") as output:
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
    while not (run_dir / "ludus.db").exists():
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


def watch(part: str, folder: Path, *, minutes: float) -> list[Sample]:
    """Return samples of a part that goes on for so many minutes, in a new folder."""
    run_dir = folder / part / "run"
    run_dir.parent.mkdir(parents=True)
    begun = time.monotonic()
    samples = list[Sample]()
    with ExitStack() as stack:
        process = stack.enter_context(training(run_dir, RUNS[part]))
        roots = [process.pid]
        answers: Callable[[], int] = int  # none
        if part == "page":
            server, answers = stack.enter_context(viewed(run_dir))
            roots.append(server)
        while (now := time.monotonic() - begun) < 60.0 * minutes:
            time.sleep(min(APART, 60.0 * minutes - now))
            if process.poll() is not None:
                raise RuntimeError(f"{part}: the run ended with exit code {process.returncode}: {folder}")
            samples.append(sample(roots, run_dir, begun=begun))
            document = {"part": part, "answers": answers(), "samples": [one.as_json() for one in samples]}
            (folder / part / "samples.json").write_text(json.dumps(document), encoding="utf-8")
    return samples


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
