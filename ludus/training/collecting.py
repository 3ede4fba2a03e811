"""How a training task collects: all workers together, or each for itself.

SyncCollector   request -> all hosts -> one rollout -> learn -> publish -> next request             (single, sync: lag 0)
AsyncCollector  a request or more at every host; whoever has answered is learned from, and gets   (async: bounded lag)
                the newest weights with its next request
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ludus.core.errors import ScenarioError
from ludus.core.types import PolicyRef
from ludus.policies.base import Policy
from ludus.rollout.async_limits import AsyncLimits, InFlightLimiter, InFlightPermit
from ludus.rollout.base import Rollout, RolloutRequest
from ludus.rollout.rollouts import Pending, Receive, RemotePolicy, Rollouts

Policies = Sequence[tuple[PolicyRef, Policy | RemotePolicy]]


class MakeRequest(Protocol):
    """The next order of a task, which goes on with open episodes or does not, and the policies that it names, in their newest versions.
    host: for whom it is, or 0 for all."""

    def __call__(self, *, carry_on: bool, host: int) -> tuple[RolloutRequest, Policies]: ...


@dataclass(frozen=True, slots=True)
class Collected:
    """rollouts: what is to be learned from now. stale: decisions that were thrown away, since too old weights had made them."""

    rollouts: Sequence[Rollout]
    stale: int = 0


class Collector(Protocol):
    """Between `begin` and `take` hosts play; after `take` there is something to learn from."""

    def begin(self) -> None:
        """See that hosts have requests, with the newest weights."""
        ...

    def take(self) -> Collected:
        """Wait for the next iteration's rollouts."""
        ...

    def prefetch_requests(self) -> None:
        """Send requests to hosts that need not wait for the learner: what was taken is counted, and will be learned from."""
        ...

    def on_published(self) -> None:
        """Record that weights that were trained on what was taken are published."""
        ...

    def drain(self) -> Collected:
        """Return what hosts still owe; open episodes end here, and the next request begins new ones."""
        ...

    def close(self) -> None:
        """Cancel what hosts still owe."""
        ...


class SyncCollector:
    """All hosts play one request, and nobody goes on before it is learned from."""

    def __init__(
        self,
        rollouts: Rollouts[Any],
        request: MakeRequest,
        *,
        task_slot: int,
        carries_on: bool,
        receive: Receive | None = None,
    ) -> None:
        """carries_on: whether episodes stay open from one request to the next. receive: takes what hosts leave."""
        self._rollouts, self._request, self._task_slot, self._carries_on = rollouts, request, task_slot, carries_on
        self._receive = receive
        self._open = False
        self._pending: Pending | None = None

    def begin(self) -> None:
        if self._pending is None:
            request, policies = self._request(carry_on=self._open, host=0)
            self._pending = self._rollouts.start(request, policies, task_slot=self._task_slot)

    def take(self) -> Collected:
        self.begin()
        assert self._pending is not None
        rollout = self._rollouts.finish(self._pending, receive=self._receive)
        self._pending, self._open = None, self._carries_on
        return Collected((rollout,))

    def prefetch_requests(self) -> None:
        return None

    def on_published(self) -> None:
        return None

    def drain(self) -> Collected:
        self._open = False
        return Collected(())

    def close(self) -> None:
        if self._pending is not None:
            self._rollouts.cancel(self._pending)


@dataclass(frozen=True, slots=True, eq=False)
class _InFlight:
    lease: InFlightPermit
    host: int
    pending: Pending


class AsyncCollector:
    """Every host has requests of its own. Credits bound how much is collected and not yet learned from: `in_flight` for each host."""

    def __init__(
        self,
        rollouts: Rollouts[Any],
        request: MakeRequest,
        *,
        task_slot: int,
        carries_on: bool,
        async_limits: AsyncLimits,
        version: Callable[[], int],
        wants: Callable[[float], bool],
        hosts: Sequence[int],
        receive: Receive | None = None,
    ) -> None:
        """version: the newest weights'. wants(requests): whether the task needs more than that many whole requests, which are being played.
        hosts: those that have a share of the task's requests. receive: takes what they leave. Raises ScenarioError if `async_limits`
        waits for more than there can be."""
        self._rollouts, self._request, self._task_slot, self._async_limits = rollouts, request, task_slot, async_limits
        self._carries_on, self._version, self._wants = carries_on, version, wants
        self._hosts, self._receive = hosts, receive
        self._credits = InFlightLimiter(async_limits.in_flight * len(hosts))
        self._least = len(hosts) if async_limits.min_completed is None else async_limits.min_completed
        if self._least > self._credits.limit:
            raise ScenarioError(
                f"runtime.min_completed={self._least} partial results are never there: {len(hosts)} workers with "
                f"{async_limits.in_flight} requests each make {self._credits.limit} at most. Give that or fewer."
            )
        self._in_flight: list[_InFlight] = []
        self._open = [False] * rollouts.hosts
        self._taken: list[InFlightPermit] = []
        self._draining = False

    def begin(self) -> None:
        for most in range(1, self._async_limits.in_flight + 1):  # everybody gets one before somebody gets two
            for host in self._hosts:
                if sum(request.host == host for request in self._in_flight) < most and not self._ask(host):
                    return

    def take(self) -> Collected:
        self.begin()
        return self._gather(self._least)

    def prefetch_requests(self) -> None:
        self.begin()

    def on_published(self) -> None:
        self._credits.release(self._taken)
        self._taken = []

    def drain(self) -> Collected:
        self._draining = True
        collected = self._gather(len(self._in_flight))
        self._draining = False
        self._open = [False] * self._rollouts.hosts
        return collected

    def close(self) -> None:
        for request in self._in_flight:
            self._rollouts.cancel(request.pending)
        self._in_flight = []

    def _ask(self, host: int) -> bool:
        """Request one more rollout of a host, if a permit is free and the task needs more."""
        if self._draining or not self._wants(len(self._in_flight) / len(self._hosts)):
            return False
        lease = self._credits.reserve(f"{host} {self._rollouts.life(host)}")
        if lease is None:
            return False
        request, policies = self._request(carry_on=self._open[host], host=host)
        pending = self._rollouts.start(request, policies, task_slot=self._task_slot, hosts=(host,))
        self._in_flight.append(_InFlight(lease, host, pending))
        self._open[host] = self._carries_on
        return True

    def _gather(self, least: int) -> Collected:
        """Return at least `least` partial results that are not too old, or all that are still in flight, and those that come within the
        window after them."""
        rollouts: list[Rollout] = []
        stale = 0
        while len(rollouts) < least and self._in_flight:
            for request in self._arrived(at_least=1, timeout=None):
                stale += self._keep(rollouts, request, self._deliver(request))
        if self._async_limits.gather_window and self._in_flight:
            for request in self._arrived(at_least=len(self._in_flight), timeout=self._async_limits.gather_window):
                stale += self._keep(rollouts, request, self._deliver(request))
        return Collected(rollouts, stale)

    def _arrived(self, *, at_least: int, timeout: float | None) -> list[_InFlight]:
        pending = [request.pending for request in self._in_flight]
        done = self._rollouts.done(pending, at_least=at_least, timeout=timeout)
        return [request for request in self._in_flight if request.pending in done]

    def _deliver(self, request: _InFlight) -> Rollout | None:
        """Return what came; None if the host died, and with it everything that this life of it owed: whoever comes next is asked for it.
        What the next life owes already (another task slot was first to learn of the death) stays asked for."""
        if request not in self._in_flight:
            return None
        self._in_flight.remove(request)
        rollout = self._rollouts.take(request.pending, receive=self._receive)
        if rollout is None:
            owed = [other for other in self._in_flight if other.host == request.host]
            for lost in [other for other in owed if other.lease.worker == request.lease.worker]:
                self._rollouts.cancel(lost.pending)
                self._in_flight.remove(lost)
                owed.remove(lost)
            self._credits.died(request.lease.worker)
            self._open[request.host] = self._carries_on and bool(owed)
        elif self._credits.deliver(request.lease):
            self._taken.append(request.lease)
        return rollout

    def _keep(self, rollouts: list[Rollout], request: _InFlight, rollout: Rollout | None) -> int:
        """Add the rollout to `rollouts`. One that is too old is discarded, and another is requested with the newest weights; then return
        its number of decisions."""
        if rollout is None:
            return 0
        learner = request.pending.request.learner
        assert learner is not None
        assert learner.version is not None
        if self._async_limits.max_lag is not None and self._version() - learner.version > self._async_limits.max_lag:
            if request.lease in self._taken:  # nothing will be learned from it
                self._taken.remove(request.lease)
                self._credits.release([request.lease])
            self._ask(request.host)
            return rollout.counters["learner_decisions"]
        rollouts.append(rollout)
        return 0
