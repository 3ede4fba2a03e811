"""The limiter's formulas by hand, and its deadlock checks against simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.core.errors import DataError, Deadlock, UnknownName
from ludus.replay.base import TableSpec
from ludus.replay.kinds import build_table
from ludus.replay.rate_limiter import RateLimiter, TableFill, check_queue, check_replay


def test_samples_wait_for_min_size_and_inserts_are_free_until_then():
    limiter = RateLimiter(samples_per_insert=4, min_size=10, max_diff=0)
    assert limiter.allows_insert(10, TableFill(0, 0, 0))
    assert not limiter.allows_insert(11, TableFill(0, 0, 0))
    assert not limiter.allows_sample(1, TableFill(9, 0, 9))
    assert limiter.allows_sample(1, TableFill(10, 0, 10))


def test_difference_bounds_by_hand():
    # r = 2, 50 inserted, 90 sampled: D = 2 · 50 − 90 = 10.
    limiter, fill = RateLimiter(samples_per_insert=2, min_size=1, min_diff=-6, max_diff=20), TableFill(50, 90, 30)
    assert limiter.difference(fill) == 10
    assert limiter.allows_insert(5, fill)  # 10 + 2 · 5 = 20
    assert not limiter.allows_insert(6, fill)  # 22
    assert limiter.allows_sample(16, fill)  # 10 − 16 = −6
    assert not limiter.allows_sample(17, fill)


def test_ratio_is_not_rounded():
    limiter = RateLimiter(samples_per_insert=0.1, min_diff=0, max_diff=10)
    assert limiter.difference(TableFill(3 * 10**9, 3 * 10**8, 5)) == 0


def test_without_bounds_only_min_size_counts():
    limiter = RateLimiter(samples_per_insert=8, min_size=3)
    assert limiter.allows_insert(10**6, TableFill(10**9, 0, 10**6))
    assert limiter.allows_sample(10**6, TableFill(3, 10**9, 3))


def test_never():
    limiter = RateLimiter(samples_per_insert=1, min_size=1, min_diff=0, max_diff=10)
    assert limiter.never_inserts(11, TableFill(4, 4, 4))
    assert not limiter.never_inserts(10, TableFill(4, 0, 4))
    assert limiter.never_samples(11, TableFill(4, 0, 4))
    assert not limiter.never_samples(10, TableFill(4, 0, 4))


def test_options():
    assert RateLimiter.of({"min_size": 5, "max_diff": 7}) == RateLimiter(min_size=5, max_diff=7)
    with pytest.raises(UnknownName, match="unknown rate limiter option 'min_sise'; did you mean 'min_size'"):
        RateLimiter.of({"min_sise": 5})
    for options, words in [
        ({"samples_per_insert": 0}, "samples_per_insert is 0; it must be a positive"),
        ({"samples_per_insert": math.nan}, "must be a positive"),
        ({"min_size": 0}, "min_size is 0; it must be a whole number"),
        ({"min_size": 1.5}, "min_size is 1.5; it must be a whole number"),
        ({"max_diff": math.nan}, "neither may be NaN"),
    ]:
        with pytest.raises(DataError, match=words):
            RateLimiter.of(options)
    with pytest.raises(Deadlock, match=r"max_diff \(3\) is not above min_diff \(3\)"):
        RateLimiter(min_diff=3, max_diff=3)


def test_reverbs_numbers():
    """Reverb's documentation of SampleToInsertRatio: samples_per_insert 2, min_size_to_sample 100, error_buffer 20: inserts are
    blocked where inserted · 2 − sampled would pass 100 · 2 + 20, samples where it would fall below 100 · 2 − 20."""
    limiter = RateLimiter.of({"samples_per_insert": 2, "min_size": 100, "error_buffer": 20})
    assert limiter == RateLimiter(samples_per_insert=2, min_size=100, min_diff=180, max_diff=220)
    assert limiter.allows_insert(1, TableFill(99, 0, 99))  # to 200; below min_size that is not even looked at
    assert not limiter.allows_sample(1, TableFill(99, 0, 99))
    assert limiter.allows_sample(20, TableFill(100, 0, 100))  # to 180
    assert not limiter.allows_sample(21, TableFill(100, 0, 100))
    assert limiter.allows_insert(10, TableFill(100, 0, 100))  # to 220
    assert not limiter.allows_insert(11, TableFill(100, 0, 100))
    assert limiter.allows_insert(
        10, TableFill(1000, 1800, 90)
    )  # back below min_size (90 held): free, though D would be 220
    assert limiter.allows_insert(10, TableFill(1000, 1000, 90))  # and though D would be 1020
    assert not limiter.allows_sample(1, TableFill(1000, 1000, 90))
    # MinSize(10) and Queue(10), as Reverb builds them
    assert RateLimiter(min_size=10).allows_insert(10**6, TableFill(10**6, 0, 50))
    queue = RateLimiter(samples_per_insert=1, min_size=1, min_diff=0, max_diff=10)
    assert queue.allows_insert(10, TableFill(5, 5, 0))
    assert not queue.allows_insert(1, TableFill(15, 5, 10))
    assert queue.allows_sample(10, TableFill(15, 5, 10))
    assert not queue.allows_sample(11, TableFill(15, 5, 10))
    for options in ({"error_buffer": 0}, {"error_buffer": 5, "max_diff": 3}, {"error_buffer": math.nan}):
        with pytest.raises(DataError, match="error_buffer must be above 0 and stands for min_diff and max_diff"):
            RateLimiter.of(options)


def test_deadlock_refusals_name_the_numbers_and_the_remedy():
    # r · I = 4 · 1 = 4 up, 16 down, [0, 15]: from 12 neither 12 + 4 ≤ 15 nor 12 − 16 ≥ 0. 20 values apart is enough.
    tight = RateLimiter(samples_per_insert=4, min_size=1, min_diff=0, max_diff=15)
    with pytest.raises(
        Deadlock,
        match=r"must deadlock: inserts of 1 .* up by 4 and batches of 16 down by 16.*\[0, 15\].*max_diff to 20",
    ):
        check_replay(tight, capacity=100, insert=1, batch=16)
    check_replay(RateLimiter(samples_per_insert=4, min_diff=0, max_diff=16), capacity=100, insert=1, batch=16)
    # min_size 10 by inserts of 4 needs a third insert, to 12, which max_diff 11 does not let in.
    with pytest.raises(Deadlock, match=r"takes it to min_size 10 .* to 12, above max_diff 11"):
        check_replay(RateLimiter(min_size=10, min_diff=-50, max_diff=11), capacity=100, insert=4, batch=1)
    check_replay(RateLimiter(min_size=10, min_diff=-50, max_diff=12), capacity=100, insert=4, batch=1)
    with pytest.raises(Deadlock, match="an insert of 101 items never fits into a table of 100"):
        check_replay(RateLimiter(), capacity=100, insert=101, batch=1)
    with pytest.raises(Deadlock, match="min_size 200 is above the capacity 100"):
        check_replay(RateLimiter(min_size=200), capacity=100, insert=1, batch=1)


def test_queue_refusals():
    check_queue(min_size=1, capacity=4096, insert=4096, batch=4096)
    # With varying sizes 4095 can lie there: too few for a batch, too many for another insert.
    with pytest.raises(Deadlock, match=r"may deadlock.*capacity to 8192"):
        check_queue(min_size=1, capacity=4096, insert=4096, batch=4096, vary=True)
    with pytest.raises(Deadlock, match="a batch of 11 items never gets together in a queue of 10"):
        check_queue(min_size=1, capacity=10, insert=1, batch=11)
    # 4, 8: a third insert of 4 does not fit into 11, and 9 are wanted.
    with pytest.raises(Deadlock, match=r"must deadlock.*inserts of 4.*batches of 9"):
        check_queue(min_size=1, capacity=11, insert=4, batch=9)
    with pytest.raises(Deadlock, match="reaches min_size 9 only at 12 items and has room for 11"):
        check_queue(min_size=9, capacity=11, insert=4, batch=0)
    check_queue(min_size=9, capacity=12, insert=4, batch=0)


def test_rate_limiter_rejects_limits_where_items_leave():
    def check(times, capacity=100, insert=1, batch=1, different=True, **options):
        check_replay(
            RateLimiter(**options), capacity=capacity, insert=insert, batch=batch, times=times, different=different
        )

    with pytest.raises(Deadlock, match="a batch of 101 different items never gets together in a table of 100"):
        check(0, batch=101)
    with pytest.raises(
        Deadlock, match=r"takes it to a batch of 10 different items would bring .* to 12, above max_diff 11"
    ):
        check(0, insert=4, batch=10, min_diff=-50, max_diff=11)
    with pytest.raises(Deadlock, match=r"sampled at most 2 times and are owed 3 samples each, .* grows to max_diff 50"):
        check(2, samples_per_insert=3, max_diff=50)
    check(2, samples_per_insert=3)  # nobody holds inserts back
    check(1, insert=50, batch=50, max_diff=100)  # the numbers of a queue
    with pytest.raises(Deadlock, match=r"must deadlock: inserts of 4 .* batches of 7 .* \[0, 9\] is too narrow"):
        check(1, insert=4, batch=7, max_diff=9)
    with pytest.raises(Deadlock, match=r"may deadlock: items leave after 1 samples or to make room.* fewer than the 8"):
        check(1, capacity=10, insert=5, batch=8, max_diff=20)
    check(4, samples_per_insert=2, min_size=8, batch=8, min_diff=0, max_diff=400)
    with pytest.raises(Deadlock, match="or insert one item at a time and raise min_size to the batch"):
        check(4, samples_per_insert=2, min_size=7, batch=8, min_diff=0, max_diff=400)
    # 4, 8, and a batch of 3 leaves 5: fewer than min_size 6, and 5 + 4 > 8.
    with pytest.raises(Deadlock, match=r"must deadlock: inserts of 4 .* batches of 3 .* \[3, 8\] is too narrow"):
        check(1, insert=4, batch=3, min_size=6, max_diff=8)
    check(1, insert=4, batch=3, min_size=5, max_diff=8)
    check(1, insert=4, batch=0, min_size=9, max_diff=12)
    with pytest.raises(Deadlock, match=r"takes it to min_size 9 would bring .* to 12, above max_diff 11"):
        check(1, insert=4, batch=0, min_size=9, max_diff=11)


def halts(allows_insert, allows_sample, insert, batch, take, steps=400) -> bool:
    """Play random-free: insert whenever that is allowed, else sample; the order does not matter for whether it halts."""
    inserted = sampled = size = 0
    for _ in range(steps):
        if allows_insert(TableFill(inserted, sampled, size)):
            inserted, size = inserted + insert, size + insert
        elif allows_sample(TableFill(inserted, sampled, size)):
            sampled, size = sampled + batch, size - (batch if take else 0)
        else:
            return True
    return False


@given(
    ratio=st.sampled_from([0.25, 0.5, 1, 1.5, 2, 3, 8]),
    min_size=st.integers(1, 12),
    low=st.integers(-30, 20),
    width=st.integers(1, 40),
    insert=st.integers(1, 8),
    batch=st.integers(1, 12),
)
def test_replay_check_refuses_exactly_what_halts(ratio, min_size, low, width, insert, batch):
    limiter = RateLimiter(samples_per_insert=ratio, min_size=min_size, min_diff=low, max_diff=low + width)
    expected = halts(
        lambda fill: limiter.allows_insert(insert, fill),
        lambda fill: limiter.allows_sample(batch, fill),
        insert,
        batch,
        take=False,
    )
    try:
        check_replay(limiter, capacity=10_000, insert=insert, batch=batch)
        assert not expected, "it halts and was not refused"
    except Deadlock:
        assert expected, "it was refused and does not halt"


@given(min_size=st.integers(1, 12), capacity=st.integers(12, 30), insert=st.integers(1, 12), batch=st.integers(1, 12))
def test_queue_check_refuses_exactly_what_halts(min_size, capacity, insert, batch):
    expected = halts(
        lambda fill: fill.size + insert <= capacity,
        lambda fill: fill.size >= max(batch, min_size),
        insert,
        batch,
        take=True,
    )
    try:
        check_queue(min_size=min_size, capacity=capacity, insert=insert, batch=batch)
        assert not expected, "it halts and was not refused"
    except Deadlock:
        assert expected, "it was refused and does not halt"


@given(
    data=st.data(),
    ratio=st.sampled_from([0.5, 1, 2, 3]),
    min_size=st.integers(1, 8),
    low=st.integers(-30, 4),
    width=st.integers(1, 60),
    insert=st.integers(1, 6),
    batch=st.integers(1, 8),
)
def test_accepted_limits_never_deadlock(data, ratio, min_size, low, width, insert, batch):
    limiter = RateLimiter(samples_per_insert=ratio, min_size=min_size, min_diff=low, max_diff=low + width)
    try:
        check_replay(limiter, capacity=10_000, insert=insert, batch=batch, vary=True)
    except Deadlock:
        return
    inserted = sampled = 0
    for _ in range(30):
        fill = TableFill(inserted, sampled, inserted)
        up, down = data.draw(st.integers(1, insert)), data.draw(st.integers(1, batch))
        can_insert, can_sample = limiter.allows_insert(up, fill), limiter.allows_sample(down, fill)
        assert can_insert or can_sample
        if can_insert and (not can_sample or data.draw(st.booleans())):
            inserted += up
        else:
            sampled += down


@given(data=st.data())
def test_tables_that_pass_never_halt(data):
    """Any order of inserts and batches; items leave when they were sampled often enough, and to make room."""
    draw = data.draw
    times, capacity, insert = draw(st.integers(0, 3)), draw(st.integers(1, 12)), draw(st.integers(1, 4))
    ratio = draw(st.sampled_from([0.5, 1, 2, 3]))
    low = draw(st.sampled_from([-math.inf, -5, 0, 2]))
    high = draw(st.sampled_from([1, 4, 8, 12, 20, 40]))
    spec = TableSpec(
        "t", "ring", capacity,
        limiter={"samples_per_insert": ratio, "min_size": draw(st.integers(1, 6)), "min_diff": low, "max_diff": high},
        sampler=draw(st.sampled_from(["uniform", "fifo", "less_used_newest"])),
        remover=draw(st.sampled_from(["fifo", "lifo", "uniform"])),
        max_times_sampled=times,
    )  # fmt: skip
    batch = draw(st.integers(0, 6))
    rng = np.random.default_rng(0)
    try:
        table = build_table(spec)
        table.check_sizes(insert=insert, batch=batch)
    except Deadlock:
        return
    for _ in range(60):
        first, second = draw(st.permutations(["insert", "sample"]))
        assert any(
            table.try_insert({"x": np.zeros(insert)}, rng) if side == "insert" else table.try_sample(batch, rng)
            for side in (first, second)
        ), f"halted: {table.statistics()}"
