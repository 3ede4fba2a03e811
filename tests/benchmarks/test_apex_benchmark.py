"""`benchmarks.apex`: what it runs, when it stops, and what its bars compare."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from benchmarks.apex import BENCHMARK, SECONDS, SOLVED
from benchmarks.apex_worker import Judge, Watch, scenario
from benchmarks.contestants import Repetition
from benchmarks.harness import Medians
from benchmarks.machine import ROOT
from ludus.core.config import to_yaml
from ludus.policies.action_values import initial_weights
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import action_values_spec, body_config
from ludus.runs.scenario_files import parse_scenario
from ludus.training.stopping import Progress
from ludus.training.training import Training

SPEC = action_values_spec(shape=(4,), actions=2, body=body_config(hidden=(4,), activation="relu"))
WEIGHTS = {name: np.zeros_like(array) for name, array in initial_weights(SPEC, np.random.default_rng(0)).items()}
WEIGHTS["head.advantage.bias"] = np.array([0.0, 1.0], np.float32)  # always the same way


def test_bars_compare_with_one_actor() -> None:
    figures = {"1 actor": (120.0, 90.0), "2 actors": (60.0, 45.0), "4 actors": (80.0, math.inf)}
    medians = Medians(
        {name: [Repetition(0, {SECONDS: all_, SOLVED: solved})] for name, (all_, solved) in figures.items()}
    )
    found = [bar.judge(medians) for bar in BENCHMARK.bars]
    assert [(each.value, each.verdict) for each in found] == [
        *((2.0, "met"), (1.5, "short"), (None, "unjudged")),
        *((2.0, "met"), (0.0, "short"), (None, "unjudged")),  # four were never seen to solve it
    ]


def test_actors_are_workers_with_four_environments_each() -> None:
    found = parse_scenario(to_yaml(scenario(8, seed=3, runtime="processes")))
    assert (found.env.num_envs, found.runtime.workers, found.runtime.shards) == (32, 8, 8)
    assert found.algorithm.collect().amount == 8 * 64
    assert found.runtime.mode == "async"


def test_the_judge_plays_twenty_episodes() -> None:
    """A policy that always pushes one way falls within 8 to 11 steps."""
    assert 8.0 <= Judge().score(build_policy(SPEC, WEIGHTS)) <= 11.0


class Progressing:
    """A run whose newest version scores what it is told to."""

    def __init__(self) -> None:
        self.progress = Progress()

    def newest(self, mode: str) -> tuple[None, Policy]:
        assert mode == "greedy"
        return None, build_policy(SPEC, WEIGHTS)


def test_versions_are_judged_every_thousand_decisions_once_there_are_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, run, scores = Watch(), Progressing(), iter([20.0, 500.0, 499.0])
    judged: list[int] = []

    def score(policy: Policy) -> float:
        judged.append(run.progress.decisions)
        return next(scores)

    monkeypatch.setattr(watch, "_judge", SimpleNamespace(score=score))
    solved = []
    for decisions, updates in [(0, 0), (512, 0), (1024, 0), (1536, 268), (2048, 524), (2560, 780), (3072, 1036)]:
        run.progress = Progress(decisions=decisions, updates=updates)
        watch.look(cast(Training, run))
        solved.append(watch.solved)
    assert judged == [1536, 2048, 3072]
    assert solved[:4] == [math.inf] * 4
    assert 0.0 < solved[4] < math.inf
    assert solved[4:] == [solved[4]] * 3  # the first time counts
    assert (watch.figures["decisions"], watch.figures["updates"], watch.figures["score"]) == (3072, 1036, 499.0)


@pytest.mark.long
def test_worker_process_prints_figures_as_the_harness_runs_it() -> None:
    command = [sys.executable, "-m", "benchmarks.apex_worker", "--actors", "1", "--decisions", "1500"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True).stdout
    figures = json.loads(told.splitlines()[-1])
    assert figures["kind"] == "figures"
    assert figures["decisions"] >= 1500
    assert figures["updates"] >= 250
    assert figures[SECONDS] > 1500 / 4 * 0.02 * 0.9  # steps of four wait 20 ms, but for the first request's
    assert figures[SOLVED] == math.inf
