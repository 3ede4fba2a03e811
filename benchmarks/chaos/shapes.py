"""What a scenario's command makes: a run, an experiment, a sweep or a tournament; how it is started, continued and compared."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.chaos import promises
from benchmarks.chaos.scenarios import Equal
from ludus.core.errors import LudusError
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import EXPERIMENT


def state_of(run_dir: Path) -> str:
    """Return the state of a run, or "nothing"."""
    try:
        with Reader(run_dir, check=False) as reader:
            return reader.state()
    except (LudusError, OSError):
        return "nothing"


class Run:
    """A run, whose directory is `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    start: tuple[str, ...] = ("train", "scenario.yaml", "--run-dir", "run")
    again: tuple[str, ...] = ("resume", "run")

    def runs(self) -> list[Path]:
        """Return the directories of runs, those of nothing yet left out."""
        return [self.folder]

    def has_begun(self) -> bool:
        """Return whether it can be continued."""
        return promises.has_begun(self.folder)

    def finished(self) -> bool:
        """Return whether it is complete."""
        return state_of(self.folder) == "finished"

    def recorded(self) -> dict[str, promises.Rows]:
        """Return what must never be lost, by run."""
        return {run.name: promises.recorded(run) for run in self.runs() if promises.has_begun(run)}

    def lost(self, before: dict[str, promises.Rows]) -> Iterator[str]:
        """Yield what was recorded before and is gone."""
        for run in self.runs():
            if run.name in before:
                yield from promises.lost(before[run.name], run)

    def states(self, wanted: tuple[str, ...]) -> Iterator[str]:
        """Yield what is wrong with the state that is shown."""
        yield from promises.states(self.folder, wanted)

    def differences(self, whole: Path, *, equal: Equal, alone: bool) -> Iterator[str]:
        """Yield how it differs from an unharmed one."""
        yield from promises.differences(self.folder, whole, equal=equal, alone=alone)


class Experiment(Run):
    """An experiment of two seeds."""

    start = ("train", "scenario.yaml", "--seeds", "2", "--parallel", "2", "--run-dir", "run")

    def runs(self) -> list[Path]:
        """Return the directories of runs."""
        return sorted(path.parent for path in self.folder.glob("*/ludus.db"))

    def has_begun(self) -> bool:
        """Return whether its file is there."""
        return (self.folder / EXPERIMENT).exists()

    def finished(self) -> bool:
        """Return whether all of its runs are complete."""
        return len(self.runs()) == self._size and all(state_of(run) == "finished" for run in self.runs())

    _size = 2

    def states(self, wanted: tuple[str, ...]) -> Iterator[str]:
        """Yield nothing: its runs end one by one."""
        yield from ()

    def differences(self, whole: Path, *, equal: Equal, alone: bool) -> Iterator[str]:
        """Yield how its runs differ."""
        for run in self.runs():
            for flaw in promises.differences(run, whole / run.name, equal=equal, alone=alone):
                yield f"{run.name}: {flaw}"


class Sweep(Experiment):
    """A sweep of three trials, whose options differ after a kill."""

    start = ("sweep", "sweep.yaml", "--run-dir", "run", "--parallel", "1")
    _size = 3

    def differences(self, whole: Path, *, equal: Equal, alone: bool) -> Iterator[str]:
        """Yield the policies that are not what was published."""
        for run in self.runs():
            yield from promises.changed_policies(run)


_EPISODES = 900  # three pairs, two orders of seats, 150 deals


class Tournament(Run):
    """A tournament of two scripts; the same command continues it."""

    start = (
        "tournament",
        "benchmarks.chaos.parts:First",
        "random",
        "bot:random",
        "--env",
        "openspiel/kuhn_poker",
        "--episodes",
        "150",
        "--dir",
        "run",
    )
    again = start

    def runs(self) -> list[Path]:
        """Return none: it has matches only."""
        return []

    def _matches(self, folder: Path) -> dict[str, tuple[int, tuple[float, ...]]]:
        """Return (episodes, their returns by player) of each profile and order of seats: how they are divided depends on time."""
        uri = f"file:{folder}/tournament.db?mode=ro"
        totals: dict[str, tuple[int, NDArray[np.float64]]] = {}
        with closing(sqlite3.connect(uri, uri=True, timeout=20)) as database:
            for id, seats, n, mean in database.execute("SELECT id, seats, n, mean FROM matches"):
                names, _, order = json.loads(id)
                key = json.dumps([names, order, seats])
                count, returns = totals.get(key, (0, np.zeros(1)))
                totals[key] = (count + n, returns + n * np.frombuffer(mean, "<f8"))
        return {key: (n, tuple(np.round(returns, 6).tolist())) for key, (n, returns) in sorted(totals.items())}

    def _count(self, folder: Path) -> int:
        try:
            return sum(n for n, _ in self._matches(folder).values())
        except sqlite3.Error:
            return 0

    def has_begun(self) -> bool:
        """Return whether it has matches."""
        return self._count(self.folder) > 0

    def finished(self) -> bool:
        """Return whether all results are there."""
        return self._count(self.folder) == _EPISODES

    def states(self, wanted: tuple[str, ...]) -> Iterator[str]:
        """Yield nothing: it has no state."""
        yield from ()

    def recorded(self) -> dict[str, promises.Rows]:
        """Return its matches."""
        return {"": {"matches": [(self._count(self.folder),)]}} if self.has_begun() else {}

    def lost(self, before: dict[str, promises.Rows]) -> Iterator[str]:
        """Yield the matches that are gone."""
        if before and self._count(self.folder) < before[""]["matches"][0][0]:
            yield "matches are gone"

    def differences(self, whole: Path, *, equal: Equal, alone: bool) -> Iterator[str]:
        """Yield how its matches differ."""
        if self._matches(self.folder) != self._matches(whole):
            yield "its matches differ"


SHAPES: dict[str, type[Run]] = {"train": Run, "experiment": Experiment, "sweep": Sweep, "tournament": Tournament}
