"""Threads inside numerical libraries: one, since most of Ludus's products are small and its parallelism lies between processes; in torch as
many as a run asks for, since learning from images is large."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


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
