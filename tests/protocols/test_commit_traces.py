"""Traces of the real driver, whole and killed at any event, are ones that the machine of commits permits; with a fault they are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import run_tools as tools
from disk_traces import MACHINE, Labels, Session, goes_on, labels_of, session, view_of

from benchmarks.protocols_explorer import Refusal, Replay
from ludus.runs.resumable_run import ResumableRun
from ludus.storage import checkpoint
from ludus.storage.checkpoint import PolicyFiles
from ludus.storage.store import Store

NAME = "exact"


class Followed:
    """A run of several sessions, and the machine that follows it."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.labels, self.replay = run_dir, Labels(), Replay(MACHINE)
        self.sessions: list[Session] = []

    def go(self, at: int = -1) -> Session:
        """Begin the run, or go on with it; it is killed at an event."""

        def train() -> None:
            tools.train(NAME, self.run_dir)

        body: Callable[[], object] = goes_on(self.run_dir, train) if self.sessions else train
        run = session(body, self.run_dir, at=at)
        assert run.error == ""
        self.sessions.append(run)
        assert self.replay.follow(self.labels.of(run)) is None, str(self.replay.refusal)
        real = self.labels.view(self.run_dir)
        assert real in [view_of(world) for world in self.replay.states], "the machine's disk is the real one"
        return run

    def killed_at(self, moments: Sequence[int]) -> None:
        """Kill the sessions at these events, in turn, and then go on to the end."""
        for at in moments:
            if self.go(at).finished:
                break
        else:
            self.go()
        (view,) = {str(view_of(world)) for world in self.replay.states}
        assert view == str(({1, 2, 3, 4}, {3, 4}, set(range(7))))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Session:
    tools.train(NAME, tmp_path_factory.mktemp("first") / "run")  # or every fork would load what it needs
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    return session(lambda: tools.train(NAME, run_dir), run_dir)


def test_a_whole_run(whole: Session) -> None:
    assert Replay(MACHINE).follow(labels_of([whole])) is None
    kinds = {label[0] for label in labels_of([whole])}
    assert kinds >= {"put", "sync", "write", "flush", "rename", "fsync", "commit", "remove checkpoint", "finish"}


def test_a_run_killed_before_a_commit_and_before_its_last_clean(whole: Session, tmp_path: Path) -> None:
    commits = [at for at, event in enumerate(whole.events, 1) if event[0] == "commit"]
    Followed(tmp_path / "run").killed_at([commits[1] - 1, 12])


@pytest.mark.slow
def test_a_run_killed_at_every_kind_of_event(whole: Session, tmp_path: Path) -> None:
    """And once more as it is resumed."""
    for at in tools.ways([" ".join(map(_kind, event)) for event in whole.events]):
        Followed(tmp_path / str(at)).killed_at([at, 1 + at % 29])


def _kind(name: str) -> str:
    return tools.kind_of(name, Path("."))


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_a_run_killed_at_any_event_and_at_any_of_its_resume(part: int, whole: Session, tmp_path: Path) -> None:
    for at in range(1 + part, len(whole.events) + 1, 4):
        for second in range(1 + at % 9, 30, 9):
            Followed(tmp_path / f"{at} {second}").killed_at([at, second])


# ---------------------------------------------------------------------------------------------- planted faults


def without_flush(patch: pytest.MonkeyPatch) -> None:
    sync = checkpoint.sync
    patch.setattr(checkpoint, "sync", lambda path: None if path.parent.name == "checkpoint" else sync(path))


def policies_not_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PolicyFiles, "sync", lambda self: None)


def commit_before_rename(patch: pytest.MonkeyPatch) -> None:
    rename, connections = Path.rename, list[Store]()
    check_place = Store.check_place

    def renaming(path: Path, target: Path) -> Path:
        connections[-1].commit(target.name)
        return rename(path, target)

    def checking(self: Store) -> None:
        connections.append(self)
        check_place(self)

    patch.setattr(Store, "check_place", checking)
    patch.setattr(Path, "rename", renaming)


def old_checkpoints_removed_first(patch: pytest.MonkeyPatch) -> None:
    save = checkpoint.save

    def saving(folder: Path, number: int, state: Any) -> str:
        checkpoint.clean(folder, 1, [])
        return save(folder, number, state)

    patch.setattr(checkpoint, "save", saving)


def nothing_rewound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Store, "rewind", lambda self, name: None)


def leftovers_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PolicyFiles, "remove_unknown", lambda self: None)


def no_look_after_the_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ResumableRun, "still_last", lambda self: None)


FAULTS: dict[Callable[[pytest.MonkeyPatch], None], tuple[str, bool]] = {
    without_flush: ("rename", False),
    policies_not_flushed: ("write", False),
    commit_before_rename: ("commit", False),
    old_checkpoints_removed_first: ("remove checkpoint", False),
    nothing_rewound: ("remove policy", True),
    leftovers_stay: ("remove checkpoint", True),
    no_look_after_the_lock: ("rewind", True),
}
"""In the real code; the event that is refused, and whether it takes a resume to see it."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_in_the_code_is_refused(fault: Any, whole: Session, tmp_path: Path) -> None:
    event, resumed = FAULTS[fault]
    run_dir, before = tmp_path / "run", list[Session]()
    if resumed:
        at = [at for at, event in enumerate(whole.events, 1) if event[0] == "commit"][1]
        before.append(session(lambda: tools.train(NAME, run_dir), run_dir, at=at - 1))  # two policies are left over
    body = goes_on(run_dir, bool) if resumed else lambda: tools.train(NAME, run_dir)
    run = session(body, run_dir, plant=lambda: fault(pytest.MonkeyPatch()))
    refusal = Replay(MACHINE).follow(labels_of([*before, run]))
    assert isinstance(refusal, Refusal)
    assert refusal.event[0] == event, str(refusal)
