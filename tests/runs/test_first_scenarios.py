"""Scenarios for environments of which only the id is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.cli.main import main
from ludus.runs.scenario_files import load_scenario


@pytest.mark.parametrize(
    ("id", "overrides", "kind", "expected"),
    [
        ("gymnasium/CartPole-v1", [], "fixed_opponents", {"algorithm.batch_unit": "decisions", "env.num_envs": 8}),
        ("gymnasium/CartPole-v1", ["algorithm.batch=64"], "fixed_opponents", {"algorithm.batch": 64, "algorithm.gamma": 0.99}),
        ("gymnasium/CartPole-v1", ["algorithm=dqn"], "fixed_opponents", {"algorithm.hidden": (256, 256), "env.num_envs": 1}),
        ("gymnasium/CartPole-v1", ["algorithm=dqn", "algorithm.capacity=5000"], "fixed_opponents",
         {"algorithm.hidden": (256, 256), "algorithm.gamma": 0.99, "algorithm.capacity": 5000}),
        ("gymnasium/CartPole-v1", ["algorithm={kind: dqn, capacity: 5000}"], "fixed_opponents",
         {"algorithm.gamma": 0.99, "algorithm.capacity": 5000}),
        ("gymnasium/Pendulum-v1", ["algorithm=sac"], "fixed_opponents", {"algorithm.gamma": 0.99, "mode": "greedy"}),
        ("openspiel/kuhn_poker", ["algorithm=exact"], "psro", {"meta_solver.tolerance": 1e-9, "stop.at_most": 1e-6}),
        ("openspiel/kuhn_poker", [], "psro", {"algorithm.batch": 750, "env.tree": "auto", "stop": None}),
        ("openspiel/kuhn_poker", ["algorithm=r2d2"], "psro", {"env.tree": "off"}),
        ("openspiel/kuhn_poker", ["scenario=self_play"], "self_play", {"response.value": 20_000}),
        ("openspiel/kuhn_poker(players=3)", [], "psro", {"generations": 20}),
        ("ludus.testing.fakes:Cue", [], "fixed_opponents", {"algorithm.batch": 2048}),
    ],
)  # fmt: skip
def test_first_scenario_for_an_environment_id(
    id: str, overrides: list[str], kind: str, expected: dict[str, Any]
) -> None:
    scenario = load_scenario(id, overrides)
    assert (scenario.kind, scenario.env.id) == (kind, id)
    for path, value in expected.items():
        found: Any = scenario
        for part in path.split("."):
            found = getattr(found, part)
        assert found == value, path
    assert load_scenario(id, overrides, algorithm=ludus.TabularQ(batch=7)).algorithm.batch == 7


def test_one_is_trained_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["train", "openspiel/kuhn_poker", "--algorithm", "exact", "generations=2", "--name", "try"]
    assert main(line) == 0
    assert "run try: psro on openspiel/kuhn_poker, ExactBestResponse, seed 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["CartPole-v1"], "unknown preset 'CartPole-v1'; did you mean 'gymnasium/CartPole-v1' or 'cartpole' or "),
        (["kuhn_poker"], "did you mean 'openspiel/kuhn_poker'?"),
        (["gymnasium/CartPol-v1"], "unknown Gymnasium environment 'CartPol-v1'; did you mean 'CartPole-v1'"),
        (["gymnasum/CartPole-v1"], "cannot be read: No such file or directory. .* Or is 'gymnasium/CartPole-v1' meant"),
        (["openspiel/khun_poker"], "unknown OpenSpiel game 'khun_poker'; did you mean 'kuhn_poker'"),
        (["nobody:Env"], "environment 'nobody:Env' could not be imported"),
        (["gymnasium/CartPole-v1", "--algorithm", "exact"], "the exact oracle needs a game that is compiled to a tree"),
        (["gymnasium/CartPole-v1", "--algorithm", "pppo"], "unknown algorithm 'pppo'; did you mean 'ppo'"),
    ],
)  # fmt: skip
def test_mistakes(line: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ludus.LudusError, match=words):
        ludus.run(line[0], [f"algorithm={name}" for name in line[2:]])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("learning_rate=3", "'algorithm.learning_rate'"),
        ("episodes=5", "'response.episodes'"),
        ("num_envs=5", "'env.num_envs'"),
    ],
)
def test_a_key_of_a_part_is_named_with_its_part(given: str, meant: str) -> None:
    with pytest.raises(ludus.LudusError, match=f"unknown key '.*'; did you mean {meant}"):
        ludus.load_scenario("leduc", [given])
