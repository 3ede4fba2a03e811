"""Mutations of inputs: bytes, text, trees of JSON, and formats whose parts are known (safetensors, SQLite, Parquet)."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import yaml

from ludus.core.packages import require

EXTREMES: tuple[Any, ...] = (
    0, -1, 1, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**12, 10**400, 0.0, -0.0, 1e308, -1e308, 5e-324, 0.1,
    float("nan"), float("inf"), float("-inf"), True, False, None, "", "0", "nan", [], {}, [[]], {"": ""}, "x" * 70_000,
)  # fmt: skip
"""Values that stand in place of others."""
TEXTS = (
    "..", "../decoy/policy.safetensors", "decoy", "\0", "\x1b[31m", "\n", "\r\n", "\u2028", "\ud800", "é", "💥", "%s%n", "{}", "[", "]",
    ":", "- ", "&a", "*a", "!!python/object:os.system", "ludus_probe:Probe", "NaN", "Infinity", "1e400", "0x", "0o9", "1_0", "~", "''",
    '"', "#", "@meta", "@best", "=", ",", ";", "'; DROP TABLE run; --", "9" * 5000, "A" * 10_000, "-" * 300, "2026-99-99", "true",
    "null", "1:30",
)  # fmt: skip
_DEEP = "@deep@"
_WORD = re.compile(r"[\w.+-]+")


def mutate_bytes(rng: Random, data: bytes) -> bytes:
    """Return data after one to four changes anywhere."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(_BYTES)(rng, out)
    return bytes(out)


def _place(rng: Random, out: bytearray) -> int:
    return rng.randrange(len(out) + 1)


def _span(rng: Random, out: bytearray) -> slice:
    begin = _place(rng, out)
    return slice(begin, begin + rng.choice((1, 2, 8, 100, len(out))))


def _flip(rng: Random, out: bytearray) -> None:
    if out:
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)


def _insert(rng: Random, out: bytearray) -> None:
    place = _place(rng, out)
    out[place:place] = rng.choice((rng.randbytes(rng.randrange(1, 20)), encoded(rng.choice(TEXTS)), b"\0" * 1000))


def _delete(rng: Random, out: bytearray) -> None:
    del out[_span(rng, out)]


def _cut(rng: Random, out: bytearray) -> None:
    del out[_place(rng, out) :]


def _zero(rng: Random, out: bytearray) -> None:
    span = _span(rng, out)
    out[span] = bytes([rng.choice((0, 0xFF))]) * len(out[span])


def _double(rng: Random, out: bytearray) -> None:
    place = _place(rng, out)
    out[place:place] = out[_span(rng, out)][:10_000]


def _exchange(rng: Random, out: bytearray) -> None:
    """Swap two pieces of one length."""
    size = rng.choice((1, 4, 16))
    a, b = _place(rng, out), _place(rng, out)
    if abs(a - b) >= size and max(a, b) + size <= len(out):
        out[a : a + size], out[b : b + size] = out[b : b + size], out[a : a + size]


def _number(rng: Random, out: bytearray) -> None:
    """Write an extreme number over what is there, of a length as headers have them."""
    size = rng.choice((1, 2, 4, 8))
    value = rng.choice((0, 1, 127, 128, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 10**10, 2**63 - 1, 2**63, 2**64 - 1))
    place = rng.choice((0, 4, 8, _place(rng, out)))
    out[place : place + size] = (value % 256**size).to_bytes(size, rng.choice(("little", "big")))


_BYTES: tuple[Callable[[Random, bytearray], None], ...] = (
    _flip, _flip, _insert, _delete, _cut, _zero, _double, _exchange, _number, _number,
)  # fmt: skip


# --------------------------------------------------------------------------------------------------------------------
# Text and trees.


def encoded(text: str) -> bytes:
    """Return UTF-8, where half of a pair of surrogates stays as it is."""
    return text.encode("utf-8", "surrogatepass")


def mutate_text(rng: Random, data: bytes) -> bytes:
    """Return text with changed words and lines; sometimes changed bytes."""
    if rng.random() < 0.2:
        return mutate_bytes(rng, data)
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    for _ in range(rng.choice((1, 1, 2, 3))):
        k = rng.randrange(len(lines))
        how = rng.randrange(7)
        if how == 0:
            lines.insert(rng.randrange(len(lines) + 1), lines[k])
        elif how == 1 and len(lines) > 1:
            del lines[k]
        elif how == 2:
            other = rng.randrange(len(lines))
            lines[k], lines[other] = lines[other], lines[k]
        elif how == 3:
            lines[k] = rng.choice(("  ", "\t", " ", "- ")) + lines[k]
        else:
            lines[k] = _with_another_word(rng, lines[k])
    return "\n".join(lines).encode("utf-8", "surrogatepass" if any(map(_has_pair, lines)) else "surrogateescape")


def _has_pair(line: str) -> bool:
    return any("\ud800" <= letter <= "\udbff" for letter in line)


def _with_another_word(rng: Random, line: str) -> str:
    words = list(_WORD.finditer(line))
    if not words:
        return line + rng.choice(TEXTS)
    word = rng.choice(words)
    text = rng.choice((_scalar(rng), misspelt(rng, word[0]), rng.choice(TEXTS), "[" * 3000, "{a: " * 500))
    return line[: word.start()] + text + line[word.end() :]


def _scalar(rng: Random) -> str:
    value = rng.choice(EXTREMES)
    return str(value) if isinstance(value, int | float | str) else json.dumps(value)


def misspelt(rng: Random, word: str) -> str:
    """Return a word with a letter left out, doubled or exchanged."""
    if not word:
        return "a"
    k = rng.randrange(len(word))
    return rng.choice(
        (word[:k] + word[k + 1 :], word[:k] + word[k] + word[k:], word[:k] + "x" + word[k + 1 :], word.upper())
    )


def mutate_tree(rng: Random, tree: Any) -> Any:
    """Return JSON values with one to three nodes replaced, renamed, removed, added, exchanged, or nested deeply; `tree` may change."""
    root = [tree]
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = _places(root)
        holder, key = rng.choice(places)
        how = rng.randrange(9)
        if how == 0:
            holder[key] = _DEEP
        elif how == 1 and holder is not root:
            del holder[key]
        elif how == 2 and isinstance(holder, dict):
            holder[misspelt(rng, key)] = holder.pop(key)
        elif how == 3 and isinstance(holder, dict):
            holder[rng.choice(TEXTS)] = rng.choice(EXTREMES)
        elif how == 4:
            other, place = rng.choice(places)
            if other is not root and holder is not root:
                holder[key], other[place] = json.loads(json.dumps((other[place], holder[key])))
        elif how == 5 and isinstance(holder, list) and holder is not root:
            holder.insert(key, json.loads(json.dumps(holder[key])))
        else:
            holder[key] = _replacement(rng, holder[key])
    return root[0]


def _places(root: list[Any]) -> list[tuple[Any, Any]]:
    """Return (mapping or list, key or number) of every node."""
    out, queue = list[tuple[Any, Any]](), list[Any]([root])
    while queue:
        node = queue.pop()
        for key in range(len(node)) if isinstance(node, list) else list(node):
            out.append((node, key))
            if isinstance(node[key], list | dict):
                queue.append(node[key])
    return out


def _replacement(rng: Random, value: Any) -> Any:
    if isinstance(value, str) and rng.random() < 0.5:
        k = rng.randrange(len(value) + 1)
        return rng.choice((rng.choice(TEXTS), value[:k] + rng.choice(TEXTS) + value[k:], misspelt(rng, value)))
    if isinstance(value, int | float) and rng.random() < 0.3:
        return rng.choice((value + 1, -value, value * 1000, str(value), [value], {"a": value}))
    return json.loads(json.dumps(rng.choice(EXTREMES)))


def dumped(rng: Random, tree: Any) -> str:
    """Return JSON text, with what is nested deeply in its place."""
    depth = rng.choice((30, 900, 5000, 100_000))
    deep = rng.choice(("[" * depth + "]" * depth, '{"a":' * depth + "0" + "}" * depth))
    return json.dumps(tree, ensure_ascii=rng.random() < 0.9).replace(f'"{_DEEP}"', deep)


def mutate_json(rng: Random, data: bytes) -> bytes:
    """Return a JSON document with changed values, or changed bytes."""
    if rng.random() < 0.25:
        return mutate_bytes(rng, data)
    return encoded(dumped(rng, mutate_tree(rng, json.loads(data))))


def mutate_json_lines(rng: Random, data: bytes) -> bytes:
    """Return lines of JSON, one of which has changed."""
    lines = data.splitlines()
    k = rng.randrange(len(lines))
    lines[k] = mutate_json(rng, lines[k])
    if rng.random() < 0.2:
        rng.shuffle(lines)
    return b"\n".join(lines)


def mutate_yaml(rng: Random, data: bytes) -> bytes:
    """Return a YAML document with changed values, words, lines or bytes."""
    if rng.random() < 0.5:
        return mutate_text(rng, data)
    tree = mutate_tree(rng, json.loads(json.dumps(yaml.safe_load(data), default=str)))
    if rng.random() < 0.5:  # JSON is YAML
        return encoded(dumped(rng, tree))
    return encoded(yaml.safe_dump(tree, sort_keys=False).replace(_DEEP, "[" * 400 + "]" * 400))


# --------------------------------------------------------------------------------------------------------------------
# Formats.


def mutate_safetensors(rng: Random, data: bytes) -> bytes:
    """Return a file of tensors with changed bytes, header, length of the header, or JSON within its metadata."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, data)
    length = int.from_bytes(data[:8], "little")
    header, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    metadata = header.get("__metadata__", {})
    inner = [key for key in metadata if metadata[key].startswith("{")]
    if inner and rng.random() < 0.6:
        key = rng.choice(inner)
        metadata[key] = dumped(rng, mutate_tree(rng, json.loads(metadata[key])))
        text = encoded(json.dumps(header))
    else:
        text = encoded(dumped(rng, mutate_tree(rng, header)))
    size = (
        len(text)
        if rng.random() < 0.9
        else rng.choice((0, 1, len(text) - 1, len(text) + 1, 2**31, 10**10, 2**63, 2**64 - 1))
    )
    return size.to_bytes(8, "little") + text + (rest if rng.random() < 0.8 else mutate_bytes(rng, rest))


def mutate_sqlite(rng: Random, data: bytes, folder: Path) -> bytes:
    """Return a database with changed bytes, or with changed cells, rows and tables. folder: where it may write."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, data)
    path = folder / "mutated.db"
    path.write_bytes(data)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;")
        db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        tables = [
            name
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        ]
        for _ in range(rng.choice((1, 1, 2, 3))):
            with suppress(sqlite3.Error, ValueError, OverflowError):
                _change_table(rng, db, rng.choice(tables))
    return path.read_bytes()


def _change_table(rng: Random, db: sqlite3.Connection, table: str) -> None:
    how = rng.randrange(20)
    if how == 0:
        db.execute(f"DROP TABLE {table}")
    elif how == 1:
        db.execute(f"DELETE FROM {table}")
    elif how == 2:
        db.execute(f"PRAGMA user_version = {rng.choice((-1, 0, 1, 3, 4, 5, 6, 7, 8, 2**31 - 1))}")
    elif how == 3 and (columns := [row[1] for row in db.execute(f"PRAGMA table_info({table})")]):
        db.execute(f"ALTER TABLE {table} RENAME COLUMN {rng.choice(columns)} TO changed")
    else:
        _change_row(rng, db, table)


def _change_row(rng: Random, db: sqlite3.Connection, table: str) -> None:
    rows = db.execute(f"SELECT rowid, * FROM {table}").fetchall()
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    if not columns:
        return
    if not rows:
        db.execute(
            f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})",
            [rng.choice((0, 1, "", "[]", b"")) for _ in columns],
        )
        return
    rowid, *cells = rng.choice(rows)
    if rng.random() < 0.1:
        db.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))
        return
    k = rng.randrange(len(columns))
    db.execute(f"UPDATE OR REPLACE {table} SET {columns[k]} = ? WHERE rowid = ?", (_cell(rng, cells[k]), rowid))


def _cell(rng: Random, value: Any) -> Any:
    if isinstance(value, bytes):
        return rng.choice((mutate_bytes(rng, value), value[:-1], b"", value * 3, rng.choice(TEXTS[:12]), 7))
    if isinstance(value, str) and value[:1] in ("{", "[") and rng.random() < 0.8:
        return dumped(rng, mutate_tree(rng, json.loads(value)))
    if isinstance(value, str) and rng.random() < 0.5:
        return _replacement(rng, value) if rng.random() < 0.5 else misspelt(rng, value)
    simple = [each for each in EXTREMES if each is None or isinstance(each, int | float | str)]
    return rng.choice((*simple, b"\0\xff", *TEXTS))


def mutate_parquet(rng: Random, data: bytes, folder: Path) -> bytes:
    """Return a trajectory file with changed bytes, or with changed JSON in its metadata. folder: where it may write."""
    if rng.random() < 0.4:
        return mutate_bytes(rng, data)
    pa, parquet = require("pyarrow", "a trajectory file"), require("pyarrow.parquet", "a trajectory file")
    table = parquet.read_table(pa.BufferReader(data))
    header = json.loads(table.schema.metadata[b"ludus"])
    table = table.replace_schema_metadata({b"ludus": encoded(dumped(rng, mutate_tree(rng, header)))})
    if rng.random() < 0.2:
        k = rng.randrange(table.num_columns)
        table = rng.choice((table.remove_column(k), table.slice(0, 1), pa.concat_tables([table, table])))
    path = folder / "mutated.parquet"
    parquet.write_table(table, path)
    return path.read_bytes()


def signed(manifest: bytes) -> bytes:
    """Return the manifest of a zoo's entry with the digest of what it now holds; as it is where it is no JSON."""
    try:
        data = json.loads(manifest)
        data.pop("sha256", None)
        text = json.dumps(data, sort_keys=True, separators=(",", ":"))
        return json.dumps({**data, "sha256": hashlib.sha256(text.encode()).hexdigest()}).encode()
    except (ValueError, AttributeError, TypeError, RecursionError):
        return manifest


def mutate_manifest(rng: Random, data: bytes) -> bytes:
    """Return the manifest of a zoo's entry with changed values, mostly signed again."""
    changed = mutate_json(rng, data)
    return signed(changed) if rng.random() < 0.8 else changed


def mutate_words(rng: Random, data: bytes) -> bytes:
    """Return a command line, as a JSON list of texts, with words changed, removed, doubled, added or exchanged."""
    words: list[str] = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        k = rng.randrange(len(words)) if words else 0
        how = rng.randrange(6)
        if not words or how == 0:
            words.insert(
                k,
                rng.choice(
                    (*TEXTS, "--seed", "--json", "--help", "-1", "nan", "seed=-1", "env.id=", "generations=1e9")
                ),
            )
        elif how == 1:
            del words[k]
        elif how == 2:
            words.insert(k, words[k])
        elif how == 3:
            other = rng.randrange(len(words))
            words[k], words[other] = words[other], words[k]
        else:
            key, equals, _ = words[k].partition("=")
            words[k] = key + equals + _scalar(rng) if equals and how == 4 else _with_another_word(rng, words[k])
    return json.dumps(words).encode()
