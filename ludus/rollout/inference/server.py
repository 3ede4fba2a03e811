"""Inference for many workers in one part: their rows together, each policy evaluated once."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

from ludus.core.errors import PartDied, RunError, ScenarioError, TrainingError
from ludus.core.machine import deterministic_algorithms, out_of_memory
from ludus.core.types import CPU, DeviceChoice, PolicyRef
from ludus.rollout.inference.policy_cache import CachedPolicy, PolicyCache, RemoteAct, RequestRows
from ludus.runtime.base import Handle, Peer, Ref, Runtime

# --------------------------------------------------------------------------------------------------------------------
# Requests of many threads, answered in batches. Whoever asks waits in a queue; its head leads. The leader waits
# until a batch is due, answers it for all, and hands the lead to whoever is the head then. A batch is due when it
# is full, when everyone who may come is there, or when its head has waited long enough.

Q = TypeVar("Q")
A = TypeVar("A")


class QueuedRequest(Generic[Q, A]):
    """A request in the queue, and what comes of it. size: its rows. until: when its batch is due, in `time.monotonic` seconds."""

    __slots__ = ("answer", "client", "done", "error", "request", "size", "turn", "until")

    def __init__(self, client: str, request: Q, size: int, *, until: float, lock: threading.Lock) -> None:
        self.client, self.request, self.size, self.until = client, request, size, until
        self.turn = threading.Condition(lock)
        self.done = False
        self.answer: A | None = None
        self.error: Exception | None = None

    def result(self) -> A:
        """Return the answer, or raises what came instead."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer


class Batches(Generic[Q, A]):
    """`evaluate(requests)` gives one answer for each. If it raises, each request of the batch is evaluated alone, so that the error goes
    to whoever caused it.

    max_wait: seconds that a request waits for others at most, while nothing else is being evaluated. max_batch: rows that a batch has at
    most; a larger request is a batch of its own. callers: how many can wait at the same time.

    Who was not in the last batch and is not in the queue is not waited for.
    """

    def __init__(
        self, evaluate: Callable[[Sequence[Q]], Sequence[A]], *, max_wait: float, max_batch: int, callers: int
    ) -> None:
        self.batches = self.requests = self.rows = 0
        self._evaluate = evaluate
        self._max_wait, self._max_batch, self._callers = max_wait, max_batch, callers
        self._lock = threading.Lock()
        self._queue: deque[QueuedRequest[Q, A]] = deque()
        self._expected: set[str] = set()
        self._leader: QueuedRequest[Q, A] | None = None
        self._closed = False

    def ask(self, client: str, request: Q, *, size: int) -> A:
        """Return the answer. Raises what evaluating the request raised, and RunError once it is closed."""
        ticket: QueuedRequest[Q, A] = QueuedRequest(
            client, request, size, until=monotonic() + self._max_wait, lock=self._lock
        )
        with self._lock:
            self._join(ticket)
            while not ticket.done and self._leader is not ticket:
                ticket.turn.wait()
            batch = [] if ticket.done else self._gather(ticket)
        if batch:
            self._serve(batch)
        return ticket.result()

    def close(self) -> None:
        """Fail waiting and later requests with RunError."""
        with self._lock:
            self._closed = True
            for ticket in self._queue:
                ticket.error = _closed()
                ticket.done = True
                ticket.turn.notify()
            self._queue.clear()

    def _join(self, ticket: QueuedRequest[Q, A]) -> None:
        if self._closed:
            raise _closed()
        self._queue.append(ticket)
        self._expected.add(ticket.client)
        if self._leader is None:
            self._leader = ticket
        elif self._due():
            self._leader.turn.notify()

    def _due(self) -> bool:
        """Return whether nobody else can or should be waited for."""
        return (
            len(self._queue) >= min(self._callers, len(self._expected))
            or sum(ticket.size for ticket in self._queue) >= self._max_batch
        )

    def _gather(self, leader: QueuedRequest[Q, A]) -> list[QueuedRequest[Q, A]]:
        """Return the batch, once it is due; nothing if it was closed meanwhile."""
        while not leader.done and not self._due() and (left := leader.until - monotonic()) > 0:
            leader.turn.wait(left)
        batch: list[QueuedRequest[Q, A]] = []
        rows = 0
        while self._queue and (not batch or rows + self._queue[0].size <= self._max_batch):
            batch.append(self._queue.popleft())
            rows += batch[-1].size
        self._expected = {ticket.client for ticket in (*batch, *self._queue)}
        self.batches += bool(batch)
        self.requests += len(batch)
        self.rows += rows
        return batch

    def _serve(self, batch: Sequence[QueuedRequest[Q, A]]) -> None:
        try:
            self._answer(batch)
        finally:
            with self._lock:
                for ticket in batch:
                    if ticket.answer is None and ticket.error is None:  # the leader's thread was interrupted
                        ticket.error = RunError("the batch that this request was in was not evaluated.")
                    ticket.done = True
                    ticket.turn.notify()
                self._leader = self._queue[0] if self._queue else None
                if self._leader is not None:
                    self._leader.turn.notify()

    def _answer(self, batch: Sequence[QueuedRequest[Q, A]]) -> None:
        try:
            for ticket, answer in zip(batch, self._evaluate([t.request for t in batch]), strict=True):
                ticket.answer = answer
        except Exception as error:  # noqa: BLE001  (goes to whoever asked)
            if len(batch) == 1:
                batch[0].error = error
                return
            for ticket in batch:
                ticket.answer = None
                self._answer([ticket])


def _closed() -> RunError:
    return RunError("this inference server is closed.")


@dataclass(frozen=True, slots=True, eq=False)
class ServerSpec:
    """fetch: gives the value of a reference, where the server is. callers: how many may ask at the same time. max_wait: seconds that a
    request waits for others. max_batch: rows that are evaluated together. kept: bytes of policies that stay when nobody holds them. device:
    where policies are asked to compute."""

    fetch: Callable[[Ref], Any]
    callers: int
    max_wait: float = 0.002
    max_batch: int = 4096
    cache_bytes: int = 256 << 20
    device: DeviceChoice = CPU


class LoadedPolicies(NamedTuple):
    """server: which incarnation holds the policies."""

    server: str
    held: list[CachedPolicy]


class InferenceServer:
    """A part that is asked by many at the same time (`concurrency` of its `callers`, and one). It keeps policies and nothing else: slots,
    memory and random numbers are the clients'."""

    def __init__(self, spec: ServerSpec) -> None:
        self._name = secrets.token_hex(8)
        self._open = ExitStack()
        self._open.enter_context(deterministic_algorithms(spec.device.deterministic))
        self._cache = PolicyCache(
            spec.fetch, cache_bytes=spec.cache_bytes, device=spec.device, max_batch=spec.max_batch
        )
        self._loading = threading.Lock()
        self._extras: dict[str, tuple[str, ...]] = {}
        self._busy = {"loading": 0.0, "evaluating": 0.0}  # since when, in `time.monotonic` seconds; 0: it is not
        self._batches: Batches[tuple[Sequence[RequestRows], Sequence[str]], list[RemoteAct]] = Batches(
            self._answer, max_wait=spec.max_wait, max_batch=spec.max_batch, callers=spec.callers
        )

    def ready(self) -> None:
        """Answer as soon as the server is created."""

    def load(
        self,
        client: str,
        server: str,
        keep: Sequence[int],
        wanted: Sequence[tuple[PolicyRef, Ref]],
        extras: Sequence[str],
    ) -> LoadedPolicies | None:
        """From now on a client holds what it `keep`s of what it held on this incarnation, and the `wanted`; and asks for these extras.
        None, and nothing is done, if it did not hold what it wants to keep. Raises PolicyError for a policy that lacks its mode."""
        with self._loading, self._counted("loading"):
            if keep and (server != self._name or not self._cache.holds(client, keep)):
                return None
            held = self._cache.load(client, keep, wanted)
            self._extras[client] = tuple(extras)
            return LoadedPolicies(self._name, held)

    def act(self, client: str, *parts: RequestRows) -> list[RemoteAct]:
        """Return one answer for each part. Raises what a policy raised, and RunError once the server is closed."""
        request = parts, self._extras.get(client, ())
        return self._batches.ask(client, request, size=sum(len(rows.noise) for rows in parts))

    def heartbeat(self) -> float:
        """Return seconds that the evaluation or the loading in progress has taken so far."""
        now = monotonic()
        return max(now - begun if begun else 0.0 for begun in self._busy.values())

    def counters(self) -> Mapping[str, int]:
        """Return counts: requests, rows and batches that were answered, policies that were fetched."""
        done = self._batches
        return {
            "requests": done.requests,
            "rows": done.rows,
            "batches": done.batches,
            "fetched": self._cache.fetched,
        }

    def close(self) -> None:
        """Fail waiting and later requests with RunError."""
        self._batches.close()
        self._open.close()

    def _answer(self, requests: Sequence[tuple[Sequence[RequestRows], Sequence[str]]]) -> list[list[RemoteAct]]:
        with self._counted("evaluating"):
            try:
                return self._cache.answer(requests)
            except Exception as error:
                if (full := out_of_memory(error)) is None:
                    raise
                rows = sum(len(part.noise) for parts, _ in requests for part in parts)
                raise TrainingError(
                    f"an inference server has not enough memory for {rows:,} rows: {full}. Give a smaller runtime.inference.max_batch, "
                    "fewer env.num_envs, or device=cpu."
                ) from error

    @contextmanager
    def _counted(self, what: str) -> Iterator[None]:
        self._busy[what] = monotonic()
        try:
            yield
        finally:
            self._busy[what] = 0.0


# --------------------------------------------------------------------------------------------------------------------
# The inference servers of some rollout hosts: where they are, whom each serves, and what happens when one dies. For
# the driver.

_OTHERS = 2  # calls that a server answers beside those of its hosts
_PATIENCE = 20.0  # seconds within which a server says that it is there
_STARTING = 300.0  # seconds that making one may take
_MOST = 0.5  # of a deadline: an evaluation that takes longer is stuck


@dataclass(frozen=True, slots=True)
class SharedInference:
    """Inference by servers. servers: how many (None: one for each node that hosts are on). max_wait: seconds that a request waits for those
    of other hosts at most. max_batch: rows that are evaluated together at most. resources, restarts, device: of each server.

    Raises ScenarioError for numbers that make no sense.
    """

    servers: int | None = None
    max_wait: float = 0.002
    max_batch: int = 4096
    resources: Mapping[str, float] = field(default_factory=dict)
    restarts: int = 3
    device: DeviceChoice = CPU

    def __post_init__(self) -> None:
        for name, value, least in (
            ("servers", self.servers, 1),
            ("max_wait", self.max_wait, 0),
            ("max_batch", self.max_batch, 1),
        ):
            if value is not None and not value >= least:
                raise ScenarioError(f"shared inference with {name}={value}; expected {least} or more.")


class _Start(NamedTuple):
    """Done as soon as a server is made, and the time until which it may take for that."""

    answer: Ref
    until: float


class Serving(NamedTuple):
    """A server's incarnation, for one request of a host."""

    server: int
    life: int
    peer: Peer


class Servers:
    """Servers for `hosts`, each beside those that it serves. They are made when the first is asked for, since hosts have to be somewhere
    by then."""

    def __init__(
        self, runtime: Runtime, choice: SharedInference, hosts: Sequence[Handle], *, deadline: float | None = None
    ) -> None:
        """deadline: of the hosts, in seconds."""
        self._runtime, self._choice, self._hosts, self._deadline = runtime, choice, hosts, deadline
        self._servers: list[Handle] = []
        self._server_of: list[int] = []  # by host
        self._made: dict[tuple[int, int], _Start] = {}  # by server and life
        self._lives = 0

    def newly_restarted(self) -> int:
        """Return how many times servers were made again since this was asked last."""
        lives = sum(map(self._runtime.incarnation, self._servers))
        new, self._lives = lives - self._lives, lives
        return new

    def life(self, host: int) -> int:
        """Return how often what serves a host was restarted; 0 before it exists."""
        return self._runtime.incarnation(self._servers[self._server_of[host]]) if self._servers else 0

    def serving(self, host: int) -> Serving:
        """Return what serves a host now. Raises as `Runtime.get` does if a host cannot be placed."""
        if not self._servers:
            self._spawn()
        number = self._server_of[host]
        server, life = self._servers[number], self._runtime.incarnation(self._servers[number])
        if (number, life) not in self._made:
            self._made[number, life] = _Start(self._runtime.call(server, "ready"), monotonic() + _STARTING)
        return Serving(number, life, self._runtime.peer(server))

    def mend(self, serving: Serving) -> None:
        """A request ended with PartDied, and its host lives: so its server died, or could not be reached. Returns once another incarnation
        takes its place; raises PartDied if it has no restart left."""
        server = self._servers[serving.server]
        if self._runtime.incarnation(server) != serving.life:
            return
        try:
            self._runtime.get(self._runtime.call(server, "ready"), timeout=_PATIENCE)
        except PartDied:
            if self._runtime.incarnation(server) == serving.life:
                raise
            return
        except TimeoutError:
            pass
        self._again(server, serving.life)

    def unstick(self, host: int) -> bool:
        """Return whether the server is the reason that a host has made no step for `deadline` seconds. Then that is only being made, or it
        is made again now: it does not answer, or its evaluation takes most of that time already."""
        if not self._servers or self._deadline is None:
            return False
        number = self._server_of[host]
        server, life = self._servers[number], self._runtime.incarnation(self._servers[number])
        start = self._made.get((number, life))
        if start is not None and not self._runtime.wait([start.answer], at_least=0, timeout=0.0)[0]:
            return monotonic() < start.until or self._again(server, life)
        try:
            busy = self._runtime.get(self._runtime.heartbeat(server), timeout=_PATIENCE)
        except TimeoutError:
            busy = self._deadline  # its process does not run
        except PartDied:
            return True
        return busy is None or (busy > _MOST * self._deadline and self._again(server, life))

    def close(self) -> None:
        """Give the servers back, whatever they are doing."""
        for server in self._servers:
            self._runtime.stop(server)

    def _again(self, server: Handle, life: int) -> bool:
        """Make a server again in place of this incarnation. Raises PartDied if it has no restart left."""
        self._runtime.restart(server)
        if self._runtime.incarnation(server) == life:
            raise PartDied(
                "an inference server did not answer, and its restarts are used up; see what its node or a policy is doing."
            )
        return True

    def _spawn(self) -> None:
        nodes = [self._node(host) for host in self._hosts]
        count = self._choice.servers or len(set(nodes))
        order = sorted(range(len(nodes)), key=lambda host: nodes[host])
        groups: dict[object, list[int]] = {}
        for place, host in enumerate(order):
            groups.setdefault(nodes[host] if self._choice.servers is None else place * count // len(order), []).append(
                host
            )
        self._server_of = [0] * len(nodes)
        for number, served in enumerate(groups.values()):
            self._servers.append(self._server(number, callers=len(served), node=nodes[served[0]]))
            for host in served:
                self._server_of[host] = number

    def _server(self, number: int, *, callers: int, node: str) -> Handle:
        choice = self._choice
        spec = ServerSpec(
            self._runtime.fetch,
            callers=callers,
            max_wait=choice.max_wait,
            max_batch=choice.max_batch,
            device=choice.device,
        )
        return self._runtime.spawn(
            InferenceServer,
            spec,
            resources=choice.resources,
            restarts=choice.restarts,
            concurrency=callers + _OTHERS,
            heartbeat=True,
            node=node,
            name=f"inference server {number}",
        )

    def _node(self, host: Handle) -> str:
        """Return where a host lives; one that dies meanwhile may be made again."""
        while True:
            life = self._runtime.incarnation(host)
            try:
                return self._runtime.node(host)
            except PartDied:
                if self._runtime.incarnation(host) == life:
                    raise
