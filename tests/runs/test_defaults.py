"""What is not given follows from the environment, however the rest is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

import ludus
from benchmarks.spellings_run import settings, spellings
from ludus.algorithms.common.defaults import complete_algorithm
from ludus.algorithms.common.registry import ALGORITHMS, check_fits
from ludus.algorithms.common.space_checks import is_image
from ludus.algorithms.nfsp.config import NFSP
from ludus.algorithms.on_policy.config import A2C
from ludus.core.config import to_yaml
from ludus.core.parts import resolve_name
from ludus.runs.scenario_defaults import complete, env_spec, missing_settings
from ludus.runs.scenario_files import list_presets, load_scenario, parse_scenario
from ludus.testing import fakes

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
    spec = env_spec(parse_scenario(to_yaml({"env": env})).env)
    names = [algorithm for algorithm in ALGORITHMS if fits(algorithm, spec)]
    assert names
    kind = "fixed_opponents" if spec.num_players == 1 else "psro"
    for algorithm in names:
        scenario = complete(parse_scenario(to_yaml({"scenario": kind, "env": env, "algorithm": algorithm})), spec)
        if algorithm != "alphazero":  # which learns from both sides
            scenario.check(env_spec(scenario.env) if scenario.env.tree == "off" else spec)
        if not env["id"].startswith("openspiel/"):
            for part in parts_of(scenario.algorithm):
                check_scale(part, algorithm)


def fits(algorithm: str, spec: Any) -> bool:
    try:
        check_fits(complete_algorithm(resolve_name("algorithm", algorithm, ALGORITHMS)(), spec), spec)
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


def test_explicit_settings_are_kept() -> None:
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

    spec = env_spec(ludus.Environment(id="gymnasium/CartPole-v1"))
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


def test_scenario_object_and_its_file_complete_alike(tmp_path: Path) -> None:
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
    spec = env_spec(ludus.FixedOpponents(env="gymnasium/CartPole-v1").env)
    hindsight = {"kind": "her", "goal": [0, 1], "achieved": [1, 2]}
    units = [complete_algorithm(ludus.DQN(processing=chain), spec).rollout_unit for chain in ([], [hindsight])]
    assert units == ["decisions", "episodes"]
    assert complete_algorithm(ludus.DQN(processing=[hindsight], rollout=3), spec).rollout == 3


class Unlike(ParallelEnv[str, Any, Any]):
    """A driver who sees numbers and steers, and a watcher who sees images and chooses."""

    metadata: ClassVar[dict[str, Any]] = {"name": "unlike"}
    possible_agents: ClassVar[list[str]] = ["driver", "watcher"]  # type: ignore[misc]
    seeing: ClassVar[dict[str, Box]] = {
        "driver": Box(-1, 1, (3,), np.float32),
        "watcher": Box(0, 255, (3, 40, 40), np.uint8),
    }

    def __init__(self, other_way_round: bool = False) -> None:
        if other_way_round:
            self.possible_agents = ["watcher", "driver"]

    def observation_space(self, agent: str) -> Box:
        return self.seeing[agent]

    def action_space(self, agent: str) -> Any:
        return Box(-1, 1, (2,), np.float32) if agent == "driver" else Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        return {agent: self.seeing[agent].low for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        seen = {agent: self.seeing[agent].low for agent in self.agents}
        nothing, over = dict.fromkeys(seen, 0.0), dict.fromkeys(seen, True)
        self.agents = []
        return seen, nothing, over, dict.fromkeys(seen, False), {agent: {} for agent in seen}


@pytest.mark.parametrize("other_way_round", [False, True])
def test_each_player_has_settings_for_what_it_sees_and_does(other_way_round: bool) -> None:
    env = ludus.Environment(source=lambda: Unlike(other_way_round))
    scenario = complete(ludus.PSRO(env=env, algorithm="ppo"))
    assert not missing_settings(scenario)
    scenario.check(spec := env_spec(env))
    algorithms = scenario.who_learns(scenario.population(spec))
    settings = {agent.name: algorithms.of(agent.player) for agent in spec.agents}
    assert (settings["driver"].network, settings["driver"].normalise_observations) == ("mlp", True)
    assert (settings["watcher"].network, settings["watcher"].normalise_observations) == ("nature", False)
    one = complete(ludus.PSRO(env=env, algorithm="ppo", algorithms={"1": "ppo"})).algorithms["1"]
    assert one == settings[spec.agents[1].name]


@pytest.mark.parametrize(
    ("shape", "wrappers", "hint"),
    [
        ((40, 48, 3), [], r"channels last\. Give env\.wrappers=\[channels_first\]"),
        (
            (40, 48, 3),
            [{"kind": "frame_stack", "k": 2}],
            r"channels last\. Give .*\{kind: frame_stack, k: 2\}, channels_first",
        ),
        ((40, 48, 3), ["grayscale"], r"no channels\. Give env\.wrappers=\[\{kind: frame_stack"),
        ((40, 48, 3), [{"kind": "frame_stack", "k": 2}, "channels_first"], ""),
        ((40, 48, 3), ["grayscale", {"kind": "frame_stack", "k": 2}], ""),
        ((40, 48), [{"kind": "frame_stack", "k": 1}], ""),
    ],
)
def test_images_are_seen_by_convolutions_or_refused_with_a_way_out(
    shape: tuple[int, ...], wrappers: list[Any], hint: str
) -> None:
    """And by no perceptron without a word."""

    def make() -> Any:
        env = fakes.Cue()
        env.observation_space = Box(0, 255, shape, np.uint8)
        return env

    env = ludus.Environment(source=make, wrappers=wrappers)
    scenario = complete(ludus.FixedOpponents(env=env, algorithm="ppo"))
    assert scenario.algorithm.network == "nature"  # type: ignore[union-attr]
    if hint:
        with pytest.raises(ludus.LudusError, match=hint):
            scenario.check(env_spec(env))
        scenario = complete(ludus.FixedOpponents(env=env, algorithm=ludus.PPO(network="mlp")))
    scenario.check(env_spec(env))


def test_tables_of_bytes_are_no_images() -> None:
    for space in (Box(0, 1, (40, 40), np.uint8), Box(0, 9, (8, 8), np.uint8), Box(0, 9, (40, 40), np.float32)):
        assert not is_image(space)
    assert not is_image(Box(0, 255, (2, 3, 40, 48), np.uint8)), "channels first already"


def test_overrides_change_something_in_what_an_argument_gives() -> None:
    for algorithm in ("a2c", {"kind": "a2c", "hidden": [8]}):
        scenario = load_scenario("kuhn", ["algorithm.batch=77"], algorithm=algorithm)
        assert isinstance(scenario.algorithm, A2C)
        assert scenario.algorithm.batch == 77
    assert load_scenario("kuhn", ["generations=3"], algorithm="a2c").generations == 3


def test_an_argument_counts_where_an_override_gives_the_same() -> None:
    assert isinstance(load_scenario("kuhn", ["algorithm={kind: dqn}"], algorithm="a2c").algorithm, A2C)
    assert load_scenario("kuhn", ["generations=3"], generations=7).generations == 7
    assert load_scenario("kuhn", ["algorithm.batch=3"], algorithm=A2C(batch=5)).algorithm == A2C(batch=5)
