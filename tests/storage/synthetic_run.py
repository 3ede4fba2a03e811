"""A made-up run in a real database, for tests of whatever reads one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ludus.core import recorders
from ludus.core.types import Curve, Match, Mixture, PolicyRef, PolicySpec, TrainingTask
from ludus.metagame.population.base import Lineage, PolicyRecord
from ludus.storage.base import GenerationRecord, RunInfo, RunSummary
from ludus.storage.store import Store


def info(run_dir: Path, players: int = 2, **changes: object) -> RunInfo:
    facts: dict[str, object] = {
        "name": run_dir.name,
        "run_dir": run_dir,
        "scenario": "leduc",
        "env": "openspiel/leduc_poker",
        "algorithm": "ppo",
        "seed": 7,
        "version": "0.1.0",
        "population": tuple(range(players)),
        "utility_range": ((-13.0, 13.0),) * players,
        "zero_sum": True,
        "generations": 20,
        "text": "scenario: psro\nenv: {id: openspiel/leduc_poker}\nseed: 7\n",
    }
    return RunInfo(**{**facts, **changes})  # type: ignore[arg-type]


def policy(population: int, place: int, generation: int = 0) -> PolicyRecord:
    parent = PolicyRef(population, f"p{place - 1}", 0) if place else None
    lineage = Lineage(f"g{generation}/p{population}", generation, parent, "last" if place else "random")
    return PolicyRecord(
        PolicyRef(population, f"p{place}", 0),
        place,
        PolicySpec("actor_critic", {"body": {"kind": "mlp", "hidden": [64, 64]}}),
        lineage,
    )


def match(identifier: str, profile: tuple[int, ...], n: int, mean: list[float], m2: list[float]) -> Match:
    seats = tuple(PolicyRef(player, f"p{place}", 0) for player, place in enumerate(profile))
    return Match(identifier, profile, seats, n, np.array(mean), np.array(m2), ((n, 0, 0),) * len(profile))


def generation(number: int, sizes: tuple[int, ...], *, nash_conv: float | None, seed: int = 0) -> GenerationRecord:
    rng = np.random.default_rng((seed, number))
    marginals = tuple(tuple((rng.dirichlet(np.linspace(0.15, 1.5, n))).tolist()) for n in sizes)
    players = len(sizes)
    gains = () if nash_conv is None else (nash_conv / players,) * players
    return GenerationRecord(
        number=number,
        seconds=1.7 * number + 0.8,
        episodes=60_000 * number,
        nash_conv=nash_conv,
        gains=gains,
        values=tuple(np.linspace(-0.08, 0.08, players).tolist()),
        marginals=marginals,
        solver_gap=1e-9,
        solver_seconds=0.004,
        responses=tuple(rng.normal(0.5, 0.1, players).tolist()),
    )


def training(population: int, generation: int) -> TrainingTask:
    policy = f"{population}-{generation}"
    return TrainingTask(f"response-{policy}", generation, population, (population,), policy, Mixture(()))


def curve(iterations: int) -> Curve:
    """Each iteration a second, 100 steps, 50 decisions and two episodes, of returns k and k + 2."""
    recorder = recorders.CurveRecorder()
    for k in range(1, iterations + 1):
        counts = {
            "iterations": k,
            "env_steps": 100 * k,
            "decisions": 50 * k,
            "episodes": 2 * k,
            "samples": 50 * k,
            "updates": k,
        }
        returns, lengths = np.array([k, k + 2.0]), np.array([40, 60], np.int32)
        metrics = {"rows": 50.0, "policy_loss": 1 / k}
        recorder.add(counts, seconds=float(k), returns=returns, lengths=lengths, metrics=metrics)
    return recorder.curve()


def write(
    run_dir: Path, *, generations: int = 12, players: int = 2, with_nash_conv: bool = True, finished: bool = True
) -> Path:
    """`generations` generations, each adding one policy per player, with exact payoffs that share a skill and a cycle."""
    rng = np.random.default_rng(3)
    with Store.create(run_dir, info(run_dir, players)) as store:
        store.event("run", "started")
        size = 1 + generations
        skill = rng.normal(0, 0.3, (players, size)) + np.linspace(-0.5, 0.8, size)
        for number in range(generations + 1 if generations else 0):
            store.generation = number
            for player in range(players):
                if number:
                    store.task_started(training(player, number))
                    store.curve_recorded(training(player, number).id, curve(6))
                store.policy_added(policy(player, number, number))
            _new_cells(store, number, skill)
            bound = 4.7 * np.exp(-0.28 * number) + 0.15 + 0.05 * rng.random() if with_nash_conv else None
            store.generation_done(generation(number, (number + 1,) * players, nash_conv=bound))
            store.metrics_recorded("generations", number, {"loss": 1.0 / (1 + number)})
            for player in range(players):
                store.ratings_recorded(player, {f"p{k}": 1200 + 40.0 * k for k in range(number + 1)})
            store.commit(f"g{number}")
        if finished:
            store.run_finished(
                RunSummary(
                    run_dir,
                    generations,
                    1.7 * generations + 0.8,
                    60_000 * generations,
                    0.4,
                    f"reached generations={generations}",
                )
            )
    return run_dir


def _new_cells(store: Store, number: int, skill: np.ndarray) -> None:
    players = len(skill)
    grid = np.indices((number + 1,) * players).reshape(players, -1).T
    new = grid[(grid == number).any(axis=1)]
    own = np.stack([skill[p][new[:, p]] for p in range(players)], axis=1)
    cycle = 0.4 * np.sin(new - np.roll(new, 1, axis=1))
    mean = own - own.mean(axis=1, keepdims=True) + cycle - cycle.mean(axis=1, keepdims=True)
    store.payoffs_recorded(new, mean)
