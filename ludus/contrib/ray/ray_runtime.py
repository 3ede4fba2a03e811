"""Parts as Ray actors, on this machine or a cluster. Values travel through Ray's object store; the driver handles references."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from ludus.contrib.ray.ray_parts import (
    ROOM,
    UNSENT,
    RayAnswer,
    RayIncarnation,
    RayPart,
    RayPeer,
    actor_options,
    amounts,
    describe_resources,
    has_room,
    is_death,
    is_lost,
    reason,
    translate,
)
from ludus.contrib.ray.ray_session import enter, kill, leave, require_alive, spilled, stderr_tail
from ludus.core.errors import PartDied, RunError
from ludus.runtime.activity import silent_start
from ludus.runtime.base import (
    CLOSED,
    GIVEN_UP,
    NO_HEARTBEAT,
    STOPPED,
    PartState,
    copy_error,
    factory_name,
    ignore,
    needs_heartbeat,
    out_of_restarts_message,
    require_answerable,
    require_concurrency,
    require_own_ref,
    restart_message,
)
from ludus.runtime.exceptions import RemoteTraceback
from ludus.storage.base import GenerationRecord, NullObserver, Observer, RunSummary

_LOOK = 2.0  # seconds between two looks at the room for parts
_HEARTBEAT_SECONDS = 1.0  # seconds between two looks at the Ray that was started here, while it is waited for


class ObjectStoreSpillObserver(NullObserver):
    """Looks after every generation, and says so the first time and whenever twice as much has gone to disk."""

    def __init__(self, spilled: Callable[[], int], *, observer: Observer, event: Callable[[str, str], None]) -> None:
        """spilled: bytes so far. observer: is told. event: keeps (kind, text)."""
        self._spilled, self._observer, self._event = spilled, observer, event
        self._next = 1

    def generation_done(self, record: GenerationRecord) -> None:
        self._look()

    def run_finished(self, summary: RunSummary) -> None:
        self._look()

    def _look(self) -> None:
        count = self._spilled()
        if count < self._next:
            return
        self._next = 2 * count
        text = (
            f"the shared memory of Ray is full: {count / 1e6:,.0f} MB went to disk so far. Nothing is lost, and the run is slower. Have "
            "less in progress (runtime.tasks, runtime.in_flight, smaller batches), or give Ray more memory."
        )
        self._event("spilling", text)
        self._observer.message(text)


class RayRuntime:
    """A `Runtime` of actors.

    address: of a cluster (`HOST:PORT`, or "auto" for the one on this machine), which is joined and left as it was but for the own actors.
    None: the Ray that this process is connected to already; without one, a local Ray is started, and ended with the last runtime that
    uses it (or the process, however that ends), leaving no process, shared memory or file behind.

    - Exceptions arrive with their type, message and attributes; their cause is the remote traceback. Arrays arrive read-only.
    - A part that dies is made again by the driver when it learns of it, in `get`: calls made before then fail with PartDied.
    - Numerical libraries use one thread in a part. A node is named by its resource, `{"node:IP": 0.001}`, or by a custom one.
    - Linux ends Ray's processes with the thread that started them: make the first runtime in one that stays.
    - A part must return what others are to have: what it puts into Ray's store itself is gone with it.
    """

    def __init__(
        self,
        *,
        address: str | None = None,
        cpus: float | None = None,
        gpus: float | None = None,
        object_store: int | None = None,
        start_timeout: float = 120.0,
        verbose: bool = False,
    ) -> None:
        """cpus, gpus, object_store: logical CPUs (None: as many as wanted), GPUs (None: those found) and bytes of shared memory of a local
        Ray. start_timeout: seconds a part may wait for resources and its process (`ROOM` of them once a node is lost
        and those that are left are too small). verbose: Ray's messages and what parts print.
        """
        self.tell: Callable[[str], None] = ignore
        self._closed = False
        self._starting: list[RayIncarnation] = []
        self._making: list[RayIncarnation] = []  # of the Ray that was started here; their processes are there
        self._parts: list[RayPart] = []
        self._start_timeout = start_timeout
        self._session = enter(address=address, cpus=cpus, gpus=gpus, object_store=object_store, verbose=verbose)
        self._alone = self._session.address is None and not self._session.borrowed
        self._spilled = 0 if address is None else spilled(self._session)  # by others, before

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
    ) -> RayPart:
        """Order an actor that makes `factory(spec)`. Raises RunError if these cannot be pickled, or if the Ray of this machine alone, to
        which no node is added, has no room for it."""
        self._require_open()
        require_concurrency(concurrency)
        name = name or factory_name(factory)
        options = actor_options(resources or {}, concurrency=concurrency, node=node)
        if self._alone and set(amounts(options)) - {"CPU"} and not has_room([*self._wanted(), (options, "")]):
            raise RunError(_no_room(name, "has no place", options))
        try:
            order = ray.put(ray.cloudpickle.dumps((factory, spec)))  # type: ignore[no-untyped-call]
        except UNSENT as error:
            raise RunError(f"{name} cannot be sent to another process: {error}") from error
        part = RayPart(self, name, order, options, restarts=restarts, heartbeat=heartbeat)
        self._parts.append(part)
        self._begin(part)
        self._end_unplaced()
        return part

    def call(self, handle: RayPart, method: str, *args: Any) -> RayAnswer:
        """Send the call. Raises RunError if an argument cannot be pickled. References inside of an argument are for `fetch`."""
        self._require_open()
        require_own_ref(self, handle, RayPart)
        values = []
        for argument in args:
            if isinstance(argument, RayAnswer):
                require_own_ref(self, argument, RayAnswer)
                if argument.error is not None:
                    return RayAnswer(self, None, error=argument.error)
                argument = argument.ref
            values.append(argument)
        life = handle.life
        if life.why is not None:
            return RayAnswer(self, None, error=life.why)
        try:
            answer = RayAnswer(self, life.actor.call.remote(method, *values), life=life, number=life.calls + 1)
        except UNSENT as error:
            raise RunError(
                f"an argument of {method!r} of {handle.name} cannot be sent to another process: {error}"
            ) from error
        life.calls += 1
        return answer

    def wait(
        self, refs: Sequence[RayAnswer], *, at_least: int = 1, timeout: float | None = None
    ) -> tuple[list[RayAnswer], list[RayAnswer]]:
        """Return (done, pending). Values are not fetched: this asks only where they are."""
        self._require_open()
        for ref in refs:
            require_own_ref(self, ref, RayAnswer)
        require_answerable(refs, at_least)
        waiting = [ref.ref for ref in refs if ref.ref is not None]
        finished = self._wait(waiting, at_least - (len(refs) - len(waiting)), timeout)
        done = [ref for ref in refs if ref.ref is None or ref.ref in finished]
        for ref in done:
            ref.is_there()
        return done, [ref for ref in refs if ref.ref is not None and ref.ref not in finished]

    def put(self, value: Any) -> RayAnswer:
        """Copy a value into the object store of this node."""
        self._require_open()
        try:
            return RayAnswer(self, ray.put(value))
        except UNSENT as error:
            raise RunError(f"the value cannot be sent to another process: {error}") from error

    def get(self, ref: RayAnswer, *, timeout: float | None = None) -> Any:
        """Return the value. Large arrays lie in the object store, which keeps them as long as they are used."""
        self._require_open()
        require_own_ref(self, ref, RayAnswer)
        if ref.ref is None:
            raise copy_error(ref.error)
        begun = time.monotonic()
        try:
            self._wait([ref.ref], 1, timeout)
            left = None if timeout is None else max(0.0, timeout - (time.monotonic() - begun))
            value = ray.get(ref.ref, timeout=left)
            ref.is_there()
            return value
        except GetTimeoutError:
            raise TimeoutError(f"no answer within {timeout:g} seconds.") from None
        except RayError as error:
            require_alive(self._session)  # parts die with their Ray
            life, lost = ref.life, is_lost(error, ref.ref)
            if life is not None and (lost or is_death(error, life.actor_id)):
                life.look()  # one that had no process yet (on a node that was being lost, say) costs no restart; its time goes on
                last_output = stderr_tail(self._session, life.process)
                # A large answer stays on the part's node until it is fetched: where it is gone, so is the part.
                why = (
                    "died with its node, and what it had answered is lost"
                    if lost
                    else f"died before it had answered ({reason(error, last_output)})"
                )
                self._end(life, why, free=not (lost or life.process))
                raise copy_error(life.why) from RemoteTraceback(f"{error}{last_output}")
            raise translate(error)  # noqa: B904  its cause is the remote traceback

    @staticmethod
    def fetch(ref: Any) -> Any:
        """Return the value of a reference that a part was given inside of an argument. Raises RunError if it is lost."""
        try:
            return ray.get(ref)
        except RayError as error:
            raise translate(error)  # noqa: B904  its cause is the remote traceback

    def incarnation(self, handle: RayPart) -> int:
        """Return how many times the part has been made again."""
        self._require_open()
        require_own_ref(self, handle, RayPart)
        return handle.number

    def peer(self, handle: RayPart) -> RayPeer:
        """Return the part's present incarnation, for other parts."""
        self._require_open()
        require_own_ref(self, handle, RayPart)
        return RayPeer(handle.life)

    def node(self, handle: RayPart) -> str:
        """Return the id of the node that the part lives on. Waits until it is there, and raises as `get` does."""
        self._require_open()
        require_own_ref(self, handle, RayPart)
        life = handle.life
        _, node = self.get(RayAnswer(self, None if life.why else life.placement_ref, life=life, error=life.why))
        return str(node)

    def heartbeat(self, handle: RayPart) -> RayAnswer:
        """Request a heartbeat of a thread of its own."""
        self._require_open()
        require_own_ref(self, handle, RayPart)
        if not handle.heartbeat:
            raise RunError(NO_HEARTBEAT)
        life = handle.life
        if life.why is not None:
            return RayAnswer(self, None, error=life.why)
        return RayAnswer(self, life.heartbeat(), life=life)

    def restart(self, handle: RayPart, *, why: str = GIVEN_UP) -> None:
        """Kill the part's process and make the part again, if it has a restart left."""
        self._require_open()
        require_own_ref(self, handle, RayPart)
        life = handle.life
        life.look()
        self._end(life, why)
        kill(self._session, life.process)

    def stop(self, handle: RayPart) -> None:
        """Kill the part's process. `get` of what it has not answered raises RunError. Stopping twice is harmless."""
        self._require_open()
        require_own_ref(self, handle, RayPart)
        if handle in self._parts:
            self._parts.remove(handle)
        handle.life.look()
        handle.life.why = RunError(STOPPED)
        self._kill(handle.life)
        kill(self._session, handle.life.process)  # which may be frozen

    def parts(self) -> list[PartState]:
        """Return what is known of each part. A part that has a heartbeat and was silent for `base.HEARTBEAT_AFTER` seconds is asked for
        one, which is not waited for: it shows the next time."""
        self._require_open()
        lives = [part.life for part in self._parts]
        self._collect_heartbeats([life for life in lives if life.why is None])
        return [life.state() for life in lives]

    def _collect_heartbeats(self, lives: Sequence[RayIncarnation]) -> None:
        waiting = {life.pending_heartbeat: life for life in lives if life.pending_heartbeat is not None}
        done = ray.wait([*waiting], num_returns=len(waiting), timeout=0.0)[0] if waiting else []
        for ref in done:
            life = waiting[ref]
            life.pending_heartbeat = None
            with contextlib.suppress(RayError):  # it has died, which the next `get` tells
                ray.get(ref)
                life.last_seen = time.time()
        for life in lives:
            life.look()
            if (
                life.part.heartbeat
                and life.process
                and life.pending_heartbeat is None
                and needs_heartbeat(life.last_seen, life.heartbeat_at)
            ):
                life.pending_heartbeat, life.heartbeat_at = life.heartbeat(), time.time()

    def spilled(self) -> int:
        """Return bytes that went to disk so far since the nodes' shared memory was full, those of others who use the cluster included."""
        return spilled(self._session) - self._spilled

    def observers(self, *, observer: Observer, event: Callable[[str, str], None]) -> list[Observer]:
        """Return what tells the observer of a run that values go to disk. event: keeps (kind, text)."""
        return [ObjectStoreSpillObserver(self.spilled, observer=observer, event=event)]

    def close(self) -> None:
        """Kill all parts, and end the local Ray if this was its last user. Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        for part in self._parts:
            self._kill(part.life)
        leave(self._session)

    def _begin(self, part: RayPart, until: float | None = None) -> None:
        part.life = RayIncarnation(part, time.monotonic() + self._start_timeout if until is None else until)
        part.life.look_at = time.monotonic()
        self._starting.append(part.life)

    def _end(self, life: RayIncarnation, why: str, *, free: bool = False) -> None:
        """End an incarnation: its part gets a new one, `free` or if it has a restart left. An incarnation ends once."""
        if life.why is not None:
            return
        part = life.part
        self._kill(life)
        if not free and part.spent == part.restarts:
            life.why = PartDied(out_of_restarts_message(part.name, why, restarts=part.restarts))
            return
        part.spent += not free
        part.number += 1
        life.why = PartDied(restart_message(part.name, why, spent=part.spent, restarts=part.restarts))
        self._begin(part, life.until if free else None)
        if not free:
            self.tell(str(life.why))

    def _kill(self, life: RayIncarnation) -> None:
        if life in self._starting:
            self._starting.remove(life)
        with contextlib.suppress(Exception):  # it is dead already, or all of Ray is
            ray.kill(life.actor)

    def _wait(self, refs: list[ray.ObjectRef[Any]], at_least: int, timeout: float | None) -> set[ray.ObjectRef[Any]]:
        """Return those that are done, once so many are or the time is over; incarnations whose process does not come are ended
        meanwhile."""
        end = None if timeout is None else time.monotonic() + timeout
        if not refs:
            return set()
        while True:
            self._end_unplaced()
            soon = [time.monotonic() + _HEARTBEAT_SECONDS, *(life.look_at for life in self._starting)]
            left = max(0.0, min(soon if end is None else [*soon, end]) - time.monotonic()) if at_least > 0 else 0.0
            done, _ = ray.wait(refs, num_returns=max(1, at_least), timeout=left, fetch_local=False)
            if len(done) == len(refs):
                return set(done)
            if len(done) >= at_least or (end is not None and time.monotonic() >= end):
                return set(ray.wait(refs, num_returns=len(refs), timeout=0.0, fetch_local=False)[0])
            require_alive(self._session)

    def _end_silent(self) -> None:
        """End parts whose process is stopped while it makes them. Other machines' kernels cannot be asked."""
        self._making = [life for life in self._making if life.why is None and not life.is_made()]
        for life in list(self._making):
            if life.is_silent():
                self._end(life, silent_start())
                kill(self._session, life.process)
            elif life.silence is not None and (text := life.silence.warning()):
                self.tell(text)

    def _end_unplaced(self) -> None:
        arrivals = [life for life in self._starting if life.look()]
        self._starting = [life for life in self._starting if life not in arrivals]
        if self._session.folder:
            self._making += [life for life in arrivals if life.process]
            self._end_silent()
        now = time.monotonic()
        for life in [life for life in self._starting if life.look_at <= now]:
            life.look_at = min(life.until, now + _LOOK)
            require_alive(self._session)  # or what follows waits for Ray's head
            if now >= life.until:
                self._give_up(life, f"got no process within {self._start_timeout:g} seconds")
            elif has_room(self._wanted()):
                life.had_room_at = now
            elif life.had_room_at and now - life.had_room_at >= ROOM:
                self._give_up(life, f"got no process: for {ROOM:g} seconds the nodes that are left had no room for it")

    def _wanted(self) -> list[tuple[Mapping[str, Any], str]]:
        return [(part.options, part.life.node) for part in self._parts if part.life.why is None]

    def _give_up(self, life: RayIncarnation, why: str) -> None:
        life.why = RunError(_no_room(life.part.name, why, life.part.options))
        self._kill(life)

    def _require_open(self) -> None:
        if self._closed:
            raise RunError(CLOSED)
        if not ray.is_initialized():  # Ray would start another by itself
            raise RunError("the connection to Ray was closed by somebody else; make a new runtime.")
        if self._session.death:
            require_alive(self._session)


def _no_room(name: str, why: str, options: Mapping[str, Any]) -> str:
    """Return the message for a part that Ray cannot place."""
    total, free = ray.cluster_resources(), ray.available_resources()  # type: ignore[no-untyped-call]
    gpus = (
        "; there is no GPU that Ray knows of (nvidia-smi lists them)"
        if options.get("num_gpus") and not total.get("GPU")
        else ""
    )
    return (
        f"{name} {why}. It needs {describe_resources(options)}; the cluster has {describe_resources(total)}, of which "
        f"{describe_resources(free)} is free{gpus}. Ask for less, run fewer parts (runtime.tasks is how many tasks have trainers at a "
        "time), or add nodes."
    )
