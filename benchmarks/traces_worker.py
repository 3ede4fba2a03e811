"""Runs the small runs of one algorithm for `benchmarks.traces`, on whatever tree of Ludus is on PYTHONPATH.

    python -P traces_worker.py < ORDER.json

It is a file of its own, started by its path, because the tree may be an older commit. So it uses only what stays when modules move:
`ludus.run`, `ludus.resume`, `ludus.NullObserver` (once `Silent`), the keys of scenarios, the tables of `ludus.db`, the files of policies.

ORDER: {"tree": folder, "folder": for the runs, "cells": [{"name", "way": one | two | killed, "whole": name of the cell without a kill,
"scenario": {...}}]}. Prints one line of JSON for each cell: {"name", "hashes": {group: {part: hash}}, "places"} or {"name", "error"}. Every
cell runs in a fork of this process, in which nothing has run before.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
import struct
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

KILL = 0.6  # of the calls of an observer after which a run is killed: in its second generation

CLOCKS = ("created", "time", "solver_seconds", "seconds")
COMMITS = ("barrier",)  # how often a run has committed, which an extended one does once more
FILES = ("sha256", "file", "config")  # of policies: the files are read themselves
GROUPS = {
    "policies": ("policies", ("population", "id", "version")),
    "metrics": ("metrics", ("name", "counter")),
    "curves": ("metrics", ("task",)),
    "payoffs": ("payoffs", ("generation",)),
    "matches": ("matches", ("generation",)),
    "statistics": ("matches", ("match",)),
    "generations": ("schedule", ("number",)),
    "joints": ("schedule", ("generation",)),
    "tasks": ("schedule", ("id",)),
    "opponents": ("schedule", ("task",)),
    "ratings": ("schedule", ("generation",)),
}
"""table -> (the group that a report names, the columns that say which part of it a row belongs to)."""


def main() -> None:
    order = json.load(sys.stdin)
    import ludus

    if not Path(ludus.__file__).resolve().is_relative_to(Path(order["tree"]).resolve()):
        sys.exit(f"ludus was imported from {ludus.__file__}, and not from {order['tree']}.")
    for name in ludus.__all__:  # so that forks have imported it
        getattr(ludus, name)
    import torch

    torch.set_num_threads(1)
    calls: dict[str, int] = {}
    for cell in order["cells"]:
        answer = in_a_fork(lambda cell=cell: played(cell, Path(order["folder"]), calls))  # type: ignore[misc]
        calls[cell["name"]] = answer.pop("calls", 0)
        print(json.dumps({"name": cell["name"], **answer}), flush=True)


def played(cell: Mapping[str, Any], folder: Path, calls: Mapping[str, int]) -> dict[str, Any]:
    """Runs one cell to its end, and hashes what it left behind."""
    import ludus

    run_dir = folder / cell["name"].replace("/", "-")
    file = run_dir.with_suffix(".yaml")
    file.write_text(json.dumps(cell["scenario"]))  # which is YAML, too
    observer = Counter()
    if cell["way"] == "killed":
        die_at = int(KILL * calls[cell["whole"]])
        child = in_a_fork(lambda: ludus.run(str(file), run_dir=run_dir, observer=Counter(die_at), report=False))
        if child.get("signal") != signal.SIGKILL:
            return {"error": f"it was to be killed at call {die_at} of its observer, and was not: {child}"}
        result = ludus.resume(run_dir, observer=observer, report=False)
    else:
        result = ludus.run(str(file), run_dir=run_dir, observer=observer, report=False)
    hashes = hashes_of(run_dir)
    table = {name: getattr(result.payoffs, name) for name in ("mean", "count")}
    hashes.setdefault("payoffs", {}).update(
        {
            f"final {name}": hash_of([f"{array.dtype} {array.shape} {array.tobytes().hex()}"])
            for name, array in table.items()
        }
    )
    return {"hashes": hashes, "places": places_of(run_dir), "calls": observer.calls}


class Counter:
    """An observer that counts its calls, whatever they are named, and kills its process at one of them."""

    def __init__(self, die_at: int = 0) -> None:
        import ludus

        self.calls = 0

        def count(*_: object, **__: object) -> None:
            self.calls += 1
            if self.calls == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

        for name in dir(ludus.NullObserver if "NullObserver" in ludus.__all__ else ludus.Silent):
            if not name.startswith("_"):
                setattr(self, name, count)


def in_a_fork(body: Callable[[], Any]) -> dict[str, Any]:
    """What `body` answers, from a fork of this process; {"error": text} where it raised, {"signal": number} where it was killed."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks beside threads; those of this process wait
        child = os.fork()
    if not child:
        os.close(read)
        try:
            answer = body()
            text = json.dumps(answer if isinstance(answer, dict) else {})
        except BaseException:  # noqa: BLE001  the parent reports it
            text = json.dumps({"error": traceback.format_exc()})
        with os.fdopen(write, "w") as stream:
            stream.write(text)
        sys.stderr.flush()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return {"signal": number, "error": f"killed by signal {number}"}
    return dict(json.loads(text))


# ------------------------------------------------------------------------------------------ what a run left behind


def hashes_of(run_dir: Path) -> dict[str, dict[str, str]]:
    """group -> part -> hash, of all that does not depend on clocks."""
    groups: dict[str, dict[str, str]] = {"weights": {}}
    for path in sorted((run_dir / "policies").rglob("*.safetensors")):
        groups["weights"][str(path.relative_to(run_dir / "policies"))] = hash_of(tensors_of(path))
    with closing(sqlite3.connect(run_dir / "ludus.db")) as connection:
        connection.row_factory = sqlite3.Row
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in sorted(set(names) & set(GROUPS)):
            group, columns = GROUPS[table]
            rows = [plain(dict(row)) for row in connection.execute(f"SELECT * FROM {table}")]
            parts: dict[str, list[Any]] = {}
            for row in rows:
                if not is_clock(row):
                    parts.setdefault("/".join(str(row[column]) for column in columns), []).append(row)
            for part, own in parts.items():
                groups.setdefault(group, {})[f"{table} {part}"] = hash_of(
                    json.dumps(row, sort_keys=True) for row in own
                )
    return groups


def places_of(run_dir: Path) -> dict[str, str]:
    """By which algorithm, where and how it learned, in the run's own words."""
    with closing(sqlite3.connect(run_dir / "ludus.db")) as connection:
        (summary,) = connection.execute("SELECT value FROM run WHERE key = 'summary'").fetchone()
    return dict(json.loads(summary).get("places", {}))


def is_clock(row: Mapping[str, Any]) -> bool:
    """Whether a row is a time, or what was done between two commits."""
    return str(row.get("name", "")).startswith("seconds") or row.get("counter") == "barriers"


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without clocks, those within JSON too; blobs as text."""
    return {key: value_of(value) for key, value in row.items() if key not in (*CLOCKS, *COMMITS, *FILES)}


def value_of(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return without_clocks(json.loads(value))
        except ValueError:
            return value
    return value


def without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_clocks(v) for k, v in value.items() if not k.startswith("seconds") and k not in CLOCKS}
    return [without_clocks(each) for each in value] if isinstance(value, list) else value


def tensors_of(path: Path) -> Iterable[str]:
    """Name, type, shape and bytes of every tensor of a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    for name in sorted(header.keys() - {"__metadata__"}):
        entry = header[name]
        begin, end = entry["data_offsets"]
        yield f"{name} {entry['dtype']} {entry['shape']} {body[begin:end].hex()}"


def hash_of(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\n")
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    main()
