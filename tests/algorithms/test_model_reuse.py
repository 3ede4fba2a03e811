"""Models that are taken over with their graphs, by a fake that runs a step again in the same memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus.algorithms.on_policy import model_reuse
from ludus.runs.runner import run
from ludus.runs.scenario_files import parse_scenario
from ludus.storage.reader import Reader
from ludus.testing.cuda_graphs import FakeGraphs

SCENARIO = """
scenario: psro
env: {id: openspiel/kuhn_poker, num_envs: 64}
algorithm: {kind: ppo, hidden: [16], batch: 64, batch_unit: episodes, epochs: 3, minibatches: 1}
response: {episodes: 320}
generations: 4
mode: greedy
runtime: {environments: device, device: cpu}
"""


@pytest.fixture
def fake() -> Iterator[FakeGraphs]:
    with FakeGraphs().installed() as graphs:
        yield graphs


def nash_conv(folder: Path, *changes: str) -> list[float | None]:
    run(parse_scenario(SCENARIO, list(changes)), run_dir=folder, report=False)
    gc.collect()
    with Reader(folder) as reader:
        return [record.nash_conv for record in reader.generations()]


A2C = "algorithm={kind: a2c, hidden: [16], batch: 64, batch_unit: episodes}"


@pytest.mark.parametrize("change", ["warm_start=last", A2C, "order=sequential", "algorithm.minibatches=3"])
def test_a_run_is_the_same_with_models_that_are_taken_over(
    fake: FakeGraphs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    taken = nash_conv(tmp_path / "taken", change)
    with_graphs = len(fake.runs)
    assert 0 < len(model_reuse._idle) <= 4
    monkeypatch.setattr(model_reuse, "_release", lambda model: None)
    monkeypatch.setattr(model_reuse, "_idle", [])
    assert nash_conv(tmp_path / "anew", change) == taken
    assert with_graphs < len(fake.runs) - with_graphs, "each learner captures graphs of its own"


def test_another_algorithm_takes_over_nothing(fake: FakeGraphs, tmp_path: Path) -> None:
    nash_conv(tmp_path / "one")
    (first,) = {model.form for model in model_reuse._idle if model.form.seats == (0,)}
    nash_conv(tmp_path / "other", "algorithm.clip=0.1")
    assert first in {model.form for model in model_reuse._idle}, "it is idle"
    assert len({model.form for model in model_reuse._idle}) == len(model_reuse._idle) <= 4
