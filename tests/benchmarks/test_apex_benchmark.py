"""`benchmarks.apex`: what it runs, when it stops, and what its bars compare."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.apex import BENCHMARK, SECONDS
from benchmarks.apex_worker import LIMIT, Judge, Solved, scenario
from benchmarks.contestants import Repetition
from benchmarks.harness import Medians
from benchmarks.machine import ROOT
from ludus.core.config import to_yaml
from ludus.driver.scenario_files import parse_scenario
from ludus.policies.action_values import initial_weights
from ludus.policies.registry import build_policy
from ludus.policies.specs import action_values_spec, body_config
from ludus.training.stopping import Progress


def test_bars_compare_with_one_actor() -> None:
    figures = {"1 actor": 120.0, "2 actors": 60.0, "4 actors": 80.0}
    medians = Medians({name: [Repetition(0, {SECONDS: value})] for name, value in figures.items()})
    found = [bar.judge(medians) for bar in BENCHMARK.bars]
    assert [(each.value, each.verdict) for each in found] == [(2.0, "met"), (1.5, "short"), (None, "unjudged")]


def test_actors_are_workers_with_four_environments_each() -> None:
    found = parse_scenario(to_yaml(scenario(8, seed=3, runtime="processes")))
    assert (found.env.num_envs, found.runtime.workers, found.runtime.shards) == (32, 8, 8)
    assert found.algorithm.collect().amount == 8 * 64
    assert found.runtime.mode == "async"


def test_it_stops_when_it_is_solved_or_has_taken_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Solved(seconds=LIMIT)
    monkeypatch.setattr(Solved, "seen", [])
    assert stop.reason(Progress(seconds=LIMIT - 1)) is None
    assert stop.reason(Progress(seconds=LIMIT)) == "900 seconds have passed"
    monkeypatch.setattr(Solved, "seen", [3.0])
    assert stop.reason(Progress(seconds=4)) == "it is solved"


def test_the_judge_plays_twenty_episodes() -> None:
    """A policy that always pushes one way falls within 8 to 11 steps."""
    spec = action_values_spec(shape=(4,), actions=2, body=body_config(hidden=(4,), activation="relu"))
    weights = initial_weights(spec, np.random.default_rng(0))
    flat = {name: np.zeros_like(array) for name, array in weights.items()}
    flat["head.advantage.bias"] = np.array([0.0, 1.0], np.float32)
    assert 8.0 <= Judge().score(build_policy(spec, flat)) <= 11.0


@pytest.mark.slow
def test_a_worker_stops_once_it_has_seen_enough() -> None:
    """As the harness runs it; nobody scores less than 5."""
    command = [sys.executable, "-m", "benchmarks.apex_worker", "--actors", "1", "--enough", "5"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True).stdout
    figures = json.loads(told.splitlines()[-1])
    assert figures["kind"] == "figures"
    assert 0.0 < figures[SECONDS] < LIMIT / 2
    assert figures["score"] >= 5.0
