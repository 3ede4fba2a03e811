"""The inference servers of some rollout hosts: where they are, whom each serves, and what happens when one dies. For the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

from ludus.errors import PartDied, ScenarioError
from ludus.rollout.inference.server import InferenceServer, ServerSpec
from ludus.runtime.base import Handle, Peer, Ref, Runtime

_OTHERS = 2  # calls that a server answers beside those of its hosts
_PATIENCE = 20.0  # seconds within which a server says that it is there
_STARTING = 300.0  # seconds that making one may take
_MOST = 0.5  # of a deadline: an evaluation that takes longer is stuck


@dataclass(frozen=True, slots=True)
class Shared:
    """Inference by servers. servers: how many (None: one for each node that hosts are on). max_wait: seconds that a request waits for those
    of other hosts at most. max_batch: rows that are evaluated together at most. resources, restarts: of each server.

    Raises ScenarioError for numbers that make no sense.
    """

    servers: int | None = None
    max_wait: float = 0.002
    max_batch: int = 4096
    resources: Mapping[str, float] = field(default_factory=dict)
    restarts: int = 3

    def __post_init__(self) -> None:
        for name, value, least in (
            ("servers", self.servers, 1),
            ("max_wait", self.max_wait, 0),
            ("max_batch", self.max_batch, 1),
        ):
            if value is not None and not value >= least:
                raise ScenarioError(f"shared inference with {name}={value}; expected {least} or more.")


class _Made(NamedTuple):
    """Done as soon as a server is made, and the time until which it may take for that."""

    answer: Ref
    until: float


class Serving(NamedTuple):
    """A server's incarnation, for one order of a host."""

    server: int
    life: int
    peer: Peer


class Servers:
    """Servers for `hosts`, each beside those that it serves. They are made when the first is asked for, since hosts have to be somewhere
    by then."""

    def __init__(
        self, runtime: Runtime, choice: Shared, hosts: Sequence[Handle], *, deadline: float | None = None
    ) -> None:
        """deadline: of the hosts, in seconds."""
        self._runtime, self._choice, self._hosts, self._deadline = runtime, choice, hosts, deadline
        self._servers: list[Handle] = []
        self._server_of: list[int] = []  # by host
        self._made: dict[tuple[int, int], _Made] = {}  # by server and life
        self._lives = 0

    def newly_restarted(self) -> int:
        """How many times servers were made again since this was asked last."""
        lives = sum(map(self._runtime.incarnation, self._servers))
        new, self._lives = lives - self._lives, lives
        return new

    def life(self, host: int) -> int:
        """Of what serves a host: how often it was made again; 0 before it is there."""
        return self._runtime.incarnation(self._servers[self._server_of[host]]) if self._servers else 0

    def serving(self, host: int) -> Serving:
        """What serves a host now. Raises as `Runtime.get` does if a host cannot be placed."""
        if not self._servers:
            self._spawn()
        number = self._server_of[host]
        server, life = self._servers[number], self._runtime.incarnation(self._servers[number])
        if (number, life) not in self._made:
            self._made[number, life] = _Made(self._runtime.call(server, "ready"), monotonic() + _STARTING)
        return Serving(number, life, self._runtime.peer(server))

    def mend(self, serving: Serving) -> None:
        """An order ended with PartDied, and its host lives: so its server died, or could not be reached. Returns once another incarnation
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
        """A host has made no step for `deadline` seconds: whether that is its server's doing. Then that is only being made, or it is made
        again now: it does not answer, or its evaluation takes most of that time already."""
        if not self._servers or self._deadline is None:
            return False
        number = self._server_of[host]
        server, life = self._servers[number], self._runtime.incarnation(self._servers[number])
        made = self._made.get((number, life))
        if made is not None and not self._runtime.wait([made.answer], at_least=0, timeout=0.0)[0]:
            return monotonic() < made.until or self._again(server, life)
        try:
            busy = self._runtime.get(self._runtime.pulse(server), timeout=_PATIENCE)
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
            self._servers.append(self._server(callers=len(served), node=nodes[served[0]]))
            for host in served:
                self._server_of[host] = number

    def _server(self, *, callers: int, node: str) -> Handle:
        choice = self._choice
        spec = ServerSpec(self._runtime.fetch, callers=callers, max_wait=choice.max_wait, max_batch=choice.max_batch)
        return self._runtime.spawn(
            InferenceServer,
            spec,
            resources=choice.resources,
            restarts=choice.restarts,
            concurrency=callers + _OTHERS,
            pulse=True,
            node=node,
        )

    def _node(self, host: Handle) -> str:
        """Where a host lives; one that dies meanwhile may be made again."""
        while True:
            life = self._runtime.incarnation(host)
            try:
                return self._runtime.node(host)
            except PartDied:
                if self._runtime.incarnation(host) == life:
                    raise
