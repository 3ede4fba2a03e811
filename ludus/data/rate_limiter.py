"""The rate limiter of a table: Reverb's rules, as pure functions of counts.

With r = samples_per_insert, and counts in the table's own items, the limiter looks at

    D = r · inserted − sampled          (how many samples the inserted items are still owed)

    an insert of n is allowed   if  size + n ≤ min_size   or   D + r · n ≤ max_diff
    a sample of n is allowed    if  size ≥ min_size      and   D − n ≥ min_diff

so tables fill freely up to `min_size`, then the slower side holds the faster one back: `max_diff` is how far inserts may run ahead,
`min_diff` how far samples may. Without either bound only `min_size` matters, whatever r is.
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

from ludus.errors import DataError, Deadlock, UnknownName

_INFINITY = math.inf


@dataclass(frozen=True, slots=True)
class Fill:
    """What a table has seen: items inserted and sampled since it was made, and held now."""

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
        """From `TableSpec.limiter`. Raises UnknownName for an option that does not exist."""
        known = [f.name for f in fields(RateLimiter)]
        for name in options:
            if name not in known:
                raise UnknownName("rate limiter option", name, known)
        return RateLimiter(**options)  # type: ignore[arg-type]  # min_size is checked to be whole

    @property
    def ratio(self) -> Fraction:
        """samples_per_insert, exactly: differences of large counts must not be rounded."""
        return Fraction(self.samples_per_insert).limit_denominator(10**9)

    def difference(self, fill: Fill) -> Fraction:
        """D of the module's formulas."""
        return self.ratio * fill.inserted - fill.sampled

    def allows_insert(self, count: int, fill: Fill) -> bool:
        """May `count` items be inserted now?"""
        return fill.size + count <= self.min_size or self.difference(fill) + self.ratio * count <= self.max_diff

    def allows_sample(self, count: int, fill: Fill) -> bool:
        """May `count` items be sampled now?"""
        return fill.size >= self.min_size and self.difference(fill) - count >= self.min_diff

    def never_inserts(self, count: int, fill: Fill) -> bool:
        """Whether an insert of `count` can never be allowed, whatever the samplers do from now on."""
        step = self.ratio * count
        lowered = (self.difference(fill), self.min_diff)  # samples lower D, but no further than min_diff
        return fill.size + count > self.min_size and all(low + step > self.max_diff for low in lowered)

    def never_samples(self, count: int, fill: Fill) -> bool:
        """Whether a sample of `count` can never be allowed, whatever is inserted from now on."""
        filled = self.difference(fill) + self.ratio * max(0, self.min_size - fill.size)
        return all(high - count < self.min_diff for high in (filled, self.max_diff))

    def describe(self, fill: Fill) -> str:
        """The state of the limiter in words, for messages about a wait that was too long."""
        return (
            f"it holds {fill.size} items (min_size {self.min_size}) and samples_per_insert × inserted − sampled is "
            f"{float(self.difference(fill)):g} (min_diff {self.min_diff:g}, max_diff {self.max_diff:g})"
        )


def check_replay(limiter: RateLimiter, *, capacity: int, insert: int, batch: int, vary: bool = False) -> None:
    """Refuse settings of a replay table that must deadlock with inserts of `insert` items and batches of `batch` (0: all it holds).

    vary: sizes are upper bounds instead, and what could deadlock with some smaller ones is refused too. Raises Deadlock.
    """
    _check_fits(capacity=capacity, insert=insert, min_size=limiter.min_size)
    up, down = limiter.ratio * insert, Fraction(batch or capacity)
    reached = -(-limiter.min_size // insert) * insert
    if vary:
        reached = limiter.min_size - 1 + insert
    free = reached <= limiter.min_size
    if not free and limiter.ratio * reached > limiter.max_diff:
        raise Deadlock(
            f"the table must deadlock: an insert of {insert} items that takes it to min_size {limiter.min_size} would bring "
            f"samples_per_insert × inserted to {float(limiter.ratio * reached):g}, above max_diff {limiter.max_diff:g}, and nothing may be "
            f"sampled before. Raise max_diff to {float(limiter.ratio * reached):g} or more, or make min_size a multiple of the insert."
        )
    _check_window(up, down, low=limiter.min_diff, high=limiter.max_diff, vary=vary, insert=insert, batch=batch)


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
