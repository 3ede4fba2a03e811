"""Long runs: what they take from the machine while they go on, and what a large database costs.

    python -m benchmarks.soak --minutes 45                      all parts, those that train at the same time
    python -m benchmarks.soak --minutes 45 --only league psro   some of them; the others stay as committed

league     main agents and exploiters of Leduc poker, in one process.
psro       PSRO on Leduc poker, with two worker processes.
page       the league again, with the page and ten viewers who ask for all panels whenever they have changed.
database   status, report and resume of a run of ten million matches (`benchmarks.soak_database`).

Memory is that of all processes, without the pages of files. Beyond the state: less what the policies and their results take, which is what
new processes take that go on from the end of the run. Slopes are Theil and Sen's, after ten minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import soak_database, soak_slopes
from benchmarks.lines import versions
from benchmarks.machine import ROOT, commit, this_machine, today
from benchmarks.results import FORMAT, PACKAGES, Outcome
from benchmarks.soak_processes import Sample, sample
from benchmarks.soak_slopes import Array
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
PARTS = (*RUNS, "database")
POLICIES, MATCHES = 1000, 10_000_000
SECONDS = {"status": 1.0, "report": 30.0, "resume": 20.0}
"""Of a processor, that a command may take with so many matches."""
RESULTS = ROOT / "benchmarks" / "results" / "soak.json"
PICTURE = ROOT / "docs" / "images" / "soak.svg"


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


def judged(folder: Path) -> dict[str, Any]:
    """Return the figures of a part: its series, their slopes, and bars."""
    both = [json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in ("samples", "fresh")]
    old, new = (soak_slopes.columns(document["samples"]) for document in both)
    policy = soak_slopes.bytes_per_policy(old, new)
    series = soak_slopes.series(old, soak_slopes.decisions_by_generation(folder / "run"), policy=policy or 0.0)
    slopes = {name: soak_slopes.Slope.of(*curve) for name, curve in series.items()}
    slopes |= {name: soak_slopes.Slope.of(old["seconds"], old[name]) for name in ("anonymous", "disk")}
    hours = float(old["seconds"][-1]) / 3600.0
    last = {name: float(values[-1]) for name, values in old.items()}
    return {
        "date": today(),
        "commit": commit(),
        "minutes": round(60.0 * hours, 1),
        "answers of viewers": both[0]["answers"],
        "bytes of state per policy": None if policy is None else round(policy),
        "last": {name: float(f"{value:.6g}") for name, value in last.items()},
        "slopes": {name: {end: float(f"{v:.4g}") for end, v in asdict(one).items()} for name, one in slopes.items()},
        "curves": {
            name: [[float(f"{v:.5g}") for v in column[:: 1 + len(column) // 100].tolist()] for column in curve]
            for name, curve in {**series, "anonymous": (old["seconds"], old["anonymous"])}.items()
        },
        "bars": [
            asdict(bar) for bar in soak_slopes.bars(folder.name, slopes, hours=hours, state_known=policy is not None)
        ],
    }


def database(folder: Path) -> dict[str, Any]:
    """Return what commands need for ten million matches."""
    run_dir, begun = folder / "database", time.monotonic()
    if not run_dir.exists():
        soak_database.write(run_dir, policies=POLICIES, matches=MATCHES)
    written = time.monotonic() - begun
    costs = soak_database.costs(run_dir, policies=POLICIES)
    # Of a processor: other work on the machine does not count.
    bars = [
        Outcome(
            f"10 million matches, {name}, processor seconds",
            f"<= {most:g}",
            "s",
            round(costs[name].processor, 2),
            "met" if costs[name].processor <= most else "short",
        )
        for name, most in SECONDS.items()
    ]
    return {
        "date": today(),
        "commit": commit(),
        "matches": MATCHES,
        "bytes": (run_dir / FILE).stat().st_size,
        "seconds to write": round(written, 1),
        "costs": {name: asdict(cost) for name, cost in costs.items()},
        "bars": [asdict(bar) for bar in bars],
    }


def write(parts: Mapping[str, Mapping[str, Any]]) -> None:
    """Write results, with those of other parts as they were, and the picture."""
    known = json.loads(RESULTS.read_text(encoding="utf-8"))["parts"] if RESULTS.exists() else {}
    merged = {**known, **parts}
    every = {name: merged[name] for name in PARTS if name in merged}
    document = {
        "format": FORMAT,
        "benchmark": "soak",
        "machine": this_machine().as_json(),
        "date": today(),
        "versions": versions(PACKAGES),
        "bars": [
            {name: bar[name] for name in ("name", "wanted", "unit", "value", "verdict")}
            for part in every.values()
            for bar in part["bars"]
        ],
        "parts": every,
    }
    text = json.dumps(document, indent=1, allow_nan=False)
    text = re.sub(r"\[\s+([-+\d.eul,\sn]+?)\s+\]", lambda match: f"[{' '.join(match[1].split())}]", text)
    RESULTS.write_text(f"{text}\n", encoding="utf-8")
    PICTURE.write_text(soak_slopes.svg(panels(every)), encoding="utf-8")


def panels(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, list[tuple[Array, Array]]]]:
    """Return the curves of the picture."""

    def curve(part: Mapping[str, Any], name: str, scale: float) -> tuple[Array, Array]:
        seconds, values = part["curves"][name]
        return np.array(seconds), scale * np.array(values)

    return {
        name: {
            "memory": [curve(part, "anonymous", 1e-6), curve(part, "memory", 1e-6)],
            "decisions": [curve(part, "decisions", 1e6)],
            "match": [curve(part, "match", 1e-3)],
            "descriptors": [curve(part, "descriptors", 1.0), curve(part, "threads", 1.0)],
        }
        for name, part in parts.items()
        if "curves" in part
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=45.0, help="of each run that trains")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts that are measured")
    parser.add_argument("--folder", type=Path, help="where runs are written and stay; by default a temporary folder")
    parser.add_argument("--again", action="store_true", help="judge what lies in the folder, and measure nothing")
    options = parser.parse_args(argv)
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trained = [part for part in options.only if part in RUNS]
        if trained and not options.again:
            with ThreadPoolExecutor(len(trained)) as pool:
                for done in [pool.submit(watch, part, folder, minutes=options.minutes) for part in trained]:
                    done.result()
        results = {part: judged(folder / part) for part in trained}
        if "database" in options.only:
            results["database"] = database(folder)
    for result in results.values():
        for bar in result["bars"]:
            print(Outcome(**bar).line())
    write(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
