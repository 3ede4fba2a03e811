"""What runs in the process of a part: it makes the part, and answers what it is asked. Nothing heavy is imported here; a part brings what
it needs.

    wires' thread:  questions --> queue        heartbeats are answered there and then
    main thread:    makes the part, then answers one call after the other (with `concurrency`, so many threads do)
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import cloudpickle
from threadpoolctl import threadpool_limits

from ludus.core.errors import RunError
from ludus.core.machine import reserve_stack
from ludus.runtime.connections import BEGIN, CALL, DONE, HEARTBEAT, PING, RAISED, ConnectionLoop, FrameConnection
from ludus.runtime.process_peers import ProcessContext, RemoteRef, raised, register_actor
from ludus.runtime.shared_values import Value, pack


@dataclass(frozen=True, slots=True)
class Order:
    """What a part is made from. made_of: (factory, spec), pickled in one piece, so that arrays of the spec may be written to. path: where
    the driver finds modules. cards: those that the part sees, as CUDA names them, "" for none."""

    name: str
    made_of: bytes
    path: tuple[str, ...]
    concurrency: int
    gpus: str


def serve(connection: socket.socket, listens: socket.socket) -> None:
    """Be a part's process until it is killed, or the driver is gone."""
    faulthandler.enable()
    Host(connection, listens).run()


class Host:
    """Holds one part. Neither making it nor its beginning raises what the part raises: that waits for the first call."""

    def __init__(self, connection: socket.socket, listens: socket.socket) -> None:
        self._part: Any = None
        self._flaw: Exception | None = None
        self._name = "a part"
        self._orders: SimpleQueue[tuple[FrameConnection, int, Value]] = SimpleQueue()
        self._calls: SimpleQueue[tuple[FrameConnection, int, Value]] = SimpleQueue()
        self._driver: FrameConnection | None = None
        self._wires = ConnectionLoop(self._receive, self._gone, failed=self._end)
        self._driver = self._wires.add(connection)
        self._wires.listen(listens)
        register_actor(ProcessContext(self._wires, self._driver))

    def run(self) -> None:
        """Make the part, then answer."""
        wire, number, value = self._orders.get()
        order: Order = value.load()
        self._begin(order)
        wire.send(DONE, number, pack(os.getpid()))
        del value
        if order.concurrency == 1:
            self._answer_all()
        for k in range(order.concurrency):
            threading.Thread(target=self._answer_all, name=f"call {k}", daemon=True).start()
        threading.Event().wait()

    def _begin(self, order: Order) -> None:
        self._name = order.name
        os.environ["CUDA_VISIBLE_DEVICES"] = order.gpus
        sys.path.extend(entry for entry in order.path if entry not in sys.path)
        threadpool_limits(limits=1)  # of what is loaded already; the rest reads the environment
        if (numpy := sys.modules.get("numpy")) is not None:  # copies of one process would draw the same
            numpy.random.seed()
        try:
            factory: Callable[[Any], Any]
            factory, spec = cloudpickle.loads(order.made_of)
            self._part = factory(spec)
        except Exception as error:  # noqa: BLE001  (held for the calls)
            self._flaw = error

    @reserve_stack
    def _answer_all(self) -> None:
        while True:
            try:
                self._answer(*self._calls.get())
            except SystemExit as error:  # a method ends its process
                if error.code is not None and not isinstance(error.code, int):
                    sys.stderr.write(f"{error.code}\n")  # as Python does
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))
            except BaseException:  # noqa: BLE001  (no answer can come any more: the driver is told by the end of this process)
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)

    def _answer(self, wire: FrameConnection, number: int, value: Value) -> None:
        try:
            kind, answer = DONE, self._answer_to(value)
        except Exception as error:  # noqa: BLE001  (carried)
            kind, answer = RAISED, raised(error)
        wire.send(kind, number, answer)

    def _answer_to(self, value: Value) -> Value:
        """Raises whatever the call, or making the part, raised."""
        if self._flaw is not None:
            raise self._flaw
        method, args = value.load()
        args = [argument.fetch() if isinstance(argument, RemoteRef) else argument for argument in args]
        result = getattr(self._part, method)(*args)
        try:
            return pack(result)
        except Exception as error:  # pickle raises PicklingError, AttributeError, TypeError …
            raise RunError(
                f"what {method!r} of {self._name} answers cannot be sent to another process: {error}"
            ) from error

    def _receive(self, wire: FrameConnection, kind: int, number: int, value: Value) -> None:
        """Called by the wires' thread."""
        if kind == BEGIN:
            self._orders.put((wire, number, value))
        elif kind == CALL:
            self._calls.put((wire, number, value))
        elif kind == HEARTBEAT:
            self._heartbeat(wire, number)
        elif kind == PING:  # while the part is being made, of which nothing is asked
            wire.send(DONE, number, Value())

    def _heartbeat(self, wire: FrameConnection, number: int) -> None:
        try:
            kind, answer = DONE, pack(None if self._part is None else self._part.heartbeat())
        except Exception as error:  # noqa: BLE001  (carried)
            kind, answer = RAISED, raised(error)
        wire.send(kind, number, answer)

    def _end(self) -> None:
        """Nobody can be heard any more: the driver is to make another part."""
        traceback.print_exception(self._wires.flaw)
        sys.stderr.flush()
        os._exit(1)

    def _gone(self, wire: FrameConnection) -> None:
        """Nobody is left to work for: end at once, with all that was started here."""
        if wire is self._driver:
            os.killpg(0, signal.SIGKILL)
