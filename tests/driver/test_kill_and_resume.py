"""Killed at any change to its directory, a run goes on and ends equal to the bit to one that nobody touched (invariant 13)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import run_tools as tools

from ludus.core.errors import RunError
from ludus.driver.runner import resume

POINTS = 3
MANY = 30
"""Kills of a run, in the slow tests, that does at its changes what those that are killed at each do, too."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Uninterrupted runs, made when they are first wanted."""
    folder = tmp_path_factory.mktemp("whole")
    return _Whole(folder)


class _Whole(dict[str, Path]):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> Path:
        self[name] = self.folder / name
        tools.train(name, self[name])
        return self[name]


def changes(name: str, folder: Path) -> int:
    """How often an uninterrupted run changes its directory; it does so in every process alike."""
    count = tools.dies(lambda: tools.train(name, folder / "count"), folder / "count", at=-1)
    assert count is not None
    return count


@pytest.mark.parametrize("name", ["ppo", "shared"])
def test_the_same_scenario_twice_is_the_same_run(name: str, whole: dict[str, Path], tmp_path: Path) -> None:
    tools.train(name, tmp_path / "again")
    tools.assert_same_run(whole[name], tmp_path / "again")


@pytest.mark.parametrize("name", ["adaptive", "dqn", "general", "own_past", "self_play", "tabular_q"])
def test_killed_at_a_change_and_resumed(name: str, whole: dict[str, Path], tmp_path: Path) -> None:
    """The other scenarios: below, and in the slow tests."""
    last = changes(name, tmp_path)
    for at in np.linspace(2, last, POINTS).astype(int).tolist():
        run_dir = tmp_path / str(at)
        assert tools.dies(lambda d=run_dir: tools.train(name, d), run_dir, at=at) is None
        tools.goes_on(run_dir, name)
        tools.assert_same_run(whole[name], run_dir)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(tools.SCENARIOS))
def test_killed_at_every_change_and_resumed(name: str, whole: dict[str, Path], tmp_path: Path) -> None:
    last = changes(name, tmp_path)
    stride = 1 if name in ("exact", "ppo") else -(-last // MANY)
    for at in range(1, last + 1, stride):
        run_dir = tmp_path / str(at)
        assert tools.dies(lambda d=run_dir: tools.train(name, d), run_dir, at=at) is None
        tools.goes_on(run_dir, name)
        tools.assert_same_run(whole[name], run_dir)


@pytest.mark.parametrize("name", ["exact", "ppo", "simulate"])
def test_killed_again_and_again_while_it_resumes(name: str, whole: dict[str, Path], tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    assert tools.dies(lambda: tools.train(name, run_dir), run_dir, at=20) is None
    for at in range(1, 200):
        if tools.dies(lambda: resume(run_dir, report=False), run_dir, at=2 + 3 * at) is not None:
            break
    assert at > 3
    tools.assert_same_run(whole[name], run_dir)


def test_a_run_that_died_before_it_began_is_started_again(whole: dict[str, Path], tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    for at in (1, 2):
        assert tools.dies(lambda: tools.train("exact", run_dir), run_dir, at=at) is None
        with pytest.raises(RunError, match=r"is not a run|died before it began"):
            resume(run_dir)
    tools.train("exact", run_dir)
    tools.assert_same_run(whole["exact"], run_dir)


ROUNDING = """
env: {env}
algorithm: exact
meta_solver: {solver}
generations: {generations}
checkpoints: {{generations: 2, keep: 1}}
"""


@pytest.mark.parametrize(
    ("env", "solver", "generations"),
    [
        ("openspiel/leduc_poker", "{kind: nash, slack: 0.5}", 12),
        ("openspiel/kuhn_poker(players=3)", "fictitious_play", 5),
        (
            "openspiel/goofspiel(imp_info=True,num_cards=3,points_order=descending)",
            "{kind: projected_replicator_dynamics, iterations: 2000}",
            5,
        ),
    ],
    ids=["leduc", "kuhn-3p", "goofspiel"],
)
def test_exact_payoffs_are_computed_in_the_same_pieces(
    env: str, solver: str, generations: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding depends on what is computed together; a resumed run must not fill its table in larger pieces."""
    text = ROUNDING.format(env=env, solver=solver, generations=generations)
    monkeypatch.setitem(tools.SCENARIOS, "rounding", text)
    tools.train("rounding", tmp_path / "whole")
    last = changes("rounding", tmp_path)
    for at in (last // 2, last - 3):
        run_dir = tmp_path / str(at)
        assert tools.dies(lambda d=run_dir: tools.train("rounding", d), run_dir, at=at) is None
        tools.goes_on(run_dir, "rounding")
        tools.assert_same_run(tmp_path / "whole", run_dir)
