"""The one shell that makes a pure table usable by several threads or an actor: a condition, deadlines, and time spent waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ludus.core.errors import DataError, TableClosed
from ludus.core.types import State
from ludus.replay.base import ItemColumns, Sample, Table
from ludus.replay.sharded import RemoteItemColumns, ShardedTable
from ludus.replay.table import BoundedTable

Answer = TypeVar("Answer")

_HEARTBEAT = 5.0  # seconds after which who waits asks whether a table's shards are still there


@dataclass(slots=True)
class WaitCounts:
    """Of one side. calls: those that had to wait. seconds: summed over all finished and failed calls. longest: seconds of one call."""

    calls: int = 0
    seconds: float = 0.0
    longest: float = 0.0

    def add(self, seconds: float, *, blocked: bool) -> None:
        """Add one more call."""
        self.calls += blocked
        self.seconds += seconds
        self.longest = max(self.longest, seconds)


class WaitingTable:
    """Owns a table and its random stream. Every call is safe from any thread; a waiting call wakes when the table changes, closes,
    or its deadline comes, and never polls.

    Waits count from the call until its answer and are reported by both `insert`/`sample` and `statistics`.
    """

    def __init__(self, table: Table, rng: np.random.Generator) -> None:
        self._table = table
        self._rng = rng
        self._changed = threading.Condition()
        self._name = table.spec.name
        self._waits = {"insert": WaitCounts(), "sample": WaitCounts()}

    def insert(self, items: ItemColumns | RemoteItemColumns, *, timeout: float | None = None) -> float:
        """Insert all rows as soon as that is allowed; the seconds that it waited.

        Raises TimeoutError after `timeout` seconds (nothing was inserted), TableClosed when the table closes meanwhile, DataError.
        """
        return self._wait("insert", lambda: self._try_insert(items) or None, timeout)[1]

    def sample(
        self,
        count: int,
        rng: np.random.Generator | None = None,
        *,
        timeout: float | None = None,
        unless: threading.Event | None = None,
    ) -> tuple[Sample, float]:
        """`count` items (0: all it holds) as soon as that is allowed, and the seconds that it waited; drawn with `rng`, or from this
        table's own stream. Raises like `insert`. unless: once this is set (and `wake` is called) it does not wait: TimeoutError."""
        rng = self._rng if rng is None else rng
        return self._wait("sample", lambda: self._table.try_sample(count, rng), timeout, unless)

    def wake(self) -> None:
        """Wake all waiting calls, so that they look again."""
        with self._changed:
            self._changed.notify_all()

    def try_insert(self, items: ItemColumns | RemoteItemColumns) -> bool:
        """Like `Table.try_insert`."""
        with self._changed:
            done = self._try_insert(items)
            self._changed.notify_all()
            return done

    def try_sample(self, count: int, rng: np.random.Generator | None = None) -> Sample | None:
        """Like `Table.try_sample`; without `rng` from this table's own stream."""
        with self._changed:
            sample = self._table.try_sample(count, self._rng if rng is None else rng)
            self._changed.notify_all()
            return sample

    def room(self) -> float:
        """Return the most items that may be inserted now, as far as the table can tell."""
        with self._changed:
            return self._table.room() if isinstance(self._table, BoundedTable) else float("inf")

    def update_priorities(self, index: Any, priority: Any) -> None:
        """Like `Table.update_priorities`."""
        with self._changed:
            self._table.update_priorities(index, priority)

    def announce(self, version: int) -> None:
        """Like `Table.announce`; dropping what is too old may make room."""
        with self._changed:
            self._table.announce(version)
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return len(self._table)

    def statistics(self) -> Mapping[str, Any]:
        """Return the table's, and for `insert` and `sample` those of `WaitCounts`: insert_waits, insert_wait_seconds, insert_wait_longest,
        …"""
        with self._changed:
            counts = dict(self._table.statistics())
            for side, waits in self._waits.items():
                counts[f"{side}_waits"] = waits.calls
                counts[f"{side}_wait_seconds"] = waits.seconds
                counts[f"{side}_wait_longest"] = waits.longest
            return counts

    def state_dict(self) -> State:
        """Return the table and the random stream; waits are clock readings and start anew."""
        with self._changed:
            return {"table": self._table.state_dict(), "rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        with self._changed:
            self._table.load_state_dict(state["table"])
            self._rng.bit_generator.state = state["rng"]
            self._changed.notify_all()

    def close(self) -> None:
        """Close the table and wake everybody who waits for it, with TableClosed."""
        with self._changed:
            self._table.close()
            self._changed.notify_all()

    def _try_insert(self, items: ItemColumns | RemoteItemColumns) -> bool:
        if isinstance(items, RemoteItemColumns) and not isinstance(self._table, ShardedTable):
            raise DataError(
                f"table {self._name!r} is in one place, where references are not fetched; give it the columns."
            )
        return self._table.try_insert(items, self._rng)  # type: ignore[arg-type]

    def _wait(
        self,
        side: str,
        attempt: Callable[[], Answer | None],
        timeout: float | None,
        unless: threading.Event | None = None,
    ) -> tuple[Answer, float]:
        begin = time.monotonic()
        deadline = None if timeout is None else begin + timeout
        blocked = False
        with self._changed:
            try:
                while (answer := attempt()) is None:
                    blocked = True
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise TimeoutError(self._late(side, timeout))
                    if unless is not None and unless.is_set():
                        raise TimeoutError(f"table {self._name!r}: nobody wants this {side} any more.")
                    self._sleep(left)
            except TableClosed:
                raise TableClosed(
                    f"table {self._name!r} closed before this {side} was done: its task has ended."
                ) from None
            finally:
                waited = time.monotonic() - begin
                self._waits[side].add(waited, blocked=blocked)
                self._changed.notify_all()  # after an error, too: others who wait may meet it
            return answer, waited

    def _sleep(self, seconds: float | None) -> None:
        """Sleep until the table changes. That shards have died is no change, so they are asked now and then."""
        if not isinstance(self._table, ShardedTable):
            self._changed.wait(seconds)
        elif not self._changed.wait(_HEARTBEAT if seconds is None else min(seconds, _HEARTBEAT)):
            self._table.check_alive()

    def _late(self, side: str, timeout: float | None) -> str:
        other = {"insert": "samples", "sample": "inserts"}[side]
        counts = ", ".join(f"{name} {value}" for name, value in self._table.statistics().items())
        return (
            f"table {self._name!r}: this {side} was not allowed within {timeout:g} s ({counts}). It waits for {other}: is that side "
            "still alive, and do the limiter's settings fit?"
        )
