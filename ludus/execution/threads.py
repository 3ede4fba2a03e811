"""Threads inside numerical libraries: one, since Ludus's products are small and its parallelism lies between processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def single_threaded(*, torch_too: bool) -> Iterator[None]:
    """While this is open, BLAS and OpenMP (and torch) use one thread; what the caller had comes back afterwards.

    torch_too: for torch as well, which is loaded for it; without, importing torch (seconds) is left to whoever needs it.
    """
    if not torch_too:
        with threadpool_limits(limits=1):
            yield
        return
    import scipy.linalg.cython_blas  # noqa: F401  Numba's products load its BLAS later, and a limit holds only for what is loaded
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(threads)
