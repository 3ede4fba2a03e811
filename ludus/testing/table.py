"""The contract of a table, as checks: for Ludus's own kinds and for a user's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ludus.core.errors import DataError, TableClosed
from ludus.replay.base import ItemColumns, Sample, Table, TableSpec

MakeTable = Callable[[TableSpec], Table]


def check_table(make: MakeTable, kind: str = "custom") -> None:
    """Check that tables keep the `Table` contract. Items of several columns are inserted and sampled at random against a simple record of
    what was inserted and is held.

    Args:
        make: Builds a table of a spec with a capacity and a kind; it must leave sampling free once there are items (no limiter options are
            set).
        kind: Of the specs.

    Raises:
        AssertionError: With a sentence that says what is wrong.
    """
    assert isinstance(make(TableSpec("t", kind)), Table), "it lacks a method or attribute of ludus.replay.base.Table"
    _check_bound_and_contents(make, kind)
    _check_refusals(make, kind)
    _check_copies(make, kind)
    _check_state(make, kind)
    _check_priorities(make, kind)
    _check_close(make, kind)


def items(first: int, count: int) -> ItemColumns:
    """Return items number first … first + count − 1: every column tells the number."""
    numbers = np.arange(first, first + count)
    return {
        "number": numbers,
        "observation": np.stack([numbers, -numbers], axis=1).astype(np.float32),
        "version_lo": np.zeros(count, np.int32),
    }


def _check_bound_and_contents(make: MakeTable, kind: str) -> None:
    spec = TableSpec("t", kind, capacity=20)
    table, rng = make(spec), np.random.default_rng(0)
    assert table.try_sample(1, rng) is None, "an empty table gave a sample"
    inserted, names = 0, dict[int, int]()
    for step in range(200):
        count = int(rng.integers(1, 8))
        if step % 3 < 2:
            before = len(table)
            if table.try_insert(items(inserted, count), rng):
                inserted += count
            else:
                assert len(table) == before, "a refused insert changed the table"
        else:
            held = _held(make(spec), table)
            sample = table.try_sample(count, rng)
            if sample is not None:
                _check_sample(sample, count, inserted)
                _check_names(sample, held, names)
        assert len(table) <= 20, f"it holds {len(table)} items and its capacity is 20"
    statistics = table.statistics()
    assert statistics["inserted"] == inserted, f"statistics say {statistics['inserted']} inserted, it were {inserted}"
    assert statistics["sampled"] > 0, "it never gave a sample"


def _held(copy: Table, table: Table) -> dict[int, int]:
    """Return index -> number of the items that a table holds, looked up in a copy of it."""
    size = len(table)
    copy.load_state_dict(table.state_dict())
    everything = copy.try_sample(0, np.random.default_rng(0))
    assert (everything is None) == (size == 0), "asked for everything, a table that holds items gave nothing"
    if everything is None:
        return {}
    numbers = everything.columns["number"].tolist()
    assert numbers == sorted(set(numbers)), "count 0 must give every item held once, in insertion order"
    assert len(numbers) == size, f"it holds {size} items and gave {len(numbers)} when asked for everything"
    return dict(zip(everything.index.tolist(), numbers, strict=True))


def _check_names(sample: Sample, held: dict[int, int], names: dict[int, int]) -> None:
    for name, number in zip(sample.index.tolist(), sample.columns["number"].tolist(), strict=True):
        assert held.get(name) == number, f"it returned item {number} under index {name}, and held no such one"
        assert names.setdefault(name, number) == number, f"index {name} names items {names[name]} and {number}"


def _check_sample(sample: Sample, count: int, inserted: int) -> None:
    number = sample.columns["number"]
    assert len(number) == count, f"asked for {count} items, got {len(number)}"
    assert sample.index.shape == (count,), f"index has shape {sample.index.shape}"
    assert sample.index.dtype == np.int64, f"index is {sample.index.dtype}, not int64"
    assert sample.probability.shape == (count,), f"probability has shape {sample.probability.shape}"
    assert ((sample.probability > 0) & (sample.probability <= 1)).all(), "probabilities must lie in (0, 1]"
    assert ((number >= 0) & (number < inserted)).all(), "it returned items that were never inserted"
    expected = np.stack([number, -number], axis=1).astype(np.float32)
    assert np.array_equal(sample.columns["observation"], expected), (
        "the columns of an item were mixed up with another's"
    )


def _check_refusals(make: MakeTable, kind: str) -> None:
    table, rng = make(TableSpec("t", kind, capacity=20)), np.random.default_rng(0)
    assert table.try_insert(items(0, 4), rng), "an empty table refused 4 items"
    state = table.state_dict()
    good = items(4, 3)
    bad: dict[str, ItemColumns] = {
        "a missing column": {name: good[name] for name in good if name != "observation"},
        "an unknown column": {**good, "reward": np.zeros(3)},
        "another dtype": {**good, "observation": good["observation"].astype(np.float64)},
        "another item shape": {**good, "observation": good["observation"][:, :1]},
        "another length": {**good, "observation": good["observation"][:2]},
        "no columns": {},
    }
    for what, columns in bad.items():
        _expect(DataError, partial(table.try_insert, columns), f"an insert with {what}")
        _assert_equal(table.state_dict(), state, f"a refused insert with {what} changed the table")
    _expect(DataError, lambda: table.try_sample(-1, rng), "a sample of -1 items")


def _check_copies(make: MakeTable, kind: str) -> None:
    table, rng = make(TableSpec("t", kind, capacity=20)), np.random.default_rng(0)
    arrays = {name: array.copy() for name, array in items(0, 4).items()}
    table.try_insert(arrays, rng)
    arrays["number"][:] = 99
    everything = table.try_sample(0, rng)
    assert everything is not None, "asked for everything, it gave nothing"
    assert everything.columns["number"].tolist() == [0, 1, 2, 3], (
        "count 0 must give everything in insertion order, and writing to the inserted arrays must not reach the table"
    )


def _check_state(make: MakeTable, kind: str) -> None:
    spec = TableSpec("t", kind, capacity=20)
    table, rng = make(spec), np.random.default_rng(0)
    for k in range(5):
        table.try_insert(items(4 * k, 4), rng)
        table.try_sample(3, rng)
    state = table.state_dict()
    other = make(spec)
    other.load_state_dict(state)
    _assert_equal(other.state_dict(), state, "state_dict of a loaded table differs from what was loaded")
    rngs = np.random.default_rng(7), np.random.default_rng(7)
    for k in range(10):
        done, again = (
            one.try_insert(items(100 + 2 * k, 2), stream) for one, stream in zip((table, other), rngs, strict=True)
        )
        assert done == again, "insertions went apart"
        a, b = (one.try_sample(3, stream) for one, stream in zip((table, other), rngs, strict=True))
        assert (a is None) == (b is None), "samples went apart"
        if a is not None and b is not None:
            samples_of_a, samples_of_b = ({**x.columns, "index": x.index, "probability": x.probability} for x in (a, b))
            _assert_equal(
                samples_of_a, samples_of_b, "a loaded table gives other samples than the one it was saved from"
            )
    _assert_equal(other.state_dict(), table.state_dict(), "a loaded table ended in another state")


def _check_priorities(make: MakeTable, kind: str) -> None:
    spec = TableSpec("t", kind, capacity=20)
    table, rng = make(spec), np.random.default_rng(0)
    table.try_insert(items(0, 20), rng)
    names = np.array(list(_held(make(spec), table)), np.int64)
    try:
        table.update_priorities(names, np.linspace(1, 3, len(names)))
    except DataError:
        return  # nothing goes by priorities, and it says so
    for k in range(10):
        table.try_sample(2, rng)
        table.try_insert(items(20 + 2 * k, 2), rng)
    gone = np.array([name for name in names.tolist() if name not in _held(make(spec), table)], np.int64)
    state = table.state_dict()
    table.update_priorities(gone, np.full(len(gone), 9.0))
    _assert_equal(table.state_dict(), state, "priorities of items that are gone changed the table")
    _expect(DataError, lambda: table.update_priorities(names, np.ones(1)), "priorities of another number than indices")


def _check_close(make: MakeTable, kind: str) -> None:
    table, rng = make(TableSpec("t", kind, capacity=20)), np.random.default_rng(0)
    state = table.state_dict()
    table.try_insert(items(0, 4), rng)
    table.close()
    table.close()
    calls: dict[str, Callable[[], Any]] = {
        "try_insert": lambda: table.try_insert(items(4, 1), rng),
        "try_sample": lambda: table.try_sample(1, rng),
        "update_priorities": lambda: table.update_priorities(np.zeros(1, np.int64), np.ones(1)),
        "announce": lambda: table.announce(1),
        "len": lambda: len(table),
        "statistics": table.statistics,
        "state_dict": table.state_dict,
        "load_state_dict": lambda: table.load_state_dict(state),
    }
    for name, call in calls.items():
        _expect(TableClosed, call, f"{name} of a closed table")


def _expect(kind: type[Exception], call: Callable[[], Any], what: str) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{what} did not raise {kind.__name__}")


def _assert_equal(a: Any, b: Any, message: str, where: str = "") -> None:
    if hasattr(a, "keys") and hasattr(b, "keys"):
        assert a.keys() == b.keys(), f"{message}: keys {sorted(a)} and {sorted(b)} at {where or 'the top'}"
        for name in a:
            _assert_equal(a[name], b[name], message, f"{where}.{name}")
    elif isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        same = type(a) is type(b) and a.dtype == b.dtype and np.array_equal(a, b)
        assert same, f"{message}: {where} is {a!r} and {b!r}"
    else:
        assert a == b, f"{message}: {where} is {a!r} and {b!r}"
