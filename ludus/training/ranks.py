"""Ranks in processes: sums through torch.distributed (gloo for arrays and CPU tensors, nccl for tensors on a GPU).

    rank 0      meeting = Meeting(host)                          a small store in its process, whose address the driver hands out
    every rank  group = ProcessGroup(meeting.address, rank=…, size=…)
                learner = algorithm.learner(LearnerContext(…, ranks=group), start)
                …  group.close();  rank 0: meeting.close()

The groups are their own: torch's default group is not touched, so a process may be in several. Between machines, gloo listens on the
interface that its host's name resolves to; GLOO_SOCKET_IFNAME names another.
"""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import distributed

from ludus.algorithms.ranks import share_of
from ludus.errors import RunError
from ludus.types import Array

__all__ = ["Meeting", "ProcessGroup"]

dist: Any = distributed  # much of it has no types
_LOCAL = ("127.0.0.1", "localhost")


class Meeting:
    """Where the ranks of one group find each other. It lives in rank 0's process and must outlive the group.

    host: a name or number of this machine by which the others reach it. port: 0 takes a free one.
    """

    def __init__(self, host: str = "127.0.0.1", *, port: int = 0) -> None:
        self._store: Any = None
        try:
            self._store = dist.TCPStore(host, port, None, True, wait_for_workers=False)
        except (RuntimeError, ValueError) as error:
            raise RunError(
                f"ranks cannot meet at {host}:{port}: {_first_line(error)} Give a free port, or 0."
            ) from error
        self.address = f"{host}:{self._store.port}"

    def close(self) -> None:
        """Stop listening. Closing twice is harmless."""
        self._store = None


class ProcessGroup:
    """`Ranks` in processes. Making one waits until all of them are there.

    address: of a `Meeting`, or `file:///path` of a file that does not exist yet and that all ranks see (it stays behind).
    timeout: seconds that it waits for the others, now and in each sum; the slowest rank's share of an update must fit into it.
    name: tells groups apart that meet at one address; a group that takes the place of a broken one there needs a name of its own, too.
    Raises RunError if they do not come.
    """

    def __init__(self, address: str, *, rank: int, size: int, timeout: float = 60.0, name: str = "") -> None:
        if not 0 <= rank < size:
            raise RunError(f"rank {rank} of {size}: ranks are numbered from 0 to {size - 1}.")
        self.rank, self.size, self._seconds = rank, size, timeout
        self._timeout = timedelta(seconds=timeout)
        self._closed = False
        self._nccl: Any = None
        try:
            self._store: Any = dist.PrefixStore(f"ludus/{name}", self._join(address))
            self._gloo: Any = self._make_gloo(address)
        except (RuntimeError, ValueError) as error:
            raise RunError(
                f"rank {rank} of {size} met not all others at {address} within {timeout:g} s: {_first_line(error)} Are they all started, "
                "with this address, and can they reach it?"
            ) from error

    def share(self, count: int) -> slice:
        """See `Ranks.share`."""
        return share_of(count, rank=self.rank, size=self.size)

    def sum(self, array: Array | torch.Tensor) -> None:
        """See `Ranks.sum`."""
        if self._closed:
            raise RunError(f"rank {self.rank} of {self.size} has left its group; make a new one.")
        tensor = torch.from_numpy(array) if isinstance(array, np.ndarray) else array
        group = self._gloo if tensor.device.type == "cpu" else self._on_gpu()
        try:
            done = group.allreduce([tensor]).wait(self._timeout)
        except RuntimeError as error:
            raise self._broken(_first_line(error)) from error
        if done is False:
            raise self._broken("the sum was given up.")

    def close(self) -> None:
        """Leave; the others' next sum fails. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            for group in (self._gloo, self._nccl):
                if group is not None:
                    group.shutdown()
            self._gloo = self._nccl = self._store = None

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _join(self, address: str) -> Any:
        if address.startswith("file://"):
            store = dist.FileStore(address.removeprefix("file://"), self.size)
            store.set_timeout(self._timeout)
            return store
        host, found, port = address.rpartition(":")
        if not (found and port.isdecimal()):
            raise RunError(f"ranks meet at {address!r}; expected HOST:PORT of a Meeting, or file:///PATH.")
        return dist.TCPStore(host, int(port), None, False, timeout=self._timeout, wait_for_workers=False)

    def _make_gloo(self, address: str) -> Any:
        backend = dist.ProcessGroupGloo
        options = backend._Options()
        options._timeout = self._timeout
        local = address.rpartition(":")[0] in _LOCAL  # whose sockets nobody else need reach
        options._devices = [backend.create_device(hostname=_LOCAL[0]) if local else backend.create_default_device()]
        return backend(self._store, self.rank, self.size, options)

    def _on_gpu(self) -> Any:
        if self._nccl is None:
            backend = getattr(dist, "ProcessGroupNCCL", None)
            if backend is None:
                raise RunError(
                    "a tensor on a GPU is to be summed, and this torch has no NCCL; install one that has, or train on CPUs."
                )
            options = backend.Options()
            options._timeout = self._timeout
            self._nccl = backend(dist.PrefixStore("nccl", self._store), self.rank, self.size, options)
        return self._nccl

    def _broken(self, why: str) -> RunError:
        return RunError(
            f"rank {self.rank} of {self.size}: another rank died, left, or did not come to a sum within {self._seconds:g} s ({why}) The "
            "group is of no more use; end the other ranks too, and go on from the last checkpoint with a new one."
        )


def _first_line(error: BaseException) -> str:
    """The message without torch's trace of its own sources."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].rpartition("] ")[2][:200].rstrip(".") + "."
