"""Trajectories as Parquet files, exact to the bit; and whether recorded decisions fit the spaces in which they are learned from.

A row of the file is a segment. Columns of decisions are lists; a value that is an array (an observation, a mask) is its bytes, in C
order, little-endian; the file's metadata, JSON under "ludus", has the dtype and shape of each column beside the origin. Nothing is pickled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space
from numpy.typing import NDArray

from ludus.core.errors import DataError, one_line
from ludus.core.jsonable import parse_json
from ludus.core.machine import atomic_replace, sync, temporary_path
from ludus.core.packages import require
from ludus.core.types import Array, EnvSpec
from ludus.envs.spaces import Choices
from ludus.replay.trajectories import OF_ROWS, Trajectories, select

_ADVICE = "Use the wrappers and options that they were recorded with."


def check_spaces(
    pieces: Sequence[Trajectories], origin: TrajectoryOrigin, env: EnvSpec, observation: Space[Any], action: Space[Any]
) -> None:
    """Raise DataError for decisions that do not fit an environment whose agents have these spaces. Limits of observations are not
    compared."""
    if not _alike(origin.action, action):
        raise DataError(
            f"the file has actions of {_text(origin.action)}; in the scenario's {env.id} they are of {_text(action)}. {_ADVICE}"
        )
    compiled = env.enumeration is not None
    wanted = () if compiled else observation.shape
    for piece in pieces:
        if piece.observation.shape[1:] != wanted or piece.action.shape[1:] != action.shape:
            raise DataError(
                f"the file has observations of shape {piece.observation.shape[1:]} and actions of {piece.action.shape[1:]}; in the "
                f"scenario's {env.id} they are of {wanted} and {action.shape}. {_ADVICE}"
            )
    if (origin.observation.shape, origin.observation.dtype) != (observation.shape, observation.dtype):
        raise DataError(
            f"the file has observations of {_text(origin.observation)}; in the scenario's {env.id} they are of {_text(observation)}. "
            f"{_ADVICE}"
        )
    if env.enumeration is not None:
        for ids in (piece.observation for piece in pieces):
            if len(ids) and not 0 <= ids.min() <= ids.max() < len(env.enumeration.mask):
                raise DataError(
                    f"the file has information states that {env.id} does not have; it was recorded in another."
                )


def _alike(first: Space[Any], second: Space[Any]) -> bool:
    """Return whether actions of two spaces mean the same."""
    if isinstance(first, Box) and isinstance(second, Box):
        same = first.shape == second.shape and first.dtype == second.dtype
        return same and np.array_equal(first.low, second.low) and np.array_equal(first.high, second.high)
    counts = [None if some is None else some.counts.tolist() for some in map(Choices.of, (first, second))]
    return None not in counts and counts[0] == counts[1]


def _text(space: Space[Any]) -> str:
    return " ".join(str(space).split())  # bounds of several rows are written in several lines


# --------------------------------------------------------------------------------------------------------------------
# Spaces as JSON: Discrete, MultiDiscrete, MultiBinary and Box.


def space_to_json(space: Space[Any]) -> dict[str, Any]:
    """Return what `space_from_json` makes an equal space of; bounds that are infinite are null, and those that are all one are one number.
    Raises DataError for another kind of space."""
    if isinstance(space, Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, MultiDiscrete):
        kind = space.dtype.str
        return {"kind": "multi_discrete", "nvec": space.nvec.tolist(), "start": space.start.tolist(), "dtype": kind}
    if isinstance(space, MultiBinary):
        return {"kind": "multi_binary", "n": space.n if isinstance(space.n, int) else list(space.shape)}
    if isinstance(space, Box):
        sides = {"low": _bound(space.low), "high": _bound(space.high)}
        return {"kind": "box", "shape": list(space.shape), "dtype": space.dtype.str, **sides}
    raise DataError(f"the space {space} was given; Discrete, MultiDiscrete, MultiBinary and Box can be written.")


_MOST_ENTRIES = 1 << 24  # of an array: its bounds are made from a header of some bytes


def space_from_json(description: Mapping[str, Any]) -> Space[Any]:
    """Raises DataError for another kind, KeyError, TypeError or ValueError for a damaged one."""
    kind = description["kind"]
    if kind == "discrete":
        return Discrete(int(description["n"]), start=int(description["start"]))
    if kind == "multi_discrete":
        nvec, start = np.array(description["nvec"]), np.array(description["start"])
        return MultiDiscrete(nvec, dtype=np.dtype(description["dtype"]).type, start=start)
    if kind == "multi_binary":
        return MultiBinary(description["n"])
    if kind == "box":
        shape, dtype = tuple(map(int, description["shape"])), np.dtype(description["dtype"])
        if math.prod(shape) > _MOST_ENTRIES or min(shape, default=0) < 0 or dtype.kind not in "biuf":
            raise DataError(f"its space is of {dtype} of shape {list(shape)}, which no observation is")
        low, high = _full(description["low"], shape, dtype, -np.inf), _full(description["high"], shape, dtype, np.inf)
        return Box(low, high, shape, dtype.type)
    raise DataError(f"its space is of the kind {kind!r}, which this version does not know")


def _bound(side: NDArray[Any]) -> Any:
    flat = [value if np.isfinite(value) else None for value in side.ravel().tolist()]
    return flat[0] if flat and all(value == flat[0] for value in flat) else flat


def _full(side: Any, shape: tuple[int, ...], dtype: np.dtype[Any], infinite: float) -> NDArray[Any]:
    values = [infinite if value is None else value for value in (side if isinstance(side, list) else [side])]
    try:
        with np.errstate(over="raise"):
            bounds = np.array(values, dtype)
    except (FloatingPointError, OverflowError) as error:
        raise DataError(f"its space has a bound that {dtype} cannot hold") from error
    return bounds.reshape(shape) if isinstance(side, list) else np.full(shape, bounds[0], dtype)


# --------------------------------------------------------------------------------------------------------------------
# The columns of trajectories, as Arrow has them and as NumPy does.

_EXTRA = "extra "
_SEGMENTS = (
    "tail",
    "bootstrap_observation",
    "bootstrap_mask",
    "agent",
    "seat",
    "episode",
    "version_lo",
    "version_hi",
    "memory0",
    "bootstrap_state",
    "bootstrap_value",
)


@dataclass(frozen=True, slots=True)
class Column:
    """dtype, shape: of one value. listed: of decisions, otherwise of segments."""

    dtype: str
    shape: tuple[int, ...]
    listed: bool

    @staticmethod
    def of(array: Array, *, listed: bool) -> Column:
        kind = array.dtype.newbyteorder("<")
        if kind.kind not in "biuf":
            raise DataError(f"a column of {array.dtype} was given; numbers and truth values can be written.")
        return Column(kind.str, array.shape[1:], listed)

    @property
    def bytes(self) -> int:
        """Of one value; columns of none are not written."""
        return np.dtype(self.dtype).itemsize * int(np.prod(self.shape))

    def type(self, pa: Any) -> Any:
        inner = pa.binary(self.bytes) if self.shape else pa.from_numpy_dtype(np.dtype(self.dtype))
        return pa.list_(pa.field("item", inner, nullable=False)) if self.listed else inner

    def to_arrow(self, pa: Any, array: Array) -> Any:
        plain = np.ascontiguousarray(array, np.dtype(self.dtype))
        if not self.shape:
            return pa.array(plain)
        return pa.FixedSizeBinaryArray.from_buffers(pa.binary(self.bytes), len(plain), [None, pa.py_buffer(plain)])

    def to_numpy(self, values: Any, rows: int) -> Array:
        """Return [rows, *shape]; writable."""
        if not self.bytes:
            return np.zeros((rows, *self.shape), self.dtype)
        if len(values) != rows or values.null_count:
            raise ValueError(f"a column has {len(values)} values with {values.null_count} holes for {rows} rows")
        if not self.shape:
            return np.array(values.to_numpy(zero_copy_only=False), self.dtype)
        if not rows:
            return np.empty((0, *self.shape), self.dtype)
        flat = np.frombuffer(values.buffers()[1], np.uint8)
        flat = flat[values.offset * self.bytes : (values.offset + rows) * self.bytes]
        return flat.view(self.dtype).reshape(rows, *self.shape).copy()


def columns_of(piece: Trajectories) -> dict[str, tuple[Array, bool]]:
    """Return (array, whether it is of decisions) by name; those that are None are left out."""
    columns = {name: (getattr(piece, name), name in OF_ROWS) for name in (*OF_ROWS, *_SEGMENTS)}
    out = {name: pair for name, pair in columns.items() if pair[0] is not None}
    return out | {_EXTRA + name: (array, True) for name, array in piece.extras.items()}


def trajectories_of(columns: dict[str, Array], start: NDArray[np.int64], policy: str) -> Trajectories:
    """Return what `columns_of` took apart."""
    extras = {name.removeprefix(_EXTRA): array for name, array in columns.items() if name.startswith(_EXTRA)}
    fields: dict[str, Any] = {name: columns.get(name) for name in (*OF_ROWS, *_SEGMENTS)}
    return Trajectories(start=start, policy=policy, extras=extras, **fields)


FORMAT = 2
GROUP_ROWS = 1 << 16  # decisions of a row group, at most, where no single segment has more
GROUP_BYTES = 1 << 26
_KEY = b"ludus"
_DAMAGED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
_WHAT = "a trajectory file"


@dataclass(frozen=True, slots=True, eq=False)
class TrajectoryOrigin:
    """Origin of recorded trajectories.

    Attributes:
        env: Id of the environment.
        players: Number of players of the game.
        seats: Players whose decisions are recorded.
        observation: Space of their observations.
        action: Space of their actions.
        policies: Names of the policies.
        notes: Further facts; JSON values.
    """

    env: str
    players: int
    seats: tuple[int, ...]
    observation: Space[Any]
    action: Space[Any]
    policies: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Contents of a trajectory file.

    Attributes:
        origin: Where the trajectories come from.
        trajectories: One for each policy, in order of first appearance; segments in the file's order.
    """

    origin: TrajectoryOrigin
    trajectories: tuple[Trajectories, ...]


def check_pyarrow() -> None:
    """Raise ConfigError, saying which extra brings it, if pyarrow cannot be imported."""
    require("pyarrow.parquet", _WHAT)


class TrajectoryFile:
    """File that is written piece by piece, as a context manager. It is written to a temporary path and is there once the block ends without
    an error.

    All pieces have the columns of the first, of the same dtypes and shapes; policies may differ.

    Raises:
        ConfigError: Without pyarrow.
        DataError: For other columns, or if there was no piece.
        OSError: If the file cannot be written.
    """

    def __init__(self, path: Path, origin: TrajectoryOrigin) -> None:
        self._pa, self._parquet = require("pyarrow", _WHAT), require("pyarrow.parquet", _WHAT)
        self.path, self._origin = path, origin
        self._layout: dict[str, Column] = {}
        self._writer: Any = None
        self._schema: Any = None
        self.segments = self.rows = 0

    def __enter__(self) -> Self:
        return self

    def write(self, piece: Trajectories) -> None:
        """Append a piece, in row groups of at most `GROUP_ROWS` decisions and about `GROUP_BYTES`; a longer segment is one alone."""
        columns = columns_of(piece)
        layout = {name: Column.of(array, listed=listed) for name, (array, listed) in columns.items()}
        if self._writer is None:
            self._open(layout)
        elif layout != self._layout:
            raise DataError(
                f"{self.path.name!r} holds trajectories of {_shown(self._layout)}; others of {_shown(layout)} were given. Write one file "
                "for each kind."
            )
        width = sum(column.bytes for column in layout.values() if column.listed)
        most = max(1, min(GROUP_ROWS, GROUP_BYTES // max(1, width)))
        for first, last in _groups(piece.start, most):
            self._writer.write_table(self._table(piece, columns, first, last))
        self.segments += piece.num_segments
        self.rows += piece.num_rows

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        aside = temporary_path(self.path)
        try:
            if self._writer is not None:
                self._writer.close()
            if kind is not None:
                return
            if self._writer is None:
                raise DataError(f"no trajectories were given for {str(self.path)!r}; give at least one piece.")
            sync(aside)
            atomic_replace(self.path)
        finally:
            aside.unlink(missing_ok=True)

    def _open(self, layout: dict[str, Column]) -> None:
        pa = self._pa
        fields = [pa.field(name, column.type(pa), nullable=False) for name, column in layout.items() if column.bytes]
        fields.append(pa.field("length", pa.int64(), nullable=False))
        fields.append(pa.field("policy", pa.string(), nullable=False))
        header = json.dumps(_header(self._origin, layout)).encode()
        self._schema = pa.schema(fields, metadata={_KEY: header})
        self._layout = layout
        self._writer = self._parquet.ParquetWriter(
            str(temporary_path(self.path)),
            self._schema,
            compression="zstd",
            use_dictionary=["policy"],  # floats rarely repeat
            write_statistics=False,  # a filter by them loses rows of NaN
            write_page_checksum=True,
        )

    def _table(self, piece: Trajectories, columns: Mapping[str, tuple[Array, bool]], first: int, last: int) -> Any:
        pa, start = self._pa, piece.start
        begin, end = int(start[first]), int(start[last])
        arrays = []
        for name, (array, listed) in columns.items():
            column = self._layout[name]
            if not column.bytes:
                continue
            values = column.to_arrow(pa, array[begin:end] if listed else array[first:last])
            if listed:
                offsets = pa.array((start[first : last + 1] - begin).astype(np.int32))
                values = pa.ListArray.from_arrays(offsets, values, type=column.type(pa))
            arrays.append(values)
        arrays.append(pa.array(np.diff(start[first : last + 1])))
        arrays.append(pa.array([piece.policy] * (last - first), pa.string()))
        return pa.Table.from_arrays(arrays, schema=self._schema)


def read_trajectories(path: Path) -> Recorded:
    """Return the contents of a file that `TrajectoryFile` wrote, in memory.

    Args:
        path: Of the file.

    Raises:
        DataError: For a file that is missing, truncated, damaged or another program's.
        ConfigError: Without pyarrow.
    """
    pa, parquet = require("pyarrow", _WHAT), require("pyarrow.parquet", _WHAT)
    try:
        with parquet.ParquetFile(str(path), page_checksum_verification=True) as file:
            header = (file.schema_arrow.metadata or {}).get(_KEY)
            if header is None:
                raise ValueError("its metadata has no 'ludus' entry, so another program wrote it")
            origin, layout = _parsed(parse_json(header))
            return Recorded(origin, _by_policy(*_read(pa, file.read(), layout)))
    except (pa.ArrowException, DataError, OSError, *_DAMAGED) as error:
        raise DataError(f"{str(path)!r} holds no trajectories that can be read: {one_line(error)}.") from error


def _groups(start: NDArray[np.int64], most: int) -> list[tuple[int, int]]:
    """Return (first, last) segments of groups with at most `most` rows, and at most as many segments."""
    first, segments, out = 0, len(start) - 1, []
    while first < segments:
        last = int(np.searchsorted(start, start[first] + most, side="right")) - 1
        last = min(max(last, first + 1), first + most, segments)
        out.append((first, last))
        first = last
    return out


def _read(pa: Any, table: Any, layout: Mapping[str, Column]) -> tuple[dict[str, Array], Array, list[str]]:
    """Return (columns, where segments start, the policy of each)."""
    wanted = {name: column.type(pa) for name, column in layout.items() if column.bytes}
    types = {field.name: field.type for field in table.schema}
    if types != {**wanted, "length": pa.int64(), "policy": pa.string()}:
        raise ValueError(f"its columns are {sorted(types)}, other than its metadata says")
    length = np.array(table.column("length").to_numpy(), np.int64)
    if (length < 0).any():
        raise ValueError("a segment has a negative length")
    start = np.concatenate([[0], np.cumsum(length)])
    out = {}
    for name, column in layout.items():
        values = table.column(name).combine_chunks() if column.bytes else None
        if column.listed and values is not None:
            if values.null_count or not np.array_equal(np.diff(values.offsets.to_numpy()), length):
                raise ValueError(f"its column {name!r} has lists of other lengths")
            values = values.flatten()
        out[name] = column.to_numpy(values, int(start[-1]) if column.listed else len(length))
    return out, start, table.column("policy").to_pylist()


def _by_policy(columns: dict[str, Array], start: NDArray[np.int64], names: list[str]) -> tuple[Trajectories, ...]:
    known = list(dict.fromkeys(names))
    whole = trajectories_of(columns, start, known[0] if known else "")
    if len(known) < 2:
        return (whole,)
    owner = np.array(names)
    return tuple(select(whole, np.flatnonzero(owner == name), policy=name) for name in known)


# ---------------------------------------------------------------------------------------------- header


def _header(origin: TrajectoryOrigin, layout: Mapping[str, Column]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "env": origin.env,
        "players": origin.players,
        "seats": list(origin.seats),
        "observation": space_to_json(origin.observation),
        "action": space_to_json(origin.action),
        "policies": list(origin.policies),
        "notes": dict(origin.notes),
        "columns": {name: [c.dtype, list(c.shape), c.listed] for name, c in layout.items()},
    }


def _parsed(header: dict[str, Any]) -> tuple[TrajectoryOrigin, dict[str, Column]]:
    if header.get("format") != FORMAT:
        raise ValueError(f"its format is {header.get('format')!r}; this version reads {FORMAT}")
    if any(np.dtype(dtype).kind not in "biuf" for dtype, _, _ in header["columns"].values()):
        raise ValueError("a column is neither of numbers nor of truth values")
    layout = {
        name: Column(np.dtype(dtype).str, tuple(map(int, shape)), bool(listed))
        for name, (dtype, shape, listed) in header["columns"].items()
    }
    origin = TrajectoryOrigin(
        env=str(header["env"]),
        players=int(header["players"]),
        seats=tuple(map(int, header["seats"])),
        observation=space_from_json(header["observation"]),
        action=space_from_json(header["action"]),
        policies=tuple(map(str, header["policies"])),
        notes=dict(header["notes"]),
    )
    return origin, layout


def _shown(layout: Mapping[str, Column]) -> str:
    return ", ".join(f"{name} {np.dtype(c.dtype).name}{list(c.shape)}" for name, c in layout.items())
