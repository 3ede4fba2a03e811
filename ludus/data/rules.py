"""Admission: may so many items come in, or out, now? The rules of a kind of table, wherever its items are."""

from __future__ import annotations

from typing import Protocol

from ludus.data.base import TableSpec
from ludus.data.choice import Choice
from ludus.data.rate_limiter import Fill, RateLimiter, check_queue, check_replay
from ludus.data.selectors import SELECTORS
from ludus.errors import DataError, Deadlock
from ludus.registry import load


class Rules(Protocol):
    """limiter: the spec's."""

    limiter: RateLimiter

    def admits(self, count: int, fill: Fill) -> bool:
        """May `count` items come in now? Raises Deadlock if they never may."""
        ...

    def yields(self, count: int, fill: Fill) -> bool:
        """May `count` items (0: everything) be drawn now? Raises Deadlock if they never may."""
        ...

    def check_sizes(self, *, insert: int, batch: int, vary: bool = False) -> None:
        """Refuse to deadlock: raises Deadlock if inserts of `insert` items and batches of `batch` (0: everything) must. Already if they
        might, where those are the largest of sizes that `vary`, or where `max_lag` drops rows on the way."""
        ...


class QueueRules:
    """Inserts wait while there is no room; batches until there are as many items, and `min_size`."""

    def __init__(self, spec: TableSpec) -> None:
        """Raises DataError or Deadlock for what a queue cannot do."""
        asked = spec.sampler, spec.remover, spec.max_times_sampled
        if any(given not in (None, own) for given, own in zip(asked, ("fifo", "fifo", 1), strict=True)):
            raise DataError(
                f"table {spec.name!r}: a queue hands out each item once and in order; sampler, remover and max_times_sampled are "
                f"{asked}. Leave them out, or use a ring, for which they can be chosen."
            )
        for name, value in spec.limiter.items():
            if name != "min_size" and (name, value) != ("samples_per_insert", 1):
                raise Deadlock(
                    f"table {spec.name!r}: a queue hands out each item once and is bounded by its capacity, so {name}={value:g} would "
                    "stop one side for ever. Leave it out, set the capacity instead, or use a ring."
                )
        self._spec = spec
        self.limiter = RateLimiter.of(spec.limiter)

    def admits(self, count: int, fill: Fill) -> bool:
        """See `Rules`."""
        if count > self._spec.capacity:
            raise Deadlock(
                f"table {self._spec.name!r}: an insert of {count} items never fits into a queue of {self._spec.capacity}. "
                "Raise the capacity or insert less at once."
            )
        return fill.size + count <= self._spec.capacity

    def yields(self, count: int, fill: Fill) -> bool:
        """See `Rules`."""
        if count > self._spec.capacity:
            raise Deadlock(
                f"table {self._spec.name!r}: a batch of {count} items never gets together in a queue of {self._spec.capacity}. "
                "Raise the capacity or ask for less."
            )
        return fill.size >= max(count, self.limiter.min_size)

    def check_sizes(self, *, insert: int, batch: int, vary: bool = False) -> None:
        """See `Rules`."""
        check_queue(
            min_size=self.limiter.min_size,
            capacity=self._spec.capacity,
            insert=insert,
            batch=batch,
            vary=vary or self._spec.max_lag is not None,
        )


class ReplayRules:
    """The limiter's; and a batch of different items waits until there are as many. choice: who samples and who makes room."""

    def __init__(self, spec: TableSpec) -> None:
        """Raises DataError, UnknownName or Deadlock for what does not go together."""
        self.choice = Choice.of(spec)
        self.limiter = RateLimiter.of(spec.limiter)
        self.different = bool(self.choice.times) or not load("sampler", self.choice.sampler, SELECTORS).repeats
        self._spec = spec

    def admits(self, count: int, fill: Fill) -> bool:
        """See `Rules`."""
        name, kind, capacity = self._spec.name, self._spec.kind, self._spec.capacity
        if count > capacity:
            raise Deadlock(
                f"table {name!r}: an insert of {count} items never fits into a {kind} of {capacity}. "
                "Raise the capacity or insert less at once."
            )
        if self.limiter.never_inserts(count, fill):
            raise Deadlock(
                f"table {name!r}: an insert of {count} items could never be let in: {self.limiter.describe(fill)}. "
                "Raise max_diff, lower min_diff or insert less at once."
            )
        return self.limiter.allows_insert(count, fill)

    def yields(self, count: int, fill: Fill) -> bool:
        """See `Rules`."""
        name, kind, capacity = self._spec.name, self._spec.kind, self._spec.capacity
        needed = count if self.different else 1
        if needed > capacity:
            raise Deadlock(
                f"table {name!r}: a batch of {count} different items never gets together in a {kind} of {capacity}. "
                "Raise the capacity or ask for less."
            )
        if self.limiter.never_samples(count, fill):
            raise Deadlock(
                f"table {name!r}: a batch of {count} items could never be drawn: {self.limiter.describe(fill)}. "
                "Raise max_diff, lower min_diff or ask for less."
            )
        return fill.size >= max(needed, 1) and self.limiter.allows_sample(count or fill.size, fill)

    def check_sizes(self, *, insert: int, batch: int, vary: bool = False) -> None:
        """See `Rules`."""
        check_replay(
            self.limiter,
            capacity=self._spec.capacity,
            insert=insert,
            batch=batch,
            vary=vary or self._spec.max_lag is not None,
            times=self.choice.times,
            different=self.different,
        )
