"""The examples run, with smaller numbers than they have."""

from __future__ import annotations

import importlib
import runpy
from pathlib import Path
from typing import Any

import pages
import pytest

pytestmark = pytest.mark.usefixtures("examples")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs go below the present directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_example_is_tested() -> None:
    tested = {"quickstart", "own_environment", "own_meta_solver", "own_stopper", "own_algorithm"}
    assert {path.stem for path in pages.EXAMPLES.glob("*.py")} == tested


def test_quickstart_is_the_readme_and_runs(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = (pages.EXAMPLES / "quickstart.py").read_text(encoding="utf-8")
    (block,) = pages.blocks(pages.ROOT / "README.md", "python")
    assert source.partition('"""\n\n')[2] == block
    runpy.run_path(str(pages.EXAMPLES / "quickstart.py"))
    assert len(list(elsewhere.glob("runs/leduc_poker-*/report.html"))) == 1
    assert "NashConv per generation: (4.747" in capsys.readouterr().out


def test_own_environment_learns(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module("own_environment").main(generations=1, episodes=3000)
    line = capsys.readouterr().out.split()
    assert line[:3] == ["0-1", "against", "0-0:"]
    assert float(line[3]) > 0.3, "a response to the random policy wins against it"


def test_own_environment_refuses_too_many_stones() -> None:
    import numpy as np

    from ludus import seeding
    from ludus.errors import EnvError

    env = importlib.import_module("own_environment").Nim(num_envs=64, heap=2)  # one or two stones
    timestep = env.reset(seeding.keys(0, "nim", count=64))
    actions = [np.zeros(len(due.slot), np.int32) for due in timestep.due]
    actions[0][0] = 2
    with pytest.raises(EnvError, match="3 stones cannot be taken"):
        env.step(tuple(actions))


@pytest.mark.parametrize(
    ("example", "arguments", "says"),
    [
        ("own_meta_solver", {"generations": 2}, "NashConv: [0.917, 0.625, 0.417]"),
        ("own_stopper", {}, "NashConv fell from 0.9167 to 0.0"),
        ("own_algorithm", {"generations": 1, "episodes": 5000}, "NashConv: [0.917, 0.667]"),
    ],
)
def test_own_part(example: str, arguments: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module(example).main(**arguments)
    assert capsys.readouterr().out.startswith(says)
