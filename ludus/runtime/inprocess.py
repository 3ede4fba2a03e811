"""Everything in this process: no servers, no set-up. The default runtime, and the one to set a breakpoint in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ludus.core.errors import PartDied, RunError
from ludus.core.parts import Registry, resolve_name
from ludus.runtime.base import (
    CLOSED,
    GIVEN_UP,
    NO_HEARTBEAT,
    STOPPED,
    Runtime,
    factory_name,
    ignore,
    out_of_restarts_message,
    require_answerable,
    require_concurrency,
    require_own_ref,
    restart_message,
)

RUNTIMES: Final = Registry(
    "runtime",
    "ludus.runtimes",
    {
        "inprocess": "ludus.runtime.inprocess:InProcess",
        "processes": "ludus.runtime.processes:ProcessRuntime",
    },
)
"""By name. Ray's, which lies in `ludus.contrib`, and those of other distributions are added by entry points."""


def build_runtime(name: str, **options: Any) -> Runtime:
    """Return a runtime by its registered name, or `module:Class`. Raises UnknownName."""
    runtime: Runtime = resolve_name("runtime", name, RUNTIMES, expected=(Runtime,))(**options)
    return runtime


class Part:
    """Handle of a spawned part; where `factory` failed, calls fail with `why`. A part that has `ended` is not restarted."""

    __slots__ = ("ended", "factory", "heartbeat", "name", "number", "owner", "restarts", "spec", "value", "why")

    def __init__(
        self, owner: object, factory: Callable[[Any], Any], spec: Any, *, restarts: int, heartbeat: bool, name: str
    ) -> None:
        self.owner = owner
        self.name = name or factory_name(factory)
        self.factory = factory
        self.spec = spec
        self.restarts = restarts
        self.heartbeat = heartbeat
        self.number = 0
        self.ended = False
        self.make()

    def make(self) -> None:
        """Create `factory(spec)`, or record why it failed."""
        self.value: Any = None
        self.why: Exception | None = None
        try:
            self.value = self.factory(self.spec)
        except Exception as error:  # noqa: BLE001 (held for `get`)
            self.why = error

    def answer(self, method: str, args: Sequence[Any]) -> Answer:
        """Run `method` now, with the values of references in their place, and return its result or error."""
        for argument in args:
            if isinstance(argument, Answer) and argument.error is not None:
                return Answer(self.owner, error=argument.error)
        if self.why is not None:
            return Answer(self.owner, error=self.why)
        try:
            values = (argument.value if isinstance(argument, Answer) else argument for argument in args)
            return Answer(self.owner, getattr(self.value, method)(*values))
        except Exception as error:  # noqa: BLE001 (held for `get`)
            return Answer(self.owner, error=error)

    def end(self, why: RunError) -> None:
        """Release the part for good."""
        self.value = None
        self.why = why
        self.ended = True


class Answer:
    """Reference to a value, or to an exception."""

    __slots__ = ("error", "owner", "value")

    def __init__(self, owner: object, value: Any = None, error: Exception | None = None) -> None:
        self.owner = owner
        self.value = value
        self.error = error

    def result(self, timeout: float | None = None) -> Any:
        """See `Reply.result`."""
        if self.error is not None:
            raise self.error
        return self.value


class InProcessPeer:
    """`Peer` within a process. A call is done when `send` returns."""

    __slots__ = ("_number", "_part")

    def __init__(self, part: Part) -> None:
        self._part = part
        self._number = part.number

    def ask(self, method: str, *args: Any) -> Any:
        """See `Peer.ask`."""
        return self.send(method, *args).result()

    def send(self, method: str, *args: Any) -> Answer:
        """See `Peer.send`."""
        part = self._part
        if part.ended or part.number != self._number:
            ended = PartDied(f"{part.name} was given up or stopped; whoever holds it needs its new peer.")
            return Answer(part.owner, error=ended)
        return part.answer(method, args)


class InProcess:
    """`Runtime` within the process; calls are done when `call` returns, in order.

    - `spawn` and `call` raise nothing that the part raises: `get` does, with the original exception. KeyboardInterrupt and SystemExit are
      not answers; they propagate immediately.
    - Values are passed, not copied: `get(put(x)) is x`. On Ray arrays arrive read-only, so parts must not write to a result or an argument,
      here either (the contract suite in `ludus.testing` checks this).
    - A part lives as long as this process, and a method that raises does not end it: `restarts` are only spent by `restart`.
    - `resources` are ignored.
    """

    def __init__(self) -> None:
        self.tell: Callable[[str], None] = ignore
        self._closed = False

    def spawn(
        self,
        factory: Callable[[Any], Any],
        spec: Any,
        *,
        resources: Mapping[str, float] | None = None,
        restarts: int = 0,
        concurrency: int = 1,
        node: str = "",
        heartbeat: bool = False,
        name: str = "",
    ) -> Part:
        """Create `factory(spec)` now. If it raises, `get` of every call to the part raises that."""
        self._require_open()
        require_concurrency(concurrency)
        return Part(self, factory, spec, restarts=restarts, heartbeat=heartbeat, name=name)

    def call(self, handle: Part, method: str, *args: Any) -> Answer:
        """Run `method` now and hold its result or exception."""
        self._require_open()
        require_own_ref(self, handle, Part)
        for argument in args:
            if isinstance(argument, Answer):
                require_own_ref(self, argument, Answer)
        return handle.answer(method, args)

    def wait(
        self, refs: Sequence[Answer], *, at_least: int = 1, timeout: float | None = None
    ) -> tuple[list[Answer], list[Answer]]:
        """Return (all of them, none): everything is done already. Raises RunError if `at_least` is more than there are."""
        self._require_open()
        for ref in refs:
            require_own_ref(self, ref, Answer)
        require_answerable(refs, at_least)
        return list(refs), []

    def put(self, value: Any) -> Answer:
        """Return a reference to this very object."""
        self._require_open()
        return Answer(self, value)

    def get(self, ref: Answer, *, timeout: float | None = None) -> Any:
        """Return the value; raises what the call raised."""
        self._require_open()
        require_own_ref(self, ref, Answer)
        return ref.result()

    def incarnation(self, handle: Part) -> int:
        """Return how often `restart` has restarted the part."""
        self._require_open()
        require_own_ref(self, handle, Part)
        return handle.number

    def heartbeat(self, handle: Part) -> Answer:
        """Call `part.heartbeat()` now: a part is never busy when it can be called."""
        self._require_open()
        require_own_ref(self, handle, Part)
        if not handle.heartbeat:
            raise RunError(NO_HEARTBEAT)
        return self.call(handle, "heartbeat")

    def restart(self, handle: Part, *, why: str = GIVEN_UP) -> None:
        """Release the part and create it again, if it has a restart left. A stopped part stays stopped."""
        self._require_open()
        require_own_ref(self, handle, Part)
        if handle.ended:
            return
        if handle.number == handle.restarts:
            handle.end(PartDied(out_of_restarts_message(handle.name, why, restarts=handle.restarts)))
            return
        handle.number += 1
        handle.make()
        self.tell(restart_message(handle.name, why, spent=handle.number, restarts=handle.restarts))

    def peer(self, handle: Part) -> InProcessPeer:
        """Return a handle of the part's present incarnation for other parts."""
        self._require_open()
        require_own_ref(self, handle, Part)
        return InProcessPeer(handle)

    def node(self, handle: Part) -> str:
        """Return "". Raises as `get` does if there is no part."""
        self._require_open()
        require_own_ref(self, handle, Part)
        if handle.ended and handle.why is not None:
            raise handle.why
        return ""

    @staticmethod
    def fetch(ref: Answer) -> Any:
        """Return the value; raises what the call raised."""
        return ref.result()

    def stop(self, handle: Part) -> None:
        """Release the part; `get` of later calls to it raises RunError. Stopping twice is harmless."""
        self._require_open()
        require_own_ref(self, handle, Part)
        handle.end(RunError(STOPPED))

    def close(self) -> None:
        """Refuse everything from now on. Closing twice is harmless."""
        self._closed = True

    def _require_open(self) -> None:
        if self._closed:
            raise RunError(CLOSED)
