"""OpenSpiel games that a module of the user's registers: by one name in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyspiel
import pytest

import ludus
from ludus.core.errors import ConfigError, UnknownName
from ludus.envs.tree import game_tree, walk
from ludus.runs.scenario_files import load_scenario, parse_scenario

_HERE = str(Path(__file__).parent)
_ID = "openspiel/spiel_pennies:python_pennies_for"
_ELSEWHERE = """
import json, sys
import ludus
run, id = sys.argv[1:]
game = ludus.evaluate_run(run).exploitability.nash_conv
env = ludus.make_env(id, num_envs=2, tree="off")
print(json.dumps([game, env.spec.id]))
"""


def _elsewhere(*arguments: str) -> list[object]:
    """The answer of a process that has imported nothing."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([_HERE, *sys.path])}
    command = [sys.executable, "-c", _ELSEWHERE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    answer: list[object] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.slow
def test_a_run_of_a_registered_game_is_found_by_other_processes(tmp_path: Path) -> None:
    """The script has imported it, and says the bare name."""
    import spiel_pennies  # noqa: F401

    scenario = ludus.PSRO(env="openspiel/python_pennies_for(stake=3)", algorithm="exact", generations=3)
    assert scenario.env.id == "openspiel/spiel_pennies:python_pennies_for(stake=3)"
    result = ludus.run(scenario, run_dir=tmp_path / "run")
    assert result.nash_conv[0] == pytest.approx(0.0, abs=1e-12)  # at random, both play their equilibrium
    nash_conv, spec = _elsewhere(str(tmp_path / "run"), scenario.env.id)
    assert nash_conv == pytest.approx(result.nash_conv[-1], abs=1e-9)
    assert spec == scenario.env.id


def test_a_game_object_is_kept_by_name_and_parameters() -> None:
    import spiel_pennies  # noqa: F401

    game = pyspiel.load_game("python_pennies_for", {"stake": 2})
    assert ludus.Environment.of(game)["source"] is game
    assert ludus.PSRO(env=game).env.id == "openspiel/spiel_pennies:python_pennies_for(stake=2)"
    assert ludus.PSRO(env=pyspiel.load_game("kuhn_poker")).env.id == "openspiel/kuhn_poker"
    memory = pyspiel.create_matrix_game([[1.0, 2.0]], [[3.0, 4.0]])
    with pytest.raises(ConfigError, match=r"name and parameters do not make again.*nfg_game\(filename=…\)"):
        ludus.PSRO(env=memory)


def test_import_in_a_scenario_is_the_module_in_the_id() -> None:
    text = "{scenario: psro, import: spiel_pennies, env: openspiel/python_pennies_for, algorithm: exact}"
    scenario = parse_scenario(text)
    assert scenario.env.id == _ID
    assert parse_scenario(scenario.to_yaml()) == scenario
    changes = ["import=spiel_pennies", "algorithm=exact"]
    assert load_scenario("openspiel/python_pennies_for", changes).env.id == _ID
    with pytest.raises(ConfigError, match="import: 'spiel_pennies' was given with the environment 'ale/pong'"):
        parse_scenario("{import: spiel_pennies, env: ale/pong}")
    with pytest.raises(ConfigError, match=r"import: 'print\(1\)' was given; the name of a module"):
        parse_scenario("{import: print(1), env: openspiel/kuhn_poker}")


@pytest.mark.slow
def test_subprocesses_import_it() -> None:
    env = ludus.make_env(_ID, num_envs=2, tree="off", workers=1)
    try:
        step = env.reset(np.arange(2, dtype=np.uint64), episodes=1)
        assert [len(due.slot) for due in step.due] == [2, 2]
        assert env.spec.id == f"{_ID}(stake=1)"
    finally:
        env.close()


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("openspiel/python_nobodys", r"A game of your own is named openspiel/my_module:python_nobodys"),
        ("openspiel/spiel_pennies:python_pennies", "did you mean 'python_pennies_for'.* 'spiel_pennies' registers no"),
    ],
)
def test_an_unknown_name(id: str, words: str) -> None:
    with pytest.raises(UnknownName, match=words):
        ludus.make_env(id, num_envs=1)


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"openspiel/spiel_penies:… could not be imported: .*'spiel_pennies'"):
        ludus.make_env("openspiel/spiel_penies:python_pennies_for", num_envs=1)


def test_that_a_game_is_too_large_is_found_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    walks: list[int] = []

    def counted(game: object, *, node_limit: int, observation: str) -> walk.EnumeratedGame:
        walks.append(node_limit)
        return walk.enumerate_game(game, node_limit=node_limit, observation=observation)

    monkeypatch.setattr(game_tree, "enumerate_game", counted)
    for _ in range(2):
        ludus.make_env("openspiel/leduc_poker", num_envs=1, node_limit=9000).close()  # it has 9,457
    assert walks == [9000]


def test_a_long_compilation_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(walk, "_QUIET", -1e9)
    walk.enumerate_game(pyspiel.load_game("leduc_poker"), node_limit=100_000, observation="auto")
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("compiling the tree of leduc_poker: 0 nodes after 0 s (at most 100,000)")
