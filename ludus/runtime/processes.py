"""Parts as processes of this machine, without Ray: forked by a small server, called over sockets, with large values in shared memory.

driver --fork--> fork server --> part, part …
driver <--------calls, answers, values--------> each part <--calls--> other parts
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, takewhile
from typing import Any
from weakref import WeakValueDictionary

import cloudpickle

from ludus.core.errors import PartDied, RunError
from ludus.core.machine import open_standard_files, raise_file_limit, why_no_processes
from ludus.runtime import process_peers
from ludus.runtime.activity import StartupSilence, silent_start
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
    part_kind,
    part_state,
    require_answerable,
    require_concurrency,
    require_own_ref,
    restart_message,
)
from ludus.runtime.connections import (
    BEGIN,
    CALL,
    DONE,
    FETCH,
    HEARTBEAT,
    PING,
    RAISED,
    ConnectionLoop,
    FrameConnection,
    Outcome,
    listener,
)
from ludus.runtime.exceptions import RemoteTraceback
from ludus.runtime.fork_server import ForkServer
from ludus.runtime.process_host import Order
from ludus.runtime.process_peers import ProcessPeer, RemoteRef, outcome_value, packed_call, raised
from ludus.runtime.shared_values import Value, note, pack

_GRACE = 5.0  # seconds that a killed process may take to be gone, and what is known of its end to come
_MOST_WORDS = 1 << 24  # bytes that are kept of what a part prints
_LAST_WORDS = 1 << 13  # bytes, of which so many lines are shown:
_LINES = 40
_LOOK = 1.0  # seconds between two looks at whether processes that start run
_numbers = count(1)


class ProcessIncarnation:
    """One incarnation of a part: a process.

    process: its id, 0 before it is there. ready: its part is made. silence: whether its process runs until then. descriptor: of the
    process, which no other can come to have; -1 before it is there and once it is gone. how: it ended, in words. why: what it did not
    answer fails with. until: when it must be there, in `time.monotonic` seconds.
    pending_heartbeat: of a heartbeat that was asked for, at the Unix time heartbeat_at.
    """

    def __init__(self, part: ProcessPart, wire: FrameConnection, address: str, until: float) -> None:
        self.part, self.wire, self.address, self.until = part, wire, address, until
        self.number = next(_numbers)
        self.process = 0
        self.ready = False
        self.silence: StartupSilence | None = None
        self.descriptor = -1
        self.unwanted = False
        self.pending_heartbeat: Outcome | None = None
        self.heartbeat_at = 0.0
        self.how: str | None = None
        self.why: RunError | None = None
        with tempfile.TemporaryFile() as log:  # which has no name, and is gone with its last descriptor
            self.log = os.dup(log.fileno())

    def begun(self, outcome: Outcome) -> None:
        """Its part was made, which may be heard before its fork is: whoever has had an answer knows its process."""
        if outcome.kind == DONE and outcome.value is not None:
            self.process, self.ready = outcome.value.load(), True

    def is_silent(self) -> bool:
        """Return whether its process, which is there and makes the part, has not run for long. Its thread is woken by each question."""
        if self.silence is None:
            self.silence = StartupSilence(self.process, self.part.name)
        if self.pending_heartbeat is None or self.pending_heartbeat.kind:
            self.pending_heartbeat = self.wire.ask(PING, Value())
        return self.silence.look()

    def kill(self) -> None:
        """Kill it, whatever it is doing, also where it is frozen. What it has not answered is lost."""
        self.unwanted = True
        self.wire.close()
        if self.descriptor >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)

    def state(self) -> PartState:
        """Return what is known of it."""
        part, last_seen, has_process = self.part, self.wire.heard, self.process > 0
        state = part_state(
            dead=self.why is not None, has_process=has_process, busy=self.wire.owed > 0, last_seen=last_seen
        )
        return PartState(part_kind(part.name), part.name, "", self.process or None, state, last_seen, part.number)

    def forget_words(self) -> None:
        """Remove its output, if there is much."""
        if os.fstat(self.log).st_size > _MOST_WORDS:
            os.ftruncate(self.log, 0)
            os.lseek(self.log, 0, os.SEEK_SET)  # for the part, too: it writes through the same description

    def look(self) -> None:
        """Ask for a sign of life, if that is due, and forget what it printed, if that is much."""
        self.forget_words()
        if (
            self.part.heartbeat
            and self.process
            and (self.pending_heartbeat is None or self.pending_heartbeat.kind)
            and needs_heartbeat(self.wire.heard, self.heartbeat_at)
        ):
            self.pending_heartbeat, self.heartbeat_at = self.wire.ask(HEARTBEAT, Value()), time.time()

    def stderr_tail(self) -> str:
        """Return what it wrote to standard output and error at its end, the trace of a crash included."""
        with suppress(OSError):
            size = os.fstat(self.log).st_size
            text = os.pread(self.log, _LAST_WORDS, max(0, size - _LAST_WORDS)).decode(errors="replace")
            if lines := text.splitlines()[-_LINES:]:
                return "\n".join(["Its last words:", *lines])
        return ""

    def __del__(self, close: Any = os.close) -> None:
        close(self.log)


class ProcessPart:
    """Handle of a spawned part: the order it is made from, its current life and the number of that, and whether it has a `heartbeat`."""

    __slots__ = ("gpus", "heartbeat", "life", "module", "name", "number", "order", "owner", "restarts")

    def __init__(
        self,
        owner: ProcessRuntime,
        name: str,
        order: Value,
        module: str,
        *,
        restarts: int,
        heartbeat: bool,
        gpus: list[str],
    ) -> None:
        self.owner, self.name, self.order, self.module = owner, name, order, module
        self.restarts, self.heartbeat, self.gpus = restarts, heartbeat, gpus
        self.number = 0
        self.life: ProcessIncarnation


class ProcessAnswer:
    """Reference to what comes of a call, or to a value; or why nothing can come."""

    __slots__ = ("__weakref__", "error", "life", "number", "outcome", "owner")

    def __init__(
        self,
        owner: ProcessRuntime,
        outcome: Outcome | None,
        *,
        life: ProcessIncarnation | None = None,
        error: RunError | None = None,
    ) -> None:
        self.owner, self.outcome, self.life, self.error = owner, outcome, life, error
        self.number = next(_numbers)
        owner.refs[self.number] = self

    @property
    def is_done(self) -> bool:
        """Whether `get` need not wait."""
        return self.outcome is None or bool(self.outcome.kind)

    def fetch(self) -> Any:
        """Return the value, in the driver."""
        return self.owner.get(self)

    def __reduce__(self) -> Any:
        """In a part it arrives as what stands for it there."""
        if self.outcome is None:
            raise RunError("a reference to something that cannot come any more was passed inside an argument.")
        note(self)
        return RemoteRef, (self.number,)


class ProcessRuntime:
    """A `Runtime` of processes on this machine (Linux).

    - Each part is a process, forked by a server that has loaded Ludus and its libraries: no main module is run again, and functions of it
      travel by value. They end with this process, however it ends, and leave no file or shared memory behind.
    - Values of 64 KiB and more lie in shared memory: written once, mapped by each reader, gone with the last of them. Arrays arrive
      read-only. Exceptions arrive with their type, message and attributes; their cause is the remote traceback.
    - A part that dies is made again by the driver when it learns of it, in `get`: calls made before then fail with PartDied.
    - Numerical libraries use one thread in a part. Nobody counts cores: `num_cpus` is ignored. Whole cards are handed out (`num_gpus`).
    """

    fetch = staticmethod(process_peers.fetch)

    def __init__(self, *, start_timeout: float = 120.0) -> None:
        """start_timeout: seconds that a part may wait for its process."""
        if why := why_no_processes():
            raise RunError(f"runtime.kind=processes was given, and {why}. Use --runtime ray, or inprocess.")
        open_standard_files()
        raise_file_limit()  # each large value that somebody holds has one
        self.tell: Callable[[str], None] = ignore
        self.refs: WeakValueDictionary[int, ProcessAnswer] = WeakValueDictionary()
        self._closed = False
        self._start_timeout = start_timeout
        self._lives: dict[int, ProcessIncarnation] = {}  # whose processes are not known to be over
        self._starting: list[ProcessIncarnation] = []
        self._parts: list[ProcessPart] = []
        self._gpus: list[str] | None = None
        self._wires = ConnectionLoop(self._receive, self._gone)
        self._server: ForkServer | None = None

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
    ) -> ProcessPart:
        """Order a process that makes `factory(spec)`. Raises RunError if these cannot be pickled, or for resources that there are not."""
        self._require_open()
        require_concurrency(concurrency)
        name = name or factory_name(factory)
        gpus = self._take_gpus(name, resources or {})
        path = tuple(os.path.abspath(entry) for entry in sys.path)
        try:
            made_of = cloudpickle.dumps((factory, spec))
            order = pack(Order(name, made_of, path, concurrency, ",".join(gpus)))
        except Exception as error:  # pickle raises PicklingError, AttributeError, TypeError …
            self._give_back(gpus)
            raise RunError(f"{name} cannot be sent to another process: {error}") from error
        module = getattr(factory, "__module__", "")
        part = ProcessPart(self, name, order, module, restarts=restarts, heartbeat=heartbeat, gpus=gpus)
        self._parts.append(part)
        self._begin(part)
        return part

    def call(self, handle: ProcessPart, method: str, *args: Any) -> ProcessAnswer:
        """Send the call. Raises RunError if an argument cannot be pickled. References inside of an argument are for `fetch`."""
        self._require_open()
        require_own_ref(self, handle, ProcessPart)
        for argument in args:
            if isinstance(argument, ProcessAnswer):
                require_own_ref(self, argument, ProcessAnswer)
                if argument.error is not None:
                    return ProcessAnswer(self, None, error=argument.error)
        life = handle.life
        if life.why is not None:
            return ProcessAnswer(self, None, error=life.why)
        life.forget_words()  # nobody may ask for `parts`
        return ProcessAnswer(self, life.wire.ask(CALL, packed_call(handle.name, method, args)), life=life)

    def wait(
        self, refs: Sequence[ProcessAnswer], *, at_least: int = 1, timeout: float | None = None
    ) -> tuple[list[ProcessAnswer], list[ProcessAnswer]]:
        """Return (done, pending)."""
        self._require_open()
        for ref in refs:
            require_own_ref(self, ref, ProcessAnswer)
        require_answerable(refs, at_least)
        self._await(refs, at_least, timeout)
        done = [ref.is_done for ref in refs]
        return (
            [ref for ref, is_done in zip(refs, done, strict=True) if is_done],
            [ref for ref, is_done in zip(refs, done, strict=True) if not is_done],
        )

    def put(self, value: Any) -> ProcessAnswer:
        """Copy a value, once for all who will read it."""
        self._require_open()
        outcome = Outcome(self._wires)
        try:
            outcome.settle(DONE, pack(value))
        except Exception as error:  # pickle raises PicklingError, AttributeError, TypeError …
            raise RunError(f"the value cannot be sent to another process: {error}") from error
        return ProcessAnswer(self, outcome)

    def get(self, ref: ProcessAnswer, *, timeout: float | None = None) -> Any:
        """Return the value. Large arrays lie in shared memory, as long as they are used."""
        self._require_open()
        require_own_ref(self, ref, ProcessAnswer)
        if not self._await([ref], 1, timeout):
            raise TimeoutError(f"no answer within {timeout:g} seconds.")
        if ref.outcome is not None and ref.outcome.kind != Outcome.LOST:
            return outcome_value(ref.outcome)
        last_output = "" if ref.life is None else self._learn_of(ref.life)
        error = ref.error if ref.life is None else ref.life.why
        raise copy_error(error) from (RemoteTraceback(last_output) if last_output else None)

    def incarnation(self, handle: ProcessPart) -> int:
        """Return how many times the part has been made again."""
        self._require_open()
        require_own_ref(self, handle, ProcessPart)
        return handle.number

    def heartbeat(self, handle: ProcessPart) -> ProcessAnswer:
        """Request a heartbeat of a thread of its own."""
        self._require_open()
        require_own_ref(self, handle, ProcessPart)
        if not handle.heartbeat:
            raise RunError(NO_HEARTBEAT)
        life = handle.life
        if life.why is not None:
            return ProcessAnswer(self, None, error=life.why)
        return ProcessAnswer(self, life.wire.ask(HEARTBEAT, Value()), life=life)

    def restart(self, handle: ProcessPart, *, why: str = GIVEN_UP) -> None:
        """Kill the part's process and make the part again, if it has a restart left."""
        self._require_open()
        require_own_ref(self, handle, ProcessPart)
        self._end(handle.life, why)

    def peer(self, handle: ProcessPart) -> ProcessPeer:
        """Return the part's present incarnation, for other parts."""
        self._require_open()
        require_own_ref(self, handle, ProcessPart)
        life, wires = handle.life, self._wires
        return ProcessPeer(
            life.address,
            handle.name,
            lambda call: life.wire.ask(CALL, call),
            lambda outcome, timeout: wires.wait(lambda: bool(outcome.kind), timeout),
        )

    def node(self, handle: ProcessPart) -> str:
        """Return "". Waits until the part's process is there, and raises as `get` does."""
        self._require_open()
        require_own_ref(self, handle, ProcessPart)
        life = handle.life
        self._look(lambda: bool(life.process) or life.how is not None or life.why is not None, None)
        if life.why is None and life.how is not None:
            self._learn_of(life)
        if life.why is not None:
            raise copy_error(life.why)
        return ""

    def stop(self, handle: ProcessPart) -> None:
        """Kill the part's process. `get` of what it has not answered raises RunError. Stopping twice is harmless."""
        self._require_open()
        require_own_ref(self, handle, ProcessPart)
        if handle in self._parts:
            self._parts.remove(handle)
        handle.life.why = RunError(STOPPED)
        self._kill(handle.life)
        self._give_back(handle.gpus)

    def parts(self) -> list[PartState]:
        """Return what is known of each part. A part that has a heartbeat and was silent for `base.HEARTBEAT_AFTER` seconds is asked for
        one, which is not waited for: it shows the next time."""
        self._require_open()
        lives = [part.life for part in self._parts]
        for life in lives:
            life.look()
        return [life.state() for life in lives]

    def close(self) -> None:
        """Kill all parts and what has forked them. Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        self._signal(list(self._lives.values()))
        if self._server is not None:
            self._server.end()
        self._wires.end()

    # ------------------------------------------------------------------------------------------ lives

    def _begin(self, part: ProcessPart) -> None:
        parent_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        address, listens = listener()
        with child_end, listens:
            life = part.life = ProcessIncarnation(
                part, self._wires.add(parent_end), address, time.monotonic() + self._start_timeout
            )
            self._lives[life.number] = life
            self._starting.append(life)
            server = self._forking()
            if part.module.startswith("ludus."):  # a user's own modules may do what no fork survives
                server.load(part.module)
            server.fork(life.number, [child_end.fileno(), listens.fileno(), life.log])
        life.wire.ask(BEGIN, part.order).then(life.begun)

    def _forking(self) -> ForkServer:
        """Return the fork server; another one where it has ended."""
        if self._server is not None and not self._server.alive:
            self._server.end()
            self._server = None
        if self._server is None:
            self._server = ForkServer(self._wires, forked=self._forked, ended=self._ended, over=self._over)
        return self._server

    def _learn_of(self, life: ProcessIncarnation) -> str:
        """End an incarnation that has lost a call: its part gets a new one, if it has a restart left. Return its last output."""
        if life.why is not None:
            return ""
        self._wires.wait(partial(_is_over, life), _GRACE)
        last_output = life.stderr_tail()
        crash = re.search(r"Fatal Python error: ([^\n]*)", last_output)
        how = f"its process crashed: {crash[1]}" if crash else life.how or "its connection was closed"
        self._end(life, f"died before it had answered ({how})")
        return f"{how}. {last_output}"

    def _end(self, life: ProcessIncarnation, why: str) -> None:
        """End an incarnation: its part gets a new one, if it has a restart left. An incarnation ends once."""
        if life.why is not None:
            return
        part = life.part
        if part.number == part.restarts:
            life.why = PartDied(out_of_restarts_message(part.name, why, restarts=part.restarts))
            self._kill(life)
            self._give_back(part.gpus)
            return
        life.why = PartDied(restart_message(part.name, why, spent=part.number + 1, restarts=part.restarts))
        self._kill(life)
        part.number += 1
        self._begin(part)
        self.tell(str(life.why))

    def _kill(self, life: ProcessIncarnation) -> None:
        """Kill it and wait until it is over."""
        self._signal([life])
        if life in self._starting:
            self._starting.remove(life)
        if life.process:
            self._wires.wait(partial(_is_over, life), _GRACE)

    def _signal(self, lives: Sequence[ProcessIncarnation]) -> None:
        with self._wires.changed:  # whether one has a process by now
            for life in lives:
                life.kill()

    def _await(self, refs: Sequence[ProcessAnswer], at_least: int, timeout: float | None) -> bool:
        return self._look(lambda: sum(ref.is_done for ref in refs) >= at_least, timeout)

    def _look(self, enough: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until it holds, or the time is over; lives whose process does not come are ended meanwhile."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            self._starting = [life for life in self._starting if not (life.ready or life.how)]
            limits = [life.until for life in self._starting if not life.process] + ([] if end is None else [end])
            limits += [time.monotonic() + _LOOK] if self._starting else []
            left = max(0.0, min(limits) - time.monotonic()) if limits else None
            if self._wires.wait(enough, left):
                return True
            now = time.monotonic()
            self._end_silent(now)
            if end is not None and now >= end:
                return enough()

    def _end_silent(self, now: float) -> None:
        """End what starts, and does not come or does not run."""
        for life in [life for life in self._starting if not life.process and now >= life.until]:
            life.why = RunError(
                f"{life.part.name} got no process within {self._start_timeout:g} seconds; see what this machine is doing."
            )
            self._kill(life)
        server = self._server
        if server is not None and server.alive and any(not life.process for life in self._starting):
            if server.silence.look():
                server.kill(f"which {silent_start()} a process")
            self._warn(server.silence)
        for life in [life for life in self._starting if life.process]:
            if life.is_silent():
                self._end(life, silent_start())
            elif life.silence is not None:
                self._warn(life.silence)

    def _warn(self, silence: StartupSilence) -> None:
        if text := silence.warning():
            self.tell(text)

    # ------------------------------------------------------------------------------------------ called by the wires' thread

    def _receive(self, wire: FrameConnection, kind: int, number: int, value: Value) -> None:
        """Answer a part that requests a value."""
        assert kind == FETCH
        ref = self.refs.get(value.load())
        if ref is None or ref.outcome is None:
            wire.send(RAISED, number, raised(RunError("a reference was kept by a part longer than by the driver.")))
            return
        name = "" if ref.life is None else ref.life.part.name

        def hand_over(outcome: Outcome) -> None:
            if outcome.kind == Outcome.LOST:
                died = PartDied(f"an argument came from a part that died: {name}.")
                wire.send(RAISED, number, raised(died))
            elif outcome.value is not None:
                wire.send(outcome.kind, number, outcome.value)

        ref.outcome.then(hand_over)

    def _gone(self, wire: FrameConnection) -> None:
        """Record that a part has closed its connection: it is over, or soon will be."""
        for life in list(self._lives.values()):
            if life.wire is wire:
                life.kill()

    def _forked(self, number: int, process: int, descriptor: int) -> None:
        life = self._lives.get(number)
        with self._wires.changed:
            if life is None:
                os.close(descriptor)
                return
            life.process, life.descriptor = process, descriptor
            if life.unwanted:
                life.kill()
            self._wires.changed.notify_all()

    def _ended(self, number: int, how: str) -> None:
        life = self._lives.pop(number, None)
        if life is None:
            return
        life.wire.finish()
        with self._wires.changed:
            if life.descriptor >= 0:
                os.close(life.descriptor)
            life.descriptor, life.how = -1, how
            self._wires.changed.notify_all()

    def _over(self) -> None:
        for life in list(self._lives.values()):
            life.kill()
            why = "which was killed" if self._server is None else self._server.why
            self._ended(life.number, f"its process ended with the fork server, {why}")

    # ------------------------------------------------------------------------------------------ what there is

    def _take_gpus(self, name: str, resources: Mapping[str, float]) -> list[str]:
        """Return GPUs for a part. Raises RunError for resources that do not exist."""
        for what, amount in resources.items():
            if not amount >= 0:
                raise RunError(f"resources are amounts of at least 0, unlike {what!r}: {amount!r}.")
            if what not in ("num_cpus", "num_gpus") and amount:
                raise RunError(
                    f"{name} needs {what} {amount:g}, and processes of this machine are not placed by that; Ray's are."
                )
        wanted = resources.get("num_gpus", 0.0)
        if not wanted:
            return []
        if not float(wanted).is_integer():
            raise RunError(f"{name} needs {wanted:g} of a card, and processes get whole ones; Ray can share them.")
        if self._gpus is None:
            self._gpus = _visible_gpus()
        if wanted > len(self._gpus):
            raise RunError(
                f"{name} has no place. It needs {wanted:g} cards, and {len(self._gpus)} of this machine's are free. Ask for less, or run "
                "fewer parts."
            )
        gpus, self._gpus = self._gpus[: int(wanted)], self._gpus[int(wanted) :]
        return gpus

    def _give_back(self, gpus: list[str]) -> None:
        if self._gpus is not None:
            self._gpus = sorted([*self._gpus, *gpus])
        gpus.clear()

    def _require_open(self) -> None:
        if self._closed:
            raise RunError(CLOSED)


def _is_over(life: ProcessIncarnation) -> bool:
    return life.how is not None


def _visible_gpus() -> list[str]:
    """Return the GPUs as CUDA names them, which sees none from the first on that there cannot be (-1)."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return list(takewhile(lambda name: not name.startswith("-"), filter(None, map(str.strip, visible.split(",")))))
    from ludus.backend.device import gpu_count  # loads torch

    return [str(k) for k in range(gpu_count())]
