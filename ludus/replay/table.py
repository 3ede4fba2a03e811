"""What all tables share: checks, limits, counts, state. A kind of table says how rows are stored and drawn."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.backend.device import LazyRows, columns_to_device, dtype_of, to_device, to_numpy
from ludus.core.errors import DataError, Deadlock, TableClosed
from ludus.core.parts import resolve_name
from ludus.core.types import Array, State
from ludus.replay.base import ON_HOST, ItemColumns, Sample, TableSpec
from ludus.replay.rate_limiter import RateLimiter, TableFill, check_queue, check_replay
from ludus.replay.selectors import SELECTORS, SelectorChoice

if TYPE_CHECKING:
    import torch

# --------------------------------------------------------------------------------------------------------------------
# Columns: name -> array with one row per item. Checks and row operations that tables share.

_RUNS = 8  # up to so many runs of neighbouring rows are copied as slices

Schema: TypeAlias = Mapping[str, tuple[np.dtype[np.generic], tuple[int, ...]]]
"""name -> (dtype, shape of one item)."""

Columns: TypeAlias = Mapping[str, Any]
"""As `ItemColumns`; some of them, or all, may be tensors on a device."""


def schema_of(columns: ItemColumns) -> Schema:
    """Return the names, dtypes and item shapes of columns."""
    return {name: (array.dtype, array.shape[1:]) for name, array in columns.items()}


def num_rows(columns: ItemColumns) -> int:
    """Return rows of well-formed columns. Raises DataError if there are none, or lengths differ, or one is not a plain array."""
    if not columns:
        raise DataError("the items have no columns; give at least one array with one row per item.")
    rows: dict[str, int] = {}
    for name, array in columns.items():
        if not isinstance(array, np.ndarray) or array.ndim == 0 or array.dtype.hasobject:
            description = (
                f"{array.dtype} array of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            )
            raise DataError(
                f"column {name!r} is a {description}; it must be a NumPy array with one row per item, not of objects."
            )
        rows[name] = len(array)
    if len(set(rows.values())) > 1:
        raise DataError(f"the columns have different lengths, {rows}; every column has one row per item.")
    return next(iter(rows.values()))


def check_schema(columns: ItemColumns, schema: Schema) -> None:
    """Raise DataError if names, dtypes or item shapes differ from `schema`."""
    if columns.keys() != schema.keys():
        missing, extra = sorted(schema.keys() - columns.keys()), sorted(columns.keys() - schema.keys())
        raise DataError(f"the items' columns differ from the table's: missing {missing}, not expected {extra}.")
    for name, (dtype, shape) in schema.items():
        array = columns[name]
        if array.dtype != dtype or array.shape[1:] != shape:
            raise DataError(
                f"column {name!r} has items of {array.dtype}{list(array.shape[1:])}; the table holds {dtype}{list(shape)}."
            )


def rows_of(columns: Columns, rows: slice | NDArray[np.int64] | NDArray[np.bool_]) -> dict[str, Any]:
    """Return the given rows of every column (views for a slice, copies otherwise)."""
    device_rows: torch.Tensor | None = None  # the rows, on a device
    out: dict[str, Any] = {}
    for name, column in columns.items():
        if isinstance(rows, slice) or isinstance(column, np.ndarray):
            out[name] = column[rows]
            continue
        if device_rows is None:
            device_rows = to_device(np.flatnonzero(rows) if rows.dtype == np.bool_ else rows, column.device)
        out[name] = column.index_select(0, device_rows)
    return out


class DeviceRowCache(Mapping[str, Any]):
    """Copies of rows of a table on a device, made when one is asked for, or else before the table changes. So a step that is one graph can
    gather them itself."""

    def __init__(self, columns: Columns, slots: NDArray[np.int64]) -> None:
        import torch

        self._lock = threading.Lock()  # a table may be changed by another thread than the one that learns
        self._names = list(columns)
        self._own: dict[str, Any] = {
            name: column[slots] for name, column in columns.items() if isinstance(column, np.ndarray)
        }
        device_columns = {name: column for name, column in columns.items() if name not in self._own}
        self.there: LazyRows | None = LazyRows(device_columns, torch.from_numpy(np.array(slots, np.int64)))
        """The columns on the device and which rows; None: they have been copied."""

    def __getitem__(self, name: str) -> Any:
        with self._lock:
            if name not in self._own and self.there is not None and name in self.there.columns:
                self._own |= self.there.gathered()
            return self._own[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def settle(self) -> None:
        """Copy them, if they are not yet."""
        with self._lock:
            if self.there is not None and not self._own.keys() >= self.there.columns.keys():
                self._own |= self.there.gathered()
            self.there = None


def resident(columns: Columns, device: torch.device, *, but: Collection[str]) -> Mapping[str, torch.Tensor] | LazyRows:
    """Return columns of a batch on a device, but for these; not gathered yet, if they lie there."""
    wanted = [name for name in columns if name not in but]
    if (
        isinstance(columns, DeviceRowCache)
        and columns.there is not None
        and columns.there.columns.keys() >= set(wanted)
    ):
        return columns.there
    return {name: to_device(columns[name], device) for name in wanted}


def concatenate(parts: Sequence[Columns]) -> dict[str, Any]:
    """Return columns of several parts under each other, in order; one part is handed on without a copy."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: _joined([part[name] for part in parts]) for name in parts[0]}


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch

    return torch.cat(list(parts))


def columns_on_device(columns: ItemColumns, device: torch.device) -> dict[str, Any]:
    """Return copies of columns on a device, which take one transfer; but for those of `ON_HOST`, which are as they were."""
    transferred = columns_to_device({name: array for name, array in columns.items() if name not in ON_HOST}, device)
    return {name: transferred.get(name, array) for name, array in columns.items()}


def empty_on_device(shape: tuple[int, ...], dtype: np.dtype[np.generic], device: torch.device) -> torch.Tensor:
    """Return uninitialised columns on a device."""
    import torch

    return torch.empty(shape, dtype=dtype_of(np.empty(0, dtype)), device=device)


def to_host_columns(columns: Columns) -> dict[str, Array]:
    """Return columns in memory, wherever they were."""
    return {name: c if isinstance(c, np.ndarray) else to_numpy(c) for name, c in columns.items()}


def write_rows(into: Columns, rows: NDArray[np.int64], columns: Columns) -> None:
    """Copy columns into the given different rows of others, which ascend but for one wrap: run by run where they are neighbours."""
    if not len(rows):
        return
    first, last = int(rows[0]), int(rows[-1])
    if last - first == len(rows) - 1:
        for name, array in columns.items():
            into[name][first : last + 1] = array
        return
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    if len(breaks) >= _RUNS:
        put_rows(into, rows, columns)
        return
    for begin, end in pairwise([0, *breaks.tolist(), len(rows)]):
        first = int(rows[begin])
        for name, array in columns.items():
            into[name][first : first + end - begin] = array[begin:end]


def put_rows(into: Columns, rows: NDArray[np.int64], columns: Columns) -> None:
    """Copy columns into the given different rows of others, in whatever order they are."""
    for name, values in columns.items():
        column = into[name]
        if isinstance(column, np.ndarray):
            column[rows] = values
        else:
            column.index_copy_(0, to_device(rows, column.device), values)


@dataclass(slots=True)
class TableCounts:
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

    device: where columns lie as tensors, but for those of `ON_HOST`; None: in memory. What is drawn when, and what is kept of it in a
    checkpoint, does not depend on it.
    """

    def __init__(self, spec: TableSpec, rules: AdmissionRules) -> None:
        if spec.capacity < 1:
            raise DataError(f"table {spec.name!r}: the capacity is {spec.capacity}; it must be 1 item or more.")
        if spec.max_lag is not None and spec.max_lag < 0:
            raise DataError(f"table {spec.name!r}: max_lag is {spec.max_lag}; it must be 0 versions or more, or None.")
        self.spec = spec
        self.rules = rules
        self.limiter = rules.limiter
        self.device: torch.device | None = None
        if self.limiter.min_size > spec.capacity:
            raise Deadlock(
                f"table {spec.name!r}: min_size {self.limiter.min_size} is above the capacity {spec.capacity}, so nothing could ever be "
                "sampled. Lower min_size or raise the capacity."
            )
        self._counts = TableCounts()
        self._schema: Schema | None = None
        self._newest: int | None = None
        self._closed = False

    # ------------------------------------------------------------------ what a kind of table says

    @abstractmethod
    def _size(self) -> int:
        """Return the number of items held."""

    @abstractmethod
    def _store(self, columns: ItemColumns, count: int, rng: np.random.Generator | None) -> None:
        """Copy `count` > 0 checked rows in, evicting what must go. Their numbers start at `_counts.inserted`. Raises DataError, and
        changes nothing, if it cannot."""

    @abstractmethod
    def _draw(self, count: int, rng: np.random.Generator) -> Sample:
        """`count` > 0 items, or with `count` = 0 everything held, in insertion order; the table is not empty."""

    @abstractmethod
    def _contents(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return (book-keeping, columns) of the items held, copied, in insertion order; only called where there is a schema."""

    @abstractmethod
    def _restore(self, book: Mapping[str, Any], columns: ItemColumns, count: int) -> None:
        """Hold exactly these `count` items instead. Raises DataError, and changes nothing, if the book-keeping does not fit."""

    @abstractmethod
    def _empty(self) -> None:
        """Hold nothing, as if new."""

    @abstractmethod
    def _forget(self) -> None:
        """Release all memory; nothing is asked afterwards."""

    # ------------------------------------------------------------------ the Table protocol

    def try_insert(self, items: ItemColumns, rng: np.random.Generator | None = None) -> bool:
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
        """Raise DataError: this kind of table does not look at priorities, and saying nothing would hide the mistake."""
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
        """`TableCounts`, and `size`: the items held now."""
        self._require_open()
        return {**asdict(self._counts), "size": self._size()}

    def state_dict(self) -> State:
        """Return counts, contents and the newest version; independent copies."""
        self._require_open()
        contents = None
        if self._schema is not None:
            book, columns = self._contents()
            contents = {**book, "columns": columns}
        return {"counts": asdict(self._counts), "newest": self._newest, "contents": contents}

    def load_state_dict(self, state: State) -> None:
        """Raise DataError, and changes nothing, if the contents do not fit into this table."""
        self._require_open()
        contents = state["contents"]
        rows = 0 if contents is None else num_rows(contents["columns"])
        if rows > self.spec.capacity:
            raise DataError(
                f"table {self.spec.name!r}: the state holds {rows} items and the capacity is {self.spec.capacity}; "
                "load it into a table of the capacity it was saved from."
            )
        counts = TableCounts(**state["counts"])
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

    def room(self) -> float:
        """Return the most items that may be inserted at once now: as many as the limiter lets in, and of a table where old items make room
        for new ones, as it holds."""
        self._require_open()
        return min(self.limiter.room(self._fill()), self.rules.most)

    def check_sizes(self, *, insert: int, batch: int, vary: bool = False) -> None:
        """See `AdmissionRules`."""
        self.rules.check_sizes(insert=insert, batch=batch, vary=vary)

    # ------------------------------------------------------------------ helpers

    def _admits(self, count: int) -> bool:
        return self.rules.admits(count, self._fill())

    def _yields(self, count: int) -> bool:
        return self.rules.yields(count, self._fill())

    def _fill(self) -> TableFill:
        return TableFill(self._counts.inserted - self._counts.outdated, self._counts.sampled, self._size())

    def _require_open(self) -> None:
        if self._closed:
            raise TableClosed(f"table {self.spec.name!r} is closed: its task has ended. Stop using it.")

    def _too_old(self) -> int | None:
        """Return the version below which items are too old; None: none are."""
        if self.spec.max_lag is None or self._newest is None:
            return None
        return self._newest - self.spec.max_lag

    def _fresh(self, items: ItemColumns) -> NDArray[np.bool_] | None:
        """Return which rows are not too old; None: all."""
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


# --------------------------------------------------------------------------------------------------------------------
# Admission: may so many items come in, or out, now? The rules of a kind of table, wherever its items are.


class AdmissionRules(Protocol):
    """limiter: the spec's. most: items of one insert; more may come in several, one after the other (infinite: they may not)."""

    limiter: RateLimiter

    @property
    def most(self) -> float: ...

    def admits(self, count: int, fill: TableFill) -> bool:
        """Return whether `count` items may come in now. Raises Deadlock if they never may."""
        ...

    def yields(self, count: int, fill: TableFill) -> bool:
        """Return whether `count` items (0: everything) may be drawn now. Raises Deadlock if they never may."""
        ...

    def check_sizes(self, *, insert: int, batch: int, vary: bool = False) -> None:
        """Refuse to deadlock: raises Deadlock if inserts of `insert` items and batches of `batch` (0: everything) must. Already if they
        might, where those are the largest of sizes that `vary`, or where `max_lag` drops rows on the way."""
        ...


class QueueRules:
    """Inserts wait while there is no room; batches until there are as many items, and `min_size`."""

    most = math.inf  # more than it holds is refused: nothing makes room between pieces

    def __init__(self, spec: TableSpec) -> None:
        """Raise DataError or Deadlock for what a queue cannot do."""
        options = spec.sampler, spec.remover, spec.max_times_sampled
        if any(option not in (None, own) for option, own in zip(options, ("fifo", "fifo", 1), strict=True)):
            raise DataError(
                f"table {spec.name!r}: a queue hands out each item once and in order; sampler, remover and max_times_sampled are "
                f"{options}. Leave them out, or use a ring, for which they can be chosen."
            )
        for name, value in spec.limiter.items():
            if name != "min_size" and (name, value) != ("samples_per_insert", 1):
                raise Deadlock(
                    f"table {spec.name!r}: a queue hands out each item once and is bounded by its capacity, so {name}={value:g} would "
                    "stop one side for ever. Leave it out, set the capacity instead, or use a ring."
                )
        self._spec = spec
        self.limiter = RateLimiter.of(spec.limiter)

    def admits(self, count: int, fill: TableFill) -> bool:
        """See `AdmissionRules`."""
        if count > self._spec.capacity:
            raise Deadlock(
                f"table {self._spec.name!r}: an insert of {count} items never fits into a queue of {self._spec.capacity}. "
                "Raise the capacity or insert less at once."
            )
        return fill.size + count <= self._spec.capacity

    def yields(self, count: int, fill: TableFill) -> bool:
        """See `AdmissionRules`."""
        if count > self._spec.capacity:
            raise Deadlock(
                f"table {self._spec.name!r}: a batch of {count} items never gets together in a queue of {self._spec.capacity}. "
                "Raise the capacity or ask for less."
            )
        return fill.size >= max(count, self.limiter.min_size)

    def check_sizes(self, *, insert: int, batch: int, vary: bool = False) -> None:
        """See `AdmissionRules`."""
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
        """Raise DataError, UnknownName or Deadlock for what does not go together."""
        self.choice = SelectorChoice.of(spec)
        self.limiter, self.most = RateLimiter.of(spec.limiter), float(spec.capacity)
        self.different = (
            bool(self.choice.times)
            or not resolve_name("sampler", self.choice.sampler, SELECTORS, expected=(("draw",), ("pick",))).repeats
        )
        self._spec = spec

    def admits(self, count: int, fill: TableFill) -> bool:
        """See `AdmissionRules`."""
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

    def yields(self, count: int, fill: TableFill) -> bool:
        """See `AdmissionRules`."""
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
        """See `AdmissionRules`."""
        check_replay(
            self.limiter,
            capacity=self._spec.capacity,
            insert=insert,
            batch=batch,
            vary=vary or self._spec.max_lag is not None,
            times=self.choice.times,
            different=self.different,
        )
