"""Hashes of the rows of a database, so that a changed cell and a row that was added or removed by another program are noticed.

A batch is what was committed for one barrier in one table; its hash is the sum of its rows' hashes, whatever their order: a row that is
replaced later is subtracted from it. Where no barrier covers a table, all of its rows are batch 0.
"""

from __future__ import annotations

import marshal
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import Any

BATCHES = """
CREATE TABLE batches (
  barrier INTEGER NOT NULL, name TEXT NOT NULL, n INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (barrier, name)) WITHOUT ROWID;
"""
"""Number of rows and hash of each batch, by the name of its table."""

_BYTES = 16
_MASK = (1 << 8 * _BYTES) - 1
_FORMAT = 2  # of marshal: values by type, floats by their bits, nothing by reference


@dataclass(frozen=True, slots=True)
class DamagedBatch:
    """Rows that are not what was committed.

    Attributes:
        table: Name.
        barrier: That covers them.
        generation: That they belong to; None if it is not known.
        committed: Number of rows that were committed; None where no hash of them is there.
        rows: Number of rows that are there.
        keys: Of the first and the last of them.
    """

    table: str
    barrier: int
    generation: int | None
    committed: int | None
    rows: int
    keys: tuple[str, str]

    def __str__(self) -> str:
        of = "" if self.generation is None else f", generation {self.generation}"
        first, last = self.keys
        which = f"({first})" if first == last else f"({first} to {last})"
        if self.committed is None:
            what = f"{self.rows} row(s) {which} have no hash: another program added them, or removed the hash"
        elif self.rows == self.committed:
            what = (
                f"the row {which} was changed" if self.rows == 1 else f"of {self.rows} rows {which} some were changed"
            )
        else:
            there = f"{self.rows} are there {which}" if self.rows else "none is there"
            what = f"{self.committed} row(s) were committed, and {there}"
        return f"table {self.table}, batch {self.barrier}{of}: {what}"


class BatchHashes:
    """Follows all that a connection changes in tables, by temporary triggers; `write` writes it into the table `batches`.

    Args:
        connection: The one writer's.
        tables: Their names.
    """

    def __init__(self, connection: sqlite3.Connection, tables: Iterable[str]) -> None:
        self._connection = connection
        self._changes: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
        connection.execute("PRAGMA recursive_triggers = ON")  # REPLACE deletes, too
        for table in tables:
            columns = _columns(connection, table)
            calls = {}
            for row, sign in (("NEW", 1), ("OLD", -1)):
                connection.create_function(f"{table}_{row}", len(columns), self._follower(table, sign))
                calls[row] = f"SELECT {table}_{row}({', '.join(f'{row}.{column}' for column in columns)});"
            for event, rows in (("INSERT", ["NEW"]), ("DELETE", ["OLD"]), ("UPDATE", ["OLD", "NEW"])):
                body = " ".join(calls[row] for row in rows)
                connection.execute(
                    f"CREATE TEMP TRIGGER {table}_{event} AFTER {event} ON main.{table} BEGIN {body} END"
                )

    def _follower(self, table: str, sign: int) -> Callable[..., None]:
        place = _barrier_of(self._connection, table)

        def follow(*row: Any) -> None:
            change = self._changes[table, 0 if place is None else row[place]]
            change[0] += sign
            change[1] += sign * _hash(row)

        return follow

    def write(self) -> None:
        """Write the hashes of what has changed since the last call, in the open transaction."""
        execute = self._connection.execute
        for (table, barrier), (n, total) in self._changes.items():
            key = barrier, table
            stored = execute("SELECT n, digest FROM batches WHERE barrier = ? AND name = ?", key).fetchone()
            if stored is not None:
                n, total = n + stored[0], total + int.from_bytes(stored[1], "little")
            if n:
                execute("INSERT OR REPLACE INTO batches VALUES (?,?,?,?)", (*key, n, _digest(total)))
            else:
                execute("DELETE FROM batches WHERE barrier = ? AND name = ?", key)
        self._changes.clear()

    def drop(self, *, after: int = -1) -> None:
        """Forget what has changed since the last `write`, in batches after this barrier."""
        for key in [key for key in self._changes if key[1] > after]:
            del self._changes[key]


def hash_all(connection: sqlite3.Connection, tables: Iterable[str]) -> None:
    """Hash the rows that are there, in the open transaction."""
    connection.execute("DELETE FROM batches")
    for table in tables:
        rows = [(barrier, table, n, _digest(total)) for barrier, (n, total) in _sums(connection, table).items()]
        connection.executemany("INSERT INTO batches VALUES (?,?,?,?)", rows)


def damaged_batches(
    connection: sqlite3.Connection, tables: Iterable[str], *, newest: int | None = None
) -> list[DamagedBatch]:
    """Return what is not as it was committed, by table and barrier.

    Args:
        connection: In a transaction, where somebody may write.
        tables: Names of those that are read.
        newest: Number of rows of each table, at most, whose batches are read, the newest ones; None: all.

    Raises:
        sqlite3.Error: If a table cannot be read.
    """
    try:
        return _damaged(connection, tables, newest)
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
        connection.text_factory = lambda text: text.decode(errors="surrogateescape")  # slower
        try:
            return _damaged(connection, tables, newest)
        finally:
            connection.text_factory = str


def _damaged(connection: sqlite3.Connection, tables: Iterable[str], newest: int | None) -> list[DamagedBatch]:
    damages = []
    for table in tables:
        query = "SELECT barrier, n, digest FROM batches WHERE name = ?"
        stored = {barrier: batch for barrier, *batch in connection.execute(query, (table,))}
        after = _last_unread(stored, newest)
        stored = {barrier: batch for barrier, batch in stored.items() if after is None or barrier > after}
        actual = _sums(connection, table, after)
        hashed = {barrier: [n, _digest(total)] for barrier, (n, total) in actual.items()}
        wrong = [barrier for barrier in {**stored, **hashed} if stored.get(barrier) != hashed.get(barrier)]
        keys = _keys(connection, table) if wrong else {}
        for barrier in sorted(wrong, key=lambda barrier: (str(type(barrier)), barrier)):
            committed, rows = stored.get(barrier, [None])[0], actual.get(barrier, (0, 0))[0]
            known = committed if isinstance(committed, int) else None
            generation = _generation(connection, barrier) if _barrier_of(connection, table) else None
            damages.append(DamagedBatch(table, barrier, generation, known, rows, keys.get(barrier, ("", ""))))
    return damages


def _last_unread(stored: Mapping[Any, Sequence[Any]], newest: int | None) -> int | None:
    """Return the newest of the batches that are too old to be among that number of rows; None if all are among them. The newest batch
    always is. stored: barrier -> number of rows, hash."""
    numbers = {barrier: batch[0] for barrier, batch in stored.items() if isinstance(barrier, int)}
    total = 0
    for k, barrier in enumerate(sorted(numbers, reverse=True)):
        total += numbers[barrier] if isinstance(numbers[barrier], int) else 0
        if newest is not None and total > newest and k:
            return barrier
    return None


def _sums(connection: sqlite3.Connection, table: str, after: int | None = None) -> dict[Any, tuple[int, int]]:
    """Return barrier -> number and sum of the hashes of its rows. after: the barrier before the first batch; None: all are read."""
    place = _barrier_of(connection, table)
    barrier_of = (lambda _: 0) if place is None else itemgetter(place)
    sums: dict[Any, tuple[int, int]] = {}
    query = f"SELECT * FROM {table}"
    if after is not None and place is not None:
        query += f" WHERE barrier > {after}"
        if table == "matches":  # appended in the order of barriers: the rows before these need not be read
            query += f" AND rowid > (SELECT rowid FROM matches WHERE barrier <= {after} ORDER BY rowid DESC LIMIT 1)"
    for barrier, rows in groupby(connection.execute(query), barrier_of):
        n, total = sums.get(barrier, (0, 0))
        for row in rows:
            n += 1
            total += _hash(row)
        sums[barrier] = n, total
    return sums


def _keys(connection: sqlite3.Connection, table: str) -> dict[Any, tuple[str, str]]:
    """Return barrier -> primary keys of its first and last row, in words."""
    key = [name for _, name, *_, place in _table_info(connection, table) if place]
    barrier = "0" if _barrier_of(connection, table) is None else "barrier"
    keys: dict[Any, tuple[str, str]] = {}
    for batch, *values in connection.execute(f"SELECT {barrier}, {', '.join(key)} FROM {table}"):
        text = ", ".join(f"{name} {value!r}" for name, value in zip(key, values, strict=True))
        keys[batch] = keys.get(batch, (text,))[0], text
    return keys


def _generation(connection: sqlite3.Connection, barrier: Any) -> int | None:
    """Return the generation whose work a barrier covers."""
    query = "SELECT COALESCE(MIN(number), (SELECT MAX(number) FROM generations)) FROM generations WHERE barrier >= ?"
    number: int | None = connection.execute(query, (barrier,)).fetchone()[0]
    return number


def _table_info(connection: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    return connection.execute(f"PRAGMA main.table_info({table})").fetchall()


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [name for _, name, *_ in _table_info(connection, table)]


def _barrier_of(connection: sqlite3.Connection, table: str) -> int | None:
    """Return the place of the column that says which barrier covers a row; None if none does."""
    columns = _columns(connection, table)
    return columns.index("barrier") if "barrier" in columns else None


def _hash(row: tuple[Any, ...]) -> int:
    return int.from_bytes(blake2b(marshal.dumps(row, _FORMAT), digest_size=_BYTES).digest(), "little")


def _digest(total: int) -> bytes:
    return (total & _MASK).to_bytes(_BYTES, "little")
