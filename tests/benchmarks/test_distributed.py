"""`benchmarks.distributed`: its waiting environments, what its bars compare, and a small version of the whole."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.contestants import Repetition
from benchmarks.distributed import BENCHMARK, DECISIONS, GENERATIONS, START, STEPS
from benchmarks.distributed_envs import Steps, Waiting
from benchmarks.distributed_worker import Watch
from benchmarks.harness import Medians
from ludus.core.seeding import keys
from ludus.testing.env import check_env

SECOND = "seconds to start"


def outcome(name: str, **figures: dict[str, float]) -> tuple[float | None, str]:
    """Value and verdict of the bar whose name contains `name`, for one repetition of each contestant."""
    (bar,) = [bar for bar in BENCHMARK.bars if name in bar.name]
    found = bar.judge(Medians({key: [Repetition(0, value)] for key, value in figures.items()}))
    return found.value, found.verdict


@pytest.mark.parametrize("game", ["openspiel/catch", "benchmarks.distributed_envs:Steps"])
def test_waiting_environments_keep_the_contract(game: str) -> None:
    check_env(lambda num_envs: Waiting(num_envs=num_envs, game=game, milliseconds=0.0))


def test_an_episode_pays_for_right_actions() -> None:
    env = Steps(num_envs=2, length=3)
    timestep = env.reset(keys(0, "steps", count=2), episodes=np.array([1, 2]))
    for actions in ([0, 0], [1, 0], [0, 0]):
        timestep = env.step((np.array(actions),))
    assert timestep.finished.returns.tolist() == [[3.0], [2.0]]
    assert timestep.ended[0].reward.tolist() == [1.0, 1.0]
    assert timestep.due[0].slot.tolist() == [1], "the first one has played its only episode"


def test_a_step_takes_as_long_as_it_says() -> None:
    env = Waiting(num_envs=4, game="openspiel/catch", milliseconds=30.0)
    env.reset(keys(0, "waiting", count=4))
    begun = time.perf_counter()
    env.step((np.zeros(4, np.int64),))
    assert time.perf_counter() - begun >= 0.03


def test_the_first_process_is_the_straggler(tmp_path: Path) -> None:
    file = tmp_path / "straggler"
    mine = Waiting(num_envs=1, game="openspiel/catch", milliseconds=4.0, straggler=str(file))
    mine.reset(keys(0, "waiting", count=1))
    assert not file.exists(), "who only makes one is none"
    begun = time.perf_counter()
    mine.step((np.zeros(1, np.int64),))
    assert time.perf_counter() - begun >= 0.04
    assert file.read_text() == str(os.getpid())
    file.write_text("1")  # another process
    other = Waiting(num_envs=1, game="openspiel/catch", milliseconds=0.0, straggler=str(file), slower=1e9)
    other.reset(keys(0, "waiting", count=1))
    other.step((np.zeros(1, np.int64),))


def test_bars_compare_what_they_say() -> None:
    cartpole = {"cartpole, on Ray": {STEPS: 90.0}, "cartpole, in one process": {STEPS: 100.0}}
    assert outcome("CartPole, Ray", **cartpole) == (0.9, "met")
    starts = {"in one process": 3.0, "on Ray": 11.0, "on processes": 5.0}
    started = {f"cartpole, {where}": {START: seconds} for where, seconds in starts.items()}
    assert outcome("what starting costs", **started) == (0.25, "met")
    rates = {"async 1": {DECISIONS: 800.0}, "async 8": {DECISIONS: 5760.0}, "async 16": {DECISIONS: 12_800.0}}
    assert outcome("efficiency of 8 workers, async", **rates) == (0.9, "short")
    assert outcome("efficiency of 16 workers, async", **rates) == (1.0, "met")
    slow = {"async 16, straggler": {DECISIONS: 9600.0}}
    assert outcome("straggler of 16 workers, async", **rates, **slow) == (0.25, "short")
    generations = {"psro 1": {GENERATIONS: 4.0}, "psro 8": {GENERATIONS: 26.0}}
    assert outcome("times the generations", **generations) == (6.5, "met")


@pytest.mark.parametrize(("other", "different", "verdict"), [(11.0, 1.0, "met"), (12.0, 2.0, "short")])
def test_populations_that_differ_are_seen(other: float, different: float, verdict: str) -> None:
    found = {f"psro {n}": {"populations": 11.0} for n in (1, 2)}
    assert outcome("different populations", **found, **{"psro 8": {"populations": other}}) == (different, verdict)


def test_progress_outside_of_training_is_no_training() -> None:
    watch = Watch()
    watch.task_progress(0.5, {})
    assert watch.shares == []


@pytest.mark.long
def test_quick_run_in_one_process_and_on_ray_writes_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = ["cartpole, in one process", "cartpole, on Ray"]
    assert BENCHMARK.main(["--quick", "--only", *measured, "--results", str(tmp_path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("bar ")]
    assert len(lines) == len(BENCHMARK.bars)
    document = json.loads((tmp_path / "distributed.quick.json").read_text())
    assert {name for name, many in document["measured"].items() if many and not many[0]["error"]} == set(measured)
    figures = {name: document["measured"][name][0]["figures"] for name in measured}
    assert all(figures[name][SECOND] > 0 for name in measured)
