"""One case while it goes on: the reference that it is compared with, the harmed command, what comes of it, and the verdict."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos import promises
from benchmarks.chaos.draw import Case
from benchmarks.chaos.scenarios import Scenario
from benchmarks.chaos.scene import LOOK, Command, Scene, Watch
from ludus.core.errors import LudusError
from ludus.storage.reader import Reader

WITHIN = 30.0
"""Seconds in which a run must have recovered, or ended."""
_LONGEST = 240.0  # seconds that a command may take at most on a quiet machine
_BURN = 0.05  # seconds of processor time that the slow-down is measured with


class Late(Exception):
    """The harm came when there was nothing to harm any more."""


class Skipped(Exception):
    """The machine does not allow the harm."""


def slow_down() -> float:
    """Return how many times slower than alone this process computes now, which the limits of waiting are multiplied by."""
    wall, used = time.perf_counter(), time.thread_time()
    while time.thread_time() - used < _BURN:
        pass
    return max(1.0, (time.perf_counter() - wall) / (time.thread_time() - used))


@dataclass(frozen=True, slots=True)
class Reference:
    """An unharmed run. seconds: how long it took; begin: until the first change of its directory; changes: how many there were; slow:
    `slow_down` at the time."""

    folder: Path
    seconds: float
    begin: float
    changes: int
    slow: float


class References:
    """Unharmed runs by scenario, made when they are first wanted, kept in a folder."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home = folder, home
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def __call__(self, scenario: Scenario) -> Reference:
        """Return a scenario's. Raises RuntimeError if it does not end well."""
        with self._guard:
            lock = self._locks.setdefault(scenario.name, threading.Lock())
        folder = self.folder / scenario.name.replace("/", "-")
        with lock:
            if not (folder / "facts.json").exists():
                self._make(scenario, folder)
        return Reference(folder, **json.loads((folder / "facts.json").read_text()))

    def _make(self, scenario: Scenario, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        scene = Scene(folder.with_name(f"{folder.name}.s"), self.home)
        try:
            slow = slow_down()
            command, watch, begin = begun(scene, scenario), Watch(scene.run_dir), 0.0
            end = time.monotonic() + 2 * _LONGEST
            while command.code is None and time.monotonic() < end:
                if watch.look() > 1 and not begin:
                    begin = command.seconds
                time.sleep(LOOK)
            watch.look()
            if command.code != 0:
                raise RuntimeError(
                    f"{scenario.name} without harm ended with {command.code}: {command.errors()[-1500:]}"
                )
            folder.mkdir(parents=True)
            shutil.copytree(scene.run_dir, folder / "run")
            facts = {
                "seconds": command.seconds,
                "begin": begin,
                "changes": watch.changes,
                "slow": max(slow, slow_down()),
            }
            (folder / "facts.json").write_text(json.dumps(facts))
        finally:
            scene.close()


def begun(scene: Scene, scenario: Scenario, *, write: bool = True, **options: Any) -> Command:
    """Start a scenario's command. write: its file, too."""
    if write:
        (scene.work / "scenario.yaml").write_text(scenario.text)
    return scene.start("train", "scenario.yaml", "--run-dir", "run", *scenario.changes, **options)


@dataclass
class Verdict:
    """What became of a case, as it is stored."""

    outcome: str = ""
    why: str = ""
    broken: dict[str, list[str]] = field(default_factory=dict)
    checked: list[str] = field(default_factory=list)
    recovery: float | None = None
    end: float | None = None
    resumed: float | None = None

    def check(self, promise: str, flaws: Iterable[str]) -> None:
        """Enter what is wrong by a promise; nothing if it holds."""
        flaws = list(flaws)
        if promise not in self.checked:
            self.checked.append(promise)
        if flaws:
            self.broken.setdefault(promise, []).extend(flaws)


class Attempt:
    """A case in its scene."""

    def __init__(self, case: Case, scene: Scene, references: References) -> None:
        self.case, self.scene, self.references = case, scene, references
        self.reference = references(case.scenario)
        self.verdict = Verdict()
        self.slow = slow_down()
        self.rng = random.Random(f"chaos {case.name}")
        self.watch = Watch(scene.run_dir)
        self.unequal = False
        scene.log(
            f"{case.name}: {case.harm.name} {dict(case.options)} of {case.scenario.name}, {case.phase} {case.fraction:.2f}"
        )

    # ------------------------------------------------------------------------------------------------ going

    @property
    def patience(self) -> float:
        """Seconds after which a command that says nothing counts as hung."""
        self.slow = max(self.slow, slow_down())
        return WITHIN * self.slow + 3 * self.reference.seconds * self.slow / self.reference.slow

    def train(self, **options: Any) -> Command:
        """Start the scenario."""
        return begun(self.scene, self.case.scenario, **options)

    def reach(self, command: Command) -> None:
        """Wait for the moment of the harm. Raises Late if the command ends before."""
        case, reference = self.case, self.reference
        if case.phase == "start":
            delay = case.fraction * reference.begin
            until: Callable[[], object] = lambda: command.seconds > delay  # noqa: E731
        else:
            changes = 1 + case.fraction * (reference.changes - 1)
            until = lambda: self.watch.look() >= changes  # noqa: E731
        if self.scene.wait(command, self.patience, until=until):
            raise Late(f"the run was over, with {command.code}")
        time.sleep(case.delay)
        self.watch.look()
        if command.code is not None:
            raise Late(f"the run was over, with {command.code}")

    def ends(self, command: Command, harmed: float, *, extra: float = 0.0, timed: bool = True) -> bool:
        """Wait until a harmed command ends, and return whether the run is finished.

        Args:
            command: It.
            harmed: When it was.
            extra: Seconds of a documented deadline beyond `WITHIN`.
            timed: Whether the end must come within that time, where the run is not finished.
        """
        within = self.patience + extra
        self.scene.wait(command, within)
        took = command.seconds - (harmed - command.begun)
        if command.seconds >= within and command.code == -9 and -9 not in self.case.harm.codes:
            self.verdict.check("time", [f"it hung: {within:.0f} s; it said {command.errors()[-600:]!r}"])
            return False
        finished = self.finished
        if not finished and timed:
            self.verdict.end = took
            limit = WITHIN * max(self.slow, slow_down()) + extra
            self.verdict.check("time", [f"it ended after {took:.0f} s"] if took > limit else [])
        return finished

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return state_of(self.scene.run_dir) == "finished"

    def recovers(self, command: Command, harmed: float, lacking: Callable[[], bool], *, extra: float = 0.0) -> None:
        """Measure the seconds from a harm until what it took is there again and the run goes on."""
        self.watch.look()
        before, restored = self.watch.changes, 0.0

        def goes_on() -> bool:
            nonlocal before, restored
            changes = self.watch.look()
            if not restored:
                if lacking():
                    return False
                restored, before = time.monotonic(), changes
            return changes > before

        over = self.scene.wait(command, self.patience + extra, until=goes_on)
        if over and not restored:
            return
        took = time.monotonic() - harmed
        limit = WITHIN * max(self.slow, slow_down()) + extra
        self.verdict.recovery = took
        self.verdict.check("time", [f"it recovered after {took:.0f} s"] if took > limit else [])

    # ------------------------------------------------------------------------------------------------ judging

    def told(self, command: Command, *, codes: Sequence[int] | None = None, line: str | None = None) -> None:
        """Check how a command that did not finish its run ended."""
        harm = self.case.harm
        code = command.code
        assert code is not None
        wanted = harm.codes if codes is None else codes
        self.verdict.check(
            "cause", promises.causes(command.errors(), code, wanted, line=harm.line if line is None else line)
        )

    def shown(self, states: Sequence[str] | None = None) -> None:
        """Check which state the run is shown to have."""
        wanted = self.case.harm.states if states is None else states
        self.verdict.check("cause", promises.states(self.scene.run_dir, wanted))

    def goes_on(self, *, environment: Mapping[str, str] | None = None) -> bool:
        """Resume the run until it is finished, without harm, and check that nothing recorded was lost. Returns whether it is."""
        before: promises.Rows = promises.recorded(self.scene.run_dir) if promises.has_begun(self.scene.run_dir) else {}
        command = self._again(environment or {})
        self.scene.wait(command, self.patience)
        if command.code == 0 and self.finished:
            self.verdict.resumed = command.seconds
            self.verdict.check("recorded", promises.lost(before, self.scene.run_dir))
            return True
        self.verdict.check("recorded", [f"it could not be resumed: {command.code}, {command.errors()[-500:]!r}"])
        return False

    def _again(self, environment: Mapping[str, str]) -> Command:
        if promises.has_begun(self.scene.run_dir):
            return self.scene.start("resume", "run", environment=environment)
        return begun(self.scene, self.case.scenario, environment=environment)

    def compare(self, run_dir: Path | None = None, *, parts_harmed: bool = False) -> None:
        """Check that a finished run is equal to the reference, as far as is promised."""
        equal = self.case.scenario.equal
        if self.unequal or (equal == "driver" and parts_harmed):
            equal = "rows"
        if self.unequal:
            return
        flaws = promises.differences(
            run_dir or self.scene.run_dir,
            self.reference.folder / "run",
            equal=equal,
            alone=not self.case.scenario.has_children,
        )
        self.verdict.check("equal", flaws)

    def cleaned(self) -> None:
        """Check that nothing is left."""
        self.verdict.check("clean", self.scene.leftovers())
        beside = {path.name for path in self.scene.work.iterdir()} - _BESIDE
        self.verdict.check("clean", [f"file beside the run: {name}" for name in sorted(beside)])


_BESIDE = {"scenario.yaml", "run", "moved", "copy"}
"""What a case itself has put beside the run."""


def state_of(run_dir: Path) -> str:
    """Return the state of a run, or "nothing"."""
    try:
        with Reader(run_dir, check=False) as reader:
            return reader.state()
    except (LudusError, OSError):
        return "nothing"


def copied(run_dir: Path, target: Path) -> None:
    """Copy a run's directory as a user does by hand."""
    shutil.copytree(run_dir, target, dirs_exist_ok=True, symlinks=True)


def own(folder: Path) -> None:
    """Let every user write into a folder."""
    for path in (folder, *folder.rglob("*")):
        with suppress(OSError):
            os.chmod(path, 0o777 if path.is_dir() else 0o666)
