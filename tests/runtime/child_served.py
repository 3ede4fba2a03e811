"""What child processes serve in tests."""

from __future__ import annotations

import ctypes
import gc
import os
import struct
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ludus.core.errors import Deadlock, UnknownName


class Own(Deadlock):
    """An error of a user's own."""


class Cannot:
    """Travels nowhere."""

    def __reduce__(self) -> Any:
        raise TypeError("cannot travel")


class Server:
    """Does what it is told, the worst included."""

    def __init__(self) -> None:
        self.closed = ""

    def echo(self, *values: Any) -> Any:
        return values

    def closes_by_writing(self, path: str) -> None:
        self.closed = path

    def length(self, descriptor: int) -> int:
        size = os.fstat(descriptor).st_size
        os.close(descriptor)
        return size

    def descriptors(self) -> int:
        return len(os.listdir("/proc/self/fd"))

    def fails(self, how: str) -> Any:
        if how == "own":
            raise Own("a limit")
        if how == "unknown":
            raise UnknownName("thing", "a", ["b"])
        if how == "value":
            raise ValueError("no good")
        if how == "quit":
            sys.exit("enough")
        return Cannot()

    def dies(self, how: str) -> None:
        if how == "exit":
            os._exit(3)
        if how == "abort":
            os.abort()
        if how == "orphan":  # which holds the socket
            if os.fork() == 0:
                time.sleep(1000)
            os._exit(3)

    def hangs(self, how: str) -> None:
        if how == "sleep":
            time.sleep(1000)
        if how == "deaf":  # in compiled code, with the interpreter's lock
            ctypes.PyDLL(None).sleep(1000)
        if how == "half":  # in the midst of a message
            (connection,) = (found for found in gc.get_objects() if type(found) is Connection)
            os.write(connection.fileno(), struct.pack("!i", 100) + bytes(50))
            time.sleep(1000)

    def starts(self) -> int:
        return subprocess.Popen(["sleep", "1000"]).pid

    def close(self) -> None:
        if self.closed:
            Path(self.closed).touch()


class NotMade:
    """Cannot be made."""

    def __init__(self) -> None:
        os._exit(7)

    def close(self) -> None:
        return None


class LateServer(Server):
    """Takes its time to be made."""

    def __init__(self) -> None:
        time.sleep(5.0)
        super().__init__()


class Short:
    """Cannot be made for want of threads."""

    def __init__(self) -> None:
        raise RuntimeError("can't start new thread")

    def close(self) -> None:
        pass
