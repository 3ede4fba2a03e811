"""Runs, policies, files and names of installed packages, for completion. What cannot be read is left out; imports are few, and late."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

RUNS = "runs"
DATABASE, MANIFEST, EXPERIMENT = "ludus.db", "manifest.json", "experiment.yaml"
_GENERATIONS = 50
"""Of which each is named."""
_LARGEST = 1 << 20
"""Bytes of a YAML file that is read."""


def paths(word: str, suffixes: Sequence[str] | None) -> Iterator[str]:
    """Yield the folders, with a slash, and files that begin with a word.

    Args:
        word: A path's beginning; ~ is kept.
        suffixes: Of the files; (): of all; None: folders only.
    """
    head, slash, tail = word.rpartition("/")
    for entry in _entries(os.path.expanduser(head + slash) or "."):
        if not entry.name.startswith(tail) or (entry.name.startswith(".") and not tail):
            continue
        if entry.is_dir():
            yield f"{head}{slash}{entry.name}/"
        elif suffixes is not None and (not suffixes or entry.name.endswith(tuple(suffixes))):
            yield f"{head}{slash}{entry.name}"


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []


def _holds(folder: str, name: str) -> bool:
    return os.path.isfile(os.path.join(folder, name))


def runs(word: str) -> Iterator[str]:
    """Yield the names of runs, those of experiments and entries of zoos below ./runs included."""
    for entry in _entries(RUNS):
        if _holds(entry.path, EXPERIMENT):
            if word.startswith(entry.name):  # there may be hundreds of trials
                yield from (f"{entry.name}/{one.name}" for one in _entries(entry.path) if _holds(one.path, DATABASE))
        elif _holds(entry.path, DATABASE) or _holds(entry.path, MANIFEST):
            yield entry.name


def experiments() -> Iterator[str]:
    """Yield the names of experiments."""
    yield from (entry.name for entry in _entries(RUNS) if _holds(entry.path, EXPERIMENT))


def entries(word: str) -> Iterator[str]:
    """Yield the entries of the zoo that a path begins with."""
    head, slash, _ = word.rpartition("/")
    if slash:
        place = os.path.expanduser(head + slash)
        yield from (f"{head}/{entry.name}" for entry in _entries(place) if _holds(entry.path, MANIFEST))


def folder_of(run: str) -> str:
    """Return the directory of a run by its path or its name below ./runs."""
    path = os.path.expanduser(run)
    return path if _holds(path, DATABASE) or _holds(path, MANIFEST) else os.path.join(RUNS, run)


def policies(run: str) -> Iterator[tuple[str, str]]:
    """Yield (what, meaning): what may follow RUN@."""
    folder = folder_of(run)
    words = {
        "meta": "its last meta-strategies",
        "best": "the policy that earns most against them",
        "strongest": "the highest rating",
        "newest": "the newest policy",
    }
    yield from words.items()
    try:
        players, generations, members = _stored(folder) if _holds(folder, DATABASE) else _pushed(folder)
    except Exception:  # noqa: BLE001  a strangers' file, of whatever version: there is nothing to propose
        return
    for population, policy, kind in members:
        player = players.index(population) if population in players else population
        yield f"{player}/{policy}", kind
    for number in generations if len(generations) <= _GENERATIONS else generations[-1:]:
        yield str(number), f"the meta-strategies after generation {number}"


Members = list[tuple[int, str, str]]


def _stored(folder: str) -> tuple[list[int], list[int], Members]:
    """Return population of each player, generations, and (population, policy, kind) of each member."""
    import json
    import sqlite3
    from pathlib import Path

    path = Path(folder, DATABASE).resolve().as_uri()
    connection = sqlite3.connect(f"{path}?mode=ro", uri=True, timeout=0.05)
    try:
        (info,) = connection.execute("SELECT value FROM run WHERE key = 'info'").fetchone()
        players = [int(which) for which in json.loads(info)["population"]]
        generations = [number for (number,) in connection.execute("SELECT number FROM generations ORDER BY number")]
        rows = connection.execute(
            "SELECT population, id, kind FROM policies ORDER BY population, place DESC"
        ).fetchall()
    finally:
        connection.close()
    return players, generations, rows


def _pushed(folder: str) -> tuple[list[int], list[int], Members]:
    """Return the same of an entry of a zoo."""
    import json

    with open(os.path.join(folder, MANIFEST), encoding="utf-8") as file:
        manifest = json.load(file)
    members = [(int(one["population"]), str(one["policy"]), str(one["kind"])) for one in manifest["policies"]]
    return list(manifest.get("population", [])), [], members


def parts_of(path: str) -> Mapping[str, str]:
    """Return what a scenario's file says: scenario, env, and the kinds of its parts, by their keys."""
    import yaml

    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            data = yaml.load(file.read(_LARGEST), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return kinds_in(data if isinstance(data, dict) else {})


def kinds_in(data: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Return the texts of a scenario's keys, and the kinds (of the environment, the id) of mappings."""
    kinds: dict[str, str] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            kind = value.get("id" if key == "env" else "kind")
            kinds |= {f"{prefix}{key}": kind} if isinstance(kind, str) else {}
            kinds |= kinds_in(value, f"{prefix}{key}.") if not prefix else {}
        elif isinstance(value, str):
            kinds[f"{prefix}{key}"] = value
    return kinds


def registered(group: str) -> Iterator[str]:
    """Yield the names that installed distributions, Ludus's own apart, register in a group of entry points."""
    for place in dict.fromkeys(sys.path):
        for entry in _entries(place or "."):
            if entry.name.endswith(".dist-info") and not entry.name.startswith("ludus_rl-"):
                yield from _points(os.path.join(entry.path, "entry_points.txt"), group)


def _points(path: str, group: str) -> Iterator[str]:
    with suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
        text = file.read()
        if f"[{group}]" in text:
            section = text.partition(f"[{group}]")[2].partition("\n[")[0]
            yield from (line.partition("=")[0].strip() for line in section.splitlines() if "=" in line)
