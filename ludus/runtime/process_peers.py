"""References and peers of the `processes` runtime, as they are in the process of a part; and what is raised for what came back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ludus.core.errors import PartDied, RunError
from ludus.runtime.connections import CALL, FETCH, RAISED, ConnectionLoop, FrameConnection, Outcome, connect
from ludus.runtime.exceptions import RemoteTraceback, pack_exception, unpack
from ludus.runtime.shared_values import Value, pack

# --------------------------------------------------------------------------------------------------------------------
# What came of a question.


def outcome_value(outcome: Outcome) -> Any:
    """Return the value that an outcome which is not lost has brought. Raises what was raised there, with its traceback as the cause."""
    assert outcome.value is not None
    if outcome.kind != RAISED:
        return outcome.value.load()
    carried = outcome.value.load()
    error = unpack(carried) or RunError(
        f"a part raised {carried.name}, which cannot be carried between processes: {carried.message}"
    )
    error.__cause__ = RemoteTraceback(carried.text)
    raise error


def packed_call(name: str, method: str, args: tuple[Any, ...]) -> Value:
    """A call of a part with this name. Raises RunError if an argument cannot be sent."""
    try:
        return pack((method, args))
    except Exception as error:  # pickle raises PicklingError, AttributeError, TypeError …
        raise RunError(f"an argument of {method!r} of {name} cannot be sent to another process: {error}") from error


# --------------------------------------------------------------------------------------------------------------------
# This process, where it is a part's: its wires, and the one to the driver.


class ProcessContext:
    """Of the part that lives in this process. driver: the wire to the driver, who has all values."""

    def __init__(self, wires: ConnectionLoop, driver: FrameConnection) -> None:
        self._wires, self._driver = wires, driver
        self._links: dict[str, FrameConnection] = {}
        self._lock = threading.Lock()

    def fetch(self, number: int) -> Any:
        """Return the value of a reference, waited for; raises what it stands for."""
        outcome = self._driver.ask(FETCH, pack(number))
        self._wires.wait(lambda: bool(outcome.kind), None)
        if outcome.kind == Outcome.LOST:
            raise RunError("the driver of this run is gone.")
        return outcome_value(outcome)

    def ask(self, address: str, call: Value) -> Outcome:
        """Call another part; the outcome is lost if there is none."""
        with self._lock:
            wire = self._links.get(address)
            if wire is None or wire.closed:
                try:
                    wire = self._links[address] = self._wires.add(connect(address))
                except OSError:
                    self._links.pop(address, None)
                    outcome = Outcome(self._wires)
                    outcome.settle(Outcome.LOST)
                    return outcome
        return wire.ask(CALL, call)

    def wait(self, outcome: Outcome, timeout: float | None) -> bool:
        """Return whether it is settled within so many seconds."""
        return self._wires.wait(lambda: bool(outcome.kind), timeout)


_here: list[ProcessContext] = []  # none in a driver


def register_actor(surroundings: ProcessContext) -> None:
    """Record that this process is a part's."""
    _here[:] = [surroundings]


def _surroundings() -> ProcessContext:
    if not _here:
        raise RunError("a reference or a peer of a runtime of processes is used in a process that is no part of it.")
    return _here[0]


class RemoteRef:
    """A reference where a part has it: the number of a value that the driver keeps as long as somebody there holds it."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteRef) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)

    def fetch(self) -> Any:
        """Return the value; raises what it stands for."""
        return _surroundings().fetch(self.number)


def fetch(ref: Any) -> Any:
    """See `Runtime.fetch`."""
    return ref.fetch()


# --------------------------------------------------------------------------------------------------------------------
# Parts as other parts see them.


class ProcessReply:
    """A `Reply`. wait: whether an outcome is settled within so many seconds. lost: what is raised if it is lost."""

    __slots__ = ("_lost", "_outcome", "_wait")

    def __init__(self, outcome: Outcome, wait: Callable[[Outcome, float | None], bool], lost: Callable[[], Exception]):
        self._outcome, self._wait, self._lost = outcome, wait, lost

    def result(self, timeout: float | None = None) -> Any:
        """See `Reply.result`."""
        if not self._wait(self._outcome, timeout):
            raise TimeoutError(f"no answer within {timeout:g} seconds.")
        if self._outcome.kind == Outcome.LOST:
            raise self._lost()
        return outcome_value(self._outcome)


class ProcessPeer:
    """A `Peer` that calls the process of a part directly. In a part it has only the address; the driver's own ones have its wire."""

    __slots__ = ("_address", "_ask", "_name", "_wait")

    def __init__(
        self,
        address: str,
        name: str,
        ask: Callable[[Value], Outcome] | None = None,
        wait: Callable[[Outcome, float | None], bool] | None = None,
    ) -> None:
        self._address, self._name, self._ask, self._wait = address, name, ask, wait

    def __reduce__(self) -> Any:
        return ProcessPeer, (self._address, self._name)

    def ask(self, method: str, *args: Any) -> Any:
        """See `Peer.ask`."""
        return self.send(method, *args).result()

    def send(self, method: str, *args: Any) -> ProcessReply:
        """See `Peer.send`. Raises RunError if an argument cannot be pickled."""
        call = packed_call(self._name, method, args)
        if self._ask is not None and self._wait is not None:
            return ProcessReply(self._ask(call), self._wait, self._died)
        context = _surroundings()
        return ProcessReply(context.ask(self._address, call), context.wait, self._died)

    def _died(self) -> PartDied:
        died = PartDied(
            f"{self._name}, which was asked for something, died before it had answered, was given up or stopped; whoever holds it needs "
            "its new peer."
        )
        died.__cause__ = RemoteTraceback("The connection to its process was closed.")
        return died


def raised(error: Exception) -> Value:
    """Return an error as the value of a RAISED frame."""
    return pack(pack_exception(error))
