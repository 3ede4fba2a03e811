"""TensorBoard of a run that is killed (SIGKILL) and resumed: read back by its own accumulators, it is that of a run that nobody touched."""

from __future__ import annotations

from pathlib import Path

import pytest
import run_tools as tools
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

from ludus.reporting import tensorboard
from ludus.runs.runner import resume

ON_A_CLOCK = ("seconds", "steps_per_second")


@pytest.fixture(autouse=True)
def every_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points follow the clock, and here come with each iteration; forked runs inherit this."""
    monkeypatch.setattr(tensorboard, "_EVERY", 0.0)


def points(run_dir: Path) -> dict[tuple[str, str], list[tuple[int, str]]]:
    """(folder, tag) -> (step, value as text, for NaN too), without those that say how long something took."""
    multiplexer = EventMultiplexer(size_guidance={"scalars": 0, "tensors": 0})
    multiplexer.AddRunsFromDirectory(str(run_dir / "tensorboard"))
    multiplexer.Reload()
    return {
        (folder, tag): [(event.step, repr(event.value)) for event in multiplexer.Scalars(folder, tag)]
        for folder, content in multiplexer.Runs().items()
        for tag in content["scalars"]
        if tag.rpartition("/")[2] not in ON_A_CLOCK
    }


def assert_killed_and_resumed_is_the_same(name: str, folder: Path, *shares: float, again: bool = True) -> None:
    """shares: of the changes that an undisturbed run makes to its folder: where each kill is. again: whether it is also killed while it
    resumes."""
    whole = folder / "whole"
    changes = tools.dies(lambda: tools.train(name, whole), whole, at=-1)
    assert changes is not None
    expected = points(whole)
    assert {folder for folder, _ in expected} >= {"generations"}
    for series in expected.values():
        steps = [step for step, _ in series]
        assert steps == sorted(set(steps))
    for share in shares:
        killed = folder / f"killed-{share}"
        assert tools.dies(lambda run=killed: tools.train(name, run), killed, at=round(share * changes)) is None
        if again:
            assert tools.dies(lambda run=killed: resume(run, report=False), killed, at=12) is None
        resume(killed, report=False)
        assert points(killed) == expected


def test_killed_exact_run_has_each_generation_once(tmp_path: Path) -> None:
    assert_killed_and_resumed_is_the_same("exact", tmp_path, 0.6, again=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "tabular_q"])
def test_killed_learners_have_each_step_once(name: str, tmp_path: Path) -> None:
    """With barriers inside of tasks (ppo), and with whole generations that are played again (tabular_q)."""
    assert_killed_and_resumed_is_the_same(name, tmp_path, 0.4, 0.6, 0.8)
