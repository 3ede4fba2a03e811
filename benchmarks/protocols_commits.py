"""Barrier, commit and resume as a state machine: policies are published, checkpoints written aside and named by the database, kills and
power cuts come at any moment, a session goes on from what was committed, a second driver tries to, and `ludus copy` reads beside.

    session   read -> lock -> unchanged? -> rewind -> remove leftovers -> work -> barrier -> work ... -> finish
    barrier   sync policies -> write aside -> flush -> rename -> fsync the folder -> commit (rows and the checkpoint's id) -> clean

It says what `ludus.runs.driver.Driver.checkpoint`, `ludus.storage.checkpoint`, `Store`, `ludus.runs.runner.resume` and
`ludus.apps.hub.copies` may do. A unit of work is a policy that is published, or anything else that rows tell of. Contents are told apart
by the session that wrote them: a session need not repeat what a dead one did to the bit.

A kill ends a process and leaves what the system holds. A power cut also loses, or tears, any of what was not flushed, in every combination.
SQLite is trusted: a commit is atomic, and durable when it returns. A rule that is to be mutated is a method of its own, of one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from benchmarks.protocols_explorer import Label

Row = tuple[int, int]
"""A policy: its number, and the session that wrote it."""
TORN = -1
"""The session of a file that nobody wrote so."""
BARRIER = ("sync", "write", "flush", "rename", "fsync", "commit", "clean")
"""What happens at a barrier, in this order."""


class Checkpoint(NamedTuple):
    """units: of work that it has. members: the policies."""

    number: int
    session: int
    units: int
    members: tuple[Row, ...]


class Folder(NamedTuple):
    """Of a checkpoint. flushed: its files are on the disk; durable: so is its name."""

    checkpoint: Checkpoint
    aside: bool = True
    flushed: bool = False
    durable: bool = False
    torn: bool = False


class PolicyFile(NamedTuple):
    row: Row
    aside: bool = True
    durable: bool = False


class Commit(NamedTuple):
    """Rows that became visible together, with the checkpoint that covers them and all before."""

    checkpoint: Checkpoint
    rows: tuple[Row, ...]


class Process(NamedTuple):
    """A driver. named: checkpoints that it takes the database to name. units, members, number: as its next checkpoint will have them.
    rows: that wait for the next commit. unsynced: numbers of policies. base: what it has read the newest checkpoint to be."""

    phase: str
    session: int
    named: tuple[Checkpoint, ...] = ()
    units: int = 0
    members: tuple[Row, ...] = ()
    number: int = 0
    rows: tuple[Row, ...] = ()
    unsynced: frozenset[int] = frozenset()
    lost: int = 0  # newer checkpoints that were passed over
    locked: bool = False

    @property
    def coming(self) -> Checkpoint:
        """What the present barrier writes."""
        return Checkpoint(self.number, self.session, self.units, self.members)


class Copy(NamedTuple):
    """phase: "copying", "whole", or "lacks"."""

    phase: str
    attempts: int
    commits: tuple[Commit, ...]
    files: frozenset[Row] = frozenset()
    left: tuple[Row, ...] = ()
    checkpoint: bool = False


class Disk(NamedTuple):
    """created: whether there is a database; finished: whether it says how the run ended. recorded: units of work that it has committed
    and must not lose."""

    created: bool = False
    finished: bool = False
    commits: tuple[Commit, ...] = ()
    policies: frozenset[PolicyFile] = frozenset()
    folders: frozenset[Folder] = frozenset()
    recorded: int = 0


class World(NamedTuple):
    """sessions: that were begun. damaged: checkpoints that a disk's fault has taken."""

    disk: Disk = Disk()
    processes: tuple[Process, ...] = ()
    sessions: int = 0
    kills: int = 0
    rivals: int = 0
    damaged: int = 0
    copies: int = 0
    copy: Copy | None = None


@dataclass(frozen=True)
class Commits:
    """Attributes:
    total: Units of work until the run is over.
    keep: Checkpoints that are kept.
    kills: Of all kinds, at most.
    power: Whether a kill may be a power cut.
    rivals: Second drivers that are started beside a first, at most.
    damages: Newest checkpoints that a fault of the disk takes, at most.
    copies: Copies that are begun, at most.
    attempts: Of a copy to get all that its database names.
    order: Of a barrier.
    """

    total: int = 2
    keep: int = 2
    kills: int = 1
    power: bool = True
    rivals: int = 0
    damages: int = 0
    copies: int = 0
    attempts: int = 2
    order: tuple[str, ...] = BARRIER

    harms = frozenset({"killed", "power cut", "rival", "damage", "copy begins"})
    hidden = frozenset({"synced", "tidied"})

    def start(self) -> World:
        return World()

    # ------------------------------------------------------------------------------------------ rules

    def may_lock(self, world: World) -> bool:
        """The lock is free, or its holder is dead."""
        return not any(process.locked for process in world.processes)

    def is_unchanged(self, process: Process, disk: Disk) -> bool:
        """Whether the database still names what was read before the lock was held."""
        named = tuple(commit.checkpoint for commit in disk.commits)
        return named[: len(named) - process.lost] == process.named

    def is_usable(self, checkpoint: Checkpoint, disk: Disk) -> bool:
        """A checkpoint's hash says whether it is whole."""
        return any(f.checkpoint == checkpoint and not f.aside and not f.torn for f in disk.folders)

    def rewound(self, process: Process, disk: Disk) -> Disk:
        """Rows after the checkpoint that is gone on from are dropped, in one commit."""
        return disk._replace(commits=disk.commits[: len(process.named)], finished=False)

    def is_leftover(self, file: PolicyFile, process: Process) -> bool:
        """A policy's file that the database does not name."""
        return file.aside or file.row[0] not in [number for number, _ in process.members]

    def spared(self, process: Process) -> tuple[Checkpoint, ...]:
        """The newest of the checkpoints that the database names stay."""
        return process.named[-self.keep :]

    def written(self, process: Process) -> Commit:
        """A commit has the rows since the last one, and its own checkpoint."""
        return Commit(process.coming, process.rows)

    def is_finished(self, process: Process) -> bool:
        return process.units == self.total

    def checked(self, copy: Copy) -> bool:
        """A copy is whole if it has every policy that its own database names, to the hash, and the newest checkpoint."""
        rows = {row for commit in copy.commits for row in commit.rows}
        return rows <= copy.files and (copy.checkpoint or not copy.commits)

    # ------------------------------------------------------------------------------------------ steps

    def steps(self, world: World) -> Iterator[tuple[Label, World]]:
        if not self._is_done(world):
            yield from self._harms(world)
            if not world.processes:
                yield ("start",), _begun(world)
        for at, process in enumerate(world.processes):
            for label, after, disk in self._of_process(process, world):
                processes = (*world.processes[:at], *([after] if after else []), *world.processes[at + 1 :])
                yield label, world._replace(processes=processes, disk=disk)
        if world.copy is not None and world.copy.phase == "copying":
            yield self._copying(world.copy, world)

    def _is_done(self, world: World) -> bool:
        """Whether the run is finished, or has no whole checkpoint left."""
        commits = world.disk.commits
        dead = bool(commits) and not any(self.is_usable(commit.checkpoint, world.disk) for commit in commits)
        return not world.processes and (world.disk.finished or dead)

    def _harms(self, world: World) -> Iterator[tuple[Label, World]]:
        disk = world.disk
        if world.kills < self.kills:
            for at in range(len(world.processes)):
                rest = (*world.processes[:at], *world.processes[at + 1 :])
                yield ("killed",), world._replace(processes=rest, kills=world.kills + 1)
            if self.power and world.processes:
                copy = None if world.copy is None or world.copy.phase == "copying" else world.copy
                for after in self._power_cuts(disk):
                    yield ("power cut",), World(after, (), world.sessions, world.kills + 1, *world[4:7], copy)
        if world.rivals < self.rivals and world.processes:
            yield ("rival",), _begun(world)._replace(rivals=world.rivals + 1)
        if world.damaged < self.damages and not world.processes and disk.commits:
            newest = disk.commits[-1].checkpoint
            folders = frozenset(f._replace(torn=f.torn or f.checkpoint == newest) for f in disk.folders)
            yield ("damage",), world._replace(disk=disk._replace(folders=folders), damaged=world.damaged + 1)
        if world.copies < self.copies and disk.created:
            yield ("copy begins",), world._replace(copies=world.copies + 1, copy=self._backup(disk, 1))

    def _power_cuts(self, disk: Disk) -> Iterator[Disk]:
        """Yield what may be left: everything that is not durable stays, is gone, or is torn."""
        names: list[list[tuple[PolicyFile | Folder, ...]]] = []
        for file in disk.policies:
            torn = file._replace(row=(file.row[0], TORN))
            names.append([(file,)] if file.durable else [(file,), (), (torn,)])
        for folder in disk.folders:
            torn_folder = folder._replace(torn=True)
            kept: list[tuple[PolicyFile | Folder, ...]] = [(folder,) if folder.flushed else (torn_folder,)]
            if not folder.durable:
                kept += [()] if folder.aside else [(folder._replace(aside=True),)]
            if not folder.flushed:
                kept.append((folder,))
            names.append(kept)
        for chosen in product(*names):
            things = [thing for group in chosen for thing in group]
            yield disk._replace(
                policies=frozenset(t for t in things if isinstance(t, PolicyFile)),
                folders=frozenset(t for t in things if isinstance(t, Folder)),
            )

    def _of_process(self, process: Process, world: World) -> Iterator[tuple[Label, Process | None, Disk]]:
        phase = process.phase
        if phase in ("read", "lock", "unchanged", "rewind"):
            yield from self._opening(process, world)
        elif phase in ("tidy", "clean"):
            yield from self._cleaning(process, world.disk)
        elif phase == "work":
            yield from self._working(process, world.disk)
        elif phase == "put":
            yield self._put(process, world.disk)
        else:
            yield from self._at_barrier(process, world.disk)

    # ------------------------------------------------------------------------------------------ a session begins

    def _opening(self, process: Process, world: World) -> Iterator[tuple[Label, Process | None, Disk]]:
        disk = world.disk
        if process.phase == "read":
            after = None if disk.finished else self._read(process, disk)
            yield ("read", after.number) if after else ("refused",), after, disk
        elif process.phase == "lock":
            if self.may_lock(world):
                yield ("lock",), process._replace(phase="unchanged", locked=True), disk
            else:
                yield ("refused",), None, disk
        elif process.phase == "unchanged":
            if self.is_unchanged(process, disk):
                yield ("unchanged",), process._replace(phase="rewind"), disk
            else:
                yield ("refused",), None, disk
        elif not disk.created:
            yield ("create",), process._replace(phase="work"), disk._replace(created=True)
        else:
            after_rewind = self.rewound(process, disk)
            recorded = disk.recorded if not process.lost else process.units  # what is damaged is done again
            yield ("rewind", process.number), process._replace(phase="tidy"), after_rewind._replace(recorded=recorded)

    def _read(self, process: Process, disk: Disk) -> Process | None:
        """Return the process with the newest checkpoint that is whole; None if it is refused."""
        commits = disk.commits
        whole = [k for k, commit in enumerate(commits) if self.is_usable(commit.checkpoint, disk)]
        if commits and not whole:
            return None
        named = tuple(commit.checkpoint for commit in commits[: whole[-1] + 1]) if whole else ()
        if not named:
            return process._replace(phase="lock")
        newest, lost = named[-1], len(commits) - len(named)
        files = {file.row for file in disk.policies if not file.aside}
        if not set(newest.members) <= files:
            return None
        return process._replace(
            phase="lock", named=named, units=newest.units, members=newest.members, number=newest.number, lost=lost
        )

    # ------------------------------------------------------------------------------------------ a session works

    def _working(self, process: Process, disk: Disk) -> Iterator[tuple[Label, Process | None, Disk]]:
        since = process.units - (process.named[-1].units if process.named else 0)
        if process.units < self.total:
            yield ("work",), process._replace(units=process.units + 1), disk
            file = PolicyFile((len(process.members), process.session))
            yield ("write policy", len(process.members)), process._replace(phase="put"), _with(disk, file)
        if since:
            yield ("barrier",), process._replace(phase=self.order[0], number=process.number + 1), disk
        elif self.is_finished(process):
            yield ("finish",), None, disk._replace(finished=True)

    def _put(self, process: Process, disk: Disk) -> tuple[Label, Process, Disk]:
        row = (len(process.members), process.session)
        files = frozenset(f for f in disk.policies if f.row[0] != row[0]) | {PolicyFile(row, aside=False)}
        after = process._replace(
            phase="work",
            units=process.units + 1,
            members=(*process.members, row),
            rows=(*process.rows, row),
            unsynced=process.unsynced | {row[0]},
        )
        return ("put", row[0]), after, disk._replace(policies=files)

    def _after(self, process: Process) -> Process:
        at = self.order.index(process.phase) + 1
        return process._replace(phase=self.order[at] if at < len(self.order) else "work")

    def _at_barrier(self, process: Process, disk: Disk) -> Iterator[tuple[Label, Process | None, Disk]]:
        phase, coming = process.phase, process.coming
        if phase == "sync":
            if not process.unsynced:
                yield ("synced",), self._after(process), disk
            for number in process.unsynced:
                files = frozenset(f._replace(durable=f.durable or f.row[0] == number) for f in disk.policies)
                left = process._replace(unsynced=process.unsynced - {number})
                yield ("sync", number), left, disk._replace(policies=files)
        elif phase == "write":
            folders = frozenset(f for f in disk.folders if not (f.aside and f.checkpoint == coming))
            yield ("write", coming.number), self._after(process), disk._replace(folders=folders | {Folder(coming)})
        elif phase == "commit":
            named = (*process.named, coming)
            done = self._after(process._replace(named=named, rows=()))
            commits = (*disk.commits, self.written(process))
            yield ("commit", coming.number), done, disk._replace(commits=commits, recorded=coming.units)
        else:
            changes = {"flush": {"flushed": True}, "rename": {"aside": False}, "fsync": {"durable": True}}[phase]
            folders = frozenset(f._replace(**changes) if f.checkpoint == coming else f for f in disk.folders)
            yield (phase, coming.number), self._after(process), disk._replace(folders=folders)

    def _cleaning(self, process: Process, disk: Disk) -> Iterator[tuple[Label, Process | None, Disk]]:
        spared, going = self.spared(process), False
        if process.phase == "tidy":
            for file in disk.policies:
                if self.is_leftover(file, process):
                    going = True
                    yield ("remove policy", file.row[0]), process, disk._replace(policies=disk.policies - {file})
        for folder in () if going else disk.folders:  # policies first
            if folder.aside or folder.checkpoint not in spared:
                going = True
                rest = disk._replace(folders=disk.folders - {folder})
                yield ("remove checkpoint", folder.checkpoint.number), process, rest
        if not going:
            after = process._replace(phase="work") if process.phase == "tidy" else self._after(process)
            yield ("tidied",), after, disk

    # ------------------------------------------------------------------------------------------ a copy

    def _backup(self, disk: Disk, attempts: int) -> Copy:
        return Copy("copying", attempts, disk.commits, left=tuple(row for c in disk.commits for row in c.rows))

    def _copying(self, copy: Copy, world: World) -> tuple[Label, World]:
        disk = world.disk
        if copy.left:
            number = copy.left[0][0]
            rows = frozenset(f.row for f in disk.policies if not f.aside and f.row[0] == number)
            after = copy._replace(files=copy.files | rows, left=copy.left[1:])
            return ("copy policy", number), world._replace(copy=after)
        if copy.commits and not copy.checkpoint and self.is_usable(copy.commits[-1].checkpoint, disk):
            return ("copy checkpoint",), world._replace(copy=copy._replace(checkpoint=True))
        if self.checked(copy):
            return ("copied",), world._replace(copy=copy._replace(phase="whole"))
        if copy.attempts < self.attempts:
            return ("copied again",), world._replace(copy=self._backup(disk, copy.attempts + 1))
        return ("copied in part",), world._replace(copy=copy._replace(phase="lacks"))

    # ------------------------------------------------------------------------------------------ invariants

    def flaw(self, world: World) -> str:
        return next(filter(None, self._flaws(world)), "")

    def _flaws(self, world: World) -> Iterator[str]:
        disk, damaged = world.disk, world.damaged
        named = tuple(commit.checkpoint for commit in disk.commits)
        durable = {file.row for file in disk.policies if not file.aside and file.durable}
        members: tuple[Row, ...] = ()
        for commit in disk.commits:
            members += commit.rows
            if members != commit.checkpoint.members:
                yield "rows and the checkpoint that covers them differ"
        if not set(members) <= durable:
            yield "the database names a policy that is not on the disk"
        if named and not damaged and not self._is_durable(disk)(named[-1]):
            yield "the database names a newest checkpoint that is not on the disk"
        if len(named) > damaged and self.keep > damaged and not any(map(self._is_durable(disk), named)):
            yield "no checkpoint is left"
        if (named[-1].units if named else 0) < disk.recorded:
            yield "something that was recorded is lost"
        yield from self._flaws_of_drivers(world, named)
        if self._is_done(world) and not damaged:
            yield self._leftover(disk)
        if world.copy is not None and world.copy.phase == "whole":
            yield self._bad_copy(world.copy)

    def _flaws_of_drivers(self, world: World, named: tuple[Checkpoint, ...]) -> Iterator[str]:
        if sum(process.locked for process in world.processes) > 1:
            yield "two drivers write"
        for process in world.processes:
            if process.phase in ("work", "put", *BARRIER) and process.named != named:
                yield "a driver goes on from something else than the last commit"
            opening = process.phase in ("read", "lock", "unchanged")  # what it has read may be old
            if process.named and not opening and not self._is_durable(world.disk)(process.named[-1]):
                yield "a driver goes on from a checkpoint that is not whole"

    def _is_durable(self, disk: Disk) -> Callable[[Checkpoint], bool]:
        durable = {f.checkpoint for f in disk.folders if f.durable and f.flushed and not f.aside and not f.torn}
        return durable.__contains__

    def _leftover(self, disk: Disk) -> str:
        named = [commit.checkpoint for commit in disk.commits][-self.keep :]
        if {file.row for file in disk.policies} != set(disk.commits[-1].checkpoint.members):
            return "a policy's file is left over"
        if sorted(folder.checkpoint for folder in disk.folders) != sorted(named):
            return "a checkpoint is left over, or is missing"
        return ""

    def _bad_copy(self, copy: Copy) -> str:
        rows = {row for commit in copy.commits for row in commit.rows}
        whole = rows <= copy.files and (copy.checkpoint or not copy.commits)
        return "" if whole else "a copy that is called whole lacks something"

    def is_over(self, world: World) -> bool:
        copying = world.copy is not None and world.copy.phase == "copying"
        return self._is_done(world) and not copying


def _begun(world: World) -> World:
    process = Process("read" if world.disk.created else "lock", world.sessions)
    return world._replace(processes=(*world.processes, process), sessions=world.sessions + 1)


def _with(disk: Disk, file: PolicyFile) -> Disk:
    return disk._replace(policies=disk.policies | {file})
