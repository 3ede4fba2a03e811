"""Handles and references of the Ray runtime, and the actors behind them."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pickle import PicklingError
from typing import Any

import ray
from ray import exceptions as ray_exceptions
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ludus.contrib.ray.ray_host import Host, loading_error
from ludus.core.errors import PartDied, RunError
from ludus.runtime.activity import StartupSilence
from ludus.runtime.base import CLOSED, PartState, Runtime, part_kind, part_state
from ludus.runtime.exceptions import PackedException, RemoteTraceback, unpack

# --------------------------------------------------------------------------------------------------------------------
# Ray's exceptions, turned into those that a part raised or that `Runtime.get` promises.

_DEATHS = (
    ray_exceptions.RayActorError,
    ray_exceptions.NodeDiedError,
    ray_exceptions.OutOfMemoryError,
    ray_exceptions.WorkerCrashedError,
)


def is_death(error: Exception, actor: str) -> bool:
    """Return whether the actor with this id died before it had answered; for a call, one that an argument was to come from may have
    instead."""
    return isinstance(error, _DEATHS) and getattr(error, "actor_id", None) in (None, actor)


def is_lost(error: Exception, ref: ray.ObjectRef[Any]) -> bool:
    """Return whether an answer was there and is gone; for a call, what an argument was to be may be instead."""
    return isinstance(error, ray_exceptions.ObjectLostError) and error.object_ref_hex == ref.hex()


_CAUSES = {
    r"NODE_OUT_OF_MEMORY|running low on memory": "Ray ended it, since its node is short of memory",
    r"Fatal Python error: ([^\n]*)": r"its process crashed: \1",
    r"(?:with|is) (?:an )?(exit code -?\d+)": r"its process ended with \1",
    r"node has died": "its node died",
    r"connection error code": "its process was killed, crashed or called os._exit; was memory short?",
    r"temporarily unavailable": "its process or its node is gone",
}
"""What Ray's words and those of a crash mean, the first that are found."""


def reason(error: Exception, stderr_tail: str = "") -> str:
    """Return why a part died: in plain words where Ray's are known, or the sentence or two in which it says so. last_words: of its
    process."""
    for words, meaning in _CAUSES.items():
        if match := re.search(words, f"{error}{stderr_tail}"):
            return match.expand(meaning)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = next((line for line in lines if line.startswith("The actor is dead because")), lines[0] if lines else "")
    cause = cause.partition(" is unavailable: ")[2] or cause.removeprefix("The actor is dead because ")
    return cause.partition(" Some common causes")[0][:300].rstrip(".")


def translate(error: Exception) -> Exception:
    """Return what to raise instead of an exception of Ray's, with the remote traceback as its cause."""
    inner: Exception = error
    while isinstance(inner, ray_exceptions.RayTaskError) and isinstance(inner.cause, Exception):
        inner = inner.cause
    inner = loading_error(inner)
    if isinstance(inner, PackedException):
        original = unpack(inner) or RunError(
            f"a part raised {inner.name}, which cannot be carried between processes: {inner.message}"
        )
        original.__cause__ = RemoteTraceback(inner.text)
        return original
    if isinstance(inner, _DEATHS):
        return _because(PartDied(f"an argument came from a part that died: {reason(inner)}."), error)
    if isinstance(inner, ray_exceptions.ObjectLostError):
        return _because(PartDied(f"the value was lost with the node that held it: {reason(inner)}."), error)
    if isinstance(inner, ray_exceptions.RayError):
        return _because(RunError(f"Ray could not do it ({type(inner).__name__}): {reason(inner)}."), error)
    return _because(inner, error)


def _because(raised: Exception, error: Exception) -> Exception:
    if raised is not error:
        raised.__cause__ = RemoteTraceback(str(error))
    return raised


SMALL = {"num_cpus": 0.1}
"""What a part needs that does not say how many CPUs: little, so that it rarely waits, and not nothing, so that nodes can fill up."""

UNSENT = (TypeError, ValueError, AttributeError, PicklingError)
"""What sending something raises that cannot be pickled."""
ROOM = 10.0
"""Seconds that a part without a process waits where a node was lost and those that are left are too small: another may come."""


class RayIncarnation:
    """One incarnation of a part: an actor. Once it has ended, calls that it did not answer fail with `why`.

    placement_ref: done as soon as its process exists, or has failed. start_ref: done as soon as the part exists, too. until: when it must
    exist, in `time.monotonic` seconds; look_at: when to look if it can; had_room_at: when there last was room for it, 0 if there never was.
    process: its id where it is known, otherwise 0; node: where that is. calls, answered: number of its calls, and the number of the last
    that is known to be answered. last_seen: Unix time of its last sign of life. pending_heartbeat: a heartbeat that was requested at
    heartbeat_at. silence: whether its process runs while the part is made, where it is one of this machine.
    """

    __slots__ = (
        "actor",
        "actor_id",
        "answered",
        "calls",
        "had_room_at",
        "heartbeat_at",
        "last_seen",
        "look_at",
        "node",
        "part",
        "pending_heartbeat",
        "placement_ref",
        "process",
        "silence",
        "start_ref",
        "until",
        "why",
    )

    def __init__(self, part: RayPart, until: float) -> None:
        self.part = part
        self.actor = _host(part).options(**part.options).remote()
        self.actor_id = self.actor._actor_id.hex()
        own = {"concurrency_group": _CONTROL} if _is_concurrent(part.options) else {}
        self.placement_ref = self.actor.place.options(**own).remote()
        path = [os.path.abspath(entry) for entry in sys.path]
        self.start_ref = self.actor.begin.options(**own).remote(part.order, path)
        self.until = self.look_at = until
        self.had_room_at = time.monotonic() if part.number else 0.0
        self.process, self.node = 0, ""
        self.calls = self.answered = 0
        self.last_seen: float | None = None
        self.pending_heartbeat: ray.ObjectRef[Any] | None = None
        self.heartbeat_at = 0.0
        self.silence: StartupSilence | None = None
        self.why: RunError | None = None

    def look(self) -> bool:
        """Return whether it is known by now if its process came."""
        if self.process or not ray.wait([self.placement_ref], timeout=0.0)[0]:
            return self.process > 0
        with contextlib.suppress(RayError):  # it ended before
            self.process, self.node = ray.get(self.placement_ref)
            self.last_seen = self.last_seen or time.time()
        return True

    def is_made(self) -> bool:
        """Return whether its part was made, or has failed."""
        return bool(ray.wait([self.start_ref], timeout=0.0)[0])

    def is_silent(self) -> bool:
        """Return whether its process, which is one of this machine and makes the part, has not run for long. Ray's threads in it wake all
        the time."""
        if self.silence is None:
            self.silence = StartupSilence(self.process, self.part.name)
        return self.silence.look()

    def heard(self, number: int) -> None:
        """Record that the call of this number, and those before it, are answered."""
        self.answered = max(self.answered, number)
        self.last_seen = time.time()

    def state(self) -> PartState:
        """Return what is known of it."""
        busy, has_process = self.calls > self.answered, self.process > 0
        state = part_state(dead=self.why is not None, has_process=has_process, busy=busy, last_seen=self.last_seen)
        name, part = self.part.name, self.part
        return PartState(part_kind(name), name, self.node[:8], self.process or None, state, self.last_seen, part.spent)

    def heartbeat(self) -> ray.ObjectRef[Any]:
        """Request a heartbeat of the thread that runs no calls."""
        ref: ray.ObjectRef[Any] = self.actor.heartbeat.options(concurrency_group=_CONTROL).remote()
        return ref


_CONTROL = "control"


def _is_concurrent(options: Mapping[str, Any]) -> bool:
    return bool(options["max_concurrency"] > 1)


def _host(part: RayPart) -> Any:
    """Return the actor's class. One whose calls run at the same time is made by a thread of its own: calls that came before could have
    taken all the others, and they wait for it. One that has a heartbeat answers for that in such a thread."""
    if part.heartbeat or _is_concurrent(part.options):
        return ray.remote(concurrency_groups={_CONTROL: 1})(Host)  # type: ignore[call-overload]
    return ray.remote(Host)


class RayPart:
    """Handle of a spawned part: the order it is made from, its current life and the number of that, how many restarts are `spent`, and
    whether it has a `heartbeat`."""

    __slots__ = ("heartbeat", "life", "name", "number", "options", "order", "owner", "restarts", "spent")

    def __init__(
        self,
        owner: Runtime,
        name: str,
        order: ray.ObjectRef[Any],
        options: dict[str, Any],
        *,
        restarts: int,
        heartbeat: bool,
    ) -> None:
        self.owner = owner
        self.name = name
        self.order = order
        self.options = options
        self.restarts = restarts
        self.heartbeat = heartbeat
        self.number = 0
        self.spent = 0
        self.life: RayIncarnation


class RayAnswer:
    """Reference to what comes of a call, or to a value; or why nothing can come."""

    __slots__ = ("error", "life", "number", "owner", "ref")

    def __init__(
        self,
        owner: Runtime,
        ref: ray.ObjectRef[Any] | None,
        *,
        life: RayIncarnation | None = None,
        number: int = 0,
        error: RunError | None = None,
    ) -> None:
        """number: of the call in its life, 0 for what is no call."""
        self.owner = owner
        self.ref = ref
        self.life = life
        self.number = number
        self.error = error

    def is_there(self) -> None:
        """Record that it is known to be answered."""
        if self.number and self.life is not None:
            self.life.heard(self.number)

    def __reduce__(self) -> Any:
        """Inside an argument it arrives as what `fetch` takes."""
        if self.ref is None:
            raise RunError("a reference to something that cannot come any more was passed inside an argument.")
        return _arrived, (self.ref,)


def _arrived(ref: ray.ObjectRef[Any]) -> ray.ObjectRef[Any]:
    return ref


def actor_options(resources: Mapping[str, float], *, concurrency: int = 1, node: str = "") -> dict[str, Any]:
    """Return Ray's options for an actor with these resources, on a node or spread over all. Raises RunError for amounts below 0."""
    known = {name: value for name, value in resources.items() if name in ("num_cpus", "num_gpus", "memory")}
    custom = {name: value for name, value in resources.items() if name not in known}
    bad = [name for name, value in resources.items() if not value >= 0]
    if bad:
        raise RunError(f"resources are amounts of at least 0, unlike {bad[0]!r}: {resources[bad[0]]!r}.")
    where = NodeAffinitySchedulingStrategy(node, soft=True) if node else "SPREAD"
    fixed = {"max_restarts": 0, "max_concurrency": concurrency, "scheduling_strategy": where}
    return {**SMALL, **known, "resources": custom, **fixed}


def has_room(wanted: Sequence[tuple[Mapping[str, Any], str]]) -> bool:
    """Return whether the nodes that are alive are large enough for actors with these options: each one for some node, and all for all of
    them.

    wanted: (options, the id of the node that it lives on). Those that are gone with their node need no room, and those without one do.
    """
    alive = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}  # type: ignore[no-untyped-call]
    nodes = [*alive.values()]
    needs = [amounts(options) for options, node in wanted if not node or node in alive]
    names = {name for need in needs for name in need}
    return all(any(all(node.get(k, 0) >= v for k, v in need.items()) for node in nodes) for need in needs) and all(
        sum(need.get(name, 0) for need in needs) <= sum(node.get(name, 0) for node in nodes) for name in names
    )


def amounts(options: Mapping[str, Any]) -> dict[str, float]:
    """Return resources by Ray's names, without those that are 0."""
    known = {"CPU": options.get("num_cpus"), "GPU": options.get("num_gpus"), "memory": options.get("memory")}
    return {name: value for name, value in {**known, **options.get("resources", {})}.items() if value}


def describe_resources(resources: Mapping[str, Any]) -> str:
    """Amounts, of an actor's options or a cluster, for a message."""
    flat = {**resources, **resources.get("resources", {})}
    amounts = {
        name: value
        for name, value in flat.items()
        if isinstance(value, int | float) and not name.startswith(("max_", "node:", "object_store"))
    }
    return ", ".join(f"{name} {value:g}" for name, value in amounts.items()) or "nothing"


# --------------------------------------------------------------------------------------------------------------------
# Parts of the Ray runtime as other parts see them.


class RayPeer:
    """A `Peer` that calls an actor directly. It travels in what Ray pickles."""

    __slots__ = ("_actor", "_actor_id", "_made", "_name")

    def __init__(self, life: RayIncarnation) -> None:
        self._actor = life.actor
        self._actor_id = life.actor_id
        self._name = life.part.name
        self._made: ray.ObjectRef[Any] | None = life.start_ref

    def ask(self, method: str, *args: Any) -> Any:
        """See `Peer.ask`."""
        return self.send(method, *args).result()

    def send(self, method: str, *args: Any) -> RayReply:
        """See `Peer.send`. Waits until the part is made, the first time. Raises RunError if an argument cannot be pickled."""
        if not ray.is_initialized():  # Ray would start another by itself
            raise RunError(CLOSED)
        self._await_made()
        values = [_value(argument) for argument in args]
        try:
            return RayReply(self, self._actor.call.remote(method, *values))
        except UNSENT as error:
            raise RunError(
                f"an argument of {method!r} of {self._name} cannot be sent to another process: {error}"
            ) from error

    def failure(self, error: RayError) -> Exception:
        """Return what to raise instead of an exception of Ray's."""
        if not is_death(error, self._actor_id):
            return translate(error)
        died = PartDied(f"{self._name}, which was asked for something, died before it had answered ({reason(error)}).")
        died.__cause__ = RemoteTraceback(str(error))
        return died

    def _await_made(self) -> None:
        """The part is made before anybody asks it: calls of other callers than the driver are not in line with its."""
        if self._made is None:
            return
        try:
            ray.get(self._made)
        except RayError:
            return  # it is dead, which the call will tell
        self._made = None


class RayReply:
    """A `Reply`."""

    __slots__ = ("_peer", "_ref")

    def __init__(self, peer: RayPeer, ref: ray.ObjectRef[Any]) -> None:
        self._peer = peer
        self._ref = ref

    def result(self, timeout: float | None = None) -> Any:
        """See `Reply.result`."""
        try:
            return ray.get(self._ref, timeout=timeout)
        except GetTimeoutError:
            raise TimeoutError(f"no answer within {timeout:g} seconds.") from None
        except RayError as error:
            raise self._peer.failure(error)  # noqa: B904  its cause is the remote traceback


def _value(argument: Any) -> Any:
    """Return what stands for a reference: Ray's own."""
    if not isinstance(argument, RayAnswer):
        return argument
    if argument.ref is None:
        raise argument.error or RunError("a reference to something that cannot come any more was passed.")
    return argument.ref
