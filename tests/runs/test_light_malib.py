"""Experiment files of Light-MALib become scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ludus.contrib.malib import main, read_expr
from ludus.core.errors import ConfigError
from ludus.runs.scenario_files import read_scenario

FILES = Path(__file__).parent / "light_malib"


def changed(name: str, folder: Path, path: str, value: Any) -> Path:
    """A file with another value at a.b.c."""
    data = yaml.safe_load((FILES / f"{name}.yaml").read_text(encoding="utf-8"))
    *parents, last = path.split(".")
    inner = data
    for key in parents:
        inner = inner[int(key)] if key.isdigit() else inner[key]
    inner[last] = value
    (folder / "expr.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    return folder / "expr.yaml"


@pytest.mark.parametrize("name", sorted(path.stem for path in FILES.glob("*.yaml")))
def test_imported_file_is_a_scenario(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(FILES / f"{name}.yaml")]) == 0
    (tmp_path / "my.yaml").write_text(capsys.readouterr().out, encoding="utf-8")
    scenario = read_scenario(tmp_path / "my.yaml")
    assert scenario.seed == (3 if name == "football_academy" else 0)


def test_team_against_the_engine() -> None:
    imported = read_expr(FILES / "football_academy.yaml")
    options = imported.options
    assert options["scenario"] == "fixed_opponents"
    assert options["name"] == "pass_and_shoot_happo"
    assert options["env"] == {
        "id": "football/academy_pass_and_shoot_with_keeper",
        "num_envs": 80,
        "options": {"sides": "left", "agents": 2, "duration": 400, "rewards": {"score": 1.0, "checkpoints": 0.1}},
    }
    algorithm = options["algorithm"]
    assert algorithm["kind"] == "happo"
    assert (algorithm["batch"], algorithm["batch_unit"]) == (80, "episodes")
    assert (algorithm["epochs"], algorithm["minibatches"], algorithm["gamma"]) == (10, 2, 0.995)
    assert algorithm["hidden"] == [256, 128]
    assert options["response"] == {"episodes": 700 * 80}, "a win rate above 1 is never reached"
    assert any("critic_lr" in note for note in imported.notes)


def test_sequential_league() -> None:
    imported = read_expr(FILES / "football_league.yaml")
    options = imported.options
    assert (options["scenario"], options["responses"]) == ("psro", "sequential_league")
    assert options["env"]["options"]["sides"] == "both"
    assert options["env"]["options"]["rewards"] == {"score": 5.0, "yellow_card": 5.0}
    assert options["algorithm"]["kind"] == "ppo", "no central critic"
    assert options["algorithm"]["batch"] == 256 * 1000 * 10, "decisions of single agents"
    assert options["response"] == {"episodes": 100_000, "win_rate": 0.9}
    assert options["warm_start"] == [{"source": "random", "last": 1}, {"source": "best", "first": 2}]
    assert any("min_dist_reward" in note for note in imported.notes)
    assert any("built_in_11" in note for note in imported.notes)


def test_poker() -> None:
    options = read_expr(FILES / "leduc_dqn.yaml").options
    assert options["env"] == {"id": "openspiel/leduc_poker"}
    assert options["algorithm"] == {
        "kind": "dqn",
        "hidden": [64, 32],
        "activation": "relu",
        "batch": 64,
        "capacity": 10_000,
        "learning_rate": 0.01,
        "gamma": 0.99,
        "epsilon": {"start": 1.0, "end": 0.1},
        "target_period": 100,
    }
    assert options["meta_solver"] == "uniform"
    assert options["response"] == {"episodes": 2000}
    assert options["evaluation"] == {"episodes": 30}


@pytest.mark.parametrize(
    ("model", "sub", "decoder", "kind"),
    [
        ("gr_football.basic", "", False, "ppo"),
        ("gr_football.basic_centralized_critic_pool_obs", "MAPPO", False, "mappo"),
        ("gr_football.basic_centralized_critic_pool_obs", "A2PO", False, "a2po"),
        ("gr_football.basic_mat", "MAT", False, "mat"),
        ("gr_football.basic_mat", "", True, "mat_dec"),
    ],
)
def test_algorithm_follows_from_the_model(model: str, sub: str, decoder: bool, kind: str, tmp_path: Path) -> None:
    config = {"model": model, "actor": {"dec_actor": decoder}}
    path = changed("football_academy", tmp_path, "populations.0.algorithm.model_config", config)
    text = path.read_text(encoding="utf-8").replace("sub_algorithm_name: HAPPO", f"sub_algorithm_name: '{sub}'")
    path.write_text(text, encoding="utf-8")
    assert read_expr(path).options["algorithm"]["kind"] == kind


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("framework", None, "has no 'framework'"),
        ("framework.name", "marl", "framework.name is 'marl'"),
        ("rollout_manager.worker.envs.0.cls", "starcraft", "the environment's cls is 'starcraft'"),
        ("populations.0.algorithm.name", "BC", "the algorithm is 'BC'"),
        ("training_manager.batch_size", "many", "training_manager.batch_size is 'many'; expected a number"),
        ("rollout_manager.batch_size", "${rollout_manager.batch_size}", "rollout_manager.batch_size refers to itself"),
    ],
)
def test_what_cannot_be_imported_is_named(
    path: str, value: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expr = changed("football_league", tmp_path, path, value)
    with pytest.raises(ConfigError, match=message.replace("$", r"\$").replace("(", r"\(")):
        read_expr(expr)
    assert main([str(expr)]) == 2
    assert message in capsys.readouterr().err


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_expr(tmp_path / "expr.yaml")
