"""The rate limiter of a table: Reverb's rules, as pure functions of counts.

With r = samples_per_insert, and counts in the table's own items, the limiter looks at

    D = r · inserted − sampled          (how many samples the inserted items are still owed)

    an insert of n is allowed   if  size + n ≤ min_size   or   D + r · n ≤ max_diff
    a sample of n is allowed    if  size ≥ min_size      and   D − n ≥ min_diff

so tables fill freely up to `min_size`, then the slower side holds the faster one back: `max_diff` is how far inserts may run ahead,
`min_diff` how far samples may. Without either bound only `min_size` matters, whatever r is. `error_buffer` = e is short for both:
min_diff = r · min_size − e and max_diff = r · min_size + e (Reverb's SampleToInsertRatio).
Source: Reverb (Cassirer et al. 2021, arXiv:2102.04736, §3.2 and `rate_limiter.cc`).

When must a setting deadlock? If every insert is of I items and every batch of B, D moves on the multiples of g = gcd(r · I, B): up
by r · I while that stays ≤ max_diff, down by B while that stays ≥ min_diff. A walk that never halts must close a loop, and the
shortest loop visits (r · I + B) / g different values; so with fewer multiples of g than that in [min_diff, max_diff] it must halt,
and with as many it never does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction

from ludus.core.errors import DataError, Deadlock, UnknownName
from ludus.replay.base import exact

_INFINITY = math.inf


@dataclass(frozen=True, slots=True)
class TableFill:
    """What a table has seen: items inserted (without those that were dropped unread as too old) and sampled since it was made, and held
    now."""

    inserted: int
    sampled: int
    size: int


@dataclass(frozen=True, slots=True)
class RateLimiter:
    """The four settings, in items. Raises DataError for a value out of range and Deadlock where no sizes at all could work."""

    samples_per_insert: float = 1.0
    min_size: int = 1
    min_diff: float = -_INFINITY
    max_diff: float = _INFINITY

    def __post_init__(self) -> None:
        if not (self.samples_per_insert > 0 and math.isfinite(self.samples_per_insert)) or self.ratio == 0:
            raise DataError(f"samples_per_insert is {self.samples_per_insert}; it must be a positive, finite number.")
        if self.min_size < 1 or self.min_size != int(self.min_size):
            raise DataError(f"min_size is {self.min_size}; it must be a whole number of items, 1 or more.")
        if math.isnan(self.min_diff) or math.isnan(self.max_diff):
            raise DataError(f"min_diff is {self.min_diff} and max_diff {self.max_diff}; neither may be NaN.")
        if self.max_diff <= self.min_diff:
            raise Deadlock(
                f"max_diff ({self.max_diff:g}) is not above min_diff ({self.min_diff:g}): no sample could ever follow an insert. "
                "Raise max_diff or lower min_diff."
            )

    @staticmethod
    def of(options: Mapping[str, float]) -> RateLimiter:
        """Return the limiter of `TableSpec.limiter`. Raises UnknownName for an option that does not exist, DataError for a bound that is
        given twice."""
        known = [f.name for f in fields(RateLimiter)]
        for name in options:
            if name not in (*known, "error_buffer"):
                raise UnknownName("rate limiter option", name, [*known, "error_buffer"])
        bounds = {name: value for name, value in options.items() if name in known}
        if "error_buffer" in options:
            buffer = options["error_buffer"]
            if not buffer > 0 or {"min_diff", "max_diff"} & bounds.keys():
                raise DataError(
                    f"the limiter's options are {dict(options)}; error_buffer must be above 0 and stands for min_diff and max_diff."
                )
            middle = options.get("samples_per_insert", 1.0) * options.get("min_size", 1)
            bounds |= {"min_diff": middle - buffer, "max_diff": middle + buffer}
        return RateLimiter(**bounds)  # type: ignore[arg-type]  # min_size is checked to be whole

    @property
    def ratio(self) -> Fraction:
        """samples_per_insert, exactly: differences of large counts must not be rounded."""
        return exact(self.samples_per_insert)

    def difference(self, fill: TableFill) -> Fraction:
        """Return D of the module's formulas."""
        return self.ratio * fill.inserted - fill.sampled

    def allows_insert(self, count: int, fill: TableFill) -> bool:
        """Return whether `count` items may be inserted now."""
        if self.max_diff == _INFINITY or fill.size + count <= self.min_size:
            return True
        return self.difference(fill) + self.ratio * count <= self.max_diff

    def allows_sample(self, count: int, fill: TableFill) -> bool:
        """Return whether `count` items may be sampled now."""
        if self.min_diff == -_INFINITY or fill.size < self.min_size:
            return fill.size >= self.min_size
        return self.difference(fill) - count >= self.min_diff

    def room(self, fill: TableFill) -> float:
        """Return the most items that may be inserted now; infinite where nothing holds inserts back."""
        if self.max_diff == _INFINITY:
            return _INFINITY
        owed = math.floor((Fraction(self.max_diff) - self.difference(fill)) / self.ratio)
        return max(0, self.min_size - fill.size, owed)

    def owed(self, batch: int, fill: TableFill) -> int:
        """Return the most batches of `batch` > 0 items that may be sampled now, one after the other. Raises DataError without a `min_diff`,
        where there is no end to them."""
        if self.min_diff == -_INFINITY:
            raise DataError("the limiter has no min_diff, so that any number of batches may be sampled; give one.")
        if fill.size < self.min_size:
            return 0
        return max(0, math.floor((self.difference(fill) - Fraction(self.min_diff)) / batch))

    def first_sample(self, batch: int) -> int:
        """Return how many items must be inserted before the first batch of `batch` may be sampled."""
        return max(self.min_size, math.ceil((Fraction(self.min_diff) + batch) / self.ratio))

    def never_inserts(self, count: int, fill: TableFill) -> bool:
        """Return whether an insert of `count` can never be allowed, whatever the samplers do from now on."""
        if self.max_diff == _INFINITY:
            return False
        step = self.ratio * count
        lowered = (self.difference(fill), self.min_diff)  # samples lower D, but no further than min_diff
        return fill.size + count > self.min_size and all(low + step > self.max_diff for low in lowered)

    def never_samples(self, count: int, fill: TableFill) -> bool:
        """Return whether a sample of `count` can never be allowed, whatever is inserted from now on."""
        if self.min_diff == -_INFINITY:
            return False
        filled = self.difference(fill) + self.ratio * max(0, self.min_size - fill.size)
        return all(high - count < self.min_diff for high in (filled, self.max_diff))

    def describe(self, fill: TableFill) -> str:
        """Return the state of the limiter in words, for messages about a wait that was too long."""
        return (
            f"it holds {fill.size} items (min_size {self.min_size}) and samples_per_insert × inserted − sampled is "
            f"{float(self.difference(fill)):g} (min_diff {self.min_diff:g}, max_diff {self.max_diff:g})"
        )


def check_replay(
    limiter: RateLimiter,
    *,
    capacity: int,
    insert: int,
    batch: int,
    vary: bool = False,
    times: int = 0,
    different: bool = False,
) -> None:
    """Refuse settings of a replay table that must deadlock with inserts of `insert` items and batches of `batch` (0: all it holds).

    vary: sizes are upper bounds instead, and what could deadlock with some smaller ones is refused too. different: the items of a batch
    are. times: how often an item is sampled before it leaves (0: for ever); then what might deadlock is refused. Raises Deadlock.
    """
    _check_fits(capacity=capacity, insert=insert, min_size=limiter.min_size)
    needed = max(limiter.min_size, batch if different else 1)
    if needed > capacity:
        raise Deadlock(
            f"a batch of {batch} different items never gets together in a table of {capacity}. Raise the capacity or ask for less."
        )
    reached = needed - 1 + insert if vary else -(-needed // insert) * insert
    if reached > limiter.min_size and limiter.ratio * reached > limiter.max_diff:
        raise Deadlock(
            f"the table must deadlock: an insert of {insert} items that takes it to {_needs(limiter, needed)} would bring "
            f"samples_per_insert × inserted to {float(limiter.ratio * reached):g}, above max_diff {limiter.max_diff:g}, and nothing may be "
            f"sampled before. Raise max_diff to {float(limiter.ratio * reached):g} or more, or make that a multiple of the insert."
        )
    low = limiter.min_diff
    if times and limiter.max_diff < _INFINITY:
        low, exact = _check_leaving(limiter, capacity=capacity, insert=insert, batch=batch, times=times, needed=needed)
        vary = vary or not exact
    up, down = limiter.ratio * insert, Fraction(batch or capacity)
    _check_window(up, down, low=low, high=limiter.max_diff, vary=vary, insert=insert, batch=batch)


def _needs(limiter: RateLimiter, needed: int) -> str:
    return f"min_size {needed}" if needed == limiter.min_size else f"a batch of {needed} different items"


def _check_leaving(
    limiter: RateLimiter, *, capacity: int, insert: int, batch: int, times: int, needed: int
) -> tuple[float, bool]:
    """Return where items leave after `times` samples and inserts are held back: (the value to which D may fall, whether that is exact).

    If r = times and max_diff ≤ capacity, no item leaves early: D is the samples that the held ones have left, so size ≥ D / times, and
    a sample waits for D ≥ times · (needed − 1) + 1 at most. Else D says nothing about the size, and only single inserts, which may
    always take the table to min_size, are sure to get a batch together.
    """
    if limiter.ratio > times:
        raise Deadlock(
            f"the table must deadlock: items are sampled at most {times} times and are owed {limiter.samples_per_insert:g} samples "
            f"each, so samples_per_insert × inserted − sampled grows to max_diff {limiter.max_diff:g} and stays there. Lower "
            "samples_per_insert to max_times_sampled or less."
        )
    if limiter.ratio == times and limiter.max_diff <= capacity and (batch or limiter.min_diff <= 0):
        if not batch and times == 1:
            return -_INFINITY, True  # every sample empties it, so all that counts is that it gets to min_size
        return max(limiter.min_diff, times * (needed - 1) + 1 - (batch or capacity)), times == 1
    if insert == 1 and limiter.min_size >= needed and batch:
        return limiter.min_diff, False
    raise Deadlock(
        f"the table may deadlock: items leave after {times} samples or to make room, so it can hold fewer than the {needed} that a sample "
        f"needs while max_diff {limiter.max_diff:g} holds inserts of {insert} back. Leave max_diff out; or set samples_per_insert to "
        f"{times} and max_diff to the capacity {capacity} or less; or insert one item at a time and raise min_size to the batch."
    )


def check_queue(*, min_size: int, capacity: int, insert: int, batch: int, vary: bool = False) -> None:
    """Refuse settings of a queue that must deadlock: items leave as they are sampled, and inserts wait for room.

    A queue is the limiter with r = 1, max_diff = capacity and min_diff = max(0, min_size − batch). `vary` as in `check_replay`.
    """
    _check_fits(capacity=capacity, insert=insert, min_size=min_size)
    if batch > capacity:
        raise Deadlock(f"a batch of {batch} items never gets together in a queue of {capacity}. Raise the capacity.")
    if batch:
        low = max(0, min_size - batch)
        _check_window(
            Fraction(insert), Fraction(batch), low=low, high=capacity, vary=vary, insert=insert, batch=batch, queue=True
        )
        return
    needed = min_size - 1 + insert if vary else -(-min_size // insert) * insert
    if needed > capacity:
        raise Deadlock(
            f"the queue must deadlock: with inserts of {insert} it reaches min_size {min_size} only at {needed} items and has room for "
            f"{capacity}. Raise the capacity to {needed} or lower min_size."
        )


def _check_fits(*, capacity: int, insert: int, min_size: int) -> None:
    if insert < 1:
        raise DataError(f"the largest insert is given as {insert} items; it must be 1 or more.")
    if min_size > capacity:
        raise Deadlock(
            f"min_size {min_size} is above the capacity {capacity}: nothing could ever be sampled. Lower min_size."
        )
    if insert > capacity:
        raise Deadlock(
            f"an insert of {insert} items never fits into a table of {capacity}. Raise the capacity or insert less at once."
        )


def _check_window(
    up: Fraction, down: Fraction, *, low: float, high: float, vary: bool, insert: int, batch: int, queue: bool = False
) -> None:
    """Raise Deadlock if a walk by +up (while ≤ high) and −down (while ≥ low) must halt, or with `vary` may."""
    if math.isinf(low) or math.isinf(high):
        return
    if vary:
        stuck = Fraction(high) - Fraction(low) < up + down
    else:
        step = _gcd(up, down)
        points = math.floor(Fraction(high) / step) - math.ceil(Fraction(low) / step) + 1
        stuck = points * step < up + down
    if not stuck:
        return
    remedy = (
        f"Raise the capacity to {math.ceil(low + up + down)}"
        if queue
        else f"Raise max_diff to {float(Fraction(low) + up + down):g} (enough for inserts and batches of every smaller size too)"
    )
    raise Deadlock(
        f"the {'queue' if queue else 'table'} {'may' if vary else 'must'} deadlock: inserts of {insert} move the difference up by "
        f"{float(up):g} and batches of {batch or 'everything'} down by {float(down):g}, and [{low:g}, {high:g}] is too narrow: it comes "
        f"to a value from which neither is allowed. {remedy}, or make the inserts or batches smaller."
    )


def _gcd(a: Fraction, b: Fraction) -> Fraction:
    return Fraction(math.gcd(a.numerator * b.denominator, b.numerator * a.denominator), a.denominator * b.denominator)
