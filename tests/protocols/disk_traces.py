"""What a session of a real run does to its directory, event by event, also if it is killed at one; and as labels of the machine `Commits`.

The run is a fork. An audit hook and a few wrapped functions write each event to a pipe, those of the file system just before they happen:
where the process is to end at one, it is neither written nor done. Other events are written after they have happened, and before the
process ends. So the events that were written are those that were done.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.protocols_commits import Commits, World
from benchmarks.protocols_explorer import Label
from ludus.core.errors import RunError
from ludus.runs import runner
from ludus.runs.driver import Driver
from ludus.runs.resumable_run import ResumableRun
from ludus.storage import store as stores
from ludus.storage.reader import Reader
from ludus.storage.store import Store, has_tables

Event = list[str]
KILLED = 42


class RealRun(Commits):
    """The machine without bounds: how long a run is, and how often it is killed, is not its concern."""

    def is_finished(self, process: object) -> bool:
        return True


MACHINE = RealRun(total=10**6, kills=10**6, power=False)


class Session(NamedTuple):
    """events: that were done. killed: whether the last one was followed by a kill. error: what a session that failed raised."""

    events: list[Event]
    killed: bool
    error: str = ""

    @property
    def finished(self) -> bool:
        """Whether the database says that the run is over, whatever became of the process then."""
        return ["finish"] in self.events


def session(
    body: Callable[[], object], run_dir: Path, *, at: int = -1, plant: Callable[[], object] = lambda: None
) -> Session:
    """Run `body` in a fork that ends by `os._exit` in place of its `at`-th event, counted from 1. plant: changes the code before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads; ours only wait
        read, write = os.pipe()
        child = os.fork()
    if not child:
        os.close(read)
        code = 1
        try:
            _watch(run_dir, at=at, pipe=write)
            plant()
            body()
            code = 0
        except BaseException as error:  # noqa: BLE001  the parent reports it
            os.write(write, json.dumps(["error", f"{type(error).__name__}: {error}"]).encode() + b"\n")
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as stream:
        events = [json.loads(line) for line in stream]
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    errors = [event[1] for event in events if event[0] == "error"]
    return Session([event for event in events if event[0] != "error"], code == KILLED, *errors)


_CHANGES = {"open": 1, "os.rename": 2, "os.remove": 1, "os.mkdir": 1, "os.rmdir": 1}
"""Audit events, and how many of their arguments are paths."""


def _nothing(*_: object) -> None:
    return None


def _wrap(patch: pytest.MonkeyPatch, owner: Any, name: str, *, before: Any = _nothing, after: Any = _nothing) -> None:
    """Have functions called with a call's arguments, one before it and one after it, which takes its result first."""
    call = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before(*args)
        result = call(*args, **kwargs)
        after(result, *args)
        return result

    patch.setattr(owner, name, wrapped)


def _watch(run_dir: Path, *, at: int, pipe: int) -> None:
    root, count, patch = str(run_dir), 0, pytest.MonkeyPatch()

    def event(*names: object, done: bool = True) -> None:
        nonlocal count
        count += 1
        if count == at and not done:
            os._exit(KILLED)
        os.write(pipe, json.dumps([str(name) for name in names]).encode() + b"\n")
        if count == at:
            os._exit(KILLED)

    def hook(kind: str, arguments: tuple[Any, ...]) -> None:
        if kind in _CHANGES and (kind != "open" or _writes(arguments)):
            paths = [path for path in arguments[: _CHANGES[kind]] if not isinstance(path, int)]
            if paths and re.match(re.escape(root) + "/(policies|checkpoint)/", str(paths[0])):
                event(kind, *(os.path.relpath(path, root) for path in paths), done=False)

    fsync = os.fsync

    def flush(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.startswith(root):
            event("fsync", os.path.relpath(path, root), done=False)
        fsync(descriptor)

    patch.setattr(os, "fsync", flush)
    wrap = partial(_wrap, patch)
    wrap(stores, "make_tables", after=lambda *_: event("create"))
    wrap(Store, "__init__", after=lambda *_: event("lock"))
    wrap(Store, "close", before=lambda *_: event("unlock"))
    wrap(Store, "commit", after=lambda _, self, name: event("commit", name))
    wrap(Store, "rewind", after=lambda _, self, name: event("rewind", name))
    wrap(Store, "run_finished", after=lambda *_: event("finish"))
    wrap(runner, "read_run", after=lambda stored, *_: event("read", stored.named[-1] if stored.named else None))
    wrap(ResumableRun, "still_last", after=lambda *_: event("unchanged"))
    wrap(Driver, "_checkpoint", before=lambda *_: event("barrier"))
    sys.addaudithook(hook)


def _writes(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) or any(c in (mode or "") for c in "wax+")


class Labels:
    """Turns events into labels: several flushes make one, and what leaves nothing behind makes none."""

    def __init__(self) -> None:
        self.policies: dict[str, int] = {}  # by name of the file, in the order in which they were first written
        self._flushed: set[str] = set()
        self._asides: set[str] = set()
        self._renamed: str | None = None
        self._lock = ""

    def of(self, run: Session) -> Iterator[Label]:
        """Yield the labels of a session."""
        yield ("start",)
        self._flushed, self._renamed, self._lock = set(), None, ""
        for kind, *names in run.events:
            yield from getattr(self, "_on_" + kind.replace(".", "_"))(*names)
        if run.killed and not run.finished:
            yield ("killed",)

    def _on_open(self, path: str) -> Iterator[Label]:
        if path.startswith("policies/"):
            self._asides.add(path)
            yield ("write policy", self._policy(path))

    def _on_os_mkdir(self, path: str) -> Iterator[Label]:
        if Path(path).parent == Path("checkpoint"):
            yield ("write", _number(Path(path).name))

    def _on_os_rename(self, path: str, target: str) -> Iterator[Label]:
        if path.startswith("policies/"):
            self._asides.discard(path)
            yield ("put", self._policy(target))
        else:
            self._renamed = Path(target).name
            yield ("rename", _number(self._renamed))

    def _on_fsync(self, path: str) -> Iterator[Label]:
        self._flushed.add(path)
        folder = Path(path)
        if folder.parent == Path("policies"):
            for file in sorted(f for f in self._flushed if Path(f).parent == folder):
                self._flushed.discard(file)
                yield ("sync", self._policy(file))
        elif folder.parent == Path("checkpoint") and folder.name.startswith("."):
            if {f"{path}/state.json", f"{path}/arrays.safetensors"} <= self._flushed:
                yield ("flush", _number(folder.name))
        elif path == "." and "checkpoint" in self._flushed and self._renamed is not None:
            yield ("fsync", _number(self._renamed))
            self._renamed = None
        if self._renamed is None:
            self._flushed.discard("checkpoint")

    def _on_os_remove(self, path: str) -> Iterator[Label]:
        if path.startswith("policies/") and (path in self._asides or not Path(path).name.startswith(".")):
            self._asides.discard(path)
            yield ("remove policy", self._policy(path))

    def _on_os_rmdir(self, path: str) -> Iterator[Label]:
        if Path(path).parent == Path("checkpoint"):
            yield ("remove checkpoint", _number(Path(path).name))

    def _on_create(self) -> Iterator[Label]:
        self._lock = "held"
        yield from [("lock",), ("unchanged",), ("create",)]

    def _on_lock(self) -> Iterator[Label]:
        self._lock = self._lock or "taken"  # another look at the database is none, if it is over at once
        yield from ()

    def _on_unlock(self) -> Iterator[Label]:
        self._lock = ""
        yield from ()

    def _on_unchanged(self) -> Iterator[Label]:
        if self._lock == "taken":
            yield ("lock",)
        yield ("unchanged",)

    def _on_read(self, name: str) -> Iterator[Label]:
        yield ("read", _number(name))

    def _on_rewind(self, name: str) -> Iterator[Label]:
        yield ("rewind", _number(name))

    def _on_barrier(self) -> Iterator[Label]:
        yield from [("work",), ("barrier",)]

    def _on_commit(self, name: str) -> Iterator[Label]:
        yield ("commit", _number(name))

    def _on_finish(self) -> Iterator[Label]:
        yield ("finish",)

    def _policy(self, path: str) -> int:
        name = f"{Path(path).parent.name}/{Path(path).name.removeprefix('.').removesuffix('.part')}"
        return self.policies.setdefault(name, len(self.policies))

    def view(self, run_dir: Path) -> tuple[set[int], set[int], set[int]]:
        """Return numbers of a directory's committed checkpoints, of the folders of checkpoints, and of policies."""
        named = set[int]()
        if has_tables(run_dir / "ludus.db"):
            with Reader(run_dir, check=False) as reader:
                named = {_number(record.id) for record in reader.checkpoints()}
        folders = {_number(path.name) for path in (run_dir / "checkpoint").glob("[!.]*")}
        return named, folders, {self._policy(str(path)) for path in run_dir.glob("policies/*/[!.]*")}


def view_of(world: World) -> tuple[set[int], set[int], set[int]]:
    """Return the same of a state of the machine."""
    disk = world.disk
    named = {commit.checkpoint.number for commit in disk.commits}
    folders = {folder.checkpoint.number for folder in disk.folders if not folder.aside}
    return named, folders, {file.row[0] for file in disk.policies if not file.aside}


def _number(name: str) -> int:
    """Return the number of a checkpoint by its id."""
    return 0 if name == "None" else int(name.removeprefix(".").partition("-")[0])


def goes_on(run_dir: Path, train: Callable[[], object]) -> Callable[[], object]:
    """Return what a user does with a run that may have begun."""

    def body() -> None:
        try:
            runner.resume(run_dir, report=False)
        except RunError as error:
            if not any(why in str(error) for why in ("there is no run", "is not a run", "died before it began")):
                raise
            train()

    return body


def labels_of(sessions: Sequence[Session]) -> list[Label]:
    """Return the labels of sessions of one run, in turn."""
    labels = Labels()
    return [label for run in sessions for label in labels.of(run)]
