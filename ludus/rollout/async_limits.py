"""Credits: how much may be collected, in flight or waiting to be learned from, before new weights are out. Pure: no clocks, no threads.

    reserve --(worker collects)--> deliver --(learner updates, and publishes weights if that is due)--> release
       ^                             |
       +---- worker dies: its credits return; what it still sends is refused and counted

At most `limit` fragments are being collected or wait for the learner. That bounds what is held, and not how old it is: while a slow worker
collects one fragment, others deliver any number. `AsyncLimits.max_lag` bounds the age of what is learned from (docs/design/protocols.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ludus.core.errors import DataError


@dataclass(frozen=True, slots=True)
class InFlightPermit:
    """One credit, held by an incarnation of a worker (it counts its restarts)."""

    id: int
    worker: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class AsyncLimits:
    """Of asynchronous collection. in_flight: requests that a host has at most, played and unplayed. min_completed: partial results to
    learn from in one iteration at least (None: as many as there are hosts). gather_window: seconds to wait for more after these. max_lag:
    partial results whose weights are more versions behind when they arrive are thrown away (None: never)."""

    in_flight: int = 2
    min_completed: int | None = None
    gather_window: float = 0.0
    max_lag: int | None = 8


class InFlightLimiter:
    """The ledger. Lives in the driver; raises DataError for a limit below 1."""

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise DataError(f"the limit is {limit} credits; at least 1 is needed, or nothing could ever be collected.")
        self.limit = limit
        self.refused = 0  # deliveries of leases that were not (or no longer) being collected
        self._next = 0
        self._incarnation: dict[str, int] = {}
        self._collecting: dict[int, InFlightPermit] = {}
        self._delivered: dict[int, InFlightPermit] = {}

    @property
    def free(self) -> int:
        """Credits that can be reserved now."""
        return self.limit - len(self._collecting) - len(self._delivered)

    def reserve(self, worker: str) -> InFlightPermit | None:
        """Return a credit for the worker's present incarnation; None: none is free, so it must wait."""
        if self.free == 0:
            return None
        lease = InFlightPermit(self._next, worker, self._incarnation.get(worker, 0))
        self._next += 1
        self._collecting[lease.id] = lease
        return lease

    def deliver(self, lease: InFlightPermit) -> bool:
        """Record that the permit's data arrived. Return False, and count it: it came from a dead incarnation, or twice; throw the data
        away."""
        if self._collecting.get(lease.id) != lease:
            self.refused += 1
            return False
        self._delivered[lease.id] = self._collecting.pop(lease.id)
        return True

    def release(self, leases: Iterable[InFlightPermit]) -> int:
        """Free the permits of data whose weights are published (the count). Raises DataError, and releases none, if one was not
        delivered."""
        ids = [lease.id for lease in leases]
        for k, number in enumerate(ids):
            if number not in self._delivered or number in ids[:k]:
                raise DataError(
                    f"lease {number} is released and was not delivered (or twice); release what `deliver` took, once."
                )
        for number in ids:
            del self._delivered[number]
        return len(ids)

    def died(self, worker: str) -> tuple[InFlightPermit, ...]:
        """Record that a worker died, and return what it was collecting, whose permits are free again, for a replacement to repeat. What it
        had delivered stays. Its next incarnation begins."""
        lost = tuple(lease for lease in self._collecting.values() if lease.worker == worker)
        for lease in lost:
            del self._collecting[lease.id]
        self._incarnation[worker] = self._incarnation.get(worker, 0) + 1
        return lost
