"""One case while it goes on: the reference that it is compared with, the harmed command, what comes of it, and the verdict."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos import promises
from benchmarks.chaos.cluster import Cluster, networks
from benchmarks.chaos.draw import Case
from benchmarks.chaos.forks import Forks
from benchmarks.chaos.page import Page
from benchmarks.chaos.scenarios import Scenario
from benchmarks.chaos.scene import LOOK, PLACE, Command, Scene, Watch
from benchmarks.chaos.shapes import SHAPES

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

    def __init__(self, folder: Path, home: Path, forks: Forks | None = None) -> None:
        self.folder, self.home, self.forks = folder, home, forks
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
        place = Path(tempfile.mkdtemp(prefix="lc-", dir=PLACE))
        scene = Scene(place / "c", self.home, self.forks)
        try:
            with surroundings(scene, scenario):
                self._measure(scene, scenario, folder)
        finally:
            scene.close()
            shutil.rmtree(place, ignore_errors=True)

    @staticmethod
    def _measure(scene: Scene, scenario: Scenario, folder: Path) -> None:
        slow = slow_down()
        command, watch, begin = begun(scene, scenario), Watch(scene.run_dir), 0.0
        end = time.monotonic() + 2 * _LONGEST
        while command.code is None and time.monotonic() < end:
            if watch.look() > 1 and not begin:
                begin = command.seconds
            time.sleep(LOOK)
        watch.look()
        if command.code != 0:
            raise RuntimeError(f"{scenario.name} without harm ended with {command.code}: {command.errors()[-1500:]}")
        folder.mkdir(parents=True)
        shutil.copytree(scene.run_dir, folder / "run")
        facts = {
            "seconds": command.seconds,
            "begin": begin,
            "changes": watch.changes,
            "slow": max(slow, slow_down()),
        }
        (folder / "facts.json").write_text(json.dumps(facts))


@contextmanager
def surroundings(scene: Scene, scenario: Scenario) -> Iterator[Cluster | None]:
    """While this is open, the cluster that a scenario joins is there, if it joins one. Raises Skipped where none can be made."""
    if scenario.runtime != "cluster":
        yield None
        return
    if reason := networks():
        raise Skipped(f"no networks of nodes: {reason}")
    cluster = Cluster(scene.folder / "r")
    scene.closers.append(cluster.close)
    try:
        scene.hold()  # which sees the networks, once they are made
        cluster.start(scene.prefix)
        scene.wrap, scene.changes = cluster.enter, (f"runtime.address={cluster.address}",)
        yield cluster
    finally:
        cluster.close()


def begun(scene: Scene, scenario: Scenario, *, write: bool = True, **options: Any) -> Command:
    """Start a scenario's command. write: its file, too."""
    if write:
        (scene.work / "scenario.yaml").write_text(scenario.text)
        (scene.work / "sweep.yaml").write_text(SWEEP)
    line = SHAPES[scenario.command].start
    changes = (*scenario.changes, *scene.changes)
    return scene.start(*line, *(changes if line[0] == "train" else ()), **options)


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

    def __init__(self, case: Case, scene: Scene, reference: Reference, cluster: Cluster | None = None) -> None:
        self.case, self.scene, self.reference, self.cluster = case, scene, reference, cluster
        self.page: Page | None = None
        self.verdict = Verdict()
        self.slow = slow_down()
        self.rng = random.Random(f"chaos {case.name}")
        self.watch = Watch(scene.run_dir)
        self.shape = SHAPES[case.scenario.command](scene.run_dir)
        self.unequal = self.bounded = False
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
        """Start the scenario; as a new interpreter where its start is harmed."""
        if self.case.scenario.page and self.page is None:
            self.page = Page(self.scene)
        return begun(self.scene, self.case.scenario, anew=self.case.phase == "start", **options)

    def reach(self, command: Command) -> None:
        """Wait for the moment of the harm. Raises Late if the command ends before."""
        case, reference = self.case, self.reference
        if case.phase == "start":
            imports = self.scene.forks.imports if self.scene.forks else 0.0
            delay = case.fraction * (reference.begin + imports) * min(1.0, self.slow / reference.slow)
            until: Callable[[], object] = lambda: command.seconds > delay  # noqa: E731
        else:
            changes = 1 + case.fraction * (reference.changes - 1)
            begun_too = bool(case.harm.moment)
            until = lambda: self.watch.look() >= changes and (not begun_too or self.shape.has_begun())  # noqa: E731
        over = self.scene.wait(command, self.patience, until=until)
        if not over:
            time.sleep(case.delay)
            self.watch.look()
        if command.code == 0:
            raise Late("the run was over")
        if command.code is not None:
            raise RuntimeError(f"before the harm it ended with {command.code}: {command.errors()[-1000:]}")

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
        return self.shape.finished()

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
        if self.case.scenario.command in ("experiment", "sweep"):
            wanted = (*wanted, 3, 4)  # all or some of its runs failed
        errors = command.errors()
        self.bounded = promises.BOUNDED in errors
        if line is None:
            line = promises.BOUNDED if self.bounded else harm.line
        self.verdict.check("cause", promises.causes(errors, code, wanted, line=line))

    def shown(self, states: Sequence[str] | None = None) -> None:
        """Check which state the run is shown to have."""
        wanted = self.case.harm.states if states is None else states
        if self.bounded:
            wanted = (*wanted, "interrupted")
        if self.case.phase == "start" and not self.shape.has_begun():
            wanted = (*wanted, "nothing")
        self.verdict.check("cause", self.shape.states(tuple(wanted)))

    def goes_on(self, *, environment: Mapping[str, str] | None = None) -> bool:
        """Resume the run until it is finished, without harm, and check that nothing recorded was lost. Returns whether it is."""
        before: promises.Rows = promises.recorded(self.scene.run_dir) if promises.has_begun(self.scene.run_dir) else {}
        command = self._again(environment or {})
        self.scene.wait(command, self.patience)
        if command.code == 0 and self.finished:
            self.verdict.resumed = command.seconds
            self.verdict.check("recorded", self.shape.lost(before))
            return True
        self.verdict.check("recorded", [f"it could not be resumed: {command.code}, {command.errors()[-500:]!r}"])
        return False

    def _again(self, environment: Mapping[str, str]) -> Command:
        if self.shape.has_begun():
            limit = self.case.options.get("limit")
            trust = ("--trust",) if limit == "nproc" and self.case.scenario.parts else ()  # another user made the run
            return self.scene.start(*self.shape.again, *self.scene.changes, *trust, environment=environment)
        return begun(self.scene, self.case.scenario, environment=environment)

    def compare(self, run_dir: Path | None = None, *, parts_harmed: bool = False) -> None:
        """Check that a finished run is equal to the reference, as far as is promised."""
        equal = self.case.scenario.equal
        if self.unequal or (equal == "driver" and parts_harmed):
            equal = "rows"
        if self.unequal:
            return
        shape = self.shape if run_dir is None else SHAPES[self.case.scenario.command](run_dir)
        alone = not self.case.scenario.has_children
        flaws = shape.differences(self.reference.folder / "run", equal=equal, alone=alone)
        self.verdict.check("equal", flaws)

    def close(self) -> None:
        """End the page, and check that it went on answering."""
        if self.page is not None:
            page, self.page = self.page, None
            self.verdict.check("cause", page.close())

    def cleaned(self) -> None:
        """Check that nothing is left."""
        self.close()
        self.verdict.check("clean", self.scene.leftovers())
        beside = {path.name for path in self.scene.work.iterdir()} - _BESIDE
        self.verdict.check("clean", [f"file beside the run: {name}" for name in sorted(beside)])


SWEEP = """
scenario: scenario.yaml
options: {algorithm.learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}}
trials: 3
sampler: {kind: random, seed: 1}
"""
"""The file of a sweep."""
_BESIDE = {"scenario.yaml", "sweep.yaml", "run", "moved", "copy"}
"""What a case itself has put beside the run."""


def copied(run_dir: Path, target: Path) -> None:
    """Copy a run's directory as a user does by hand."""
    shutil.copytree(run_dir, target, dirs_exist_ok=True, symlinks=True)
