"""The contract of `Callback`, as a check that any callback, ours or a user's, must pass."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ludus.core.errors import ConfigError
from ludus.core.types import (
    EvaluationResult,
    EvaluationTask,
    Exploitability,
    Match,
    MetaSolution,
    Mixture,
    PolicyRef,
    PolicySpec,
    TrainingResult,
    TrainingTask,
)
from ludus.rollout.base import EpisodeResults
from ludus.storage.base import GenerationRecord, RunInfo, RunSummary
from ludus.training.callbacks import HOOKS, Callback, UpdateRecord, dump_callback, parse_callbacks

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def check_callback(make: Callable[[], Callback], *, players: int = 2, generations: int = 3) -> None:
    """Check that a callback keeps its contract. What it writes goes where its options say.

    It is called for an invented run: with batches of one episode and of many, numbers that are NaN or missing, exact and sampled payoffs.
    Then for one that dies and is resumed, whose last generation is reported twice, and for a second run with the same object.

    Args:
        make: Returns a new callback at each call.
        players: Of the invented run.
        generations: Of the invented run.

    Raises:
        AssertionError: With a sentence, for the first part of the contract that it breaks.
    """
    first, second = make(), make()
    assert first is not second, "make() gives the same callback each time; give a function that makes a new one."
    _check_options(first)
    with tempfile.TemporaryDirectory() as folder:
        calls = list(_run(Path(folder), players=players, generations=generations))
        _tell(first, calls)
        _tell(first, calls)  # a second run
        died = next(k for k, (hook, *_) in enumerate(calls) if hook == "on_generation") + 2
        _tell(second, calls[:died])
        _tell(make(), [_start(Path(folder), players, generations, done=1), *calls[1:]])  # it goes on in another process


def _check_options(callback: Callback) -> None:
    """Check that a run's scenario can name it, so that the run can be resumed."""
    try:
        (checked,) = parse_callbacks(callback)
        written = dump_callback(checked)
        if "<locals>" not in written["kind"]:
            (again,) = parse_callbacks(written)
            assert dump_callback(again) == written, (
                f"written into a scenario it is {written}, and read again {dump_callback(again)}."
            )
    except ConfigError as error:
        raise AssertionError(str(error)) from error


def _tell(callback: Callback, calls: list[Call]) -> None:
    for hook, args, keywords in calls:
        before = copy.deepcopy(args)
        try:
            answer = getattr(callback, hook)(*args, **keywords)
        except Exception as error:
            raise AssertionError(
                f"{hook} raised {type(error).__name__}: {error}. It was given {_brief(args)}."
            ) from error
        assert answer is None, f"{hook} answered {answer!r}, which nobody reads; a stopper ends runs."
        assert _same(before, args), (
            f"{hook} changed what it was given, which is the run's own; copy what is to be changed."
        )


# ---------------------------------------------------------------------------------------------- an invented run


def _run(folder: Path, *, players: int, generations: int) -> Iterator[Call]:
    """Yield every hook, as a run calls them."""
    rng = np.random.default_rng(0)
    yield _start(folder, players, generations, done=0)
    yield "on_task", (_solved(0, players),), {}
    yield "on_generation", (_record(0, players),), {}
    for generation in range(1, generations + 1):
        for population in range(players):
            yield from _training(generation, population, players, rng)
        yield "on_task", (_matches(generation, players, exact=generation == 1),), {}
        yield "on_task", (_solved(generation, players),), {}
        yield "on_generation", (_record(generation, players),), {}
    summary = RunSummary(folder, generations, 12.5, 600, None if players > 2 else 0.25, "the schedule is complete")
    yield "on_run_end", (summary,), {}


def _start(folder: Path, players: int, generations: int, *, done: int) -> Call:
    info = RunInfo(
        name="check",
        run_dir=folder,
        scenario="psro",
        env="openspiel/kuhn_poker",
        algorithm="PPO",
        seed=0,
        version="ludus",
        population=tuple(range(players)),
        utility_range=((-1.0, 1.0),) * players,
        generations=generations,
    )
    return "on_run_start", (info,), {"generation": done}


def _training(generation: int, population: int, players: int, rng: np.random.Generator) -> Iterator[Call]:
    opponents = Mixture.product({p: ([PolicyRef(p, f"{p}-0")], [1.0]) for p in range(players) if p != population})
    name = f"{population}-{generation}"
    task = TrainingTask(f"train-{name}", generation, population, (population,), name, opponents)
    count = 0
    for iteration, n in enumerate((1, 64), start=1):
        yield "on_episodes", (task, _episodes(n, count, population, players, rng)), {}
        count += n
        metrics = {} if iteration == 1 else {"loss": float("nan"), "return": 0.5}
        counters = {
            "env_steps": 3 * count,
            "decisions": 2 * count,
            "episodes": count,
            "samples": 2 * count,
            "updates": iteration,
        }
        yield "on_update", (UpdateRecord(task, iteration, 1, metrics, counters),), {}
    ref, spec = PolicyRef(population, name, mode="greedy"), PolicySpec("random", {"actions": 2})
    failed = "the loss became NaN" if population else None
    trained = TrainingResult(task, ref, spec, {}, {"return": 0.5}, counters, failure=failed)
    yield "on_task", (trained,), {}


def _episodes(n: int, first: int, seat: int, players: int, rng: np.random.Generator) -> EpisodeResults:
    return EpisodeResults(
        returns=rng.choice([-1.0, 0.0, 1.0], size=(n, players)),
        length=rng.integers(1, 9, size=n, dtype=np.int32),
        terminated=rng.random(n) < 0.9,
        seat=np.full(n, seat, np.int8),
        entry=np.zeros((n, players - 1), np.int32),
        index=np.arange(first, first + n),
    )


def _matches(generation: int, players: int, *, exact: bool) -> EvaluationResult:
    profile = (generation,) * players
    task = EvaluationTask(f"payoffs-{generation}", generation, (profile,))
    if exact:
        return EvaluationResult(task, payoffs=np.zeros((players, *[generation + 1] * players)))
    seats, mean = tuple(PolicyRef(p, f"{p}-{generation}") for p in range(players)), np.zeros(players)
    match = Match(f"{task.id}-0", profile, seats, 10, mean, mean + 10.0, wins=((4, 2, 4),) * players)
    return EvaluationResult(task, (match,))


def _solved(generation: int, players: int) -> EvaluationResult:
    uniform = np.full(generation + 1, 1.0 / (generation + 1))
    solution = MetaSolution((uniform,) * players, gap=float("nan"))
    known = Exploitability(np.zeros(players), np.zeros(players)) if players <= 2 else None
    return EvaluationResult(EvaluationTask(f"solve-{generation}", generation, solution=solution), exploitability=known)


def _record(generation: int, players: int) -> GenerationRecord:
    uniform = (1.0 / (generation + 1),) * (generation + 1)
    return GenerationRecord(
        number=generation,
        seconds=1.5 * generation,
        episodes=130 * generation,
        nash_conv=None if players > 2 else 0.5,
        gains=() if players > 2 else (0.25,) * players,
        values=(0.0,) * players,
        marginals=(uniform,) * players,
        responses=(float("nan"),) * players if generation == 0 else (0.5,) * players,
    )


# ---------------------------------------------------------------------------------------------- what was given, after


def _same(one: Any, other: Any) -> bool:
    """Return whether they are bitwise equal, arrays and NaN included."""
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    names = getattr(type(one), "__dataclass_fields__", None)
    if names is not None:
        return all(_same(getattr(one, name), getattr(other, name)) for name in names)
    return bool(one == other or (one != one and other != other))


def _brief(args: tuple[Any, ...]) -> str:
    return ", ".join(type(arg).__name__ for arg in args)


assert {"on_run_start", "on_episodes", "on_update", "on_task", "on_generation", "on_run_end"} == set(HOOKS)
