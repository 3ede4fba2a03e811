"""Trajectory files: exact round trips, and what becomes of damaged ones."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, Text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, DataError
from ludus.replay import parquet
from ludus.replay.parquet import (
    FORMAT,
    TrajectoryFile,
    TrajectoryOrigin,
    read_trajectories,
    space_from_json,
    space_to_json,
)
from ludus.replay.trajectories import Trajectories, join

pq: Any = pytest.importorskip("pyarrow.parquet")

ORIGIN = TrajectoryOrigin(
    "tests/any", 2, (0, 1), Box(-np.inf, np.inf, (3,), np.float32), Discrete(4), ("0-1", "1-0"), {"seed": 3}
)


def bits(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Any pattern of bits: every NaN, negative zero, denormal numbers."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(rng.bytes(size), dtype).reshape(shape).copy()


def trajectories(
    lengths: list[int],
    *,
    seed: int = 0,
    observation: tuple[str, tuple[int, ...]] = ("float32", (3,)),
    action: tuple[str, tuple[int, ...]] = ("int32", ()),
    masked: bool = True,
    memory: tuple[int, ...] | None = None,
    extras: tuple[str, ...] = (),
    policy: str = "0-1",
) -> Trajectories:
    rng = np.random.default_rng(seed)
    rows, segments = sum(lengths), len(lengths)
    return Trajectories(
        start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        observation=bits(rng, (rows, *observation[1]), observation[0]),
        action=bits(rng, (rows, *action[1]), action[0]),
        logp=bits(rng, (rows,), "float32"),
        reward=bits(rng, (rows,), "float32"),
        mask=bits(rng, (rows, 5), "bool") if masked else None,
        t=bits(rng, (rows,), "int32"),
        tail=rng.integers(0, 3, segments).astype(np.int8),
        bootstrap_observation=bits(rng, (segments, *observation[1]), observation[0]),
        bootstrap_mask=bits(rng, (segments, 5), "bool") if masked else None,
        agent=bits(rng, (segments,), "int16"),
        seat=bits(rng, (segments,), "int8"),
        episode=bits(rng, (segments,), "int64"),
        version_lo=bits(rng, (segments,), "int32"),
        version_hi=bits(rng, (segments,), "int32"),
        policy=policy,
        memory0=None if memory is None else bits(rng, (segments, *memory), "float32"),
        extras={name: bits(rng, (rows, 2), "float32") for name in extras},
    )


def write_trajectories(path: Path, pieces: list[Trajectories], origin: TrajectoryOrigin) -> None:
    with TrajectoryFile(path, origin) as file:
        for piece in pieces:
            file.write(piece)


def assert_same(found: Trajectories, wanted: Trajectories) -> None:
    assert found.policy == wanted.policy
    assert list(found.extras) == list(wanted.extras)
    pairs = [(getattr(found, f.name), getattr(wanted, f.name)) for f in fields(Trajectories) if f.name not in _OTHER]
    for a, b in pairs + [(found.extras[name], wanted.extras[name]) for name in wanted.extras]:
        assert (a is None) == (b is None)
        if b is not None:
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert a.tobytes() == b.tobytes()
            assert a.flags.writeable


_OTHER = ("policy", "extras")
_SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
_DTYPES = st.sampled_from(["float32", "float64", "float16", "uint8", "int64", "int32", "bool"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(0, 7), max_size=9),
    observation=st.tuples(_DTYPES, _SHAPES),
    action=st.tuples(st.sampled_from(["int32", "int64", "float32"]), st.sampled_from([(), (1,), (2, 3)])),
    masked=st.booleans(),
    memory=st.none() | _SHAPES,
    extras=st.sampled_from([(), ("value",), ("value", "another one")]),
    seed=st.integers(0, 1 << 30),
    most=st.integers(1, 9),
)
def test_every_bit_comes_back(tmp_path: Path, seed: int, most: int, **shapes: Any) -> None:
    wanted = trajectories(seed=seed, **shapes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "GROUP_ROWS", most)
        write_trajectories(tmp_path / "a.parquet", [wanted], ORIGIN)
    (found,) = read_trajectories(tmp_path / "a.parquet").trajectories
    if not wanted.num_segments:  # nobody's
        assert found.policy == ""
        found = Trajectories(**{**{f.name: getattr(found, f.name) for f in fields(found)}, "policy": "0-1"})
    assert_same(found, wanted)
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_the_origin_comes_back(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "a.parquet", [trajectories([2])], ORIGIN)
    found = read_trajectories(tmp_path / "a.parquet").origin
    for f in fields(TrajectoryOrigin):
        assert getattr(found, f.name) == getattr(ORIGIN, f.name)


def test_pieces_come_back_by_policy(tmp_path: Path) -> None:
    pieces = [trajectories([2, 1], seed=k, policy=name) for k, name in enumerate(["b", "a", "b", "c"])]
    write_trajectories(tmp_path / "a.parquet", pieces, ORIGIN)
    found = read_trajectories(tmp_path / "a.parquet").trajectories
    assert [piece.policy for piece in found] == ["b", "a", "c"]
    assert_same(found[0], join([pieces[0], pieces[2]]))
    assert_same(found[1], pieces[1])
    assert_same(found[2], pieces[3])


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = trajectories([3, 4, 9, 0, 2, 1, 1])
    monkeypatch.setattr(parquet, "GROUP_ROWS", 7)
    write_trajectories(tmp_path / "a.parquet", [wanted], ORIGIN)
    file = pq.ParquetFile(tmp_path / "a.parquet")
    lengths = [sum(file.read_row_group(k).column("length").to_pylist()) for k in range(file.num_row_groups)]
    assert lengths == [7, 9, 4]  # the longest segment is alone
    monkeypatch.setattr(parquet, "GROUP_BYTES", 1)
    write_trajectories(tmp_path / "a.parquet", [wanted], ORIGIN)
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups >= 6


def test_other_programs_can_read_it(tmp_path: Path) -> None:
    """By what the module says: lists of numbers, and of bytes whose layout the metadata has."""
    wanted = trajectories([2, 1], observation=("uint8", (2, 2)))
    write_trajectories(tmp_path / "a.parquet", [wanted], ORIGIN)
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.column("action").to_pylist() == [wanted.action[:2].tolist(), wanted.action[2:].tolist()]
    header = json.loads(table.schema.metadata[b"ludus"])
    dtype, shape, _ = header["columns"]["observation"]
    seen = [
        np.frombuffer(one, dtype).reshape(shape) for many in table.column("observation").to_pylist() for one in many
    ]
    np.testing.assert_array_equal(np.stack(seen), wanted.observation)
    assert b"pickle" not in (tmp_path / "a.parquet").read_bytes()


def test_other_columns_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"old")
    for other in (
        trajectories([1], masked=False),
        trajectories([1], memory=(2,)),
        trajectories([1], observation=("float32", (4,))),
        trajectories([1], action=("int64", ())),
    ):
        with pytest.raises(DataError, match=r"'a\.parquet' holds trajectories of observation float32\[3\]"):
            write_trajectories(path, [trajectories([1]), other], ORIGIN)
    with pytest.raises(DataError, match="no trajectories were given"):
        write_trajectories(path, [], ORIGIN)
    with pytest.raises(DataError, match="a column of complex64 was given"):
        write_trajectories(path, [trajectories([1], action=("complex64", ()))], ORIGIN)

    def interrupted() -> None:
        with TrajectoryFile(path, ORIGIN) as file:
            file.write(trajectories([3]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert [left.name for left in tmp_path.iterdir()] == ["a.parquet"]


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_trajectories(path, [trajectories([400, 3])], ORIGIN)
    whole = path.read_bytes()
    assert read_trajectories(path).trajectories[0].num_rows == 403
    for cut in (0, 3, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match=r"a\.parquet' holds no trajectories that can be read"):
            read_trajectories(path)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 16  # in a page, whose checksum says so
    path.write_bytes(flipped)
    with pytest.raises(DataError, match="holds no trajectories that can be read"):
        read_trajectories(path)
    with pytest.raises(DataError, match=r"No such file|not found|does not exist"):
        read_trajectories(tmp_path / "b.parquet")
    with pytest.raises(DataError, match="holds no trajectories"):
        read_trajectories(tmp_path)


def rewritten(path: Path, change: Any) -> None:
    """A file with another header, or other columns."""
    table = pq.read_table(path)
    header = json.loads(table.schema.metadata[b"ludus"])
    table = change(table, header)
    pq.write_table(table.replace_schema_metadata({b"ludus": json.dumps(header).encode()}), path)


def _without_header(table: Any, header: dict[str, Any]) -> Any:
    header.clear()
    return table


def _newer(table: Any, header: dict[str, Any]) -> Any:
    header["format"] = FORMAT + 1
    return table


def _without_reward(table: Any, header: dict[str, Any]) -> Any:
    return table.drop_columns(["reward"])


def _narrower(table: Any, header: dict[str, Any]) -> Any:
    header["columns"]["observation"][1] = [2]
    return table


def _longer(table: Any, header: dict[str, Any]) -> Any:
    pa = importlib.import_module("pyarrow")
    place = table.schema.get_field_index("length")
    return table.set_column(place, table.schema.field("length"), pa.array([9, 9], pa.int64()))


def _unknown_space(table: Any, header: dict[str, Any]) -> Any:
    header["action"] = {"kind": "tree"}
    return table


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_without_header, "its format is None"),
        (_newer, f"its format is {FORMAT + 1}; this version reads {FORMAT}"),
        (_without_reward, "other than its metadata says"),
        (_narrower, "other than its metadata says"),
        (_longer, "has lists of other lengths"),
        (_unknown_space, "its space is of the kind 'tree'"),
    ],
)
def test_changed_file_is_named(tmp_path: Path, change: Any, words: str) -> None:
    write_trajectories(tmp_path / "a.parquet", [trajectories([2, 1])], ORIGIN)
    rewritten(tmp_path / "a.parquet", change)
    with pytest.raises(DataError, match=words):
        read_trajectories(tmp_path / "a.parquet")


def test_a_table_of_another_program(tmp_path: Path) -> None:
    pa = importlib.import_module("pyarrow")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="no 'ludus' entry, so another program wrote it"):
        read_trajectories(tmp_path / "a.parquet")


def test_pyarrow_is_asked_for_by_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match=r"`pip install 'ludus-rl\[parquet\]'` brings it"):
        read_trajectories(tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match=r"ludus-rl\[parquet\]"):
        write_trajectories(tmp_path / "a.parquet", [trajectories([1])], ORIGIN)


@pytest.mark.parametrize(
    "space",
    [
        Discrete(3),
        Discrete(3, start=-1),
        MultiDiscrete([2, 5]),
        MultiDiscrete(np.array([[2, 5], [3, 3]]), start=np.array([[1, 0], [0, 0]])),
        MultiBinary(4),
        Box(0, 255, (4, 8, 8), np.uint8),
        Box(np.array([-1.1, -np.inf], np.float32), np.array([np.inf, 0.3], np.float32)),
        Box(-np.inf, np.inf, (), np.float64),
        Box(-1, 1, (0,), np.float32),
    ],
)
def test_spaces_come_back(space: Space[Any]) -> None:
    found = space_from_json(json.loads(json.dumps(space_to_json(space), allow_nan=False)))
    assert found == space
    assert found.dtype == space.dtype


def test_other_spaces_are_refused() -> None:
    with pytest.raises(DataError, match=r"the space Text.* was given; Discrete, MultiDiscrete, MultiBinary and Box"):
        space_to_json(Text(3))
