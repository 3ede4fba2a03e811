"""Foreign, damaged, newer and older databases."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import synthetic_run as synthetic

from ludus.core.errors import RunError
from ludus.storage import database
from ludus.storage import reader as reader_module
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


def change(run_dir: Path, sql: str) -> None:
    with closing(sqlite3.connect(run_dir / "ludus.db")) as connection, connection:
        connection.execute(sql)


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


def test_numbers_that_are_none(run_dir: Path) -> None:
    for value in ('"x"', "[null]", "[[1]]", '{"a": 1}', "7"):
        change(run_dir, f"UPDATE generations SET gains = '{value}' WHERE number = 3")
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
    change(run_dir, "CREATE TABLE songs (title TEXT)")
    assert "is not the database of a Ludus run" in _message(run_dir)


def test_newer_version(run_dir: Path) -> None:
    change(run_dir, f"PRAGMA user_version = {database.VERSION + 1}")
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
    change(run_dir, sql)
    with Reader(run_dir) as reader, pytest.raises(RunError, match="cannot be used") as caught:
        reader.generations()
    assert word in str(caught.value)


def test_a_disk_that_refuses_to_write_is_no_damage(tmp_path: Path) -> None:
    """So says SQLite where a quota is used up, or a file has come to its limit."""
    quota = pytest.raises(RunError, match=r"disk I/O error\. A quota or a limit on file sizes is reached")
    with quota, reader_module.translated(tmp_path / "ludus.db"):
        raise sqlite3.OperationalError("disk I/O error")


def test_payoff_outside_the_populations(run_dir: Path) -> None:
    change(run_dir, "DELETE FROM policies WHERE place = 12")
    with Reader(run_dir) as reader, pytest.raises(RunError, match="outside the populations"):
        reader.payoffs()


_NEXT = "ALTER TABLE events ADD COLUMN host TEXT NOT NULL DEFAULT 'here';"


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> int:
    """A made-up next version of the database, whose events have one more column."""
    version = database.VERSION + 1
    for module in (database, reader_module):
        monkeypatch.setattr(module, "VERSION", version)
    monkeypatch.setitem(database.MIGRATIONS, version - 1, _NEXT)
    return version


def test_older_version_is_read_without_being_changed(run_dir: Path, next_version: int) -> None:
    before = _contents(run_dir)
    with Reader(run_dir) as reader:
        numbers = [record.number for record in reader.generations()]
        assert reader._connection.execute("SELECT count(*) FROM events WHERE host != 'here'").fetchone() == (0,)
    assert numbers[:4] == [0, 1, 2, 3]
    assert _contents(run_dir) == before


def test_older_version_is_migrated_when_it_is_resumed(run_dir: Path, next_version: int) -> None:
    with Store.open(run_dir):
        pass
    with sqlite3.connect(run_dir / "ludus.db") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (next_version,)
        assert "host" in [row[1] for row in connection.execute("PRAGMA table_info(events)")]
    connection.close()


@pytest.mark.parametrize("version", [0, 2])
def test_databases_older_than_the_oldest_version_are_rejected(run_dir: Path, version: int) -> None:
    change(run_dir, f"PRAGMA user_version = {version}")
    before = _contents(run_dir)
    for opened in (Reader, Store.open):
        with pytest.raises(RunError, match=f"older Ludus .database version {version}; this one reads 3 and later"):
            opened(run_dir)
    assert _contents(run_dir) == before
