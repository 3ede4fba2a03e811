"""This process's connection to Ray: a local Ray of its own that leaves nothing behind, or a cluster that is joined and left alone."""

from __future__ import annotations

import atexit
import contextlib
import glob
import logging
import math
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import ray
from ray._private.internal_api import get_memory_info_reply

from ludus.contrib.ray import ray_janitor
from ludus.core.errors import ResourceError, RunError, RuntimeDied
from ludus.core.machine import files_allowed, signals_handled
from ludus.runtime.activity import START_SILENCE, StartupSilence
from ludus.runtime.exceptions import THREADS

CPUS = 1000
"""Logical CPUs of a local Ray, where parts share the cores: Ray counts them only to say who must wait, and here nobody should."""
OBJECT_STORE = 2**30
"""Bytes of shared memory for values, before Ray spills them to disk."""
_LEAST_STORE = 80 << 20  # bytes that Ray asks for at least, and some
_SHARED = "/dev/shm"  # where it lies
_THREADS_STARTED, _THREADS_JOINED = 120, 24
"""Threads without which Ray neither starts nor can be joined. Ray 2.60 has 200 when it has started, 25 of them in the driver."""
_FILES = 32
"""Files without which nothing joins Ray. Ray 2.60 opens 27 in the driver, and 29 to 57 in each process of its own."""
_ADDRESSES = 600 << 20
"""Bytes of address space without which nothing joins Ray, the object store aside. Ray 2.60 takes 1,200 MiB."""
_CGROUP = Path("/sys/fs/cgroup")
_MAY_EXCEED = 1 << 21 | 1 << 24
"""Capabilities (SYS_ADMIN, SYS_RESOURCE) of processes that the limit of threads does not hold for."""
_VITAL = ("gcs_server", "raylet")
_LAST_LINES = 40
_HEAD_LOST = 20  # seconds without Ray's head after which Ray ends this process (a minute, unless told)
_LOOK = 0.5  # seconds between two looks at Ray's processes
_OWN_END = 5.0  # seconds that the driver has to end the run by itself once Ray has died; after 13 Ray would end the driver, without a word
DIED = 7
"""Exit code of a driver whose Ray has died."""
_FOLDER = (
    43  # bytes of the longest folder under which Ray's sockets keep to the 107 bytes that a socket's path may have
)


@dataclass(slots=True)
class Session:
    """A connection, and how many runtimes use it. The last one ends it, unless it was there before them.

    address: what was asked for. janitor: the process that cleans up behind a local Ray. death: the sentence about its death. over: it is
    being ended.
    """

    address: str | None
    users: int
    borrowed: bool
    janitor: subprocess.Popen[bytes] | None = None
    folder: str = ""
    death: str = ""
    over: threading.Event = field(default_factory=threading.Event)


_PRINTER = getattr(ray._private.worker, "print_to_stdstream", None)

_TAKES = "set_sigterm_handler"  # of Ray

_sessions: list[Session] = []  # none or one: Ray has one connection per process


def enter(
    *, address: str | None, cpus: float | None, gpus: float | None, object_store: int | None, verbose: bool
) -> Session:
    """Return the session of this process, which is made if there is none. Raises RunError if there is another one, or none can be had."""
    if not ray.is_initialized():
        _sessions.clear()
    else:
        connected_to = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", connected_to, *(session.address for session in _sessions)):
            raise RunError(f"this process is connected to Ray at {connected_to}, not at {address}.")
    if _sessions:
        _sessions[0].users += 1
        return _sessions[0]
    if ray.is_initialized():
        session = Session(address, users=1, borrowed=True)
    elif address is None:
        session = _start(cpus=cpus, gpus=gpus, object_store=object_store, verbose=verbose)
    else:
        session = _join(address, verbose=verbose)
    _sessions.append(session)
    return session


def leave(session: Session) -> None:
    """Count one runtime less. The last one disconnects, and ends a Ray that was started here with all of its processes and files."""
    session.users -= 1
    if session.users <= 0 and session in _sessions:
        _sessions.remove(session)
        _end(session)


def require_alive(session: Session) -> None:
    """Raise RuntimeDied if a Ray that was started here has lost a process without which it ends the driver some time later. A cluster's
    nodes say themselves what they lose."""
    if session.janitor is not None and not session.death:
        _look_for_death(session)
    if session.death:
        raise RuntimeDied(session.death)


def _look_for_death(session: Session) -> None:
    node = getattr(ray._private.worker, "_global_node", None)
    lost = [kind for kind, _ in node.dead_processes() if kind in _VITAL] if node is not None else []
    if lost:
        session.death = _death(f"its process {lost[0]} is gone. Was it killed, or memory short?")


def _death(cause: str) -> str:
    return f"the Ray of this run has died: {cause} What was committed is kept; `ludus resume` goes on from there."


def _watch(session: Session) -> None:
    """Notice that Ray has died, or stands still, also while the driver computes and asks for nothing. Ray ends a process soon afterwards,
    with pages of its own log or without a word: so a driver that has not ended by then is ended here, with one line."""
    node = getattr(ray._private.worker, "_global_node", None)
    processes = {} if node is None else node.all_processes
    silences = [StartupSilence(entry.process.pid, kind) for kind in _VITAL for entry in processes.get(kind, ())]
    while not session.over.wait(_LOOK):
        _look_for_death(session)
        stopped = [silence for silence in silences if silence.look()]
        if stopped and not session.death:
            session.death = _death(
                f"its process {stopped[0].name} has not run for {START_SILENCE:g} seconds. Is it stopped?"
            )
        if session.death:
            if not session.over.wait(_OWN_END):
                os.write(2, f"\nerror: {session.death}\n".encode())
                os._exit(DIED)
            return


def spilled(session: Session) -> int:
    """Return bytes that all nodes have written to disk so far, since their shared memory was full; 0 where Ray does not say. Raises
    RunError as `require_alive` does."""
    require_alive(session)
    with contextlib.suppress(Exception):
        reply: Any = get_memory_info_reply(ray._private.state.state, timeout_seconds=5.0)  # type: ignore[no-untyped-call]
        return int(reply.store_stats.spilled_bytes_total)
    return 0


def stderr_tail(session: Session, process: int) -> str:
    """Return what a process of a local Ray wrote to standard error at its end, the trace of a crash included; empty if nothing is known."""
    pattern = os.path.join(session.folder, "session_2*", "logs", f"worker-*-{process}.err")
    for file in glob.glob(pattern) if session.folder and process else ():
        with contextlib.suppress(OSError):
            lines = Path(file).read_text(errors="replace").splitlines()[-_LAST_LINES:]
            return "\n".join(["", "Its last words on standard error:", *lines])
    return ""


def kill(session: Session, process: int) -> None:
    """End a process of a local Ray that may be frozen, and would not obey Ray."""
    if session.folder and process and ray_janitor.belongs(str(process), session.folder):
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)


@atexit.register
def leave_all() -> None:
    """End all sessions, at the end of the process."""
    while _sessions:
        _end(_sessions.pop())


def threads_allowed() -> float:
    """Return how many threads more, of all processes, this user may start: by `ulimit -u` and the limit of the control group; inf: any."""
    allowed = math.inf
    for limit, use in (("pids.max", "pids.current"), ("pids/pids.max", "pids/pids.current")):  # version 2, version 1
        with contextlib.suppress(OSError, ValueError):
            allowed = min(allowed, int((_CGROUP / limit).read_text()) - int((_CGROUP / use).read_text()))
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft == resource.RLIM_INFINITY or os.getuid() == 0 or _capabilities() & _MAY_EXCEED:
        return allowed
    threads = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            threads += len(list((process / "task").iterdir())) if process.stat().st_uid == os.geteuid() else 0
    return min(allowed, soft - threads)


def _capabilities() -> int:
    return int(_status("CapEff", "0"), 16)


def _address_space() -> int:
    return int(_status("VmSize", "0")) << 10


def _status(name: str, default: str) -> str:
    """Return what the kernel says of this process."""
    with contextlib.suppress(OSError, StopIteration):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return next(line.split()[1] for line in status.splitlines() if line.startswith(f"{name}:"))
    return default


def _require_room(count: int, store: int) -> None:
    """Raise ResourceError where Ray cannot have its threads, files or address space: it would end this process, or wait for long and
    say nothing of it. store: bytes that this process maps of the object store."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and (left := soft - _address_space()) < store + _ADDRESSES:
        raise ResourceError(
            f"there is not enough memory: Ray needs {store + _ADDRESSES >> 20:,} MiB of address space at least, and `ulimit -v` leaves "
            f"{max(0, left) >> 20:,}. Have the limit raised, or use runtime.kind=processes."
        )
    in_use = Path("/proc/self/fd")
    files = files_allowed() - (len(list(in_use.iterdir())) if in_use.is_dir() else 0)
    if files < _FILES:
        raise ResourceError(
            f"too many files are open: Ray needs {_FILES} more at least, and this process may open {max(0, files)} (`ulimit -Hn`). "
            "Have the limit raised, or use runtime.kind=processes."
        )
    if (allowed := threads_allowed()) < count:
        raise ResourceError(
            f"no further thread or process can be started: Ray needs {count} at least, and this user may start {max(0, int(allowed))} more "
            "(`ulimit -u`, or the limit of the container). End other programs, have the limit raised, or use runtime.kind=processes."
        )


def _start(*, cpus: float | None, gpus: float | None, object_store: int | None, verbose: bool) -> Session:
    store = _store() if object_store is None else object_store
    _require_room(_THREADS_STARTED, store)
    folder = _short_folder()
    session = Session(None, users=1, borrowed=False, janitor=_janitor(folder), folder=folder)
    environment = {ray_janitor.MARK: folder, "RAY_USAGE_STATS_ENABLED": "0", **dict.fromkeys(THREADS, "1")}
    if not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ):
        environment["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # Ray listens on every interface
    try:
        with _environment(environment):
            _init(
                verbose,
                address="local",
                num_cpus=CPUS if cpus is None else cpus,
                num_gpus=gpus,
                object_store_memory=store,
                _temp_dir=folder,
                _system_config={"gcs_rpc_server_reconnect_timeout_s": _HEAD_LOST},
                include_dashboard=False,
            )
    except BaseException as error:  # Ctrl-C among them
        _end(session)
        if not isinstance(error, Exception):
            raise
        raise RunError(
            f"Ray could not be started on this machine: {' '.join(str(error).split())} Try again."
        ) from error
    threading.Thread(target=_watch, args=(session,), name="watch of Ray", daemon=True).start()
    return session


def _store() -> int:
    """Return bytes of the object store: as many as there is room for in shared memory, or Ray would take a slow folder on disk and say
    nothing."""
    try:
        shared_memory = os.statvfs(_SHARED)
    except OSError:
        return OBJECT_STORE
    free = int(0.9 * shared_memory.f_bavail * shared_memory.f_frsize)
    if free >= OBJECT_STORE:
        return OBJECT_STORE
    if free >= _LEAST_STORE:
        return free
    warnings.warn(
        f"{_SHARED} has room for {free >> 20} MiB: Ray's object store lies in a folder on disk, which is slow. In a container give it "
        "room (docker run --shm-size=8g).",
        stacklevel=2,
    )
    return OBJECT_STORE


def _join(address: str, *, verbose: bool) -> Session:
    _require_room(_THREADS_JOINED, 0)
    host, _, port = address.rpartition(":")
    try:
        if port.isdigit():
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()  # Ray would try for minutes
        with _environment({}):
            _init(verbose, address=address)
    except (OSError, RuntimeError, ValueError) as error:
        raise RunError(
            f"no Ray could be joined at {address!r}: {error}. Start one there with `ray start --head`, or leave the address out."
        ) from error
    return Session(address, users=1, borrowed=False)


def _init(verbose: bool, **options: Any) -> None:
    with _signals_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice about future versions
        read_token()
        ray.init(log_to_driver=verbose, logging_level=logging.INFO if verbose else logging.CRITICAL, **options)
    if not verbose:
        # Deaths would be printed to standard output, whatever log_to_driver says; here they are raised.
        _set_printer(lambda *_args, **_options: None)


def _set_printer(printer: Any) -> None:
    if _PRINTER is not None:
        ray._private.worker.print_to_stdstream = printer


def read_token() -> None:
    """Ray reads its mode and token once per process, when it is imported; the next cluster has others."""
    with contextlib.suppress(AttributeError):
        raylet: Any = ray._raylet
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()


def _end(session: Session) -> None:
    session.over.set()
    if not session.borrowed:
        _set_printer(_PRINTER)
        with contextlib.suppress(Exception):  # a Ray that is broken; the janitor ends it
            ray.shutdown()
        read_token()
    if session.janitor is not None and session.janitor.stdin is not None:
        session.janitor.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            session.janitor.wait(timeout=2 * ray_janitor.PATIENCE)


def _janitor(folder: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", ray_janitor.__file__, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # neither Ctrl-C nor the end of a terminal may reach it
        cwd="/",
    )


def _short_folder() -> str:
    usual = tempfile.gettempdir()
    base = usual if len(os.fsencode(os.path.join(usual, "ludus-12345678"))) <= _FOLDER else "/tmp"
    return tempfile.mkdtemp(prefix="ludus-", dir=base)


@contextlib.contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    """What Ray's processes are to inherit; afterwards the driver's own environment is as before, also where Ray wrote to it."""
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        for name, value in before.items():
            if os.environ.get(name) != value:
                os.environ[name] = value


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself; who stops a run is the run's business, also while Ray is starting. A Ctrl-C that is lost in a place
    where Python can raise nothing (`Exception ignored in ...`) is raised at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler, taking = signal.getsignal(signal.SIGTERM), getattr(ray._private.utils, _TAKES, None)
    if taking is not None:
        setattr(ray._private.utils, _TAKES, lambda _handler: None)
    try:
        with _interrupts_remembered():
            yield
    finally:
        if taking is not None:
            setattr(ray._private.utils, _TAKES, taking)
        if handler is not None:  # C code's, which Python cannot put back
            signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _interrupts_remembered() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end if one was to be raised within and was lost, or became another error: Ray's processes hear
    the same Ctrl-C, and end. Handlers other than Python's own stay."""
    usual = signal.default_int_handler
    if signal.getsignal(signal.SIGINT) is not usual:
        yield
        return
    heard = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        heard = True
        usual(number, frame)

    try:
        with signals_handled(remember, [signal.SIGINT]):
            yield
    except Exception as error:
        if heard:
            raise KeyboardInterrupt from error
        raise
    if heard:
        raise KeyboardInterrupt
