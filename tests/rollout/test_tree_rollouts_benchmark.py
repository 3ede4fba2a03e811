"""The rollout benchmark's workers run and say their figures."""

from __future__ import annotations

import json

import pytest

from benchmarks import tree_rollouts


@pytest.mark.parametrize("kind", tree_rollouts.KINDS)
def test_worker(kind, capsys):
    assert tree_rollouts._work(["--worker", kind, "--environments", "32", "--orders", "1", "--seed", "1"]) == 0
    figures = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert figures[-1]["kind"] == "figures"
    assert figures[-1][tree_rollouts.PER_CORE] > 0


def test_bars_name_measured_contestants():
    names = {contestant.name for contestant in tree_rollouts.BENCHMARK.contestants}
    assert {bar.name for bar in tree_rollouts.BENCHMARK.bars} <= names == set(tree_rollouts.KINDS)
