"""Damages one file of a run: bytes flipped, cut off, zeroed, all gone, or the file deleted."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

KINDS = {
    "database": "ludus.db",
    "wal": "ludus.db-wal",
    "policy": "policies/*/*",
    "checkpoint": "checkpoint/*/*",
    "manifest": "checkpoint/*/*.json",
    "scenario": "scenario.yaml",
    "mark": "trust.json",
    "lock": "driver.lock",
}
"""Kinds of files, as patterns below the run."""


def choose(run_dir: Path, kind: str, rng: random.Random) -> Path | None:
    """Return a file of a kind, or None where the run has none. Of checkpoints the newest is the likeliest."""
    files = sorted(path for path in run_dir.glob(KINDS[kind]) if path.is_file())
    if not files:
        return None
    return files[-1] if rng.random() < 0.5 else rng.choice(files)


def damage(path: Path, how: str, rng: random.Random) -> str:
    """Damage a file, and return in words what was done."""
    size = path.stat().st_size
    if how == "delete":
        path.unlink()
        return f"{path.name} is deleted"
    content = bytearray(path.read_bytes())
    if not content:
        path.write_bytes(b"\0")
        return f"{path.name} has a byte"
    at = rng.randrange(size)
    changes: dict[str, Callable[[], bytes]] = {
        "flip": lambda: bytes(content[:at]) + bytes([content[at] ^ (1 << rng.randrange(8))]) + bytes(content[at + 1 :]),
        "cut": lambda: bytes(content[:at]),
        "zero": lambda: bytes(content[:at]) + bytes(min(512, size - at)) + bytes(content[at + 512 :]),
        "empty": lambda: b"",
    }
    path.write_bytes(changes[how]())
    return f"{path.name} of {size} bytes: {how} at {at}"
