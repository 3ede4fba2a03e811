"""Runs with diverse responses, and of efficient PSRO: on small games, after a kill, and with a weight of zero."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import run_tools as tools

from ludus.envs.registry import make_env
from ludus.runs.runner import resume
from ludus.storage.reader import Reader

COMMON = """
algorithm: {kind: ppo, batch: 32, epochs: 1, hidden: [4]}
response: {episodes: 96}
generations: 3
checkpoints: {iterations: 2}
"""
BEHAVIOURAL = "diversity={kind: behavioural, weight: 0.5}"
RESPONSE = "diversity={kind: response, weight: 2.0}"
GAMES = {
    "kuhn": "env: {id: openspiel/kuhn_poker, num_envs: 8}" + COMMON,
    "leduc": "env: {id: openspiel/leduc_poker, num_envs: 8}" + COMMON,
    "three": 'env: {id: "openspiel/kuhn_poker(players=3)", num_envs: 9}\nmeta_solver: uniform' + COMMON,
    "shared": 'env: {id: "openspiel/blotto(coins=4,fields=3)", num_envs: 8}' + COMMON,
    "rows": 'env: {id: openspiel/kuhn_poker, num_envs: 8, tree: "off"}\nevaluation: {episodes: 20}' + COMMON,
    "efficient": "scenario: efficient_psro\nenv: {id: openspiel/leduc_poker, num_envs: 8}\nlevels: 2" + COMMON,
    "anytime": "scenario: anytime_psro\nenv: {id: openspiel/kuhn_poker, num_envs: 8}" + COMMON,
}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "SCENARIOS", GAMES)


def returns_of(run_dir: Path) -> list[float]:
    with closing(sqlite3.connect(run_dir / "ludus.db")) as connection:
        found = connection.execute("SELECT value FROM metrics WHERE name LIKE '%return'").fetchall()
    return [float(value) for (value,) in found]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "how"),
    [
        ("three", RESPONSE),
        ("rows", RESPONSE),
        ("efficient", BEHAVIOURAL),
    ],
)
def test_other_policies_and_the_same_kind_of_returns(game: str, how: str, tmp_path: Path) -> None:
    """What is added to rewards shows nowhere; what is trained is another policy from the second generation on."""
    tools.train(game, tmp_path / "plain", "generations=2")
    tools.train(game, tmp_path / "diverse", "generations=2", how.replace("0.5", "50.0"))
    plain, diverse = (tools.policies_of(tmp_path / name) for name in ("plain", "diverse"))
    assert plain.keys() == diverse.keys()
    first = {name for name in plain if Path(name).stem.split("-")[1] in ("0", "1")}
    same = {name for name in plain if plain[name] == diverse[name]}
    assert first <= same < plain.keys()
    assert "behavioural" not in how or same == first
    lowest, highest = make_env(tools.scenario(game).env.id, num_envs=1).spec.utility_range[0]
    found = returns_of(tmp_path / "diverse")
    assert found
    assert all(lowest <= value <= highest for value in found)


def test_a_weight_of_zero_changes_nothing_to_the_bit(tmp_path: Path) -> None:
    tools.train("kuhn", tmp_path / "plain", "generations=2")
    tools.train("kuhn", tmp_path / "zero", "generations=2", RESPONSE.replace("2.0", "0.0"))
    tools.assert_same_run(tmp_path / "plain", tmp_path / "zero")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "how"),
    [("kuhn", BEHAVIOURAL), ("leduc", RESPONSE), pytest.param("efficient", BEHAVIOURAL, marks=pytest.mark.long)],
)
def test_killed_and_resumed(game: str, how: str, tmp_path: Path) -> None:
    tools.Whole(tmp_path, how).check_kills(game, tmp_path, kills=1)


def test_efficient_psro_plays_no_match(tmp_path: Path) -> None:
    tools.train("efficient", tmp_path / "run", "evaluation.payoffs=simulate")
    with closing(sqlite3.connect(tmp_path / "run" / "ludus.db")) as connection:
        assert connection.execute("SELECT COUNT(*) FROM matches").fetchone() == (0,)
    with Reader(tmp_path / "run") as reader:
        records = reader.generations()
    assert [len(record.marginals[0]) for record in records] == [1, 3, 5, 7]
    assert all(record.nash_conv is not None for record in records)


def test_a_run_goes_on_with_other_levels_and_diversity(tmp_path: Path) -> None:
    tools.train("efficient", tmp_path / "run", "generations=1")
    resume(tmp_path / "run", ["generations=2", "levels=1", BEHAVIOURAL], report=False)
    with Reader(tmp_path / "run") as reader:
        assert [len(record.marginals[0]) for record in reader.generations()] == [1, 3, 4]
