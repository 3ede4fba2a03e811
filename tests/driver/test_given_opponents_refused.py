"""Training against policies of other runs and of files: what is refused, before a run is made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import run_tools as tools
from given_tools import KUHN, LEARNS, given, names, train

import ludus
from ludus.core.errors import ConfigError, LudusError, ScenarioError
from ludus.driver.scenario_kinds import FixedOpponents
from ludus.policies.actor_critic import initial_weights as gru_weights
from ludus.policies.file import save_policy
from ludus.policies.specs import gru_spec


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Who is given: see `given_tools.given`."""
    return given(tmp_path_factory.mktemp("old"))


@pytest.mark.parametrize(
    ("opponents", "message"),
    [
        ("bot:mcts,simulations=10", r"'bot:mcts,simulations=10' is a bot, .*ludus record --trajectories.*tournament"),
        ("own_bots:First", "'own_bots:First' is a bot"),
        ("{old}/on", r"on' is no opponent: there is no run .* An opponent is RUN, .*FILE.safetensors or random\."),
        ("{old}/one:1-9", r"one:1-9': the run has no policy '1-9'; did you mean '1-"),
        ("{old}/nothing.safetensors", r"nothing.safetensors' cannot be read"),
        ("{old}/one:0-1", r"nobody was given for seat 1 of openspiel/kuhn_poker \(.*one:0-1' plays seat 0\)"),
        ("{old}/one/policies/0/0-1.safetensors", "nobody was given for seat 1"),
    ],
)
def test_refused_before_a_run_is_made(opponents: str, message: str, old: Path, tmp_path: Path) -> None:
    with pytest.raises(LudusError, match=message):
        train(tmp_path / "run", opponents.format(old=old))
    assert not (tmp_path / "run").exists()


def test_policies_of_another_game(old: Path, tmp_path: Path) -> None:
    leduc = {"env": "openspiel/leduc_poker"}
    with pytest.raises(
        ScenarioError, match=r"one' plays openspiel/kuhn_poker, and this scenario openspiel/leduc_poker"
    ):
        train(tmp_path / "run", f"{old}/one", **leduc)
    with pytest.raises(LudusError, match=r"bet.safetensors' does not fit openspiel/leduc_poker"):
        train(tmp_path / "run", f"{old}/bet.safetensors", **leduc)
    with pytest.raises(ScenarioError, match="the learners meet nobody"):
        train(
            tmp_path / "run",
            "random",
            env="gymnasium/CartPole-v1",
            algorithm={"kind": "ppo"},
            evaluation={"exploitability": "off"},
        )
    assert not (tmp_path / "run").exists()


def test_memory_and_exact_evaluation(tmp_path: Path) -> None:
    """A policy that remembers is met in training, and nobody can compute what it earns."""
    spec = gru_spec(inputs=11, actions=2, hidden=4)
    file = tmp_path / "remembers.safetensors"
    save_policy(file, spec, gru_weights(spec, np.random.default_rng(0)))
    with pytest.raises(ScenarioError, match=r"remembers.safetensors' .* Set evaluation.payoffs=simulate"):
        train(tmp_path / "run", str(file))
    assert not (tmp_path / "run").exists()
    scenario = tools.parse_scenario(
        LEARNS,
        [f"opponents={file}", "generations=1", "evaluation={payoffs: simulate, episodes: 8, exploitability: off}"],
    )
    result = ludus.run(scenario, run_dir=tmp_path / "run", report=False)
    assert names(result)[1] == ["1-0", "file.remembers"]


@pytest.mark.parametrize(
    ("opponents", "message"),
    [
        (["a", "a"], "'a' was given twice; give it once, with a weight"),
        ([{"policy": "a", "wieght": 2}], "did you mean 'weight'"),
        ([{"policy": "a", "weight": 0}], "greater than 0"),
        ([{"policy": "a", "weight": float("inf")}], "finite"),
        ([3], r"3 was given; an opponent is a name, .* or \{policy: NAME, weight: NUMBER\}"),
    ],
)
def test_entries(opponents: list[object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FixedOpponents(env=KUHN, opponents=opponents)
