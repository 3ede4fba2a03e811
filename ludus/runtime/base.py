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
    """What is known of a part, without asking it. kind: "worker", "server", "trainer" … state: "starting", "alive" (it owes no answer),
    "busy", "silent" (it has owed one for long) or "dead". seen: Unix time of its last sign of life. restarts: how many it has cost so far.
    pid: of its process on `node`, where that is known."""

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
    """The `PartState.state` of a part: it has ended; its process is there; it owes an answer; when it gave its last sign of life."""
    if dead:
        return "dead"
    if not has_process:
        return "starting"
    if not busy:
        return "alive"
    return "silent" if last_seen is not None and time.time() - last_seen > SILENT else "busy"


def needs_heartbeat(last_seen: float | None, last_asked: float) -> bool:
    """Whether a part is to be asked for a sign of life: when it gave the last one, and was last asked (Unix time)."""
    return time.time() - max(last_seen or 0.0, last_asked) > HEARTBEAT_AFTER


def part_kind(name: str) -> str:
    """Of a part, by what messages call it: "rollout worker 3" is a worker, "part 'TrainerHost'" a trainer host."""
    quoted = re.search(r"'(\w+)'", name)
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", quoted[1]).lower().split() if quoted else name.split()
    return " ".join(words) if quoted else next((word for word in reversed(words) if not word.isdigit()), "part")


def known_parts(runtime: Runtime) -> Sequence[PartState]:
    """Of a runtime whose parts are processes; those of one that does not say are none."""
    known: Callable[[], Sequence[PartState]] = getattr(runtime, "parts", tuple)
    return known()


class Reply(Protocol):
    """What comes of `Peer.send`."""

    def result(self, timeout: float | None = None) -> Any:
        """The answer; raises as `Peer.ask` does, and TimeoutError after `timeout` seconds."""
        ...


class Peer(Protocol):
    """A part as other parts see it: whoever holds one, in whatever process or thread, may ask that part.

    It may be kept, and travels in a spec or an argument. It belongs to one incarnation: the driver hands out another after a restart, and
    only the driver makes a part again. Parts that are asked ask nobody themselves, so that no circle of blocking calls arises.
    """

    def ask(self, method: str, *args: Any) -> Any:
        """`part.method(*args)`, waited for. Raises what the method raised, and PartDied if the incarnation is dead, was given up or was
        stopped. References among `args` as in `Runtime.call`."""
        ...

    def send(self, method: str, *args: Any) -> Reply:
        """As `ask`, without waiting. What one caller sends arrives in this order. Raises nothing that `ask` does: `Reply.result` does."""
        ...


@runtime_checkable
class Runtime(Protocol):
    """`call` never blocks; `get` raises what the call raised. A closed runtime refuses everything with RunError. One thread uses it.

    tell: to be set by whoever wants to hear; takes a sentence for every part that has died or was given up, and is made again.
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
        """Make a part, `factory(spec)`.

        resources: what it needs of a machine: `num_cpus`, `num_gpus`, `memory` in bytes, and custom ones by name.
        concurrency: how many of its calls may run at the same time, in threads. A part that makes its callers wait for each other needs
        one for each. Within a process calls come one by one whatever it is.
        node: where it should live, as `node` names it; it lives elsewhere if that node is gone or cannot hold it.
        heartbeat: whether `heartbeat` will be asked.
        name: what messages call it; "": a part of its class.
        restarts: how many times a part whose process dies, or that `restart` gives up, is made again from `factory` and `spec`, without
        what it had become. A method that raises costs none.
        """
        ...

    def call(self, handle: Handle, method: str, *args: Any) -> Ref:
        """Ask for `part.method(*args)`; calls of one part run in the order they were made (with `concurrency`, they begin in about that
        order, and overlap).

        A reference among `args` (not inside one of them) arrives as its value, without passing through here; the call waits for it, and
        fails with its error if that is what came.
        """
        ...

    def wait(
        self, refs: Sequence[Ref], *, at_least: int = 1, timeout: float | None = None
    ) -> tuple[list[Ref], list[Ref]]:
        """(done, pending), each in the order given; returns once `at_least` are done or `timeout` seconds have passed, with all that are
        done by then. A failed call is done. Raises RunError if `at_least` is more than there are, or one is given twice."""
        ...

    def put(self, value: Any) -> Ref:
        """A reference to a value, to be passed on without its payload. Nobody may write to what arrives."""
        ...

    def get(self, ref: Ref, *, timeout: float | None = None) -> Any:
        """The value; raises what the call raised, TimeoutError after `timeout` seconds, PartDied if the part died or was restarted before
        it had answered, or what it had answered was lost with its node (the part is made again then, too), RunError if it was stopped
        or could not be made."""
        ...

    def incarnation(self, handle: Handle) -> int:
        """How many times the part has been made again: 0 at first. A call is answered by the one that was current when it was made."""
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
        """Give up a part that is stuck, whatever it is doing, and make it again at the cost of one of its `restarts`. why: what messages
        say of it, after its name.

        Calls that it has not answered fail with PartDied, and so does every later one if it had no restart left.
        """
        ...

    def peer(self, handle: Handle) -> Peer:
        """The part's present incarnation, for other parts."""
        ...

    def node(self, handle: Handle) -> str:
        """The node that the part lives on, "" where there are none. Waits until it is there, and raises as `get` does."""
        ...

    def fetch(self, ref: Ref) -> Any:
        """`get` for a part that was given a reference inside of an argument. A function of its own: parts may keep it, and it travels to
        other processes without the runtime."""
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
    """Raises RunError unless `thing` is a `kind` (a class with an attribute `owner`) that this runtime made."""
    if not isinstance(thing, kind) or thing.owner is not owner:  # type: ignore[attr-defined]
        wanted = article(kind.__name__.removeprefix("Ray").removeprefix("Process").lower())
        raise RunError(f"{thing!r} is not {wanted} of this runtime; pass what its own spawn, call or put gave.")


def require_answerable(refs: Sequence[Ref], at_least: int) -> None:
    """Raises RunError if a wait for `at_least` of these could not end, or its answer would be ambiguous."""
    if at_least > len(refs):
        raise RunError(
            f"wait for at least {at_least} of {len(refs)} references can never end; ask for {len(refs)} or fewer."
        )
    if len({id(ref) for ref in refs}) < len(refs):
        raise RunError("wait was given one reference twice; name each once.")


def require_concurrency(concurrency: int) -> None:
    """Raises RunError unless at least one call can run."""
    if concurrency < 1:
        raise RunError(f"a part runs at least 1 call at a time, not {concurrency}.")


def factory_name(factory: Callable[[Any], Any]) -> str:
    """What a part is called in messages."""
    return f"part {getattr(factory, '__qualname__', type(factory).__name__)!r}"


def ignore(text: str) -> None:
    """Hears what nobody wants to."""


def copy_error(error: RunError | None) -> RunError:
    """The same error as a new object, so that tracebacks do not pile up on one."""
    return RunError(STOPPED) if error is None else type(error)(str(error))


def restart_message(name: str, why: str, *, spent: int, restarts: int) -> str:
    """The sentence for a part that has died or was given up, and is made again."""
    return f"{name} {why}; it is made again ({restarts - spent} of {restarts} restarts are left)."


def out_of_restarts_message(name: str, why: str, *, restarts: int) -> str:
    """The sentence for a part that is not made again."""
    if not restarts:
        return f"{name} {why}, and it has no restarts. A run goes on from its last checkpoint: `ludus resume`."
    return (
        f"{name} {why}, and its {restarts} restarts are used up. Give it more (`restarts`; in a scenario, runtime.restarts) if such "
        "ends are to be expected."
    )
