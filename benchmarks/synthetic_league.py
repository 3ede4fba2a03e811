"""A made-up league in a real database, of any size: for tests and measurements of what shows large runs.

Its policies have a skill that grows, and a place on a circle, so that there are a ladder and cycles. Rows are written by SQL, since a store
that takes them one by one needs minutes for a thousand policies. From a shell: `python -m benchmarks.synthetic_league DIRECTORY 1000`.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ludus.core.types import Match, PolicyRef
from ludus.storage.base import GenerationRecord, RunInfo, RunSummary
from ludus.storage.batches import hash_all
from ludus.storage.database import FILE, HASHED, INSERT
from ludus.storage.records import summary_to_json
from ludus.storage.store import Store

BEGAN = 1_700_000_000.0
"""Unix time at which it began."""
EPISODES = 32
"""Of each pair of policies."""
PARTS = ("environment", "inference", "writing", "waiting", "rollout", "learning", "meta-solver", "evaluation")


@dataclass(frozen=True, slots=True, kw_only=True)
class League:
    """policies: of each population; one more comes with each generation. shared: both players draw from one population. played: share of
    the pairs that have met. points: of a learning curve. events: in all. statistics: names of what matches count. running: the last
    generation is being trained."""

    policies: int = 1000
    shared: bool = True
    played: float = 1.0
    points: int = 60
    events: int = 5000
    statistics: tuple[str, ...] = ()
    running: bool = False
    seed: int = 0

    @property
    def populations(self) -> tuple[int, ...]:
        """Which there are."""
        return (0,) if self.shared else (0, 1)


def write(run_dir: Path, league: League) -> Path:
    """A new run in `run_dir`, which is returned. `League()` has a thousand policies."""
    info = RunInfo(
        name=run_dir.name,
        run_dir=run_dir,
        scenario="league",
        env="openspiel/connect_four",
        algorithm="ppo",
        seed=league.seed,
        version="0.1.0",
        population=(0, 0) if league.shared else (0, 1),
        utility_range=((-1.0, 1.0), (-1.0, 1.0)),
        zero_sum=True,
        generations=league.policies - 1,
        text="scenario: league\nenv: openspiel/connect_four\n",
    )
    Store.create(run_dir, info).close()
    rng = np.random.default_rng(league.seed)
    skill, angle = strengths(league, rng)
    rows = {"policies": _policies(league, rng), **rows_of(league, skill, rng)}
    with closing(sqlite3.connect(run_dir / FILE, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        for table, some in rows.items():
            connection.executemany(INSERT[table], some)
        for found, counted in _matches(league, skill, angle, rng):
            connection.executemany(INSERT["matches"], found)
            connection.executemany(INSERT["statistics"], counted)
        n = league.policies
        barriers = ((k, f"{k:08d}", BEGAN + 60.0 * k) for k in range(n))
        connection.executemany("INSERT INTO checkpoints VALUES (?, ?, ?)", barriers)
        if not league.running:
            seconds = 60.0 * n
            summary = RunSummary(run_dir, n - 1, seconds, 4000 * n, None, f"reached generations={n - 1}", trained=n)
            connection.execute("INSERT INTO run VALUES ('summary', ?)", (summary_to_json(summary),))
        hash_all(connection, HASHED)
        connection.execute("COMMIT")
    return run_dir


def rematch(store: Store, last: GenerationRecord, rng: np.random.Generator, *, number: int, pairs: int = 50) -> None:
    """Commit a generation of a league of one population in which no policy is new, and some pairs of policies have met again.

    Args:
        store: Of the league.
        last: A generation whose meta-strategies it has.
        rng: Draws pairs and results.
        number: Of the generation.
        pairs: That meet.
    """
    matches = []
    for k in range(pairs):
        profile = tuple(rng.choice(len(last.marginals[0]), 2, replace=False).tolist())
        seats = tuple(PolicyRef(0, name(0, place), 0, "greedy") for place in profile)
        won = int(rng.binomial(EPISODES, 0.5))
        lost, mean = EPISODES - won, (2 * won - EPISODES) / EPISODES
        spread = EPISODES * (1.0 - mean**2)
        means, wins = np.array([mean, -mean]), ((won, 0, lost), (lost, 0, won))
        matches.append(Match(f"m{number}-{k}", profile, seats, EPISODES, means, np.full(2, spread), wins))
    store.matches_recorded(matches)
    store.generation_done(replace(last, number=number, seconds=60.0 * number + 30.0))
    store.commit(f"{number:08d}")


def name(population: int, place: int) -> str:
    return f"{population}-{place}"


def rows_of(
    league: League, skill: NDArray[np.float64], rng: np.random.Generator
) -> dict[str, Iterable[tuple[object, ...]]]:
    """Return the rows of each table, but for policies and matches."""
    return {
        "generations": _generations(league, skill),
        "ratings": _ratings(league, skill),
        "tasks": _tasks(league),
        "opponents": _opponents(league, skill),
        "curves": _curves(league, rng),
        "metrics": _metrics(league, rng),
        "events": _events(league),
    }


def strengths(league: League, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[populations, policies] logits of winning and places on the circle."""
    shape = len(league.populations), league.policies
    skill = np.linspace(-2.0, 2.0, league.policies) + rng.normal(0.0, 0.3, shape)
    return skill, np.arange(league.policies) * 2.4 + rng.normal(0.0, 0.2, shape)


def _policies(league: League, rng: np.random.Generator) -> Iterator[tuple[object, ...]]:
    config = json.dumps({"body": {"kind": "mlp", "hidden": [64, 64]}})
    older = rng.random(league.policies) < 0.2
    for population in league.populations:
        for k in range(league.policies):
            parent = int(rng.integers(0, k)) if k and older[k] else k - 1
            said = json.dumps({"population": population, "policy": name(population, parent), "version": 0})
            file = f"policies/{population}/{name(population, k)}.safetensors"
            head = (population, name(population, k), 0, "greedy", k, "actor_critic", config, file, f"{k:064x}")
            start = (said, "policy") if k else (None, "random")
            yield (*head, *start, k, f"response-{name(population, k)}" if k else "", BEGAN + 60.0 * k, k)


def _marginal(skill: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    weight = np.exp(4.0 * (skill[: k + 1] - skill[: k + 1].max()))
    weight[weight < 1e-3] = 0.0
    return np.asarray(weight / weight.sum())


def _generations(league: League, skill: NDArray[np.float64]) -> Iterator[tuple[object, ...]]:
    for k in range(league.policies - league.running):
        marginals = [_marginal(skill[p if not league.shared else 0], k) for p in (0, 1)]
        gain = 0.4 * float(np.exp(-3.0 * k / league.policies)) + 0.02
        scores = [json.dumps(values) for values in ([gain, gain], [0.0, 0.0], [0.5, 0.5], [k + 1, k + 1])]
        head = (k, 60.0 * k + 30.0, 4000 * k, 2 * gain, *scores, np.concatenate(marginals).astype("<f8").tobytes())
        yield (*head, 1e-6, 0.01, 0, BEGAN + 60.0 * k + 30.0, k)


def _ratings(league: League, skill: NDArray[np.float64]) -> Iterator[tuple[object, ...]]:
    for k in range(league.policies - league.running):
        for population, row in enumerate(skill):
            for place, value in enumerate((1200.0 + 173.7 * row[: k + 1]).tolist()):
                yield (k, population, name(population, place), "elo", value, k)


def _tasks(league: League) -> Iterator[tuple[object, ...]]:
    for k in range(1, league.policies + league.running):
        for population in league.populations:
            done = k < league.policies - league.running
            policy = name(population, k)
            counters = json.dumps({"decisions": 6000, "episodes": 4000, "updates": 60} if done else {})
            what = (f"response-{policy}", "train", k, population, policy, "done" if done else "started")
            yield (*what, json.dumps({"return": 0.5} if done else {}), counters, None, BEGAN + 60.0 * k, k)


def _opponents(league: League, skill: NDArray[np.float64]) -> Iterator[tuple[object, ...]]:
    for k in range(1, league.policies + league.running):
        for population in league.populations:
            other = 0 if league.shared else 1 - population
            marginal = _marginal(skill[other], k - 1)
            for place in np.argsort(-marginal)[:8].tolist():
                if marginal[place]:
                    met = (other, name(other, place), float(marginal[place]), k)
                    yield (f"response-{name(population, k)}", 1 - population, *met)


def _curves(league: League, rng: np.random.Generator) -> Iterator[tuple[object, ...]]:
    points = league.points
    for k in range(1, league.policies):
        for population in league.populations:
            returns = (1.0 - np.exp(-np.arange(points) / 10.0) + rng.normal(0.0, 0.05, points)).tolist()
            for at, mean in enumerate(returns):
                n = at + 1
                counts = (n, 700 * n, 100 * n, 66 * n, 100 * n, n, 66)
                metrics = f'{{"policy_loss": {1.0 / n:.6g}, "entropy": {1.9 - mean:.6g}}}'
                task = f"response-{name(population, k)}"
                yield (task, at, *counts, mean, 20.0, -1.0, 1.0, 21.0, 1, 0.7 * n, metrics, k)


def _metrics(league: League, rng: np.random.Generator) -> Iterator[tuple[object, ...]]:
    for k in range(league.policies - league.running):
        for part, seconds in zip(PARTS, rng.uniform(1.0, 12.0, len(PARTS)).tolist(), strict=True):
            yield (f"seconds/{part}", "generations", k, seconds, k)
        yield ("rollout/env_steps", "generations", k, 42_000.0, k)


def _events(league: League) -> Iterator[tuple[object, ...]]:
    for k in range(league.events):
        barrier = k * league.policies // league.events
        at, level = BEGAN + 60.0 * barrier, "warning" if k % 500 == 499 else "info"
        text = f"worker {k % 8} died: signal 9. A new one takes its place." if level == "warning" else f"shard {k}"
        yield (at, level, "worker" if level == "warning" else "run", text, barrier)


def _pairs(league: League, rng: np.random.Generator) -> NDArray[np.int64]:
    """int64[k, 2] profiles, as they come to be played: of the newest policy with all before it. A shared population is played in one order
    of the seats, and never against itself."""
    n = league.policies
    first, second = np.tril_indices(n, -1) if league.shared else np.indices((n, n)).reshape(2, -1)
    kept = rng.random(len(first)) < league.played
    first, second = first[kept], second[kept]
    if league.shared:
        turned = rng.random(len(first)) < 0.5
        first, second = np.where(turned, second, first), np.where(turned, first, second)
    order = np.argsort(np.maximum(first, second), kind="stable")
    return np.stack([first[order], second[order]], axis=1)


def _matches(
    league: League, skill: NDArray[np.float64], angle: NDArray[np.float64], rng: np.random.Generator
) -> Iterator[tuple[list[tuple[object, ...]], list[tuple[object, ...]]]]:
    """Rows of matches and of their statistics, some at a time."""
    pairs, other = _pairs(league, rng), 0 if league.shared else 1
    apart = skill[0][pairs[:, 0]] - skill[other][pairs[:, 1]]
    turn = angle[0][pairs[:, 0]] - angle[other][pairs[:, 1]]
    won = rng.binomial(EPISODES, 0.95 / (1.0 + np.exp(-apart - 1.2 * np.sin(turn))))
    drawn = rng.binomial(EPISODES - won, 0.05)
    lost = EPISODES - won - drawn
    mean = (won - lost) / EPISODES
    m2 = won + lost - EPISODES * mean**2
    for at in range(0, len(pairs), 20_000):
        some = slice(at, at + 20_000)
        columns = (pairs[some], won[some], drawn[some], lost[some], mean[some], m2[some])
        found, counted = [], []
        for k, ((i, j), w, d, x, value, spread) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True), start=at
        ):
            newest = max(i, j)
            seats = f'[[0, "0-{i}", 0, "greedy"], [{other}, "{other}-{j}", 0, "greedy"]]'
            blobs = (np.array([value, -value]).tobytes(), np.array([spread, spread]).tobytes())
            head = (f"m{k}", newest, f"[{i}, {j}]", seats, EPISODES, *blobs)
            found.append((*head, f"[[{w}, {d}, {x}], [{x}, {d}, {w}]]", 0, BEGAN + 60.0 * newest, newest))
            counted += [
                (f"m{k}", player, place, what, EPISODES, float(place + i + j), 1.0, newest)
                for player in (0, 1)
                for place, what in enumerate(league.statistics)
            ]
        yield found, counted


if __name__ == "__main__":
    begun = time.perf_counter()
    made = write(Path(sys.argv[1]), League(policies=int(sys.argv[2])))
    print(f"{made}: {time.perf_counter() - begun:.1f} s")
