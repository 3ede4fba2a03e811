"""Checkpoints that somebody asks for change no number of a run, and a run goes on from them as from any other."""

from __future__ import annotations

from pathlib import Path

import pytest
import run_tools as tools

from ludus.apps.common import control_requests
from ludus.core.types import Metrics, Task, TaskResult
from ludus.runs import control
from ludus.runs.control import read_status
from ludus.runs.runner import run
from ludus.storage.base import NullObserver

NAMES = ("adaptive", "by_player", "exact", "self_play")


class Asking(NullObserver):
    """Asks for one whenever anything happens."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    def _ask(self) -> None:
        status = read_status(self.run_dir)
        assert status is not None
        control_requests.write_request(self.run_dir, control_requests.checkpoint_now(status).change)

    def task_started(self, task: Task) -> None:
        self._ask()

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
        self._ask()

    def task_done(self, result: TaskResult) -> None:
        self._ask()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tools.Whole:
    return tools.Whole(tmp_path_factory.mktemp("whole"))


def train(name: str, run_dir: Path) -> None:
    run(tools.scenario(name), run_dir=run_dir, observer=Asking(run_dir), report=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] * (n in ("by_player", "exact"))) for n in NAMES]
)
def test_a_run_is_the_same_whenever_checkpoints_are_taken(
    name: str, whole: tools.Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "LOOK", 0.0)
    run_dir = tmp_path / name
    changes = tools.dies(lambda: train(name, run_dir), run_dir, at=-1)
    assert changes is not None
    tools.assert_same_run(whole[name], run_dir)
    assert tools.barriers_of(run_dir) > tools.barriers_of(whole[name])
    for third in (1, 2):
        cut = tmp_path / f"{name}-{third}"
        assert tools.dies(lambda cut=cut: train(name, cut), cut, at=third * changes // 3) is None
        tools.goes_on(cut, name)
        tools.assert_same_run(whole[name], cut)
