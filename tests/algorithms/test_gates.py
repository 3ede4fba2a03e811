"""Short gates: tasks of `benchmarks.learning`, with its very settings, are learned from one fixed seed. The longer ones are its own."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest

from benchmarks.learning_run import evaluated
from benchmarks.learning_tasks import TASKS, scenario
from ludus.core.config import to_yaml
from ludus.runs.runner import run
from ludus.runs.scenario_files import parse_scenario

pytestmark = pytest.mark.long

GATES = {
    "memory-ppo": (1.0, ">=", 0.95),
    "memory-r2d2": (0.6, ">=", 0.95),
    "memory-ppo-feedforward": (0.3, "<=", 0.55),
    "memory-dqn-feedforward": (0.3, "<=", 0.55),
    "leduc-mmd": (0.5, "<=", 0.25),  # from 2.37; two seeds came to 0.16
}
"""task -> (share of its budget, how its score must compare, with what). Bars are the benchmark's where one seed says enough, and otherwise
well within what learning comes to and out of reach without it: rounding differs between kinds of processors, and with it the run."""


@pytest.mark.parametrize("name", GATES)
def test_task_reaches_its_gate(name: str, tmp_path: Path) -> None:
    task, (share, how, bar) = TASKS[name], GATES[name]
    result = run(parse_scenario(to_yaml(scenario(task, 0, share=share))), run_dir=tmp_path / "run", report=False)
    exact = task.score == "exploitability"
    score = result.nash_conv[-1] / 2 if exact else evaluated(task, tmp_path / "run")["score"]
    assert {">=": operator.ge, "<=": operator.le}[how](score, bar), f"{name} scored {score:.4g}; wanted {how} {bar:g}"
