"""Where parts live: in this process, or as actors."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ludus.core.errors import RunError, article

Handle: TypeAlias = Any
Ref: TypeAlias = Any

GIVEN_UP = "was given up before it had answered"


@dataclass(frozen=True, slots=True)
class PartState:
    """State of a part, as far as it is known without asking it.

    Attributes:
        kind: "worker", "server", "trainer" …
        name: As messages have it.
        node: Where its process is.
        pid: Of its process, where that is known.
        state: "starting", "alive" (it owes no answer), "busy", "silent" (it has owed one for long) or "dead".
        seen: Unix time of its last heartbeat or answer.
        restarts: That it has used so far.
    """

    kind: str
    name: str
    node: str = ""
    pid: int | None = None
    state: str = "alive"
    seen: float | None = None
    restarts: int = 0


SILENT = 60.0
"""Seconds without a sign of life after which a part that owes an answer is called silent."""
HEARTBEAT_AFTER = 10.0
"""Seconds after which a part that has said nothing is asked for a sign of life."""


def part_state(*, dead: bool, has_process: bool, busy: bool, last_seen: float | None) -> str:
    """Return the `PartState.state` of a part.

    Args:
        dead: It has ended.
        has_process: Its process exists.
        busy: It owes an answer.
        last_seen: Unix time of its last sign of life.
    """
    if dead:
        return "dead"
    if not has_process:
        return "starting"
    if not busy:
        return "alive"
    return "silent" if last_seen is not None and time.time() - last_seen > SILENT else "busy"


def needs_heartbeat(last_seen: float | None, last_asked: float) -> bool:
    """Return whether a part is to be asked for a heartbeat, from the Unix times of its last sign of life and of the last request."""
    return time.time() - max(last_seen or 0.0, last_asked) > HEARTBEAT_AFTER


def part_kind(name: str) -> str:
    """Return the kind of a part from its name in messages: "rollout worker 3" is a worker, "part 'TrainerHost'" a trainer host."""
    quoted = re.search(r"'(\w+)'", name)
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", quoted[1]).lower().split() if quoted else name.split()
    return " ".join(words) if quoted else next((word for word in reversed(words) if not word.isdigit()), "part")


def known_parts(runtime: Runtime) -> Sequence[PartState]:
    """Return the states of the parts of a runtime whose parts are processes; () if it does not report them."""
    known: Callable[[], Sequence[PartState]] = getattr(runtime, "parts", tuple)
    return known()


class Reply(Protocol):
    """Result of `Peer.send`."""

    def result(self, timeout: float | None = None) -> Any:
        """Return the answer. Raises as `Peer.ask` does, and TimeoutError after `timeout` seconds."""
        ...


class Peer(Protocol):
    """Handle of a part for other parts, in any process or thread.

    It may be kept, and travels in a spec or an argument. It belongs to one incarnation: the driver hands out another after a restart, and
    only the driver restarts a part. A part that is asked asks no other part itself, so that blocking calls form no circle.
    """

    def ask(self, method: str, *args: Any) -> Any:
        """Return the result of `part.method(*args)`. References among `args` as in `Runtime.call`.

        Raises:
            PartDied: If the incarnation is dead, was given up or was stopped.
            Exception: Whatever the method raised.
        """
        ...

    def send(self, method: str, *args: Any) -> Reply:
        """Call without waiting. Calls of one caller arrive in this order. Raises nothing that `ask` does: `Reply.result` does."""
        ...


@runtime_checkable
class Runtime(Protocol):
    """Spawns parts and calls their methods. `call` never blocks; `get` raises what the call raised. A closed runtime refuses everything
    with RunError. One thread uses it.

    Attributes:
        tell: May be set; takes a sentence for every part that has died or was given up, and is restarted.
    """

    tell: Callable[[str], None]

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
    ) -> Handle:
        """Create a part, `factory(spec)`, and return its handle.

        Args:
            factory: Importable function or class.
            spec: Its argument.
            resources: `num_cpus`, `num_gpus`, `memory` in bytes, and custom ones by name.
            restarts: How often a part whose process dies, or that `restart` gives up, is created again from `factory` and `spec`, without
                its state. A method that raises costs none.
            concurrency: How many of its calls may run at the same time, in threads. A part that makes its callers wait for each other needs
                one for each. Within a process calls run one at a time in any case.
            node: Preferred node, as `node` names it; the part lives elsewhere if that node is gone or cannot hold it.
            heartbeat: Whether `heartbeat` will be called.
            name: Name in messages; "": a part of its class.
        """
        ...

    def call(self, handle: Handle, method: str, *args: Any) -> Ref:
        """Call `part.method(*args)` and return a reference to the result. Calls of one part run in order (with `concurrency`, they begin in
        about that order, and overlap).

        A reference among `args` (not inside one of them) arrives as its value, without passing through here; the call waits for it, and
        fails with its error if there is one.
        """
        ...

    def wait(
        self, refs: Sequence[Ref], *, at_least: int = 1, timeout: float | None = None
    ) -> tuple[list[Ref], list[Ref]]:
        """Return (done, pending), each in the order given, once `at_least` are done or `timeout` seconds have passed, with all that are
        done by then. A failed call is done. Raises RunError if `at_least` is more than there are, or a reference is given twice."""
        ...

    def put(self, value: Any) -> Ref:
        """Return a reference to a value, to be passed on without its payload. The receiver must not write to it."""
        ...

    def get(self, ref: Ref, *, timeout: float | None = None) -> Any:
        """Return the value of a reference.

        Raises:
            TimeoutError: After `timeout` seconds.
            PartDied: If the part died or was restarted before it had answered, or its answer was lost with its node (then the part is
                restarted, too).
            RunError: If the part was stopped or could not be created.
            Exception: Whatever the call raised.
        """
        ...

    def incarnation(self, handle: Handle) -> int:
        """Return how often the part was restarted: 0 at first. A call is answered by the incarnation that was current when it was made."""
        ...

    def heartbeat(self, handle: Handle) -> Ref:
        """Request `part.heartbeat()`, in addition to its calls: the answer comes while the part is busy, unless its process is frozen.

        Returns:
            Reference to the answer; None before the part exists.

        Raises:
            RunError: For a part that was not spawned with `heartbeat=True`.
        """
        ...

    def restart(self, handle: Handle, *, why: str = GIVEN_UP) -> None:
        """Give up a part that is stuck, whatever it is doing, and create it again at the cost of one of its `restarts`. Unanswered calls
        fail with PartDied, and so does every later one if it had no restart left.

        Args:
            handle: The part.
            why: What messages say after its name.
        """
        ...

    def peer(self, handle: Handle) -> Peer:
        """Return a handle of the part's present incarnation for other parts."""
        ...

    def node(self, handle: Handle) -> str:
        """Return the node that the part lives on, "" where there are none. Waits until the part exists, and raises as `get` does."""
        ...

    def fetch(self, ref: Ref) -> Any:
        """Return the value of a reference inside of an argument, for a part. It is a function of its own: parts may keep it, and it travels
        to other processes without the runtime."""
        ...

    def stop(self, handle: Handle) -> None:
        """End a part, whatever it is doing; values it has answered stay. Stopping twice is harmless."""
        ...

    def close(self) -> None:
        """End all parts. Closing twice is harmless."""
        ...


STOPPED = "this part was stopped; spawn it again before calling it."
NO_HEARTBEAT = "this part has no heartbeat to be asked for; spawn it with heartbeat=True."
CLOSED = "this runtime is closed; make a new one."


def require_own_ref(owner: Runtime, thing: Any, kind: type) -> None:
    """Raise RunError unless `thing` is a `kind` (a class with an attribute `owner`) that this runtime created."""
    if not isinstance(thing, kind) or thing.owner is not owner:  # type: ignore[attr-defined]
        wanted = article(kind.__name__.removeprefix("Ray").removeprefix("Process").lower())
        raise RunError(f"{thing!r} is not {wanted} of this runtime; pass what its own spawn, call or put gave.")


def require_answerable(refs: Sequence[Ref], at_least: int) -> None:
    """Raise RunError if a wait for `at_least` of these could not end, or its result would be ambiguous."""
    if at_least > len(refs):
        raise RunError(
            f"wait for at least {at_least} of {len(refs)} references can never end; ask for {len(refs)} or fewer."
        )
    if len({id(ref) for ref in refs}) < len(refs):
        raise RunError("wait was given one reference twice; name each once.")


def require_concurrency(concurrency: int) -> None:
    """Raise RunError unless at least one call can run."""
    if concurrency < 1:
        raise RunError(f"a part runs at least 1 call at a time, not {concurrency}.")


def factory_name(factory: Callable[[Any], Any]) -> str:
    """Return the name of a part in messages."""
    return f"part {getattr(factory, '__qualname__', type(factory).__name__)!r}"


def ignore(text: str) -> None:
    """Ignore a message."""


def copy_error(error: RunError | None) -> RunError:
    """Return the same error as a new object, so that tracebacks do not pile up on one."""
    return RunError(STOPPED) if error is None else type(error)(str(error))


def restart_message(name: str, why: str, *, spent: int, restarts: int) -> str:
    """Return the sentence for a part that has died or was given up, and is restarted."""
    return f"{name} {why}; it is made again ({restarts - spent} of {restarts} restarts are left)."


def out_of_restarts_message(name: str, why: str, *, restarts: int) -> str:
    """Return the sentence for a part that is not restarted."""
    if not restarts:
        return f"{name} {why}, and it has no restarts. A run goes on from its last checkpoint: `ludus resume`."
    return (
        f"{name} {why}, and its {restarts} restarts are used up. Give it more (`restarts`; in a scenario, runtime.restarts) if such "
        "ends are to be expected."
    )
