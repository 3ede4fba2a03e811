"""pyarrow, which writes and reads recorded trajectories (`ludus.replay.parquet`); people filter these files with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

FILTERS = {"unequal": pc.field("ret") != 1.0, "not at most": ~(pc.field("ret") <= 2.0)}


@pytest.mark.parametrize("name", FILTERS)
def test_filter_of_a_file_with_statistics_loses_rows_of_nan(name, tmp_path: Path):
    """Why `TrajectoryFile` writes no statistics: NaN is not in them, so that a row group is left out whose rows match in memory."""
    table, condition = pa.table({"ret": [1.0, float("nan")]}), FILTERS[name]
    rows = {}
    for statistics in (True, False):
        pq.write_table(table, tmp_path / "t.parquet", write_statistics=statistics)
        rows[statistics] = len(pq.read_table(tmp_path / "t.parquet", filters=condition))
    assert len(table.filter(condition)) == 1
    assert rows == {True: 0, False: 1}


def test_nan_comes_back_where_another_row_of_the_group_matches(tmp_path: Path):
    """Statistics choose row groups, and rows are filtered after that: whether a NaN is lost depends on its neighbours."""
    pq.write_table(pa.table({"ret": [1.0, float("nan"), 2.0]}), tmp_path / "t.parquet")
    assert len(pq.read_table(tmp_path / "t.parquet", filters=FILTERS["unequal"])) == 2


def test_damaged_page_is_an_error_only_if_checksums_are_asked_for(tmp_path: Path):
    """`TrajectoryFile` writes checksums of pages, and `read_trajectories` has them verified."""
    path = tmp_path / "t.parquet"
    values = np.arange(1000.0)
    pq.write_table(pa.table({"x": values}), path, compression="none", use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[data.index(values[500].tobytes())] ^= 1
    path.write_bytes(data)
    assert not np.array_equal(pq.read_table(path)["x"].to_numpy(), values)
    with pytest.raises(OSError, match=r"(?i)crc|checksum"):
        pq.read_table(path, page_checksum_verification=True)


def test_lists_that_are_slices_of_an_array_keep_their_values(tmp_path: Path):
    """`TrajectoryFile._table` builds lists by offsets over one array of values, without a copy."""
    values = pa.array(np.arange(6.0)).slice(1)
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 5], pa.int32()), values)
    pq.write_table(pa.table({"x": lists}), tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet")["x"].to_pylist() == [[1.0, 2.0], [], [3.0, 4.0, 5.0]]


def test_metadata_of_a_schema_comes_back_as_bytes(tmp_path: Path):
    """`read_trajectories` knows a file of Ludus by the entry `ludus`."""
    schema = pa.schema([pa.field("x", pa.int64())], metadata={b"ludus": b"{}"})
    pq.write_table(pa.table({"x": [1]}, schema=schema), tmp_path / "t.parquet")
    assert pq.ParquetFile(tmp_path / "t.parquet").schema_arrow.metadata[b"ludus"] == b"{}"
