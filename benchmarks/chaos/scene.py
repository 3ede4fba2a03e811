"""A run in a folder of its own: how commands are started in it, watched from outside, and what they leave behind.

    FOLDER/work    where commands run; the run is `run` in it
    FOLDER/t       temporary files (TMPDIR); short, since Ray's sockets lie below
    FOLDER/parts   a file NAME.PID for every part
    FOLDER/log     what was done, a line each

Where the machine allows it (root, namespaces), commands have a file system of their own, in which /dev/shm and /tmp are theirs alone and
disks can be made small or read-only.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from benchmarks.chaos.forks import Fork, Forks
from benchmarks.faults_processes import environment_of, is_alive, living, program_of, title_of
from benchmarks.machine import ROOT

MARK = "LUDUS_CHAOS"
PLACE = "/var/tmp"
QUIET = {"RAY_memory_monitor_refresh_ms": "0", "RAY_worker_niceness": "0"}
"""Settings of Ray: what else the machine does is no harm. It would end workers where memory is short, and run them after all others."""
LOOK = 0.02  # seconds between two looks
CLEANING = 15.0
"""Seconds in which an ended command must have cleaned up behind it; the janitor of Ray needs some."""
_SHM = 256  # MB of shared memory


@cache
def namespaces() -> str:
    """Return why commands cannot have a file system of their own here; "" where they can."""
    try:
        done = subprocess.run(
            ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/dev/shm"], capture_output=True, text=True
        )
    except OSError as error:
        return f"unshare: {error.strerror}"
    return "" if done.returncode == 0 else f"unshare: {done.stderr.strip()[:100]}"


@cache
def own_places() -> tuple[str, ...]:
    """Return the folders that commands have for themselves: those in which neither this tree nor its interpreter lies."""
    needed = [Path(folder).resolve() for folder in (ROOT, sys.prefix, sys.base_prefix, PLACE)]
    return tuple(place for place in ("/dev/shm", "/tmp") if not any(folder.is_relative_to(place) for folder in needed))


@dataclass
class Command:
    """A command that was started. begun, ended: seconds of the monotonic clock."""

    line: tuple[str, ...]
    process: subprocess.Popen[bytes] | Fork
    out: Path
    err: Path
    begun: float
    ended: float | None = None

    @property
    def code(self) -> int | None:
        """Exit code, negative for a signal; None while it goes on."""
        code = self.process.poll()
        if code is not None and self.ended is None:
            self.ended = time.monotonic()
        return code

    @property
    def seconds(self) -> float:
        """How long it took, or takes so far."""
        return (self.ended or time.monotonic()) - self.begun

    def errors(self) -> str:
        """What it wrote on standard error."""
        return self.err.read_text(errors="replace")

    def output(self) -> str:
        """What it wrote on standard output."""
        return self.out.read_text(errors="replace")


@dataclass
class Watch:
    """Counts changes of a directory by looking at it. times: of the last change, in seconds of the monotonic clock."""

    folder: Path
    changes: int = 0
    last: float = 0.0
    _state: tuple[object, ...] = field(default=())

    def look(self) -> int:
        """Return how many changes there were so far."""
        state = tuple(_entries(self.folder))
        if state != self._state:
            self.changes += 1
            self.last = time.monotonic()
            self._state = state
        return self.changes


def _entries(folder: Path) -> Iterator[tuple[str, int, int]]:
    with contextlib.suppress(OSError):
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    yield from _entries(Path(entry.path))
                elif not entry.name.endswith("-shm"):  # readers touch it
                    status = entry.stat()
                    yield entry.path, status.st_size, status.st_mtime_ns


class Scene:
    """A folder with its commands. Close it at the end: whatever still runs is killed, and the folder removed."""

    def __init__(self, folder: Path, home: Path, forks: Forks | None = None) -> None:
        """home: of all scenes, HOME of commands. forks: what commands are forks of; None: they are started anew."""
        self.folder, self.home, self.forks = folder, home, forks
        self.work, self.temporary, self.parts = folder / "work", folder / "t", folder / "parts"
        for made in (self.work, self.temporary, self.parts, home):
            made.mkdir(parents=True, exist_ok=True)
        self.commands: list[Command] = []
        self.wrap: tuple[str, ...] = ()
        self.closers: list[Callable[[], None]] = []
        self.changes: tuple[str, ...] = ()
        self.begun = time.monotonic()
        _OPEN.append(self)
        self._holder: subprocess.Popen[bytes] | None = None
        self._disk = False

    def disk(self, kilobytes: int) -> None:
        """Give `work` a file system of its own, before the first command starts."""
        assert self._holder is None
        self.mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(self.work))
        self._disk = True

    def shared_memory(self, kilobytes: int) -> None:
        """Change the size of the shared memory of the commands."""
        self.hold()
        self.enter("mount", "-o", f"remount,size={kilobytes}k", "/dev/shm")

    @staticmethod
    def mount(*options: str, check: bool = True) -> bool:
        """Mount as `mount` does, and return whether it could be done."""
        return subprocess.run(["mount", *options], check=check, capture_output=True).returncode == 0

    def hold(self) -> None:
        """Keep a mount namespace open as long as the scene lasts, where that is allowed."""
        if self._holder is not None or namespaces():
            return
        mounts = [f"mount -t tmpfs -o size={_SHM}m none {place}" for place in own_places()]
        mount = " && ".join([*mounts, "echo ready", "exec sleep infinity"])
        self._holder = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", mount], stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"ready\n":
            raise RuntimeError("a namespace could not be made")

    # ------------------------------------------------------------------------------------------------ commands

    @property
    def run_dir(self) -> Path:
        """The run."""
        return self.work / "run"

    @property
    def prefix(self) -> list[str]:
        return [] if self._holder is None else ["nsenter", "-t", str(self._holder.pid), "-m", "--"]

    def enter(self, *line: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program in the file system of the commands, such as `mount`."""
        return subprocess.run([*self.prefix, *line], check=check, capture_output=True, text=True)

    def start(
        self, *line: str, wrap: Sequence[str] = (), environment: Mapping[str, str] | None = None, anew: bool = False
    ) -> Command:
        """Start `ludus` with these arguments, in `work`.

        Args:
            line: Its arguments.
            wrap: Programs that set limits and then become the command, such as `prlimit`.
            environment: Variables for this command only.
            anew: As a new interpreter, which imports Ludus; so it is always with limits or libraries.
        """
        self.hold()
        number = len(self.commands)
        out, err = self.folder / f"out{number}", self.folder / f"err{number}"
        variables = self._environment(environment or {})
        process: subprocess.Popen[bytes] | Fork
        if self.forks is None or anew or wrap or self.wrap or "LD_PRELOAD" in variables:
            prefix = [*self.prefix, "env", "-C", str(self.work), *self.wrap, *wrap]
            full = [*prefix, sys.executable, "-m", "benchmarks.chaos.command", str(self.parts), *line]
            with out.open("wb") as stdout, err.open("wb") as stderr:
                process = subprocess.Popen(
                    full, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=variables, start_new_session=True
                )
        else:
            out.touch()
            err.touch()
            process = self.forks.start(
                line,
                holder=self._holder.pid if self._holder else 0,
                cwd=self.work,
                environment=variables,
                parts=self.parts,
                out=out,
                err=err,
            )
        command = Command(line, process, out, err, time.monotonic())
        self.commands.append(command)
        self.log(f"$ {' '.join([*wrap, 'ludus', *line])} [{process.pid}]")
        return command

    def run(self, *line: str, within: float, **options: object) -> Command:
        """Start a command and wait for its end; kill it after `within` seconds, which leaves its code at -9."""
        command = self.start(*line, **options)  # type: ignore[arg-type]
        self.wait(command, within)
        return command

    def wait(self, command: Command, within: float, *, until: Callable[[], object] = lambda: False) -> bool:
        """Wait until a command has ended (True) or something holds (False); after `within` seconds it is killed."""
        end = time.monotonic() + within
        while command.code is None:
            if until():
                return False
            if time.monotonic() > end:
                self.log(f"{command.process.pid} did not end within {within:.0f} s and is killed")
                self.kill_all()
                command.process.wait()
                return command.code is not None
            time.sleep(LOOK)
        self.log(f"{command.process.pid} ended with {command.code} after {command.seconds:.1f} s")
        return True

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        own = {
            MARK: str(self.folder),
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "RAY_AUTH_MODE": "disabled",
            **QUIET,
            "COLUMNS": "200",
        }
        return {**os.environ, **own, **more}

    # ------------------------------------------------------------------------------------------------ processes

    def processes(self) -> list[int]:
        """Ids of all living processes that commands have started, themselves included."""
        mark = f"{MARK}={self.folder}".encode()
        own = {
            command.process.pid for command in self.commands if command.code is None
        }  # a fork shows another's variables
        return [process for process in living() if process in own or mark in environment_of(process)]

    def announced(self) -> list[int]:
        """Return the ids of the living processes that parts have said they are in, those on the nodes of a cluster included."""
        return [process for path in self.parts.glob("*.*") if is_alive(process := int(path.name.rpartition(".")[2]))]

    def roles(self, command: Command) -> dict[str, list[int]]:
        """Return the living processes of a command but its own, by what they do."""
        names: dict[int, str] = {}
        for path in self.parts.glob("*.*"):
            name, _, number = path.name.rpartition(".")
            names[int(number)] = name
        roles: dict[str, list[int]] = {}
        for process in sorted({*self.processes(), *self.announced()}):
            if process != command.process.pid and process not in [other.process.pid for other in self.commands]:
                role = names.get(process) or _role(process)
                roles.setdefault(role, []).append(process)
        return roles

    def kill_all(self) -> None:
        """End every process of the scene."""
        for _ in range(3):
            for process in {*self.processes(), *self.announced()}:
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(LOOK)

    # ------------------------------------------------------------------------------------------------ afterwards

    def log(self, text: str) -> None:
        """Write down what was done."""
        with (self.folder / "log").open("a") as file:
            file.write(f"{time.monotonic() - self.begun:8.2f}  {text}\n")

    def leftovers(self, *, within: float = CLEANING) -> list[str]:
        """Return what ended commands have left: processes, shared memory, temporary files, files beside the run."""
        end = time.monotonic() + within
        while (left := list(self._leftovers())) and time.monotonic() < end:
            time.sleep(5 * LOOK)
        return left

    def _leftovers(self) -> Iterator[str]:
        beside = {command.process.pid for command in self.commands if command.code is None}
        processes = {*self.processes(), *self.announced()} - beside
        yield from (f"process {title_of(process)}" for process in processes if is_alive(process))
        temporary = {path.name for path in self.temporary.iterdir()} - _PACKAGES
        yield from (f"temporary file {name}" for name in sorted(temporary))
        if self._holder is not None and not beside and not self.wrap:  # nodes of a cluster keep theirs
            for place in own_places():
                entries = Path(f"/proc/{self._holder.pid}/root{place}").iterdir()
                yield from (f"{place}/{path.name}" for path in entries if path.name not in _PACKAGES)

    def close(self, *, keep: bool = False) -> None:
        """End everything. keep: leave the folder, to look at."""
        self.kill_all()
        if self in _OPEN:
            _OPEN.remove(self)
        for close in self.closers:
            close()
        if self._disk:
            if keep:
                shutil.copytree(self.work, self.folder / "disk", dirs_exist_ok=True)
            subprocess.run(["umount", "-l", str(self.work)], check=False)
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
            assert self._holder.stdout is not None
            self._holder.stdout.close()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


_PACKAGES = {"envpool-jumanji-matplotlib", f"torchinductor_{getpass.getuser()}"}
"""What other packages leave among temporary files, harm or not: their caches."""
_OPEN: list[Scene] = []
ENDING = threading.Event()
"""Whether the campaign ends: what becomes of its cases from here on is its own doing."""


def end_all(number: int, _: object) -> None:
    """End all scenes and this process, as the handler of a signal."""
    ENDING.set()
    for scene in list(_OPEN):
        scene.close()
    os._exit(128 + number)


def _role(process: int) -> str:
    title = Path(f"/proc/{process}/cmdline")
    with contextlib.suppress(OSError):
        words = title.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        for word, role in _ROLES.items():
            if word in words:
                return role
    return program_of(process) or "child"


_ROLES = {
    "fork_server": "fork-server",
    "resource_tracker": "tracker",
    "raylet": "raylet",
    "gcs_server": "gcs",
    "janitor": "janitor",
    "ray::": "ray-worker",
    "child_process": "child",
    "bot": "child",
}
"""A word of a command line -> what the process does."""
