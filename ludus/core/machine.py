"""What Ludus asks of the machine it runs on: its cores, files that are open at once and files that a kill leaves whole, memory that was
freed or is not enough, signals, threads of numerical libraries, and that torch repeats itself to the bit."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, wraps
from pathlib import Path
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import threadpool_limits

from ludus.core.errors import ConfigError

# --------------------------------------------------------------------------------------------------------------------
# The processor's cores.


def available_cpus() -> int:
    """Return the number of CPUs on which this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --------------------------------------------------------------------------------------------------------------------
# Memory that is free.

_CGROUPS = (  # limit, use: of version 2, and of version 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def free_memory() -> int | None:
    """Return bytes that this process may still take: what Linux calls available, or less where a container has a limit. None where the
    system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        free = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    for limit, use in _CGROUPS:
        try:
            with open(limit, encoding="ascii") as most, open(use, encoding="ascii") as now:
                free = min(free, max(0, int(most.read()) - int(now.read())))
        except (OSError, ValueError):  # there is none, or "max"
            continue
    return free


# --------------------------------------------------------------------------------------------------------------------
# What this process and those that it has started take.

_TICK, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def resources_in_use() -> dict[str, float]:
    """Return `processor_seconds` so far, and `memory` in bytes, of this process and of its descendants, those that have ended included;
    where torch uses a GPU, also `gpu_memory`, the bytes that this process has reserved there, and `gpu_share`, the share of time in which
    the GPU was busy, where NVIDIA's library can be asked. Without /proc, of this process alone."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    memory, pids = _resident("self"), _children("self")
    while pids:
        pid = pids.pop()
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                ticks = file.read().rpartition(")")[2].split()[11:15]
        except OSError:  # it has just ended
            continue
        seconds += sum(map(int, ticks)) / _TICK
        memory += _resident(pid)
        pids += _children(pid)
    return {"processor_seconds": seconds, "memory": memory, **_gpu_in_use()}


def _children(pid: str) -> list[str]:
    children: list[str] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            children += task.read_text(encoding="ascii").split()
    return children


def _resident(pid: str) -> float:
    """Return bytes of memory that a process has; 0 where that is not known."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return float(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0.0


def _gpu_in_use() -> dict[str, float]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    usage = {"gpu_memory": float(torch.cuda.memory_reserved())}
    with suppress(ImportError, RuntimeError):  # without pynvml, or where it may not ask
        usage["gpu_share"] = torch.cuda.utilization() / 100
    return usage


# --------------------------------------------------------------------------------------------------------------------
# Files that are open at once.

_FILES = 1 << 16


def raise_file_limit() -> None:
    """Raise the limit of open files to as many as this process may have, up to 65,536: the usual 1,024 are few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_standard_files() -> None:
    """Open standard input or output where these are closed, as daemons may leave them, so that no other file takes their place."""
    while (free := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(free, True)
    os.close(free)


def files_allowed() -> int:
    """Return how many descriptors this process may have, up to 65,536, as `raise_file_limit` gives it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _FILES if resource.RLIM_INFINITY in (soft, hard) else min(_FILES, max(soft, hard))


def files_to_keep() -> int:
    """Return how many of them a cache may hold open: an eighth."""
    return files_allowed() // 8


def why_no_processes() -> str:
    """Return what this system lacks of what parts in processes of their own are made of; "": nothing."""
    if sys.platform != "linux":
        return f"this is {sys.platform}: processes share memory as only Linux does"
    try:
        os.close(os.pidfd_open(os.getpid()))
        os.close(os.memfd_create("ludus"))
    except (AttributeError, OSError) as error:
        return f"this Linux lacks what they need ({error}): it wants a kernel from 5.3 on, and a sandbox that lets them through"
    return ""


# --------------------------------------------------------------------------------------------------------------------
# Signals that ask a run to stop.


@contextmanager
def signals_handled(handler: Callable[[int, FrameType | None], None], numbers: Iterable[int]) -> Iterator[None]:
    """While this is open, `handler` hears these signals; then what did before does again, whatever it was: a process inherits ignored
    signals from a shell's script (SIGINT with &), nohup (SIGHUP) or a batch system. In the main thread only.

    Args:
        handler: As for `signal.signal`.
        numbers: Of the signals. One whose handler is C code's, which Python cannot put back, stays with that.
    """
    previous = {number: signal.getsignal(number) for number in numbers}
    ours = {number: before for number, before in previous.items() if before is not None}
    try:
        for number in ours:
            signal.signal(number, handler)
        yield
    finally:
        for number, before in ours.items():
            signal.signal(number, before)


CLOSING = 10.0
"""Seconds that an environment may take to close."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError inside of the block after `seconds`, where this is the main thread; compiled code that does not return is not
    reached. The alarm that was set before goes on."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGALRM) is None:
        yield
        return

    def ring(*_: Any) -> None:
        raise TimeoutError(f"it had not returned after {seconds:g} seconds")

    handler, (left, every) = signal.signal(signal.SIGALRM, ring), signal.setitimer(signal.ITIMER_REAL, seconds)
    begun = time.monotonic()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, left - (time.monotonic() - begun)), every)


def ignore_termination_signals() -> None:
    """Ignore signals that ask this process to end, from now on. For processes that a driver ends: systemd and batch systems send SIGTERM to
    all of a run's processes at once, or SIGUSR1 before it, and a driver that finds its parts gone cannot stop as it was asked to. What is
    forked from here does the same; programs that are started do not (a handler, unlike SIG_IGN, is not kept by exec)."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)


# --------------------------------------------------------------------------------------------------------------------
# Where Python keeps the frames of its calls: in pieces of 16 KB. Up to 3.12, and in the first releases after it, a loop whose calls cross
# the end of a piece maps a new one for each call and gives it back (python/cpython#142183): 4 µs, by the luck of the depth. A run's kernels
# took a fifth longer to compile for it.

_CLAIMED = 1 << 17  # entries: more than 1 MiB, so that the piece has 2
_P = ParamSpec("_P")
_T = TypeVar("_T")


def reserve_stack(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return the same, in a frame that claims so much that what it calls finds another MiB behind it. None of this memory is touched. For
    what a process or a thread does first; other threads have room of their own."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace(co_stacksize=_CLAIMED)  # type: ignore[attr-defined]
    return call


# --------------------------------------------------------------------------------------------------------------------
# How the C library keeps the memory that is freed.

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8  # of mallopt(3)
_MIB = 1 << 20


@cache
def keep_freed_memory() -> bool:
    """Keep what was freed, from now on, up to 1 GiB at the end of its heap, where glibc would return it to the system at once and take it
    back page by page: learning from images frees and asks for the same tens of megabytes with every minibatch. Does nothing, and answers
    False, without glibc. Processes that only play have no need of it."""
    # What is larger than the last number still has a mapping of its own, which is returned: tables and the like. It is the largest that
    # is taken.
    return _set_malloc((_TRIM_THRESHOLD, 1024 * _MIB), (_TOP_PAD, 64 * _MIB), (_MMAP_THRESHOLD, 32 * _MIB))


@cache
def return_freed_memory() -> bool:
    """Return what was freed to the system, from now on, where it was a megabyte or more, and have at most two heaps: for a process that
    serves for days, and computes large tables now and then. By itself glibc keeps blocks of up to 32 MiB once some were freed, and gives
    each thread a heap. Does nothing, and answers False, without glibc."""
    return _set_malloc((_MMAP_THRESHOLD, _MIB), (_ARENA_MAX, 2))


def trim_memory() -> None:
    """Return to the system what lies free within the heaps of this process; it takes about a millisecond. Does nothing without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _set_malloc(*settings: tuple[int, int]) -> bool:
    """Return whether glibc has taken all of (option, value)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return mallopt is not None and all([mallopt(option, value) == 1 for option, value in settings])


# --------------------------------------------------------------------------------------------------------------------
# A device's memory that is not enough.

_FULL = re.compile(
    r"out of memory|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED|not enough memory: you tried|can't allocate memory",
    re.IGNORECASE,
)
_DETAILS = re.compile(
    r" (Including non-PyTorch|Of the allocated|Process \d+ has|See documentation|If reserved)", re.IGNORECASE
)


def out_of_memory(error: BaseException) -> str | None:
    """Return what torch says of it, in one line (on a GPU: what was asked for, and how much of how much was free), where this error or
    what caused it is that a device, or the host, has no room for a tensor; None where it is something else. What the calls that failed held
    is let go, and given back to the GPU, which others may share."""
    torch: Any = sys.modules.get("torch")  # a process that has not loaded it has not run out of its memory
    at: BaseException | None = error if torch is not None else None
    while at is not None:
        text = " ".join(str(at).split())
        if isinstance(at, torch.OutOfMemoryError) or (isinstance(at, RuntimeError) and _FULL.search(text)):
            _let_go(error, torch)
            return _DETAILS.split(text)[0].rstrip(". ") or "out of memory"
        at = at.__cause__
    return None


def _let_go(error: BaseException | None, torch: Any) -> None:
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


# --------------------------------------------------------------------------------------------------------------------
# Threads inside numerical libraries: one, since most of Ludus's products are small and its parallelism lies between
# processes; in torch as many as a run asks for, since learning from images is large.


@contextmanager
def thread_limits(*, torch_threads: int | None) -> Iterator[None]:
    """Use one thread for BLAS and OpenMP and `torch_threads` for torch inside of the block; the caller's limits come back afterwards.

    torch_threads: None leaves importing torch (seconds) to whoever needs it.
    """
    if torch_threads is None:
        with threadpool_limits(limits=1):
            yield
        return
    import scipy.linalg.cython_blas  # noqa: F401  Numba's products load its BLAS later, and a limit holds only for what is loaded
    import torch

    before = torch.get_num_threads()
    try:
        with threadpool_limits(limits=1):
            torch.set_num_threads(torch_threads)  # within: its OpenMP is one of those that have just been limited
            yield
    finally:
        torch.set_num_threads(before)


# --------------------------------------------------------------------------------------------------------------------
# The same bits from the same products and sums. On a CPU torch gives them anyway, with as many threads. On a GPU some
# kernels add up in whatever order threads come; cuBLAS and cuDNN choose algorithms by the time they take.

_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_WORKSPACES = (":4096:8", ":16:8")  # with which cuBLAS repeats itself
_NO_KERNEL = "does not have a deterministic implementation"


@contextmanager
def deterministic_algorithms(wanted: bool) -> Iterator[None]:
    """While this is open, and if it is wanted, torch computes by kernels that repeat themselves to the bit on one kind of GPU; how it was
    comes back afterwards. Raises ConfigError where CUDA has started already, and cannot be told any more; and for what torch has no such
    kernel for."""
    if not wanted:
        yield
        return
    import torch

    cudnn = torch.backends.cudnn
    memory: Any = torch.utils.deterministic  # has no types for what it takes
    workspace = os.environ.get(_WORKSPACE)
    if workspace not in _WORKSPACES and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise ConfigError(
            f"runtime.deterministic was given, and this process has used a GPU before, without {_WORKSPACE}. Start Python with "
            f"{_WORKSPACE}={_WORKSPACES[0]}."
        )
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    others = cudnn.benchmark, cudnn.deterministic, memory.fill_uninitialized_memory
    try:
        if workspace not in _WORKSPACES:
            os.environ[_WORKSPACE] = _WORKSPACES[0]
        torch.use_deterministic_algorithms(True)
        cudnn.benchmark, cudnn.deterministic, memory.fill_uninitialized_memory = False, True, False
        yield
    except RuntimeError as error:
        if _NO_KERNEL not in (text := str(error)):
            raise
        raise ConfigError(
            f"runtime.deterministic was given, and {text.split(_NO_KERNEL)[0].strip()} has no kernel on this device that repeats itself to "
            "the bit. Leave it out, use another network, or device=cpu."
        ) from error
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        cudnn.benchmark, cudnn.deterministic, memory.fill_uninitialized_memory = others
        if workspace is None:
            os.environ.pop(_WORKSPACE, None)
        else:
            os.environ[_WORKSPACE] = workspace


# --------------------------------------------------------------------------------------------------------------------
# Files that a kill leaves whole: written aside, flushed to the disk, renamed.


_FOLDERS = re.compile(r"""(?<![\w.~@-])~?(?:/[^\s/'",:;()]+)+/(?=[^\s/'",:;()])""")


def redact_paths(text: str) -> str:
    """Return a message with files' names alone, for people on other machines, whom it is not to tell where things lie on this one."""
    return _FOLDERS.sub("", text)


def check_place(path: Path) -> None:
    """Check what can be known of a file before there is anything to write. Raises ConfigError for a folder that there is not, or into which
    nothing can be written, and for a folder in the file's place."""
    if not path.parent.is_dir():
        raise ConfigError(f"{str(path)!r} was given; there is no folder {str(path.parent)!r}.")
    if path.is_dir():
        raise ConfigError(f"{str(path)!r} was given, which is a folder; name a file.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{str(path)!r} cannot be written: nothing can be written into {str(path.parent)!r}. Name a file elsewhere."
        )


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Put new content in the place of a file: a kill leaves the old or the new one. durable=False leaves the flushing to the caller."""
    write_file(temporary_path(path), content, durable=durable)
    atomic_replace(path, durable=durable)


def temporary_path(path: Path) -> Path:
    """Return where the next content of a file waits for `atomic_replace`."""
    return path.with_name(f".{path.name}.part")


def atomic_replace(path: Path, *, durable: bool = True) -> None:
    """Replace the file: the second half of `replace_file`."""
    os.replace(temporary_path(path), path)
    if durable:
        sync(path.parent)


def write_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a new file."""
    with path.open("wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
