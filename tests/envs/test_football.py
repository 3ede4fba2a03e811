"""`football/…`: the contract, agreement with the engine's own package, both directions of play, and what is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import signal
import subprocess
import sys
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from refusals import Refusal, check_refusals

from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.envs.base import HasColumnNames
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env
from ludus.testing.ledger import Actor, Ledger, play, same

pytest.importorskip("gfootball_engine", reason="gfootball is not installed: make football")

from ludus.contrib.football.frames import small
from ludus.contrib.football.match import TURNED, Engine, MatchSeed
from ludus.contrib.football.scenarios import KEEPER, Controls, Formation, controls, engine_config, formation, names
from ludus.contrib.football.view import LEFT, RIGHT, SideView, agents_view, side_view

slow, long = pytest.mark.slow, pytest.mark.long

# ------------------------------------------------------------------------------------------ the contract

SHORT: dict[str, Any] = {"duration": 3}
CASES = [
    pytest.param("academy_3_vs_1_with_keeper", {"sides": "both"}, marks=slow),
    pytest.param("academy_3_vs_1_with_keeper", {"sides": "random", "roles": "position"}, marks=long),
    pytest.param("academy_corner", {"agents": 2, "observation": "floats", "masks": None, "state": False}, marks=slow),
    pytest.param("5_vs_5", {"sides": "right", "keepers": True, "roles": "keeper"}, marks=long),
    pytest.param("5_vs_5", {"sides": "both", "agents": [1, 3], "rewards": {"checkpoints": 0.1, "win": 1}}, marks=slow),
    pytest.param("11_vs_11_kaggle", {"sides": "both", "keepers": True, "observation": "simple115"}, marks=slow),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_football_satisfies_vector_env_contract(name: str, options: dict[str, Any]) -> None:
    chosen = {**SHORT, **options}
    steps = chosen["duration"] + 2  # until the next match has begun
    check_env(lambda n: make_env(f"football/{name}", num_envs=n, **chosen), num_envs=2, steps=steps, team="split")


@long
@pytest.mark.parametrize("name", names())
def test_every_scenario_replays_to_the_bit(name: str) -> None:
    """Two matches, and the same two again."""
    env, seeds = make_env(f"football/{name}", num_envs=1, **SHORT), np.array([1], np.uint64)
    ledger = Ledger(env.spec, 1, team="split", early_rewards=False)
    once = play(env, seeds, 10, watch=ledger.see)
    assert ledger.finished.sum() >= 2
    same(once, play(env, seeds, 10), "a second reset")
    env.close()


def test_football_lists_its_scenarios() -> None:
    listed = list_envs("football")
    assert len(listed) == 18
    assert {"football/5_vs_5", "football/11_vs_11_stochastic", "football/academy_empty_goal_close"} <= set(listed)


# ------------------------------------------------------------------------------------------ what is played


def test_a_side_is_one_player_with_an_agent_for_each_body() -> None:
    spec = make_env("football/5_vs_5", num_envs=1, sides="both").spec
    assert [agent.name for agent in spec.agents] == [f"{side}_{i}" for side in ("left", "right") for i in range(4)]
    assert [agent.player for agent in spec.agents] == [0] * 4 + [1] * 4
    assert {agent.role for agent in spec.agents} == {"default"}
    assert spec.agents[0].observation == spec.agents[7].observation
    assert (spec.zero_sum, spec.symmetry) == (True, ((0, 1),))
    assert spec.max_decisions == 4 * 3001


@pytest.mark.parametrize(
    ("options", "roles"),
    [
        ({"roles": "position"}, ["rm", "cf", "lb", "cb"]),
        ({"roles": "keeper", "keepers": True}, ["keeper", "field", "field", "field", "field"]),
        ({"agents": 2}, ["default", "default"]),
    ],
)
def test_roles(options: dict[str, Any], roles: list[str]) -> None:
    assert [agent.role for agent in make_env("football/5_vs_5", num_envs=1, **options).spec.agents] == roles


@pytest.mark.parametrize(
    ("name", "options", "zero_sum", "symmetry", "most"),
    [
        ("5_vs_5", {"sides": "both", "agents": [4, 2]}, True, ((0,), (1,)), np.inf),
        ("5_vs_5", {"sides": "both", "difficulty": [0.1, 0.2]}, True, ((0,), (1,)), np.inf),
        ("5_vs_5", {"sides": "both", "rewards": {"score": 1, "pass": 0.1}}, False, ((0, 1),), np.inf),
        ("5_vs_5", {"sides": "both", "rewards": {"win": 2}}, True, ((0, 1),), 2.0),
        ("11_vs_11_stochastic", {"sides": "both"}, True, ((0,), (1,)), np.inf),  # the engine's sides differ in strength
        ("11_vs_11_stochastic", {"sides": "both", "difficulty": 0.6}, True, ((0, 1),), np.inf),
        ("academy_corner", {"sides": "both"}, True, ((0,), (1,)), 1.0),
        ("academy_corner", {}, False, ((0,),), 1.0),
    ],
)
def test_football_spec_of_symmetry_and_range(
    name: str, options: dict[str, Any], zero_sum: bool, symmetry: tuple[tuple[int, ...], ...], most: float
) -> None:
    spec = make_env(f"football/{name}", num_envs=1, **options).spec
    assert (spec.zero_sum, spec.symmetry) == (zero_sum, symmetry)
    assert spec.utility_range == ((-most, most),) * spec.num_players


REFUSED: list[Refusal] = [
    ("football/5_vs_6", {}, UnknownName, "unknown scenario of football '5_vs_6'; did you mean '5_vs_5'"),
    ("football/5_vs_5", {"keeper": True}, ConfigError, "unknown key 'keeper'; did you mean 'keepers'"),
    (
        "football/5_vs_5",
        {"agents": 5},
        ConfigError,
        r"agents=5 was given; the left side has 1 to 4, keepers not counted",
    ),
    ("football/5_vs_5", {"agents": 6, "keepers": True}, ConfigError, "the left side has 1 to 5[.]"),
    ("football/5_vs_5", {"sides": "both", "agents": [4, 0]}, ConfigError, "the right side has 1 to 4"),
    ("football/5_vs_5", {"agents": 2, "roles": "position"}, ConfigError, "hands bodies out, and no agent has a role"),
    (
        "football/5_vs_5",
        {"difficulty": 2.0},
        ConfigError,
        r"difficulty=\(0.05, 2.0\) was given; expected numbers from 0",
    ),
    ("football/5_vs_5", {"duration": 0}, ConfigError, "duration=0, second_half=[0-9]+ were given"),
    (
        "football/5_vs_5",
        {"rewards": {"scores": 1}},
        UnknownName,
        "unknown football reward 'scores'; did you mean 'score'",
    ),
    (
        "football/5_vs_5",
        {"statistics": ["shot"]},
        UnknownName,
        "unknown football statistic 'shot'; did you mean 'shots'",
    ),
    ("football/5_vs_5", {"sides": "both", "observation": "pixels"}, ConfigError, "pixels was given with sides=both"),
    ("football/5_vs_5", {"observation": "float"}, UnknownName, "did you mean 'floats'"),
]


def test_football_rejects_invalid_ids_and_options() -> None:
    check_refusals(partial(make_env, num_envs=1), REFUSED)


def test_keepers_are_steered_where_nobody_else_is_there() -> None:
    made = formation("1_vs_1_easy")
    assert controls("x", made, sides="both", agents=None, keepers=False).agents == (1, 1)
    assert made.left[0].role == KEEPER


# ------------------------------------------------------------------------------------------ the engine


def differences(one: SideView, other: SideView, *, besides: tuple[str, ...] = ()) -> list[str]:
    fields = [field.name for field in dataclasses.fields(SideView) if field.name not in besides]
    return [name for name in fields if not np.array_equal(getattr(one, name), getattr(other, name))]


@pytest.fixture(scope="module")
def package() -> Any:
    """The package with its gym environment, which warns and prints when it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("gfootball.env", reason="gfootball is not installed: make football")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "agents", "keepers", "steps"),
    [
        ("5_vs_5", (4, 4), False, 15),
        pytest.param("5_vs_5", (4, 0), False, 200, marks=slow),
        pytest.param("11_vs_11_kaggle", (1, 1), True, 150, marks=long),
        pytest.param("11_vs_11_stochastic", (11, 0), True, 100, marks=long),
        pytest.param("academy_3_vs_1_with_keeper", (3, 0), True, 150, marks=long),
        pytest.param("academy_corner", (11, 11), True, 400, marks=slow),
    ],
)
def test_it_plays_as_the_package_does(
    package: Any, name: str, agents: tuple[int, int], keepers: bool, steps: int
) -> None:
    """Two episodes of the same luck and actions, side by side in one process: what both sides see, and the end."""
    left, right = agents
    sides = "both" if right else "left"
    control = controls("x", formation(name), sides=sides, agents=agents, keepers=keepers)
    ours, rng = Engine(), np.random.default_rng(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = package.create_environment(
            env_name=name,
            representation="raw",
            number_of_left_players_agent_controls=left,
            number_of_right_players_agent_controls=right,
            other_config_options={"game_engine_random_seed": 5, "reverse_team_processing": True},
        )
        for kick_off in (LEFT, RIGHT):  # the package lets the left side begin first
            shown, over = theirs.reset(), False
            ours.reset(engine_config(formation(name, kick_off), control, seed=5, reverse=True), agents)
            for _ in range(steps):
                for side, seen in ((LEFT, shown[:left]), (RIGHT, shown[left:])):
                    if len(seen):
                        assert not differences(side_view(ours.raw, side=side), agents_view(seen, side=side))
                if over:
                    break
                actions = rng.integers(19, size=left + right).tolist()
                shown, _, done, _ = theirs.step(actions)
                over = ours.step([actions[:left], [TURNED[action] for action in actions[left:]]])
                assert over == done
        theirs.close()
    ours.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("5_vs_5", 40),
        pytest.param("5_vs_5", 400, marks=long),
        pytest.param("11_vs_11_stochastic", 150, marks=slow),
        pytest.param("academy_counterattack_hard", 400, marks=long),
    ],
)
def test_a_match_from_right_to_left_is_the_same_match(name: str, steps: int) -> None:
    """To the bit, but for the ball's rotation about its own axes, which the engine computes in the pitch's frame."""
    made = formation(name)
    control = controls("x", made, sides="left", agents=None, keepers=False)
    there, back = Engine(), Engine()
    there.reset(engine_config(made, control, seed=3, reverse=False), control.agents)
    back.reset(engine_config(made.turned, control.turned, seed=3, reverse=True), control.turned.agents)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        one, other = side_view(there.raw, side=LEFT), side_view(back.raw, side=RIGHT)
        assert not differences(one, other, besides=("side", "ball_rotation"))
        actions = rng.integers(19, size=control.agents[LEFT]).tolist()
        over = there.step([actions, []])
        assert back.step([[], [TURNED[action] for action in actions]]) == over
        if over:
            break
    there.close()
    back.close()


def test_sides_at_random() -> None:
    """The learner's side is drawn for each match, and sees it from left to right."""
    env = make_env("football/academy_empty_goal_close", num_envs=1, sides="random", observation="floats")
    shown, sides = [], []
    for seed in (2, 3):
        shown.append(env.reset(np.array([seed], np.uint64)).due[0].observation.copy())
        sides.append(env.game(0).views[0].side)
    assert sides == [LEFT, RIGHT]
    np.testing.assert_allclose(shown[0], shown[1], atol=1e-6)
    env.close()


def test_luck_is_fair() -> None:
    lucks = [MatchSeed.of(seed, random_sides=True) for seed in range(1000)]
    for bit in ("kick_off", "turned", "reverse"):
        assert 450 < sum(getattr(luck, bit) for luck in lucks) < 550
    assert len({luck.seed for luck in lucks}) == 1000
    assert not any(MatchSeed.of(seed, random_sides=False).turned for seed in range(100))


def test_rules_are_changed() -> None:
    made = formation("5_vs_5")
    assert made.rules.difficulty == (0.05, 0.05)
    env = make_env("football/5_vs_5", num_envs=1, difficulty=0.8, duration=7, offsides=False)
    plan = env._make.args[0]
    rules = plan.formation(LEFT).rules
    assert (rules.difficulty, rules.duration, rules.offsides) == ((0.05, 0.8), 7, False)
    config = engine_config(plan.formation(LEFT), plan.controls, seed=9, reverse=True)
    assert round(config.right_team_difficulty, 6) == 0.8
    assert (config.game_duration, config.offsides, config.game_engine_random_seed) == (7, False, 9)
    assert (config.left_agents, config.right_agents, config.controllable_left_players) == (4, 0, 4)


def test_a_match_turned_twice_is_itself() -> None:
    made = formation("academy_corner")
    assert isinstance(made, Formation)
    assert made.turned.turned == made
    assert made.turned.ball == (-0.99, -0.41)
    assert Controls((3, 0), ((1, 2, 3), (1,))).turned == Controls((0, 3), ((1,), (1, 2, 3)))


# ------------------------------------------------------------------------------------------ subprocesses and memory


@slow
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=long)])
def test_a_lost_engine_ends_its_episode_and_not_the_run(number: signal.Signals) -> None:
    """Killed, and hung. The other subprocess's match goes on."""
    env = make_env("football/5_vs_5", num_envs=2, workers=2, deadline=5.0, restarts=1, duration=60)
    seeds = np.array([4, 5], np.uint64)
    actor, timestep = Actor(env.spec, seeds), env.reset(seeds)
    ends: list[tuple[int, bool, int]] = []
    for step in range(64):
        if step == 20:
            os.kill(env._processes[1].pid, number)
        timestep = env.step(actor.actions(timestep))
        over = timestep.finished
        ends += zip(over.environment.tolist(), over.terminated.tolist(), over.length.tolist(), strict=True)
        if len(ends) == 1 and ends[0][0] == 1:
            assert timestep.due[0].slot.tolist() == list(range(8))
    assert env.restarts == 1
    assert (1, False) in [end[:2] for end in ends]
    assert (0, True, 61) in ends
    env.close()


@long
def test_an_engine_that_has_played_much_plays_as_a_new_one() -> None:
    """Forty matches, of which some have two engines by turns; then the same match as in a process that has played none."""
    first = played_alone(11)
    env = make_env("football/5_vs_5", num_envs=2, sides="both", duration=40)
    play(env, np.array([1, 2], np.uint64), 800)
    env.close()
    assert played_alone(11) == first
    code = f"import sys; sys.path[:] = {sys.path!r}; import test_football; print(test_football.played_alone(11))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == first


def played_alone(seed: int) -> str:
    """A digest of all that a vector of one match shows and pays, in two matches and a half."""
    env = make_env("football/5_vs_5", num_envs=1, sides="both", observation="floats", duration=40)
    seeds, digest = np.array([seed], np.uint64), hashlib.sha256()
    actor, timestep = Actor(env.spec, seeds), env.reset(seeds)
    for _ in range(100):
        for due in timestep.due:
            digest.update(due.observation.tobytes())
            digest.update(due.reward.tobytes())
        timestep = env.step(actor.actions(timestep))
    env.close()
    return digest.hexdigest()


@long
def test_memory_does_not_grow() -> None:
    """300 matches and 3,300 steps, after 100 matches."""
    env = make_env("football/5_vs_5", num_envs=1, sides="both", duration=10)
    seeds = np.array([3], np.uint64)
    actor, timestep, sizes = Actor(env.spec, seeds), env.reset(seeds), []
    for step in range(4400):
        timestep = env.step(actor.actions(timestep))
        if step in (1100, 4399):
            sizes.append(resident())
    assert sizes[1] - sizes[0] < 4e6
    env.close()


def resident() -> int:
    """Bytes that this process has in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@long
def test_the_engine_draws_where_it_can() -> None:
    """Pixels, which are the engine's pictures made small; two matches take turns in one drawing engine."""
    env = make_env("football/5_vs_5", num_envs=2, agents=1, observation="pixels", render="engine")
    try:
        seen = env.reset(np.array([1, 2], np.uint64)).due[0].observation
    except EnvError as error:
        if "the engine cannot draw" not in str(error):
            raise
        pytest.skip(str(error))
    assert seen.shape == (2, 72, 96, 3)
    pictures = [env.render(e) for e in range(2)]
    for picture, row in zip(pictures, seen, strict=True):
        assert picture.shape == (360, 640, 3)
        assert picture[..., 1].mean() > picture[..., 0].mean() > 0  # mostly grass
        np.testing.assert_array_equal(small(picture), row)
    assert (pictures[0] != pictures[1]).any()
    env.close()


def test_columns_and_actions_are_named() -> None:
    env = make_env("football/academy_empty_goal_close", num_envs=1)
    try:
        env.reset(np.zeros(1, np.uint64))
        assert isinstance(env, HasColumnNames)
        columns = env.observation_names(0)
        assert env.spec.agents[0].observation.shape == (len(columns),)
        assert len(set(columns)) == len(columns)
        assert list(env.action_names(0)[:2]) == ["idle", "left"]
        assert len(env.action_names(0)) == env.spec.agents[0].action.n
    finally:
        env.close()
