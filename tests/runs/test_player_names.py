"""Players by the names of their agents: each name becomes the numbers that it stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import ludus
from ludus.core.errors import ConfigError
from ludus.core.player_names import PlayerNames
from ludus.core.types import AgentSpec, EnvSpec
from ludus.runs.scenario_defaults import numbered
from ludus.runs.scenario_files import load_scenario


def tag(*agents: tuple[str, int]) -> EnvSpec:
    see, act = Box(0, 1, (2,), np.float32), Discrete(2)
    players = 1 + max(player for _, player in agents)
    return EnvSpec(
        id="tag",
        agents=tuple(AgentSpec(name, player, see, act) for name, player in agents),
        utility_range=((-1.0, 1.0),) * players,
        symmetry=tuple((p,) for p in range(players)),
        zero_sum=False,
    )


APART = tag(("adversary_0", 0), ("adversary_1", 1), ("agent_0", 2))
TEAMS = tag(("adversary_0", 0), ("adversary_1", 0), ("agent_0", 1))


def of(env: EnvSpec, **keys: Any) -> dict[str, Any]:
    scenario = ludus.FixedOpponents(env="openspiel/kuhn_poker", **keys)
    changes = numbered(scenario, PlayerNames.of(env), scenario.population(env))
    if "algorithms" in changes:
        changes["algorithms"] = {name: type(part).__name__ for name, part in changes["algorithms"].items()}
    return changes


def test_names_become_numbers() -> None:
    assert of(APART, algorithms={"adversary_1": "dqn"}) == {"algorithms": {"1": "DQN"}}
    assert of(APART, algorithms={"adversary": "dqn", "2": "a2c"}) == {
        "algorithms": {"0": "DQN", "1": "DQN", "2": "A2C"}
    }
    assert of(TEAMS, algorithms={"adversary_1": "dqn"}) == {"algorithms": {"0": "DQN"}}, "its team's"
    assert of(TEAMS, learners=["agent"]) == {"learners": (1,)}
    assert of(APART, learners="adversary") == {"learners": (0, 1)}
    assert of(APART, algorithms={"1": "dqn"}, learners=["2", 0]) == {}
    assert of(APART, learners=["agent_0"], share="always") == {"learners": (0,)}, "the population of all"


def test_names_that_nobody_has() -> None:
    with pytest.raises(ConfigError, match="'adversry' is no player of tag; did you mean 'adversary'"):
        of(APART, algorithms={"adversry": "dqn"})
    with pytest.raises(ConfigError, match="'agents' is no player of tag; did you mean 'agent'"):
        of(TEAMS, learners=["agents"])
    with pytest.raises(ConfigError, match="algorithms: 'adversary' is player 0, who was named before"):
        of(APART, algorithms={"0": "a2c", "adversary": "dqn"})


def test_a_name_stands_for_its_players() -> None:
    names = PlayerNames.of(APART)
    assert names.players(["agent_0", 1, "adversary", "0"]) == [2, 1, 0]
    assert [names.player(name) for name in ("2", "agent", "adversary_1")] == [2, 2, 1]
    assert PlayerNames.of(TEAMS).player("adversary") == 0
    assert names.addresses("try1@adversary/0-3") == ["try1@0/0-3", "try1@1/0-3"]
    assert [names.addresses(text) for text in ("try1@2/2-1", "try1@best", "a/b.safetensors")] == [
        ["try1@2/2-1"],
        ["try1@best"],
        ["a/b.safetensors"],
    ]
    roles = PlayerNames("g", ((("1", "default"), ("x", "scout")), (("0", "scout"), ("y", "x"))))
    assert [roles.players([name]) for name in ("scout", "1", "x")] == [[0, 1], [1], [0]], "numbers, names, then roles"
    with pytest.raises(ConfigError, match=r"--seat: 'adversary' stands for 2 players, 0 \(adversary_0\), 1 \(adv"):
        names.player("adversary", what="--seat")
    with pytest.raises(ConfigError, match=r"--seat: 3 is no player; tag has the players 0 to 2: 0 \(adversary_0\)"):
        names.player("3", what="--seat")
    with pytest.raises(ConfigError, match=r"'spy' is no player of tag\. tag has the players .* 2 \(agent_0\)\.$"):
        names.players(["spy"])


def test_a_scenario_is_stored_with_numbers() -> None:
    changes = ["scenario=fixed_opponents", "algorithms.player_1=dqn", "learners=player_1"]
    scenario = load_scenario("openspiel/kuhn_poker", changes)
    assert (list(scenario.algorithms), scenario.learners) == (["1"], (1,))  # type: ignore[attr-defined]
    league = load_scenario(
        "kuhn", ["scenario=league", "algorithm=ppo", "algorithms={main_exploiter: dqn, player_0: a2c, player_1: a2c}"]
    )
    assert sorted(league.algorithms) == ["0", "1", "main_exploiter"]
