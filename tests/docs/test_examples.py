"""The examples run, with smaller numbers than they have."""

from __future__ import annotations

import importlib
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pages
import pytest

pytestmark = pytest.mark.usefixtures("examples")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs go below the present directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_example_is_tested() -> None:
    own = {"environment", "meta_solver", "stopper", "algorithm", "callbacks", "loss", "network", "policy", "scheduler"}
    elsewhere = {"bit_flip", "own_processing", "tianshou_network"}  # tests/training
    tested = {"quickstart", "a2c", "odd_stakes", *elsewhere} | {f"own_{part}" for part in own}
    assert {path.stem for path in pages.EXAMPLES.glob("*.py")} == tested


def test_quickstart_is_the_readme_and_runs(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = (pages.EXAMPLES / "quickstart.py").read_text(encoding="utf-8")
    (block,) = pages.blocks(pages.ROOT / "README.md", "python")
    assert source.partition('"""\n\n')[2] == block
    runpy.run_path(str(pages.EXAMPLES / "quickstart.py"))
    assert len(list(elsewhere.glob("runs/leduc_poker-*/report.html"))) == 1
    assert "NashConv per generation: (4.747" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("page", "example"), [("own-game", "odd_stakes"), ("own-algorithm", "a2c"), ("own-algorithm", "own_loss")]
)
def test_pages_of_the_start_show_the_examples(page: str, example: str) -> None:
    source = (pages.EXAMPLES / f"{example}.py").read_text(encoding="utf-8")
    assert source.partition('"""\n\n')[2] in pages.blocks(pages.ROOT / "docs" / "start" / f"{page}.md", "python")


def test_own_meta_solver_is_on_its_page() -> None:
    source = (pages.EXAMPLES / "own_meta_solver.py").read_text(encoding="utf-8")
    solver = source[source.index("@dataclass") : source.index("\n\n\ndef main")]
    blocks = pages.blocks(pages.ROOT / "docs" / "guides" / "own-meta-solver.md", "python")
    assert any(solver in block for block in blocks)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*has stopped to change:ludus.RunWarning")
def test_odd_stakes_are_mixed_as_its_page_says() -> None:
    import ludus

    scenario = ludus.PSRO(
        env=ludus.Environment(id="odd_stakes:OddStakes", num_envs=64, options={"zero_sum": True}),
        algorithm=ludus.PPO(batch=250),
        generations=6,
        response={"episodes": 2_500},
    )
    mixture = ludus.load_policy(ludus.run(scenario, report=False).run_dir, seed=0)
    counts = np.bincount([int(mixture.predict([0.0])[0]) for _ in range(2_000)], minlength=3)
    assert np.abs(counts / 2_000 - [3 / 6, 1 / 6, 2 / 6]).max() < 0.05


def test_own_environment_learns(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module("own_environment").main(generations=1, episodes=3000)
    line = capsys.readouterr().out.split()
    assert line[:3] == ["@newest", "against", "@0/0-0:"]
    assert float(line[3]) > 0.3, "a response to the random policy wins against it"


def test_own_environment_refuses_too_many_stones() -> None:
    from ludus.core import seeding
    from ludus.core.errors import EnvError

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
        ("own_scheduler", {"generations": 2}, "NashConv: [0.917, 0.625, 0.417]"),
        ("own_algorithm", {"generations": 1, "episodes": 5000}, "NashConv: [0.917, 0.667]"),
    ],
)
def test_own_part(example: str, arguments: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module(example).main(**arguments)
    assert capsys.readouterr().out.startswith(says)


@pytest.mark.parametrize(
    "kind",
    [{"kind": "own_loss:PenalisedPPO"}, {"kind": "own_policy:TremblingA2C"}, {"network": "own_network:Residual"}],
)
def test_own_parts_keep_the_contract_of_algorithms(kind: dict[str, Any]) -> None:
    from ludus.algorithms.common.registry import ALGORITHMS
    from ludus.core.parts import build_part
    from ludus.envs.tree.game_tree import compile_tree
    from ludus.testing.algorithm import check_algorithm

    algorithm = build_part("algorithm", {"kind": "ppo", **kind, "batch": 20}, ALGORITHMS)
    check_algorithm(algorithm, compile_tree("kuhn_poker").spec)


def test_own_callbacks(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ludus.cli.main import main

    callbacks = "callbacks=[own_callbacks:EpisodesToCsv, own_callbacks:WinRates]"
    changes = ["algorithm={kind: ppo, batch: 100, hidden: [8]}", "response={episodes: 200}", "generations=1"]
    assert main(["train", "kuhn", *changes, callbacks, "--run-dir", "run"]) == 0
    rows = (elsewhere / "run" / "episodes.csv").read_text().splitlines()
    assert len(rows) == 400
    assert all(row.split(",")[2] in ("2", "3") and row.split(",")[3] in ("-2", "-1", "1", "2") for row in rows)
    won = sum(float(row.split(",")[3]) > 0 for row in rows[:200]) / 200
    line = capsys.readouterr().out.splitlines()[0]
    assert line == f"generation 1: 0-1 has won {won:.0%} of 200 training episodes"


def test_a_policy_and_critic_of_ones_own_take_thirty_lines(elsewhere: Path) -> None:
    """That it keeps the contract: docs/guides/check.md."""
    import ludus

    assert len((pages.EXAMPLES / "a2c.py").read_text(encoding="utf-8").splitlines()) <= 30
    algorithm = {"kind": "a2c:A2C", "batch": 250, "hidden": 16, "learning_rate": 0.02}
    scenario = ludus.PSRO(env="openspiel/kuhn_poker", algorithm=algorithm, generations=1, response={"episodes": 10_000})
    result = ludus.run(scenario, report=False)
    responses = result.generations[-1].responses
    assert min(np.subtract(responses, (0.5, 5 / 12))) > -0.05, "nearly best responses to uniform play"
    assert result.policy(0).spec.config["maker"] == "a2c:A2C"
    again = ludus.evaluate_run(result.run_dir, episodes=100)  # rebuilt from the run directory
    assert again.exploitability is not None
    assert again.exploitability.nash_conv == result.nash_conv[-1]
