"""Hashes of rows: all that the store writes has them, and what anything else changes in a database is noticed."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synthetic_run as synthetic

from ludus.core.errors import RunError
from ludus.core.types import Mixture, NamedStatistics, PolicyRef, PolicySpec, TrainingResult
from ludus.runs.control import Status, write_live_file
from ludus.runs.lost_commits import lost_commits
from ludus.storage import checkpoint
from ludus.storage.batches import _hash, damaged_batches
from ludus.storage.database import FILE, HASHED
from ludus.storage.reader import Reader
from ludus.storage.store import Store

OPPONENTS = Mixture.product({1: ([PolicyRef(1, "p0", 0), PolicyRef(1, "p1", 0)], [0.25, 0.75])})


def write_all(run_dir: Path) -> Path:
    """Rows in every table, some of which replace others."""
    synthetic.write(run_dir, generations=3)
    with Store.open(run_dir) as store:
        store.begin_session("0.2.0")
        task = replace(synthetic.training(0, 4), opponents=OPPONENTS)
        store.task_started(task)
        store.commit("g4-begun")
        counted = NamedStatistics(("goals",), np.array([[2], [0]]), np.array([[1.5], [np.nan]]), np.zeros((2, 1)))
        match = replace(synthetic.match("m1", (0, 1), 8, [0.5, -0.5], [2.0, 2.0]), statistics=counted)
        store.matches_recorded([match, match])
        store.curve_recorded(task.id, synthetic.curve(3))
        store.commit("g4-half")
        store.matches_recorded([match])  # again, after a kill
        spec = PolicySpec("actor_critic", {})
        result = TrainingResult(task, PolicyRef(0, "p4", 0), spec, {}, {"loss": 0.5}, {"updates": 3}, average=OPPONENTS)
        store.task_done(replace(result, curve=synthetic.curve(40)))
        record = synthetic.generation(4, (4, 4), nash_conv=0.5)
        profiles, probabilities = np.array([[0, 1], [3, 2]], np.int32), np.array([0.25, 0.75])
        store.generation_done(replace(record, profiles=profiles, probabilities=probabilities))
        store.metrics_recorded("generations", 3, {"loss": -0.0, "gap": float("nan")})  # one is there already
        store.commit("g4")
    return run_dir


def wrong(run_dir: Path) -> set[tuple[str, int]]:
    with Reader(run_dir) as reader:
        assert reader.has_hashes
        return {(damage.table, damage.barrier) for damage in reader.damages(HASHED)}


def change(run_dir: Path, sql: str) -> None:
    with closing(sqlite3.connect(run_dir / FILE)) as connection, connection:
        connection.execute(sql)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def run_dir(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def test_the_hash_of_a_row_is_the_same_on_every_machine() -> None:
    """Stored ones are compared with it in later versions of Python and Ludus."""
    row = ("g1/p0", 3, 0.5, float("inf"), None, b"\0\1", "é😀", 2**40, -1)
    assert f"{_hash(row):032x}" == "5753d05da81a6d2f7fc83499ec2c74bd"


def test_every_table_has_rows_and_they_are_what_was_committed(run_dir: Path) -> None:
    with Reader(run_dir) as reader:
        counts = {table: reader._rows(f"SELECT COUNT(*) FROM {table}")[0][0] for table in HASHED}
        names = {name for (name,) in reader._rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert all(counts.values()), counts
    assert names == {*HASHED, "batches"}
    assert wrong(run_dir) == set()


CHANGES: dict[str, Callable[[Store], object]] = {
    "nothing": lambda store: None,
    "rows without a commit": lambda store: store.event("run", "x"),
    "a warning without a commit": lambda store: store.event("run", "x", level="warning"),
    "an earlier checkpoint": lambda store: store.rewind("g4-begun"),
    "no checkpoint": lambda store: store.rewind(None),
    "a checkpoint again": lambda store: store.commit("g4"),
    "a task that begins anew": lambda store: store.set_info(
        synthetic.info(store.run_dir, generations=30), abandoned=["response-0-4"]
    ),
    "a session's end": lambda store: store.end_session("failed", "no reason"),
    "another session": lambda store: store.begin_session("0.3.0"),
    "a curve that changes": lambda store: store.curve_recorded("response-0-4", synthetic.curve(50)),
    "many rows": lambda store: store.metrics_recorded("updates", 1, {f"loss{k}": k / 7 for k in range(5000)}),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("committed", [False, True])
def test_whatever_the_store_does_is_followed(run_dir: Path, name: str, committed: bool) -> None:
    with Store.open(run_dir) as store:
        store.event("run", "before")
        CHANGES[name](store)
        if committed:
            store.event("run", "after")
            store.commit("next")
    assert wrong(run_dir) == set()


def test_every_cell_that_is_changed_is_noticed(run_dir: Path) -> None:
    values = {"INTEGER": 77, "REAL": 0.123, "TEXT": "x", "BLOB": b"\1"}
    with closing(sqlite3.connect(run_dir / FILE)) as connection:
        for table in HASHED:
            columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
            row = connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchone()
            where = " AND ".join(f"{name} IS ?" for _, name, *_ in columns)
            for _, column, kind, *_ in columns:
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (values[kind], *row))
                damages = damaged_batches(connection, HASHED)
                assert {damage.table for damage in damages} == {table}, (table, column)
                connection.rollback()
        assert damaged_batches(connection, HASHED) == []


def test_of_large_tables_the_newest_batches_are_read(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", synthetic.info(tmp_path / "run")) as store:
        for k in range(3):
            store.matches_recorded([synthetic.match(f"m{k}-{i}", (k, 0), 2, [0.5, -0.5], [1.0, 1.0]) for i in range(2)])
            store.ratings_recorded(0, {f"p{k}": 1000.0, f"q{k}": 1000.0})
            store.commit(f"g{k}")
    with closing(sqlite3.connect(tmp_path / "run" / FILE)) as connection:
        connection.execute("UPDATE matches SET n = n + 1 WHERE id = 'm0-1'")
        connection.execute("UPDATE ratings SET rating = 7 WHERE policy = 'p1'")
        for newest, wrong in ((1, []), (3, []), (4, ["ratings"]), (5, ["ratings"]), (6, ["matches", "ratings"])):
            damages = damaged_batches(connection, ("matches", "ratings", "sessions"), newest=newest)
            assert [damage.table for damage in damages] == wrong
        connection.execute("UPDATE matches SET n = n + 1")
        assert [damage.barrier for damage in damaged_batches(connection, ["matches"], newest=1)] == [3]


@pytest.mark.parametrize("table", HASHED)
def test_rows_that_are_removed_or_added_are_noticed(run_dir: Path, table: str) -> None:
    with closing(sqlite3.connect(run_dir / FILE)) as connection:
        row = connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchone()
        columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
        where = " AND ".join(f"{name} IS ?" for name in columns)
        connection.execute(f"DELETE FROM {table} WHERE {where}", row)
        (damage,) = damaged_batches(connection, [table])
        assert damage.rows == (damage.committed or 0) - 1
        assert f"table {table}, batch " in str(damage)
        connection.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)
        assert damaged_batches(connection, [table]) == []
        connection.execute("DELETE FROM batches WHERE name = ? AND barrier = ?", (table, damage.barrier))
        (damage,) = damaged_batches(connection, [table])
        assert damage.committed is None
        assert "no hash" in str(damage)


@pytest.mark.slow
def test_flipped_bytes_in_the_file_are_noticed(run_dir: Path, tmp_path: Path) -> None:
    """Wherever they lie: other rows than were committed are refused, or named."""
    content, folder = (run_dir / FILE).read_bytes(), tmp_path / "flipped"
    folder.mkdir()
    rng, noticed, intact = random.Random(4), 0, rows_of(run_dir)
    for _ in range(200):
        flipped = bytearray(content)
        flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (folder / FILE).write_bytes(flipped)
        try:
            is_noticed = wrong(folder) != set()
        except RunError:
            is_noticed = True
        assert is_noticed or rows_of(folder) == intact
        noticed += is_noticed
    assert noticed > 20


def rows_of(run_dir: Path) -> list[tuple[object, ...]]:
    with Reader(run_dir) as reader:
        return [row for table in (*HASHED, "batches") for row in reader._rows(f"SELECT * FROM {table}")]


def test_rows_of_an_earlier_version_get_hashes_when_the_run_goes_on(run_dir: Path) -> None:
    change(run_dir, "DROP TABLE batches")
    change(run_dir, "PRAGMA user_version = 7")
    before = (run_dir / FILE).read_bytes()
    with Reader(run_dir) as reader:
        assert (reader.has_hashes, reader.damages(HASHED)) == (False, ())
    assert (run_dir / FILE).read_bytes() == before
    with Store.open(run_dir):
        pass
    assert wrong(run_dir) == set()
    change(run_dir, "UPDATE ratings SET rating = 0 WHERE policy = 'p1'")
    assert {table for table, _ in wrong(run_dir)} == {"ratings"}


# --------------------------------------------------------------------------------------------------------------------
# Commits that are gone, and a process that was killed, which loses none.


def save(store: Store, number: int) -> str:
    return checkpoint.save(store.run_dir / "checkpoint", number, {"number": number})


def say(run_dir: Path, number: int) -> None:
    write_live_file(run_dir, Status("s", "here", 1, "0.2.0", began=0.0, written=0.0, barrier=number))


def test_a_kill_loses_no_commit_and_a_cut_log_is_noticed(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    moments: list[Path] = []

    def killed() -> None:
        """As the files lie now, for whoever kills the process now."""
        moments.append(tmp_path / f"killed{len(moments)}")
        shutil.copytree(run_dir, moments[-1])

    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        for number in range(1, 5):
            store.event("run", f"{number}")
            name = save(store, number)
            killed()
            store.commit(name)
            killed()
            checkpoint.clean(run_dir / "checkpoint", 2, [r.id for r in Reader(run_dir).checkpoints()])
            killed()
            say(run_dir, number)
            killed()
    assert [lost_commits(folder) for folder in moments] == [""] * 16

    log = moments[-1] / f"{FILE}-wal"
    content = log.read_bytes()
    ends = set()
    for length in range(0, len(content), 4096):
        log.write_bytes(content[:length])
        with suppress(RunError):  # it has no tables
            lost = lost_commits(moments[-1])
            with Reader(moments[-1]) as reader:
                last = len(reader.checkpoints())
            assert (f"ends with checkpoint {last}, and checkpoint 4 was committed" in lost) == (last < 4)
            ends.add(last)
    assert ends >= {1, 2, 3}
    (moments[-1] / "status.json").unlink()  # then the checkpoints prove it, but for the last commit
    log.write_bytes(b"")
    (moments[-1] / FILE).write_bytes((moments[3] / FILE).read_bytes())
    shutil.copy(moments[3] / f"{FILE}-wal", log)
    lost = lost_commits(moments[-1])
    assert "ends with checkpoint 1, and checkpoint 3 was committed" in lost
    assert "the run needs a copy of the database" in lost


def test_a_checkpoint_that_is_damaged_proves_nothing(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        store.commit(save(store, 1))
        name = save(store, 9)
    assert "checkpoint 8 was committed" in lost_commits(run_dir)
    (run_dir / "checkpoint" / name / "state.json").write_text("{}")
    assert lost_commits(run_dir) == ""
