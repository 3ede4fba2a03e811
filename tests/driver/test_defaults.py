"""What is not given follows from the environment, however the rest is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from benchmarks.spellings_run import settings, spellings
from ludus.core.config import to_yaml
from ludus.core.parts import load
from ludus.driver.defaults import complete, missing_settings, spec_of
from ludus.driver.scenario_files import list_presets, load_scenario, parse_scenario
from ludus.learners.defaults import complete_algorithm
from ludus.learners.nfsp.options import NFSP
from ludus.learners.registry import ALGORITHMS, check_fits

TEAM = {"options": {"teams": "one", "state": True}, "wrappers": ["agent_ids"]}
SIDES = {"options": {"teams": "prefix", "state": True}, "wrappers": ["agent_ids"]}
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "CartPole": {"id": "gymnasium/CartPole-v1"},
    "Pendulum": {"id": "gymnasium/Pendulum-v1"},
    "own": {"id": "ludus.testing.fakes:Cue"},
    "leduc": {"id": "openspiel/leduc_poker"},
    "connect four": {"id": "openspiel/connect_four"},
    "tic-tac-toe": {"id": "pettingzoo/tictactoe_v3"},
    "spread": {"id": "mpe2/simple_spread_v3", **TEAM},
    "tag": {"id": "mpe2/simple_tag_v3", **SIDES},
}


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        *((name, "ppo") for name in ENVIRONMENTS),
        *((name, "dqn") for name in ENVIRONMENTS if name != "Pendulum"),
        ("Pendulum", "sac"),
        ("leduc", "exact"),
        ("leduc", "nfsp"),
        ("spread", "mappo"),
        ("spread", "qmix"),
    ],
)
def test_every_spelling_has_the_same_settings(name: str, algorithm: str, tmp_path: Path) -> None:
    (_, first), *others = spellings(ENVIRONMENTS[name], algorithm, tmp_path)
    assert not missing_settings(first)
    for spelling, scenario in others:
        assert settings(scenario) == settings(first), spelling


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_algorithm_has_settings_that_suit_the_environment(name: str) -> None:
    """And no values of small card games elsewhere: rollouts of hundreds of episodes, learning rates of 0.01, γ 1."""
    env = ENVIRONMENTS[name]
    spec = spec_of(parse_scenario(to_yaml({"env": env})).env)
    names = [algorithm for algorithm in ALGORITHMS if fits(algorithm, spec)]
    assert names
    kind = "fixed_opponents" if spec.num_players == 1 else "psro"
    for algorithm in names:
        scenario = complete(parse_scenario(to_yaml({"scenario": kind, "env": env, "algorithm": algorithm})), spec)
        if algorithm != "alphazero":  # which learns from both sides
            scenario.check(spec_of(scenario.env) if scenario.env.tree == "off" else spec)
        if not env["id"].startswith("openspiel/"):
            for part in parts_of(scenario.algorithm):
                check_scale(part, algorithm)


def fits(algorithm: str, spec: Any) -> bool:
    try:
        check_fits(complete_algorithm(load("algorithm", algorithm, ALGORITHMS)(), spec), spec)
    except ludus.LudusError:
        return False
    return True


def parts_of(algorithm: Any) -> list[Any]:
    return [algorithm, algorithm.best_response] if isinstance(algorithm, NFSP) else [algorithm]


def check_scale(algorithm: Any, name: str) -> None:
    assert getattr(algorithm, "gamma", 0.0) < 1.0, name
    assert algorithm.learning_rate.largest <= 3e-3, name
    for size in ("batch", "rollout"):
        if getattr(algorithm, f"{size}_unit", "decisions") == "episodes":
            assert getattr(algorithm, size) <= 32, name


@pytest.mark.parametrize("name", list_presets())
def test_presets_leave_nothing_to_the_environment(name: str) -> None:
    """So that the rule may change, and what a preset came to does not; they can be read where their environments are not installed."""
    assert missing_settings(load_scenario(name)) == []


def test_what_was_given_stays() -> None:
    scenario = load_scenario(
        "gymnasium/CartPole-v1", ["algorithm=dqn", "algorithm.rollout=4", "env.num_envs=3", "response.decisions=77"]
    )
    algorithm: Any = scenario.algorithm
    assert (algorithm.rollout, scenario.env.num_envs, scenario.response.value) == (4, 3, 77)
    assert algorithm.n_step == 1, "the table's 5 would be more than a rollout has"
    assert algorithm.batch == 128


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"batch": 512},
            {"batch_unit": "decisions", "minibatches": 8},
        ),  # steps of 64 rows, as with the 2,048 of the table
        ({"batch_unit": "episodes"}, {"batch": 16}),
        ({"learning_rate": 0.002}, {"learning_rate": 0.002, "gamma": 0.99}),
        ({"gamma": 1.0}, {"gamma": 1.0}),
        ({"network": "impala"}, {"network": "impala"}),
    ],
)
def test_the_rest_follows_what_was_given(options: dict[str, Any], expected: dict[str, Any]) -> None:
    scenario = complete(ludus.FixedOpponents(env="gymnasium/CartPole-v1", algorithm=ludus.PPO(**options)))
    assert scenario.algorithm == ludus.PPO(**{**scenario.algorithm.model_dump(), **expected})


def test_a_class_of_ones_own_keeps_its_own_defaults() -> None:
    class FewRows(ludus.PPO):
        batch: int = 300

    spec = spec_of(ludus.Environment(id="gymnasium/CartPole-v1"))
    made = complete_algorithm(FewRows(), spec)
    assert (made.batch, made.batch_unit, made.gamma) == (300, "decisions", 0.99)


def test_one_setting_of_a_schedule_leaves_the_rest_to_the_environment() -> None:
    scenario = load_scenario("gymnasium/CartPole-v1", ["algorithm.learning_rate.end=0.0001"])
    rate = scenario.algorithm.learning_rate
    assert (rate.start, rate.end) == (3e-4, 1e-4)


def test_one_setting_of_a_part_leaves_the_rest_to_the_environment() -> None:
    part = load_scenario("gymnasium/CartPole-v1", ["algorithm=nfsp", "algorithm.best_response.batch=64"]).algorithm
    assert (part.best_response.batch, part.best_response.gamma, part.best_response.rollout_unit) == (
        64,
        0.99,
        "decisions",
    )
    assert part.best_response.epsilon.start == 0.06, "NFSP's, not that of DQN alone"
    leduc = load_scenario("openspiel/leduc_poker", ["algorithm=nfsp", "algorithm.best_response.batch=64"]).algorithm
    assert leduc == NFSP(best_response={"batch": 64})


@pytest.mark.parametrize(
    ("name", "algorithm", "expected"),
    [
        ("leduc", "ppo", 1.0),
        ("connect four", "ppo", 1.0),
        ("CartPole", "ppo", 0.99),
        ("tic-tac-toe", "dqn", 0.99),
        ("CartPole", "r2d2", 0.997),  # its own is below 1
        ("spread", "ppo", 0.95),
        ("spread", "mappo", 0.95),
        ("tag", "r2d2", 0.95),
    ],
)
def test_discounts(name: str, algorithm: str, expected: float) -> None:
    env = ENVIRONMENTS[name]
    assert load_scenario_of(env, algorithm).algorithm.gamma == expected


def load_scenario_of(env: dict[str, Any], algorithm: str) -> Any:
    return complete(ludus.FixedOpponents(env=env, algorithm=algorithm))


def test_what_is_written_before_the_environment_is_known_gives_the_same(tmp_path: Path) -> None:
    """A scenario object as a file has what was given, and no defaults that would then count as given."""
    scenario = ludus.FixedOpponents(env="gymnasium/CartPole-v1", algorithm=ludus.DQN(capacity=5000))
    path = tmp_path / "scenario.yaml"
    path.write_text(scenario.to_yaml())
    assert load_scenario(path) == complete(scenario)
    path.write_text(complete(scenario).to_yaml())
    assert load_scenario(path) == complete(scenario)


def test_a_learner_by_hand_follows_the_environment_too() -> None:
    learner = ludus.learner(ludus.DQN(), env="gymnasium/CartPole-v1", device="cpu")
    assert learner.algorithm == load_scenario("gymnasium/CartPole-v1", ["algorithm=dqn"]).algorithm


@pytest.mark.parametrize(
    ("name", "mode", "normalises"),
    [("CartPole", "greedy", False), ("Pendulum", "greedy", True), ("spread", "explore", False)],
)
def test_teams_are_played_as_they_explore_and_bodies_are_normalised(name: str, mode: str, normalises: bool) -> None:
    scenario = load_scenario_of(ENVIRONMENTS[name], "ppo")
    assert (scenario.mode, scenario.algorithm.normalise_observations) == (mode, normalises)
    assert scenario.algorithm.normalise_returns == normalises


def test_whole_episodes_are_collected_where_what_processes_them_wants_them() -> None:
    """Hindsight replaces goals by what the same episode reached later; without it DQN collects decisions."""
    spec = spec_of(ludus.FixedOpponents(env="gymnasium/CartPole-v1").env)
    hindsight = {"kind": "her", "goal": [0, 1], "achieved": [1, 2]}
    units = [complete_algorithm(ludus.DQN(processing=chain), spec).rollout_unit for chain in ([], [hindsight])]
    assert units == ["decisions", "episodes"]
    assert complete_algorithm(ludus.DQN(processing=[hindsight], rollout=3), spec).rollout == 3
