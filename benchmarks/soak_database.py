"""A run whose database has ten million matches, written quickly, and what commands need for it.

A short real run is the beginning: its scenario, one of its policies and its checkpoint. Everything else of it is replaced by a league that
`benchmarks.synthetic_league` makes up, and by matches that SQLite itself writes: of each pair of policies as many as it takes.

    python -m benchmarks.soak_database FOLDER [--matches 10000000] [--policies 1000]
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import ROOT
from benchmarks.synthetic_league import BEGAN, EPISODES, League, rows_of, strengths
from ludus.cli.main import main as ludus_command
from ludus.runs.control import read_status
from ludus.storage import checkpoint
from ludus.storage.batches import hash_all
from ludus.storage.database import COVERED, FILE, HASHED, INSERT
from ludus.storage.reader import Reader
from ludus.storage.store import sha256_of

COMMAND = "import sys; from ludus.cli.main import script; script()"
RUN = (
    "leduc", "env.num_envs=200", "algorithm.hidden=[16,16]", "algorithm.epochs=4", "response.episodes=2000", "generations=2",
    "evaluation.payoffs=simulate", "evaluation.exploitability=off", f"evaluation.episodes={EPISODES}",
)  # fmt: skip
_BUCKETS, _VARIANTS = 64, 64
"""Of win rates, and results of each."""
_AT_ONCE = 500_000
_MATCHES = f"""
INSERT INTO matches
  SELECT printf('match-%d-%d-%d', i, j, block), MAX(i, j), printf('[%d, %d]', i, j),
    printf('[[0, "0-%d", 0, "greedy"], [1, "1-%d", 0, "greedy"]]', i, j), {EPISODES}, mean, m2, wins, 0, {BEGAN} + 60.0 * MAX(i, j), barrier
  FROM (
    WITH RECURSIVE numbers(x) AS (SELECT ? UNION ALL SELECT x + 1 FROM numbers WHERE x + 1 < ?)
    SELECT place / 1000000 AS i, place % 1000000 AS j, x % :blocks AS block,
      bucket * {_VARIANTS} + (x * 2654435761 / 65536) % {_VARIANTS} AS outcome, barrier
    FROM numbers JOIN temp.cells ON number = x / :blocks
  ) JOIN temp.outcomes USING (outcome)
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds until something was done: of the clock, and of a processor (children included)."""

    wall: float
    processor: float


def write(run_dir: Path, *, policies: int, matches: int, seed: int = 0) -> Path:
    """Write a run of `policies` policies in each of two populations with about so many matches; its directory."""
    with redirect_stdout(sys.stderr):
        if code := ludus_command(["train", *RUN, "--seed", str(seed), "--run-dir", str(run_dir)]):
            raise RuntimeError(f"the run ended with exit code {code}")
    league = League(policies=policies, shared=False, points=20, seed=seed)
    rng = np.random.default_rng(seed)
    skill, angle = strengths(league, rng)
    with closing(sqlite3.connect(run_dir / FILE, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA wal_autocheckpoint = 100000")
        connection.execute("BEGIN")
        template = connection.execute("SELECT * FROM policies ORDER BY place DESC LIMIT 1").fetchone()
        randoms = connection.execute("SELECT * FROM policies WHERE place = 0 ORDER BY population").fetchall()
        for table in (*COVERED, "checkpoints"):
            connection.execute(f"DELETE FROM {table}")
        names = _policies(connection, run_dir, template, randoms, policies)
        for table, rows in rows_of(league, skill, rng).items():
            connection.executemany(INSERT[table], rows)
        _matches(connection, skill, angle, blocks=max(1, round(matches / policies**2)), rng=rng)
        connection.execute("COMMIT")
    _checkpoint(run_dir, names, policies)
    return run_dir


def _policies(
    connection: sqlite3.Connection,
    run_dir: Path,
    template: Sequence[Any],
    randoms: Sequence[Sequence[Any]],
    policies: int,
) -> list[list[str]]:
    """Write rows and files of policies, all with the weights of one; the names of each population's."""
    source = run_dir / template[7]
    kind, config, digest = template[5], template[6], sha256_of(source)
    weights = source.read_bytes()
    names = [[f"{population}-{place}" for place in range(policies)] for population in (0, 1)]
    for population, row in enumerate(randoms):
        connection.execute(INSERT["policies"], (*row[:-1], 0))
        for place in range(1, policies):
            name = names[population][place]
            file = f"policies/{population}/{name}.safetensors"
            (run_dir / file).write_bytes(weights)
            head = (population, name, 0, "greedy", place, kind, config, file, digest)
            what = (None, "random", place, f"response-{name}", BEGAN + 60.0 * place, place)
            connection.execute(INSERT["policies"], (*head, *what))
    return names


def _matches(
    connection: sqlite3.Connection,
    skill: NDArray[np.float64],
    angle: NDArray[np.float64],
    *,
    blocks: int,
    rng: np.random.Generator,
) -> None:
    """Write so many matches of each profile, in the order in which a run plays them."""
    n = skill.shape[1]
    pairs = np.indices((n, n)).reshape(2, -1)
    pairs = pairs[:, np.argsort(pairs.max(axis=0), kind="stable")]
    rate = 1.0 / (
        1.0 + np.exp(-(skill[0][pairs[0]] - skill[1][pairs[1]]) - 1.2 * np.sin(angle[0][pairs[0]] - angle[1][pairs[1]]))
    )
    bucket = np.minimum((rate * _BUCKETS).astype(int), _BUCKETS - 1)
    connection.execute(
        "CREATE TEMP TABLE cells (number INTEGER PRIMARY KEY, place INTEGER, bucket INTEGER, barrier INTEGER)"
    )
    columns = (np.arange(len(rate)), pairs[0] * 1_000_000 + pairs[1], bucket, pairs.max(axis=0))
    connection.executemany("INSERT INTO temp.cells VALUES (?, ?, ?, ?)", np.stack(columns, axis=1).tolist())
    connection.execute("CREATE TEMP TABLE outcomes (outcome INTEGER PRIMARY KEY, mean BLOB, m2 BLOB, wins TEXT)")
    for k in range(_BUCKETS * _VARIANTS):
        won = rng.binomial(EPISODES, 0.95 * (k // _VARIANTS + 0.5) / _BUCKETS)
        drawn = rng.binomial(EPISODES - won, 0.05)
        lost = EPISODES - won - drawn
        mean = (won - lost) / EPISODES
        m2 = won + lost - EPISODES * mean**2
        blobs = (np.array([mean, -mean]).tobytes(), np.array([m2, m2]).tobytes())
        wins = f"[[{won}, {drawn}, {lost}], [{lost}, {drawn}, {won}]]"
        connection.execute("INSERT INTO temp.outcomes VALUES (?, ?, ?, ?)", (k, *blobs, wins))
    sql = _MATCHES.replace(":blocks", str(blocks))
    for first in range(0, len(rate) * blocks, _AT_ONCE):
        connection.execute(sql, (first, min(first + _AT_ONCE, len(rate) * blocks)))


def _checkpoint(run_dir: Path, names: Sequence[Sequence[str]], policies: int) -> None:
    """Replace the checkpoint by one that fits the database."""
    folder = run_dir / "checkpoint"
    state = dict(checkpoint.load(folder, sorted(path.name for path in folder.iterdir())[-1]))
    shutil.rmtree(folder)
    with Reader(run_dir, check=False) as reader:
        log = reader.payoff_log()
        matches = reader.position().matches
        marginals = [np.array(one) for one in reader.generations()[-1].marginals]
    manager = dict(state["manager"])
    last = [members[-1] for members in manager["members"]]
    manager["members"] = [
        [
            members[0],
            *(
                {**last[p], "ref": [p, name, 0, "greedy"], "task": f"response-{name}", "generation": k}
                for k, name in enumerate(names[p][1:], start=1)
            ),
        ]
        for p, members in enumerate(manager["members"])
    ]
    where: tuple[Any, ...] = np.nonzero(log.count)
    profile = np.stack(where, axis=1).astype(np.int32)
    manager["table"] = {
        "sizes": [policies, policies],
        "played": {
            "profile": profile,
            "matches": (log.count[where] // EPISODES).astype(np.int32),
            "n": log.count[where],
            "mean": np.ascontiguousarray(log.mean[(slice(None), *where)].T),
            "m2": np.ascontiguousarray(log.m2[(slice(None), *where)].T),
        },
        "matches": matches,
        "exact": np.full((2, policies, policies), np.nan),
        "whole": [0, 0],
    }
    wins = np.ascontiguousarray(log.wins[0][(slice(None), *where)].T, np.int64)
    manager["tally"] = {"read": matches, "profile": profile, "wins": wins}
    scheduler, history = dict(state["scheduler"]), dict(state["history"])
    scheduler |= {"generation": policies - 1, "warm": None}
    scheduler["solution"] = {**scheduler["solution"], "marginals": marginals, "warm": None}
    history |= {"generations": policies - 1, "checkpoints": policies, "trained": 2 * (policies - 1)}
    name = checkpoint.save(folder, policies, {**state, "manager": manager, "scheduler": scheduler, "history": history})
    with closing(sqlite3.connect(run_dir / FILE, isolation_level=None)) as connection:
        row = (policies - 1, name, BEGAN + 60.0 * policies)
        connection.execute("BEGIN")
        connection.execute("INSERT INTO checkpoints VALUES (?, ?, ?)", row)
        hash_all(connection, HASHED)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = DELETE")


# ---------------------------------------------------------------------------------------------- what commands need


def costs(run_dir: Path, *, policies: int) -> dict[str, Cost]:
    """Return what `status`, `report` and `resume` need; resume: until a policy of the next generation is being trained."""
    return {
        "status": _command("status", str(run_dir)),
        "report": _command("report", str(run_dir)),
        "resume": _command(
            "resume",
            str(run_dir),
            f"generations={policies + 10}",
            until=lambda pid: (
                (status := read_status(run_dir)) is not None
                and status.pid == pid
                and status.generation >= policies
                and status.fraction is not None
            ),
        ),
    }


def _command(*line: str, until: Callable[[int], bool] | None = None) -> Cost:
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *line],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        if until is not None:
            while process.poll() is None and not until(process.pid):
                time.sleep(0.05)
            if process.poll() is None:
                cost = Cost(time.monotonic() - begun, _processor(process.pid))
                process.send_signal(signal.SIGKILL)
                process.wait()
                return cost
        assert process.stderr is not None
        said = process.stderr.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"ludus {line[0]} ended with exit code {process.returncode}: {said}")
        return Cost(time.monotonic() - begun, usage.ru_utime + usage.ru_stime)
    finally:
        if process.stderr is not None:
            process.stderr.close()
        if process.returncode is None:
            process.kill()
            process.wait()


def _processor(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the run, and print what commands need."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the run is written, or lies")
    parser.add_argument("--matches", type=int, default=10_000_000, help="about so many")
    parser.add_argument("--policies", type=int, default=1000, help="of each population")
    options = parser.parse_args(argv)
    begun = time.perf_counter()
    if not options.folder.exists():
        write(options.folder, policies=options.policies, matches=options.matches)
        print(f"written in {time.perf_counter() - begun:.1f} s")
    for name, cost in costs(options.folder, policies=options.policies).items():
        print(f"{name}: {cost.wall:.2f} s, of a processor {cost.processor:.2f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
