"""Foreign, damaged, newer and older databases."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
import synthetic_run as synthetic

from ludus.core.errors import RunError
from ludus.storage import database
from ludus.storage.reader import Reader
from ludus.storage.store import Store


def _message(run_dir: Path) -> str:
    """The one line that reading and resuming both refuse with; nothing on disk changes."""
    before = _contents(run_dir)
    messages = []
    for opened in (Reader, Store.open):
        with pytest.raises(RunError) as caught:
            opened(run_dir)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "\n" not in messages[0]
    assert _contents(run_dir) == before
    return messages[0]


def _contents(run_dir: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run_dir.iterdir() if path.name != "driver.lock"}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return synthetic.write(tmp_path / "run", generations=12)


def test_missing(tmp_path: Path) -> None:
    assert "is not a run: it has no ludus.db" in _message(tmp_path)


def test_not_a_database(run_dir: Path) -> None:
    (run_dir / "ludus.db").write_text("these are words, not pages\n" * 100)
    assert "file is not a database" in _message(run_dir)


@pytest.mark.parametrize("value", ['"x"', "[null]", "[[1]]", '{"a": 1}', "7"])
def test_numbers_that_are_none(run_dir: Path, value: str) -> None:
    with sqlite3.connect(run_dir / "ludus.db") as connection:
        connection.execute("UPDATE generations SET gains = ? WHERE number = 3", (value,))
    connection.close()
    with Reader(run_dir) as reader, pytest.raises(RunError, match=r"ludus.db' cannot be used"):
        reader.generations()


def test_truncated(run_dir: Path) -> None:
    path = run_dir / "ludus.db"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "damaged" in _message(run_dir)


def test_overwritten_pages(run_dir: Path) -> None:
    path = run_dir / "ludus.db"
    data = bytearray(path.read_bytes())
    data[4096 * 2 :] = b"\xa5" * len(data[4096 * 2 :])
    path.write_bytes(data)
    assert "damaged" in _message(run_dir)


def test_empty_file_of_a_run_that_died_at_once(run_dir: Path) -> None:
    (run_dir / "ludus.db").write_bytes(b"")
    assert "died before it began" in _message(run_dir)
    Store.create(run_dir, synthetic.info(run_dir)).close()  # nothing is lost by starting over
    with Reader(run_dir) as reader:
        assert reader.generations() == ()


def test_other_programs_database(run_dir: Path) -> None:
    (run_dir / "ludus.db").unlink()
    with sqlite3.connect(run_dir / "ludus.db") as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()
    assert "is not the database of a Ludus run" in _message(run_dir)


def test_newer_version(run_dir: Path) -> None:
    with sqlite3.connect(run_dir / "ludus.db") as connection:
        connection.execute(f"PRAGMA user_version = {database.VERSION + 1}")
    connection.close()
    assert f"newer Ludus (database version {database.VERSION + 1}" in _message(run_dir)


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("DROP TABLE generations", "no such table: generations"),
        ("UPDATE generations SET marginals = x'00' WHERE number = 3", "buffer size"),
        ("UPDATE generations SET sizes = '[2]' WHERE number = 3", "8 probabilities for 2 policies"),
        ("UPDATE generations SET gains = '[1,' WHERE number = 3", "Expecting"),
    ],
)
def test_tampered_rows(run_dir: Path, sql: str, word: str) -> None:
    with sqlite3.connect(run_dir / "ludus.db") as connection:
        connection.execute(sql)
    connection.close()
    with Reader(run_dir) as reader, pytest.raises(RunError, match="cannot be used") as caught:
        reader.generations()
    assert word in str(caught.value)


def test_payoff_outside_the_populations(run_dir: Path) -> None:
    with sqlite3.connect(run_dir / "ludus.db") as connection:
        connection.execute("DELETE FROM policies WHERE place = 12")
    connection.close()
    with Reader(run_dir) as reader, pytest.raises(RunError, match="outside the populations"):
        reader.payoffs()


_V1 = """
DROP TABLE joints;
"""
_V0 = """
DROP TABLE ratings;
DROP TABLE generations;
CREATE TABLE generations (
  number INTEGER PRIMARY KEY, seconds REAL NOT NULL, episodes INTEGER NOT NULL, nash_conv REAL, gains TEXT NOT NULL,
  vals TEXT NOT NULL, responses TEXT NOT NULL, sizes TEXT NOT NULL, marginals BLOB NOT NULL, solver_gap REAL,
  exact INTEGER NOT NULL, created REAL NOT NULL, barrier INTEGER NOT NULL);
INSERT INTO checkpoints VALUES (1, 'g0', 0.0);
INSERT INTO generations VALUES (0, 1.5, 60, 4.7, '[2.0, 2.7]', '[0.0, 0.0]', '[]', '[1, 1]',
  x'000000000000f03f000000000000f03f', NULL, 1, 0.0, 1);
"""


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    run_dir = tmp_path / "old"
    run_dir.mkdir()
    connection = sqlite3.connect(run_dir / "ludus.db")
    connection.executescript(database.TABLES + _V1 + _V0 + f"PRAGMA application_id = {database.APPLICATION_ID};")
    connection.close()
    return run_dir


def test_older_version_is_read_without_being_changed(old_run: Path) -> None:
    before = _contents(old_run)
    with Reader(old_run) as reader:
        (record,) = reader.generations()
        assert (record.nash_conv, record.gains, record.solver_seconds) == (4.7, (2.0, 2.7), 0.0)
        assert record.marginals == ((1.0,), (1.0,))
        assert reader.ratings() == ()
        assert reader.joint(0) is None
    assert _contents(old_run) == before


def test_older_version_is_migrated_when_it_is_resumed(old_run: Path) -> None:
    with Store.open(old_run) as store:
        store.ratings_recorded(0, {"p0": 1500.0})
        store.generation_done(synthetic.generation(1, (2, 2), nash_conv=1.0))
        store.joint_recorded(1, np.eye(2) / 2)
        store.commit("g1")
    with sqlite3.connect(old_run / "ludus.db") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (database.VERSION,)
        fresh = sqlite3.connect(":memory:")
        fresh.executescript(database.TABLES)
        names = [row[0] for row in fresh.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert {"generations", "joints", "ratings"} <= set(names)
        for name in names:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            assert columns == [row[1] for row in fresh.execute(f"PRAGMA table_info({name})")], name
        fresh.close()
    connection.close()
    with Reader(old_run) as reader:
        assert [record.number for record in reader.generations()] == [0, 1]
        assert [rating.rating for rating in reader.ratings()] == [1500.0]
        np.testing.assert_array_equal(reader.joint(1), np.eye(2) / 2)


def test_previous_version_is_migrated_too(tmp_path: Path) -> None:
    run_dir = tmp_path / "previous"
    run_dir.mkdir()
    connection = sqlite3.connect(run_dir / "ludus.db")
    connection.executescript(database.TABLES + _V1)
    connection.executescript(f"PRAGMA application_id = {database.APPLICATION_ID}; PRAGMA user_version = 1;")
    connection.close()
    with Store.open(run_dir) as store:
        store.generation_done(synthetic.generation(0, (3, 2), nash_conv=1.0))
        store.joint_recorded(0, np.array([[0.25, 0.0], [0.0, 0.0], [0.0, 0.75]]))
        store.commit("g0")
    with Reader(run_dir) as reader:
        np.testing.assert_array_equal(reader.joint(0), [[0.25, 0.0], [0.0, 0.0], [0.0, 0.75]])
        assert reader.joint(1) is None
