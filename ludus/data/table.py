"""What all tables share: checks, limits, counts, state. A kind of table says how rows are stored and drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data.base import Columns, Sample, Table, TableSpec
from ludus.data.columns import Schema, check_schema, num_rows, rows_of, schema_of
from ludus.data.rate_limiter import Fill
from ludus.data.rules import Rules
from ludus.errors import DataError, Deadlock, TableClosed
from ludus.registry import load
from ludus.types import Array, State

TABLES: Mapping[str, str] = {
    "prioritised": "ludus.data.replay:Replay",
    "queue": "ludus.data.queue:Queue",
    "reservoir": "ludus.data.replay:Replay",
    "ring": "ludus.data.replay:Replay",
    "stack": "ludus.data.replay:Replay",
}
"""Kinds of tables: a class that is built as `Class(spec)`. `TableSpec.kind` may also be `module:Class`."""


def build_table(spec: TableSpec) -> Table:
    """The table that `spec` asks for. Raises UnknownName, DataError or Deadlock."""
    table: Table = load("kind of table", spec.kind, TABLES)(spec)
    return table


@dataclass(slots=True)
class Counts:
    """Counts of items. inserted: taken in. dropped: too old, on arrival or later. evicted: made room, or found none in a reservoir.
    outdated: of the dropped, those that had been taken in. refused_*: not allowed then."""

    inserted: int = 0
    sampled: int = 0
    evicted: int = 0
    dropped: int = 0
    outdated: int = 0
    refused_inserts: int = 0
    refused_samples: int = 0


class BoundedTable(ABC):
    """Template of a `Table`. Values are not looked at: NaN may be stored, and it is the learner that refuses to learn from it.

    Rows are copied on insertion, so the caller may reuse its arrays; what `try_sample` returns belongs to the caller.
    """

    def __init__(self, spec: TableSpec, rules: Rules) -> None:
        if spec.capacity < 1:
            raise DataError(f"table {spec.name!r}: the capacity is {spec.capacity}; it must be 1 item or more.")
        if spec.max_lag is not None and spec.max_lag < 0:
            raise DataError(f"table {spec.name!r}: max_lag is {spec.max_lag}; it must be 0 versions or more, or None.")
        self.spec = spec
        self.rules = rules
        self.limiter = rules.limiter
        if self.limiter.min_size > spec.capacity:
            raise Deadlock(
                f"table {spec.name!r}: min_size {self.limiter.min_size} is above the capacity {spec.capacity}, so nothing could ever be "
                "sampled. Lower min_size or raise the capacity."
            )
        self._counts = Counts()
        self._schema: Schema | None = None
        self._newest: int | None = None
        self._closed = False

    # ------------------------------------------------------------------ what a kind of table says

    @abstractmethod
    def _size(self) -> int:
        """Items held."""

    @abstractmethod
    def _store(self, columns: Columns, count: int, rng: np.random.Generator | None) -> None:
        """Copy `count` > 0 checked rows in, evicting what must go. Their numbers start at `_counts.inserted`. Raises DataError, and
        changes nothing, if it cannot."""

    @abstractmethod
    def _draw(self, count: int, rng: np.random.Generator) -> Sample:
        """`count` > 0 items, or with `count` = 0 everything held, in insertion order; the table is not empty."""

    @abstractmethod
    def _contents(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """(book-keeping, columns) of the items held, copied, in insertion order; only called where there is a schema."""

    @abstractmethod
    def _restore(self, book: Mapping[str, Any], columns: Columns, count: int) -> None:
        """Hold exactly these `count` items instead. Raises DataError, and changes nothing, if the book-keeping does not fit."""

    @abstractmethod
    def _empty(self) -> None:
        """Hold nothing, as if new."""

    @abstractmethod
    def _forget(self) -> None:
        """Release all memory; nothing is asked afterwards."""

    # ------------------------------------------------------------------ the Table protocol

    def try_insert(self, items: Columns, rng: np.random.Generator | None = None) -> bool:
        """See `Table`. Raises DataError, and changes nothing, if the columns do not fit; Deadlock if they could never be let in."""
        self._require_open()
        rows = num_rows(items)
        if self._schema is not None:
            check_schema(items, self._schema)
        fresh = self._fresh(items)
        count = rows if fresh is None else int(fresh.sum())
        if count and not self._admits(count):
            self._counts.refused_inserts += count
            return False
        if count:
            self._store(items if fresh is None else rows_of(items, fresh), count, rng)
        if self._schema is None:
            self._schema = schema_of(items)
        self._counts.inserted += count
        self._counts.dropped += rows - count
        return True

    def try_sample(self, count: int, rng: np.random.Generator) -> Sample | None:
        """See `Table`; count 0: everything held, in insertion order. Raises Deadlock if that many could never be drawn."""
        self._require_open()
        if count < 0:
            raise DataError(
                f"table {self.spec.name!r}: asked for {count} items; ask for 1 or more, or 0 for all it holds."
            )
        if not self._yields(count):
            self._counts.refused_samples += count
            return None
        sample = self._draw(count, rng)
        self._counts.sampled += len(sample.index)
        return sample

    def update_priorities(self, index: NDArray[np.int64], priority: NDArray[np.float64]) -> None:
        """Raises DataError: this kind of table does not look at priorities, and saying nothing would hide the mistake."""
        self._require_open()
        raise DataError(
            f"table {self.spec.name!r} is a {self.spec.kind}, which has no priorities; use a kind, sampler or remover that goes by them."
        )

    def announce(self, version: int) -> None:
        """See `Table`. Versions only go up; an older one changes nothing."""
        self._require_open()
        self._newest = version if self._newest is None else max(version, self._newest)

    def __len__(self) -> int:
        self._require_open()
        return self._size()

    def statistics(self) -> Mapping[str, Any]:
        """`Counts`, and `size`: the items held now."""
        self._require_open()
        return {**asdict(self._counts), "size": self._size()}

    def state_dict(self) -> State:
        """Counts, contents and the newest version; independent copies."""
        self._require_open()
        contents = None
        if self._schema is not None:
            book, columns = self._contents()
            contents = {**book, "columns": columns}
        return {"counts": asdict(self._counts), "newest": self._newest, "contents": contents}

    def load_state_dict(self, state: State) -> None:
        """Raises DataError, and changes nothing, if the contents do not fit into this table."""
        self._require_open()
        contents = state["contents"]
        rows = 0 if contents is None else num_rows(contents["columns"])
        if rows > self.spec.capacity:
            raise DataError(
                f"table {self.spec.name!r}: the state holds {rows} items and the capacity is {self.spec.capacity}; "
                "load it into a table of the capacity it was saved from."
            )
        counts = Counts(**state["counts"])
        if contents is None:
            self._empty()
            self._schema = None
        else:
            book = {name: value for name, value in contents.items() if name != "columns"}
            self._restore(book, contents["columns"], rows)
            self._schema = schema_of(contents["columns"])
        self._counts, self._newest = counts, state["newest"]

    def close(self) -> None:
        """Release the items; every other call raises TableClosed from now on. Closing twice is harmless."""
        self._closed = True
        self._forget()

    def check_sizes(self, *, insert: int, batch: int, vary: bool = False) -> None:
        """See `Rules`."""
        self.rules.check_sizes(insert=insert, batch=batch, vary=vary)

    # ------------------------------------------------------------------ helpers

    def _admits(self, count: int) -> bool:
        return self.rules.admits(count, self._fill())

    def _yields(self, count: int) -> bool:
        return self.rules.yields(count, self._fill())

    def _fill(self) -> Fill:
        return Fill(self._counts.inserted - self._counts.outdated, self._counts.sampled, self._size())

    def _require_open(self) -> None:
        if self._closed:
            raise TableClosed(f"table {self.spec.name!r} is closed: its task has ended. Stop using it.")

    def _too_old(self) -> int | None:
        """Items with a `version_lo` below this are too old; None: none are."""
        if self.spec.max_lag is None or self._newest is None:
            return None
        return self._newest - self.spec.max_lag

    def _fresh(self, items: Columns) -> NDArray[np.bool_] | None:
        """Which rows are not too old; None: all."""
        if self.spec.max_lag is None:
            return None
        if "version_lo" not in items or items["version_lo"].ndim != 1:
            raise DataError(
                f"table {self.spec.name!r} has max_lag {self.spec.max_lag}, so its items need a column 'version_lo' with one version each."
            )
        limit = self._too_old()
        if limit is None:
            return None
        fresh: NDArray[np.bool_] = items["version_lo"] >= limit
        return None if fresh.all() else fresh
