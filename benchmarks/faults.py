"""Kill -9 at random moments, again and again: what becomes of the run, how soon, and what it has lost.

    python -m benchmarks.faults [VICTIM ...] [--times N] [--seed S]

PSRO with PPO on Kuhn poker by play, on Ray with two workers, whole episodes, `sync`: so a run that was disturbed ends equal to the bit to
one that was not, and anything lost, doubled or changed shows. A run that ends with an error is resumed with other workers or in one
process. Every finished run is compared with the undisturbed one: matches, policies (with the hashes of their files) and generations; and
nothing that it started may be left, neither processes nor files.

Prints a table, writes benchmarks/results/faults.json (faults.quick.json for some of the victims only) and prints a line a bar. Exit
status 1 if anything was lost, left over or hung.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from benchmarks.contestants import Repetition
from benchmarks.faults_cluster import Nodes
from benchmarks.faults_processes import kill
from benchmarks.faults_scene import BACKGROUND, Hung, Scene, flaws
from benchmarks.faults_victims import VICTIMS, WORKERS, Victim
from benchmarks.machine import ROOT
from benchmarks.results import Outcome, result_path, write

WITHIN = 30.0
"""Seconds in which a run must have recovered, or ended."""
PERIOD = 6.0
"""A kill comes so many seconds after there is a victim, at most."""
_RUNS = 3  # runs at most for each kill that is wanted: one may be over before its kill comes
TOLD = ("error: ", "The program will terminate.")
"""What a run says that ends: one line of its own; or of Ray's, whose head is gone and which was quicker."""
SILENT = ("driver", "driver-of-processes")
"""Of the driver nobody can tell; where Ray itself dies it may end the driver before Ludus has noticed, without a word."""
IN_PROCESS = tuple(f"runtime.{key}" for key in ("kind=inprocess", "workers=1", "trainers=0", "inference=local"))
ELSEWHERE = (("runtime.kind=ray", "runtime.workers=1"), IN_PROCESS, ("runtime.kind=ray", "runtime.workers=4"), WORKERS)
"""What a run that ended is gone on with, in turn."""


@dataclass(slots=True)
class Found:
    """Of one victim. recovery, end, resumed: seconds from a kill to the next step, from a kill to the end of the process, and from
    `resume` to its first step. late: kills that came when the run was as good as over, and count for nothing. wrong: a line each."""

    recovery: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    resumed: list[float] = field(default_factory=list)
    runs: int = 0
    late: int = 0
    hung: int = 0
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return len(self.recovery) + len(self.end) + self.hung

    @property
    def worst(self) -> float:
        return max([*self.recovery, *self.end], default=0.0)


class Loop:
    """Kills one kind of victim until there were as many kills as wanted."""

    def __init__(
        self,
        name: str,
        victim: Victim,
        *,
        whole: Path,
        folder: Path,
        seed: int,
        changes: Sequence[str] = (),
        period: float = PERIOD,
        elsewhere: int = 0,
    ) -> None:
        """whole: the undisturbed run. folder: for the disturbed ones. seed: of the moments. changes: of the scenario, as of `whole`.
        period: seconds within which a kill comes. elsewhere: of the places that a run is gone on with in turn, the first."""
        self.name, self.victim, self.whole, self.folder, self.period = name, victim, whole, folder, period
        self.changes = (*changes, *victim.changes)
        self.rng = random.Random(f"{seed} {name}")
        self.found = Found()
        self._elsewhere = elsewhere

    def run(self, times: int, tell: Callable[[str], None]) -> Found:
        """Disturb runs."""
        with self._nodes() as nodes:
            while self.found.kills < times and self.found.runs < _RUNS * times:
                self.found.runs += 1
                scene = Scene(self.folder / str(self.found.runs), self.folder.parent / "t", nodes=nodes)
                try:
                    self._disturb(scene, times)
                except Hung as error:
                    self.found.hung += 1
                    tell(f"{self.name}: {error}")
                finally:
                    scene.end()
                self.found.left += scene.left_over()
                tell(f"{self.name}: {self.found.kills} kills in {self.found.runs} runs, worst {self.found.worst:.1f} s")
        return self.found

    @contextmanager
    def _nodes(self) -> Iterator[Nodes | None]:
        if not self.victim.nodes:
            yield None
            return
        with Nodes(self.folder.parent / "c", self.victim.nodes, large=self.victim.large) as nodes:
            yield nodes

    def _disturb(self, scene: Scene, times: int) -> None:
        """One run, to its end."""
        scene.begin([*WORKERS, *self.changes], pace=self.victim.pace)
        while True:
            if self.found.kills < times:
                self._kill(scene)
            else:
                scene.wait_for(lambda: False, since=time.monotonic())
            if scene.finished:
                break
            if scene.status is not None:
                self._go_on(scene)
        self.found.wrong += flaws(scene.folder / "run", self.whole, equal=self.victim.equal)

    def _kill(self, scene: Scene) -> None:
        """Wait for a victim and some more, kill it, and wait for what comes of that."""
        if not scene.wait_for(lambda: self.victim.find(scene), since=time.monotonic()):
            return
        with suppress(subprocess.TimeoutExpired):
            scene.wait(timeout=self.rng.uniform(0.0, self.period))
        groups = self.victim.find(scene) if scene.status is None else []
        if not groups:
            return
        there = len(scene.parts(self.victim.part))
        killed = time.monotonic()
        kill(self.rng.choice(groups))
        if self._recovers(scene, there, killed):
            recovery = scene.steps()[-1] - killed
            if self.victim.expected == "recovers" and recovery > 0.0:
                self.found.recovery.append(recovery)
            else:
                self.found.late += 1
        else:
            self.found.end.append(time.monotonic() - killed)
            if self.victim.expected == "recovers":
                self.found.wrong.append(f"it ended, and should have gone on: {scene.errors()[-500:]}")
        if scene.nodes is not None:
            scene.nodes.replace()

    def _recovers(self, scene: Scene, there: int, killed: float) -> bool:
        """Whether it goes on by itself: as many parts are there as were, and it has made a step with them. False: it has ended."""
        part = self.victim.part
        if not scene.wait_for(lambda: part and len(scene.parts(part)) >= there, since=killed):
            return scene.finished
        made = time.monotonic()
        return scene.wait_for(lambda: scene.steps()[-1:] > [made], since=killed) or scene.finished

    def _go_on(self, scene: Scene) -> None:
        """`ludus resume` with other workers; a message must have said how."""
        if self.name not in SILENT and not any(words in scene.errors() for words in TOLD):
            self.found.wrong.append(
                f"it ended with status {scene.status} and no error in one line: {scene.errors()[-1000:]}"
            )
        begun = time.monotonic()
        # Tables that are spread over parts stay so, and need several processes.
        places = [place for place in ELSEWHERE if place is not IN_PROCESS or self.name != "shard"]
        scene.begin([*self.changes, *places[self._elsewhere % len(places)]])
        self._elsewhere += 1
        if scene.wait_for(lambda: scene.steps()[-1:] > [begun], since=begun) or scene.finished:
            self.found.resumed.append(time.monotonic() - begun)
        else:
            self.found.wrong.append(f"it could not be resumed: {scene.errors()[-500:]}")


def undisturbed(folder: Path, changes: Sequence[str] = ()) -> Path:
    """The run to compare with, in one process."""
    scene = Scene(folder, folder.parent / "t")
    scene.begin(["runtime.kind=inprocess", BACKGROUND, *changes])
    scene.wait_for(lambda: False, since=time.monotonic())
    if not scene.finished:
        raise SystemExit(scene.errors())
    return folder / "run"


def bars(name: str, found: Found) -> list[Outcome]:
    """What is asked for of a victim."""
    judged: Literal["unjudged"] | None = None if found.kills else "unjudged"
    numbers = (
        ("seconds", WITHIN, found.worst, " s"),
        ("hung", 0, found.hung, ""),
        ("lost or changed", 0, len(found.wrong), ""),
        ("left over", 0, len(found.left), ""),
    )
    return [
        Outcome(f"{name} {what}", f"<= {limit:g}", unit, float(value), judged or ("met" if value <= limit else "short"))
        for what, limit, value, unit in numbers
    ]


def table(results: dict[str, Found]) -> Table:
    """A row a victim."""
    columns = ("victim", "kills", "recovered", "ended, resumed", "hung", "worst s", "resumed in s", "lost", "left over")
    shown = Table(*columns, title="kill -9")
    for name, found in results.items():
        counts = (found.kills, len(found.recovery), len(found.end), found.hung)
        seconds = (f"{found.worst:.1f}", f"{max(found.resumed, default=0.0):.1f}")
        shown.add_row(name, *map(str, counts), *seconds, str(len(found.wrong)), str(len(found.left)))
    return shown


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults")
    parser.add_argument("victims", nargs="*", metavar="VICTIM", help=f"{', '.join(VICTIMS)} (default: all)")
    parser.add_argument("--times", type=int, default=5, help="kills of each (default: 5)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results", help="folder of result files")
    args = parser.parse_args(argv)
    unknown = sorted(set(args.victims) - set(VICTIMS))
    if unknown:
        parser.error(f"unknown victim {unknown[0]!r}; there are {', '.join(VICTIMS)}")
    console = Console(stderr=True)
    results: dict[str, Found] = {}
    folder = Path(tempfile.mkdtemp(prefix="lf-", dir="/tmp"))  # short: Ray's sockets lie below
    try:
        whole = undisturbed(folder / "whole")
        for name in args.victims or VICTIMS:
            loop = Loop(name, VICTIMS[name], whole=whole, folder=folder / name, seed=args.seed)
            results[name] = loop.run(args.times, console.print)
            for line in [*results[name].wrong, *results[name].left]:
                console.print(f"  {line}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _report(results, part=bool(args.victims), seed=args.seed, folder=args.results)
    return int(any(found.hung or found.wrong or found.left for found in results.values()))


def _report(results: dict[str, Found], *, part: bool, seed: int, folder: Path) -> None:
    outcomes = [outcome for name, found in results.items() for outcome in bars(name, found)]
    measured = {name: [_repetition(found, seed)] for name, found in results.items()}
    path = result_path("faults", part=part, folder=folder)
    write(path, name="faults", quick=False, measured=measured, carried={}, outcomes=outcomes)
    Console().print(table(results))
    for outcome in outcomes:
        print(outcome.line())


def _repetition(found: Found, seed: int) -> Repetition:
    counts = {
        "kills": found.kills,
        "recovered": len(found.recovery),
        "ended": len(found.end),
        "hung": found.hung,
        "late": found.late,
    }
    wrong = {"lost or changed": len(found.wrong), "left over": len(found.left)}
    seconds = {"recovery s": found.recovery, "end s": found.end, "resumed s": found.resumed}
    return Repetition(seed, {name: float(value) for name, value in {**counts, **wrong}.items()}, curve=seconds)


if __name__ == "__main__":
    sys.exit(main())
