"""Runs whose payoffs come from adaptive evaluation: what is played, how much of it, and that it can be changed on the way."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import run_tools as tools

from ludus.core.errors import ConfigError
from ludus.runs.runner import resume, run
from ludus.runs.scenario import Evaluation
from ludus.storage.reader import Reader


def test_adaptive_run_plays_the_planned_matches(tmp_path: Path) -> None:
    """Each match of a profile is its next block, and the budget of a generation holds but for the first look at new policies."""
    tools.train("adaptive", tmp_path)
    with Reader(tmp_path) as reader:
        matches, tasks = reader.matches(), reader.tasks()
        payoffs, records = reader.payoffs(), reader.generations()
    blocks: dict[tuple[int, ...], list[int]] = {}
    for stored in matches:
        name, number = stored.match.id.rsplit("-", 1)
        assert name == "match-" + "-".join(map(str, stored.match.profile))
        blocks.setdefault(stored.match.profile, []).append(int(number))
    assert all(numbers == list(range(len(numbers))) for numbers in blocks.values())
    assert max(map(len, blocks.values())) > 1
    assert all(stored.match.n % 10 == 0 for stored in matches)
    played = Counter[int]()
    for stored in matches:
        played[stored.generation] += stored.match.n
    assert played[0] == 10, "one policy each: nobody has a choice"
    assert all(played[g] <= 100 for g in (1, 2, 3))
    steps = [task.id for task in tasks if task.id.startswith("payoffs-4x4")]
    assert len(steps) > 2
    assert payoffs.sizes == (4, 4)
    assert not np.isnan([record.values for record in records]).any()


def test_players_who_share_a_population_play_whole_blocks(tmp_path: Path) -> None:
    adaptive = "{budget: 40, portion: 4, batch: 16, start: 2}"
    options = ["meta_solver=nash", f"evaluation={{payoffs: simulate, adaptive: {adaptive}}}"]
    run(tools.scenario("shared", *options), run_dir=tmp_path, report=False)
    with Reader(tmp_path) as reader:
        payoffs, matches = reader.payoffs(), {stored.match.id: stored.match for stored in reader.matches()}
    assert (payoffs.count == payoffs.count.T).all()
    assert payoffs.count.max() > 8
    for found in matches.values():
        i, j = found.profile
        assert matches[f"match-{j}-{i}-{found.id.rsplit('-', 1)[1]}"].n == found.n


def test_the_ranking_compares_everybody(tmp_path: Path) -> None:
    """With a confidence that is never reached, the 40 blocks of a generation go to the pairs that have fewest: one, two, three new ones."""
    adaptive = "{goal: ranking, confidence: 0.999999999, budget: 40, portion: 4, batch: 8, start: 1}"
    options = ["meta_solver=uniform", f"evaluation={{payoffs: simulate, adaptive: {adaptive}}}"]
    run(tools.scenario("shared", *options), run_dir=tmp_path, report=False)
    with Reader(tmp_path) as reader:
        count = reader.payoffs().count
    assert (count == count.T).all()
    assert (np.diag(count) == 0).all(), "nobody is compared with itself"
    assert [count[0, 1], *count[:2, 2]] == [40, 20, 20]
    assert sorted(count[:3, 3]) == [12, 12, 16]


def test_with_exact_payoffs_it_has_no_effect(tmp_path: Path) -> None:
    for name, options in (("with", ["evaluation.adaptive={budget: 200}"]), ("without", [])):
        run(tools.scenario("exact", *options), run_dir=tmp_path / name, report=False)
    rows = [tools.rows_of(tmp_path / name) for name in ("with", "without")]
    for table in ("generations", "policies", "payoffs", "matches"):
        assert rows[0][table] == rows[1][table], table


def test_it_may_begin_and_end_on_the_way(tmp_path: Path) -> None:
    tools.train("simulate", tmp_path, "generations=1")
    resume(tmp_path, ["generations=2", "evaluation.adaptive={budget: 100, portion: 10, start: 1}"], report=False)
    resume(tmp_path, ["generations=3", "evaluation.adaptive=null"], report=False)
    with Reader(tmp_path) as reader:
        payoffs = reader.payoffs()
        assert len(reader.generations()) == 4
    assert (payoffs.count > 0).all()
    assert payoffs.count[:2, :2].min() >= 50
    assert (payoffs.count[3] == 50).all()


def test_options_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="exact payoffs need no matches"):
        Evaluation(payoffs="exact", adaptive={})
    with pytest.raises(ConfigError, match="a budget of 50 is less than one portion of 100"):
        Evaluation(adaptive={"budget": 50})
    with pytest.raises(ConfigError, match="confidence"):
        Evaluation(adaptive={"confidence": 1.0})
    with pytest.raises(ConfigError, match=r"tolerance=0\.1 is a NashConv, and goal=ranking asks for none"):
        Evaluation(adaptive={"goal": "ranking", "tolerance": 0.1})
    with pytest.raises(ConfigError, match="goal"):
        Evaluation(adaptive={"goal": "elo"})
    with pytest.raises(ConfigError, match="adaptive: unknown key 'budgt'; did you mean 'budget'"):
        Evaluation(adaptive={"budgt": 50})
