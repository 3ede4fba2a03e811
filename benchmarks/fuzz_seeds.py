"""Makes the seeds of `benchmarks.fuzz`: small whole inputs of each kind, by the commands that write them, in tests/corpus.

    python -m benchmarks.fuzz_seeds

They are committed, so that a case is the same input everywhere. Make them again after a format has changed.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.machine import ROOT
from ludus.apps.play.people import People, PlayedGame, PlayedSeat
from ludus.cli.main import main as ludus

CORPUS = ROOT / "tests" / "corpus"
SMALL = (
    "generations=2",
    "response.decisions=200",
    "evaluation.episodes=20",
    "algorithm.batch=50",
    "algorithm.hidden=[4]",
)
PAGE = 1024
"""Bytes of a database's page: small files have more of what matters."""

NFG = """NFG 1 R "a 2x2 game" { "row" "column" } { 2 2 }

1 1 0 2 0 2 1 1
"""
EFG = """EFG 2 R "a bet" { "one" "two" } ""
c "" 1 "" { "high" 1/2 "low" 1/2 } 0
p "" 1 1 "" { "bet" "pass" } 0
t "" 1 "" { 1, -1 }
t "" 2 "" { 0, 0 }
p "" 1 2 "" { "bet" "pass" } 0
p "" 2 1 "" { "call" "fold" } 0
t "" 3 "" { -2, 2 }
t "" 4 "" { 1, -1 }
t "" 5 "" { 0, 0 }
"""
EXPR = """seed: 1
expr_name: fuzz
framework:
  name: psro
  max_rounds: 3
  meta_solver: nash
agent_manager:
  share_policies: true
rollout_manager:
  batch_size: 10
  worker:
    envs:
      - cls: kuhn_poker
training_manager:
  gamma: 0.99
  trainer:
    optimizer: Adam
    actor_lr: 1e-3
    num_epochs: 2
evaluation_manager:
  num_eval_rollouts: 20
populations:
  - population_id: default
    algorithm:
      name: MAPPO
"""
SWEEP = """scenario: kuhn
changes:
  generations: 1
options:
  seed: {choices: [1, 2]}
trials: 2
metric: nash_conv
"""


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _run(*words: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        code = ludus(words)
    if code:
        raise SystemExit(f"ludus {' '.join(words)} ended with {code}")


def make(target: Path) -> None:
    """Write all seeds into a folder."""
    with tempfile.TemporaryDirectory() as place, _inside(Path(place)):
        _run("train", "openspiel/kuhn_poker", "--algorithm", "ppo", *SMALL, "--name", "r")
        _run("train", "kuhn", "generations=1", "--name", "table")
        _run("train", "openspiel/kuhn_poker", "--algorithm", "dqn", *SMALL[:2], "algorithm.hidden=[4]", "--name", "dqn")
        _run(
            "train",
            "openspiel/kuhn_poker",
            "--algorithm",
            "ppo",
            *SMALL,
            "algorithm.memory=gru",
            "algorithm.memory_size=4",
            "--name",
            "gru",
        )
        _run("record", "r@best", "--keep", "--steps", "20")
        _run("record", "r", "--trajectories", "demonstrations.parquet", "--episodes", "6")
        _run("record", "r", "episode.txt")
        _run("debug", "r", "--script", "continue; save episode.jsonl")
        _run("push", "r", "zoo", "--name", "entry")
        _run("tournament", "r@best", "random", "--episodes", "4", "--dir", "cup")
        _run("train", "kuhn", "generations=1", "--seeds", "2", "--name", "many")
        for text, name in ((NFG, "game.nfg"), (EFG, "game.efg"), (EXPR, "expr.yaml"), (SWEEP, "sweep.yaml")):
            Path(name).write_text(text, encoding="utf-8")
        _collect(Path(), target)


def _collect(source: Path, target: Path) -> None:
    shutil.rmtree(target / "seeds", ignore_errors=True)
    seeds = target / "seeds"
    shutil.copytree(
        source / "runs" / "r",
        seeds / "run",
        ignore=shutil.ignore_patterns("report.html", "tensorboard", "*.lock", "*.txt", "*.gif"),
    )
    shrink(seeds / "run" / "ludus.db")
    oldest = sorted((seeds / "run" / "checkpoint").iterdir())[:-1]
    for folder in oldest:
        shutil.rmtree(folder)
    shutil.copytree(source / "zoo" / "entry", seeds / "entry")
    (seeds / "policies").mkdir()
    for name in ("table", "dqn", "gru", "r"):
        newest = sorted((source / "runs" / name / "policies" / "0").iterdir())[-1]
        shutil.copy(newest, seeds / "policies" / f"{name}.safetensors")
    for name in ("demonstrations.parquet", "episode.jsonl", "game.nfg", "game.efg", "expr.yaml", "sweep.yaml"):
        shutil.copy(source / name, seeds / name)
    shutil.copy(source / "runs" / "many" / "experiment.yaml", seeds / "experiment.yaml")
    (database,) = (source / "cup").glob("*.db")
    shutil.copy(database, seeds / database.name)
    shrink(seeds / database.name)
    _write_log(seeds)
    _write_people(seeds / "people.db")


def _write_log(seeds: Path) -> None:
    """Write a write-ahead log of the run's database, in which its last changes lie."""
    path = seeds / "logged.db"
    shutil.copy(seeds / "run" / "ludus.db", path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;")
        db.execute("UPDATE events SET time = 0.0")
        db.execute("UPDATE run SET value = value")
        db.execute("UPDATE matches SET created = 1.0")
        shutil.copy(path.with_name("logged.db-wal"), seeds / "ludus.db-wal")
    path.unlink()


def _write_people(path: Path) -> None:
    people = People(path)
    seats = [PlayedSeat(person=True, name="Ada"), PlayedSeat(person=False, name="@best")]
    for k in range(3):
        game = PlayedGame(
            id=f"{k:016x}", time=1.8e9, game="g", run="r", seats=seats, returns=[1.0, -1.0], steps=3, rated=k > 0
        )
        people.add(game, b"{}")
    shrink(path)


def shrink(path: Path) -> None:
    """Write a database again, with small pages."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(f"PRAGMA journal_mode = DELETE; PRAGMA page_size = {PAGE}; VACUUM;")


if __name__ == "__main__":
    make(CORPUS)
    sys.exit(0)
