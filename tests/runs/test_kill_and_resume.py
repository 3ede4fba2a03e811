"""Killed at any change to its directory, a run goes on and ends equal to the bit to one that nobody touched (invariant 13)."""

from __future__ import annotations

from pathlib import Path

import pytest
import run_tools as tools

from ludus.core.errors import RunError
from ludus.runs.runner import resume


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tools.Whole:
    return tools.Whole(tmp_path_factory.mktemp("whole"))


def test_the_same_scenario_twice_is_the_same_run(whole: tools.Whole, tmp_path: Path) -> None:
    tools.train("shared", tmp_path / "again")
    tools.assert_same_run(whole["shared"], tmp_path / "again")


@pytest.mark.slow
def test_killed_at_a_change_and_resumed(whole: tools.Whole, tmp_path: Path) -> None:
    """With learners that go on, replay, and payoffs that are played. The other scenarios: below, and in the slow tests."""
    whole.check_kills("own_past", tmp_path, kills=1)


@pytest.mark.slow
def test_killed_in_every_way_and_resumed(whole: tools.Whole, tmp_path: Path) -> None:
    """The other scenarios do at their changes what this one does."""
    for at in whole.ways("ppo"):
        whole.check_a_kill("ppo", at, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(tools.SCENARIOS.keys() - {"ppo", "own_past"}))
def test_others_killed_and_resumed(name: str, whole: tools.Whole, tmp_path: Path) -> None:
    whole.check_kills(name, tmp_path)


def test_every_way_is_a_change_after_another() -> None:
    """A file, its name and a commit, three times: all but what is between the first and the last."""
    assert tools.ways(["mkdir", *("open", "rename", "commit") * 3]) == [1, 2, 3, 4, 5, 8, 9, 10]


@pytest.mark.slow
def test_killed_again_and_again_while_it_resumes(whole: tools.Whole, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    assert tools.dies(lambda: tools.train("ppo", run_dir), run_dir, at=20) is None
    for at in range(1, 200):
        if tools.dies(lambda: resume(run_dir, report=False), run_dir, at=4 + 7 * at) is not None:
            break
    assert at > 3
    tools.assert_same_run(whole["ppo"], run_dir)


def test_a_run_that_died_before_it_began_is_started_again(whole: tools.Whole, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    for at in (1, 2):
        assert tools.dies(lambda: tools.train("exact", run_dir), run_dir, at=at) is None
        with pytest.raises(RunError, match=r"there is no run|is not a run|died before it began"):
            resume(run_dir)
    tools.train("exact", run_dir)
    tools.assert_same_run(whole["exact"], run_dir)


def test_exact_payoffs_are_computed_in_the_same_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding depends on what is computed together; a resumed run must not fill its table in larger pieces."""
    text = """
env: openspiel/kuhn_poker(players=3)
algorithm: exact
meta_solver: {kind: fictitious_play, iterations: 50}
generations: 4
checkpoints: {generations: 2, keep: 1}
"""
    monkeypatch.setitem(tools.SCENARIOS, "rounding", text)
    whole = tools.Whole(tmp_path)
    whole.check_a_kill("rounding", whole.changes("rounding") // 2, tmp_path)
