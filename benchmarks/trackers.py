"""Trackers through kills: a tracked run is killed (SIGKILL) and resumed, and what the tracker has is read back and compared with the run's
database, point by point.

    python -m benchmarks.trackers [--trackers NAME ...] [--kills KIND ...] [--keep FOLDER]
    python -m benchmarks.trackers --cost PAIRS    what a tracker takes of the run: pairs of runs with it and without

Each tracker has an environment of its own, build/trackers/NAME: Ludus's, and over it the pinned packages of benchmarks/trackers_NAME.txt.
It is made when it is not there. Stores: TensorBoard's event files, an MLflow store in SQLite, W&B's offline files.

none     nothing is killed
run      the run's process, three times; its tracker's process sends what was committed, and ends
tracker  the tracker's process, with all that it has started; the run continues and starts it again
all      both at once, three times
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from ludus.apps.tracking.committed import CommittedRun, Progress
from ludus.apps.tracking.cursor import stored_cursors
from ludus.reporting.trackers import Point
from ludus.storage.reader import Reader

ROOT = Path(__file__).parents[1]
SCENARIO = """
env: {id: openspiel/kuhn_poker, num_envs: 16, tree: "off"}
algorithm: {kind: ppo, batch: 40, epochs: 1, hidden: [8]}
response: {episodes: 3000}
evaluation: {payoffs: simulate, episodes: 2000}
mode: explore
generations: 8
checkpoints: {iterations: 10}
"""
"""About 60 iterations a response, so that no points are merged: the database has what was sent."""
KILLS = ("none", "run", "tracker", "all")
OPTIONS: Mapping[str, str] = {
    "tensorboard": "tensorboard",
    "mlflow": "mlflow,tracking_uri=sqlite:///{folder}/mlflow.db,experiment=kills",
    "wandb": "wandb,mode=offline,project=kills",
}
_COMMAND = "from ludus.cli.start import script; script()"
_TIMES = 3  # of kills
_PATIENCE = 2.0  # seconds that the tracker of a stopped run is watched
_STRIDE = 0.1  # seconds that the run goes further

Series = dict[str, list[tuple[int, float]]]


# --------------------------------------------------------------------------------------------------------------------
# Environments.


def python_of(tracker: str) -> Path:
    """Return the interpreter of a tracker's environment, which is made where it is not there."""
    requirements = ROOT / "benchmarks" / f"trackers_{tracker}.txt"
    if not requirements.exists():
        return Path(sys.executable)
    folder = ROOT / "build" / "trackers" / tracker
    python = folder / "bin" / "python"
    stamp = folder / "requirements.txt"
    if stamp.exists() and stamp.read_bytes() == requirements.read_bytes():
        return python
    print(f"making {folder.relative_to(ROOT)}", file=sys.stderr)
    venv.create(folder, clear=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "ludus_environment.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    subprocess.run([*install, "-r", str(requirements)], check=True)
    shutil.copy(requirements, stamp)
    return python


def environment() -> dict[str, str]:
    """Return the variables of the commands: this source tree, one thread, no account of anybody."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "MLFLOW_"))}
    return {
        **mine,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "WANDB_SILENT": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


# --------------------------------------------------------------------------------------------------------------------
# Runs that are killed.


class Case:
    """A tracked run in a folder of its own."""

    def __init__(self, tracker: str, folder: Path) -> None:
        self.python, self.folder, self.run = python_of(tracker), folder, folder / "run"
        self.track = OPTIONS[tracker].format(folder=folder)
        (folder / "scenario.yaml").write_text(SCENARIO, encoding="utf-8")
        self.log = (folder / "log").open("ab")

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [str(self.python), "-c", _COMMAND, *words]
        return subprocess.Popen(command, cwd=self.folder, env=environment(), stdout=self.log, stderr=self.log)

    def train(self) -> subprocess.Popen[bytes]:
        return self.start("train", "scenario.yaml", "--run-dir", "run", "--track", self.track)

    def resume(self) -> subprocess.Popen[bytes]:
        return self.start("resume", "run")

    def barriers(self) -> int:
        """Return how many barriers are committed."""
        with suppress(Exception), Reader(self.run, check=False) as reader:
            return len(reader.checkpoints())
        return 0  # it has not begun

    def sent(self) -> int:
        """Return how many records the tracker has, or is about to get: the cursor is written before they are sent."""
        return max((cursor.number for cursor in stored_cursors(self.run).values()), default=0)


def stop_while_it_sends(case: Case, process: subprocess.Popen[bytes]) -> bool:
    """Stop the run's process (SIGSTOP) while its tracker sends, or is about to.

    A tracker that has everything already, or whose process is being started again, sends nothing while the run stands still: then the run
    goes a little further.

    Returns:
        False if the run has ended.
    """
    deadline = time.monotonic() + 300
    while process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        number, patience = case.sent(), time.monotonic() + _PATIENCE
        while time.monotonic() < patience:
            if case.sent() > number:
                return True
            time.sleep(0.001)
        process.send_signal(signal.SIGCONT)
        if time.monotonic() > deadline:
            raise SystemExit(f"the tracker's process does not send: see {case.folder / 'log'}")
        time.sleep(_STRIDE)
    return False


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text(encoding="ascii").split():
                yield int(child)
                yield from descendants(int(child))


def kill(pids: Sequence[int]) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):  # so that none notices that another is gone
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def go(case: Case, kind: str) -> int:
    """Run the case to its end; the number of kills."""
    kills, process = 0, case.train()
    for _ in range(0 if kind == "none" else _TIMES):
        target = case.barriers() + 9
        while case.barriers() < target and process.poll() is None:
            time.sleep(0.01)
        if not stop_while_it_sends(case, process):
            break
        others = [*descendants(process.pid)]
        kill({"run": [process.pid], "tracker": others, "all": [process.pid, *others]}[kind])
        kills += 1
        process.send_signal(signal.SIGCONT)
        if kind != "tracker":
            process.wait()
            process = case.resume()
    if process.wait() != 0:
        raise SystemExit(f"the run failed: see {case.folder / 'log'}")
    if case.start("track", "run").wait() != 0:
        raise SystemExit(f"not everything was sent: see {case.folder / 'log'}")
    return kills


# --------------------------------------------------------------------------------------------------------------------
# Comparison.


def expected(run: Path) -> Series:
    """Return name -> (step, value) as the database has them."""
    committed, steps, series, number, tables = CommittedRun(run), dict[str, int](), Series(), 0, -1
    while records := committed.records(Progress(number, steps, tables), limit=1000):
        number += len(records)
        for record in records:
            if not isinstance(record, Point):
                tables = max(tables, record.step)
                continue
            steps[record.axis] = record.step
            for name, value in record.series.items():
                series.setdefault(name, []).append((record.step, value))
    return series


def compare(wanted: Series, stored: Series) -> dict[str, int]:
    """Return how many points are expected, and how many of them the tracker has once, not at all, several times, or with another value; and
    how many nobody expects."""
    counts = Counter(expected=0, once=0, missing=0, several=0, other=0, unexpected=0)
    for name, points in wanted.items():
        times = Counter(step for step, _ in stored.get(name, ()))
        values = dict(stored.get(name, ()))
        for step, value in points:
            counts["expected"] += 1
            counts[("missing", "once")[times[step]] if times[step] < 2 else "several"] += 1
            counts["other"] += step in values and abs(values[step] - value) > 1e-6 * max(1.0, abs(value))
        counts["unexpected"] += len(times.keys() - {step for step, _ in points})
    counts["unexpected"] += sum(len(points) for name, points in stored.items() if name not in wanted)
    return dict(counts)


def read_back(case: Case, tracker: str) -> dict[str, Any]:
    """Return series, tables, and how the run ended, as the tracker's own reader has them."""
    command = [str(case.python), "-m", "benchmarks.trackers_read", tracker, str(case.folder)]
    answer = subprocess.run(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, check=True)
    return dict(json.loads(answer.stdout))


# --------------------------------------------------------------------------------------------------------------------
# Cost.


def processor_seconds(pid: int) -> float | None:
    """Return what a process has used itself; None once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def measure(case: Case, *, tracked: bool) -> tuple[float, float]:
    """Return seconds that a run says it took, and those of the processor in its own process until its last barrier is committed."""
    process = case.train() if tracked else case.start("train", "scenario.yaml", "--run-dir", "run")
    spent = 0.0
    while process.poll() is None:
        with suppress(Exception), Reader(case.run, check=False) as reader:
            if reader.summary() is not None:
                break
        spent = processor_seconds(process.pid) or spent
        time.sleep(0.1)
    if process.wait() != 0:
        raise SystemExit(f"the run failed: see {case.folder / 'log'}")
    with Reader(case.run, check=False) as reader:
        return reader.generations(marginals=False)[-1].seconds, spent


def cost(tracker: str, folder: Path, pairs: int) -> None:
    """Print medians of runs with a tracker and without, by turns."""
    results: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for pair in range(pairs):
        for tracked in (False, True) if pair % 2 else (True, False):
            (place := folder / f"{tracker}-{pair}-{tracked}").mkdir()
            results[tracked].append(measure(Case(tracker, place), tracked=tracked))
    medians = {
        tracked: [statistics.median(column) for column in zip(*rows, strict=True)] for tracked, rows in results.items()
    }
    (wall, own), (tracked_wall, tracked_own) = medians[False], medians[True]
    print(
        f"{tracker:12} {wall:8.2f} {tracked_wall:8.2f} {own:8.2f} {tracked_own:8.2f} {tracked_own / own:8.3f}",
        flush=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trackers", nargs="+", choices=OPTIONS, default=list(OPTIONS))
    parser.add_argument("--kills", nargs="+", choices=KILLS, default=list(KILLS))
    parser.add_argument("--keep", type=Path, help="folder in which the runs stay")
    parser.add_argument("--cost", type=int, metavar="PAIRS", help="measure cost instead")
    options = parser.parse_args(argv)
    if options.cost:
        print("tracker       seconds of the run    processor seconds of its process")
        print("              without     with  without     with    ratio")
        with tempfile.TemporaryDirectory() as folder:
            for tracker in options.trackers:
                cost(tracker, Path(folder), options.cost)
        return 0
    wrong = 0
    print("tracker      kill     kills  values   once  missing  several  other value  unexpected  tables  end")
    with ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for tracker in options.trackers:
            for kind in options.kills:
                (place := folder.absolute() / f"{tracker}-{kind}").mkdir(parents=True)
                case = Case(tracker, place)
                kills = go(case, kind)
                stored = read_back(case, tracker)
                series = {name: [(step, value) for step, value in points] for name, points in stored["series"].items()}
                counts = compare(expected(case.run), series)
                faults = sum(counts[name] for name in ("missing", "several", "other", "unexpected"))
                wrong += faults
                numbers = (counts[name] for name in ("expected", "once", "missing", "several", "other", "unexpected"))
                print(
                    "{:12} {:8} {:5} {:7} {:6} {:8} {:8} {:12} {:11} {:7}  {}".format(
                        tracker, kind, kills, *numbers, stored["tables"], stored["end"]
                    ),
                    flush=True,
                )
    print(
        f"bar trackers, points that are not there once with their value: {wrong} (wanted = 0) {'short' if wrong else 'met'}"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
