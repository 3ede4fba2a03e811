"""Agents grouped into players: names, lists, padding, and what does not go together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from ludus.core.errors import ConfigError, EnvError
from ludus.envs.adapters.agent_seats import Sides, agent_role, group_agents, seat_agents, split_options
from ludus.envs.config import Environment
from ludus.envs.registry import make_env

WOLVES = ["wolf_0", "wolf_1", "sheep_0"]


def test_roles() -> None:
    roles = {"adversary_12": "adversary", "first_0": "first", "robot3": "robot", "a-1": "a", 7: "default", "x": "x"}
    assert {name: agent_role(name) for name in roles} == roles  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("teams", "players"),
    [
        (None, [["wolf_0"], ["wolf_1"], ["sheep_0"]]),
        ("prefix", [["wolf_0", "wolf_1"], ["sheep_0"]]),
        ("one", [WOLVES]),
        ({"prey": ["sheep_0"], "pack": ["wolf_1", "wolf_0"]}, [["sheep_0"], ["wolf_1", "wolf_0"]]),
        ({0: ["wolf_0", "sheep_0"], 1: ["wolf_1"]}, [["wolf_0", "sheep_0"], ["wolf_1"]]),
        (lambda agent: 0 if agent == "sheep_0" else 1, [["sheep_0"], ["wolf_0", "wolf_1"]]),
        (lambda agent: np.int64(agent[-1]), [["wolf_0", "sheep_0"], ["wolf_1"]]),
        (agent_role, [["wolf_0", "wolf_1"], ["sheep_0"]]),
        ("ludus.envs.adapters.agent_seats:agent_role", [["wolf_0", "wolf_1"], ["sheep_0"]]),
    ],
)
def test_players(teams: Any, players: list[list[str]]) -> None:
    assert group_agents(WOLVES, teams) == players


@pytest.mark.parametrize(
    ("teams", "message"),
    [
        ("all", 'expected "prefix", "one", a mapping of players to lists of agents, or a function'),
        ("zoo_games:nobody", "module 'zoo_games' has no 'nobody'"),
        ("no_such_module:f", "'no_such_module:f' could not be imported"),
        (lambda agent: None, "answered None for the agent 'wolf_0'; expected its player, a number or a name"),
        (lambda agent: True, "answered True"),
        (lambda agent: 1 / 0, "raised division by zero, asked for the agent 'wolf_0'"),
        (lambda agent: 1, "answered the players 1; expected names, or the numbers 0 to 0"),
        (lambda agent: agent == "wolf_0" or "other", "answered True"),
        (
            {"wolf_0": 0, "wolf_1": 0, "sheep_0": "prey"}.get,
            "answered the players 0, 'prey'; expected names, or the numbers 0 to 1",
        ),
        ({"pack": ["wolf_0", "wolf_1"]}, "no player has sheep_0"),
        ({"pack": WOLVES, "prey": ["sheep_0"]}, "'sheep_0' is listed twice"),
        ({"pack": ["wolf_9"]}, "unknown agent 'wolf_9'; did you mean 'wolf_"),
        ({"pack": "wolf_0"}, "expected a list of its agents"),
        ({"pack": []}, "expected a list of its agents"),
    ],
)
def test_teams_that_are_none(teams: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        group_agents(WOLVES, teams)


def seats(spaces: Any, **sides: Any) -> Any:
    return seat_agents(
        "tests/flock",
        list(spaces),
        spaces,
        sides=Sides(**{"teams": "one", **sides}),
        masked=False,
        clip=False,
        state=None,
    )


def box(*shape: int, low: float = -1, dtype: Any = np.float32) -> Box:
    return Box(low, 1, shape, dtype)


def test_observations_are_padded_and_actions_counted_to_the_most() -> None:
    spec, seat, masked = seats({"a_0": (box(3, low=-2), Discrete(2)), "b_0": (box(2, low=1), Discrete(4, start=1))})
    assert [agent.player for agent in spec.agents] == [0, 0]
    assert [agent.role for agent in spec.agents] == ["a", "b"]
    observation = spec.agents[0].observation
    assert observation.low.tolist() == [-2, -2, -2]
    assert observation.high.tolist() == [1, 1, 1]
    assert spec.agents[1].action == Discrete(4)
    assert masked == [True]
    seen, mask = seat["b_0"].see(np.array([1, 1], np.float32), {})
    assert seen.tolist() == [1, 1, 0]
    assert mask is None
    assert seat["b_0"].act(3) == 4
    assert seat["a_0"].see(np.zeros(3, np.float32), {})[1].tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ((box(2, 2), Discrete(2)), (box(4), Discrete(2)), "only float32 vectors can be padded"),
        ((box(2, dtype=np.int8), Discrete(2)), (box(3, dtype=np.int8), Discrete(2)), "only float32 vectors"),
        ((box(2), Discrete(2)), (box(2), box(2)), "only Discrete ones"),
        ((box(2), box(3)), (box(2), box(2)), "only Discrete ones"),
        ((box(2), MultiDiscrete([2, 2])), (box(2), MultiDiscrete([2, 3])), "only Discrete ones"),
    ],
)
def test_pettingzoo_teams_reject_conflicting_options(one: Any, other: Any, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        seats({"a_0": one, "b_0": other})
    assert seats({"a_0": one, "b_0": other}, teams=None)[0].num_players == 2


def test_options_about_sides() -> None:
    sides, rest = split_options({"teams": "one", "N": 3, "zero_sum": None}, defaults={"zero_sum": True})
    assert sides == Sides(teams="one", zero_sum=True)
    assert rest == {"N": 3}
    spec = seats({name: (box(2), Discrete(2)) for name in WOLVES}, teams=None, symmetry=[[0, 1], [2]])[0]
    assert spec.symmetry == ((0, 1), (2,))
    for wrong in ({"symmetry": [[0, 1]]}, {"utility_range": [1, -1]}, {"utility_range": [[0, 1]] * 2}):
        with pytest.raises(ConfigError, match="was given; expected"):
            seats({name: (box(2), Discrete(2)) for name in WOLVES}, teams=None, **wrong)


def test_a_team_with_a_leader_who_may_say_more() -> None:
    pack = [f"adversary_{i}" for i in range(3)]
    env = make_env(
        "mpe2/simple_world_comm_v3",
        num_envs=1,
        teams={"wolves": ["leadadversary_0", *pack], "sheep": ["agent_0", "agent_1"]},
    )
    wolves = env.spec.agents_of(0)
    assert [agent.role for agent in wolves] == ["leadadversary", "adversary", "adversary", "adversary"]
    assert wolves[0].action == Discrete(20)
    mask = env.reset(np.array([1], np.uint64)).due[0].mask
    assert mask is not None
    assert mask.sum(axis=1).tolist() == [20, 5, 5, 5]


def test_a_function_in_a_scenario_is_kept_by_its_name() -> None:
    env = Environment(id="mpe2/simple_tag_v3", num_envs=1, options={"teams": agent_role, "max_cycles": 5})
    assert env.options == {"teams": "ludus.envs.adapters.agent_seats:agent_role", "max_cycles": 5}
    assert [agent.player for agent in env.make().spec.agents] == [0, 0, 0, 1]
    with pytest.raises(ConfigError, match="a function that no file can name"):
        Environment(id="mpe2/simple_tag_v3", options={"teams": lambda agent: agent})
    made = make_env("mpe2/simple_tag_v3", num_envs=1, teams=lambda agent: int(agent == "agent_0"))
    assert [agent.player for agent in made.spec.agents] == [0, 0, 0, 1]
