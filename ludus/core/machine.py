"""What Ludus asks of the machine it runs on: its cores, freed memory, and the threads of numerical libraries."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import threadpool_limits

# --------------------------------------------------------------------------------------------------------------------
# The processor's cores.


def cores() -> int:
    """On how many this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --------------------------------------------------------------------------------------------------------------------
# How the C library keeps the memory that torch frees.

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)
_MIB = 1 << 20


@cache
def keep_freed_memory() -> bool:
    """From now on, this process keeps what was freed, up to 1 GiB at the end of its heap, where glibc would return it to the system at once
    and take it back page by page: learning from images frees and asks for the same tens of megabytes with every minibatch. Does nothing,
    and answers False, without glibc. Processes that only play have no need of it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    # What is larger than the last number still has a mapping of its own, which is returned: tables and the like. It is the largest that
    # is taken.
    settings = ((_TRIM_THRESHOLD, 1024 * _MIB), (_TOP_PAD, 64 * _MIB), (_MMAP_THRESHOLD, 32 * _MIB))
    return all([mallopt(option, value) == 1 for option, value in settings])


# --------------------------------------------------------------------------------------------------------------------
# Threads inside numerical libraries: one, since most of Ludus's products are small and its parallelism lies between
# processes; in torch as many as a run asks for, since learning from images is large.


@contextmanager
def thread_limits(*, torch_threads: int | None) -> Iterator[None]:
    """While this is open, BLAS and OpenMP use one thread and torch `torch_threads`; what the caller had comes back afterwards.

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
