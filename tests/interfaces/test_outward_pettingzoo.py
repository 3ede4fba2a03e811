"""Environments as PettingZoo's: its own tests, order, rewards, agents that leave, masks."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import ludus
from ludus.core.errors import ConfigError, EnvError
from tests.interfaces.outward_games import Leaving, api_test, parallel_api_test, parallel_seed_test, seed_test

KUHN, COINS = "openspiel/kuhn_poker", "ludus.testing.fakes:coins"
GAMES = [KUHN, "openspiel/kuhn_poker(players=3)", COINS, Leaving]


@pytest.mark.filterwarnings("ignore")  # of names, zeros, masks in observations, illegal actions
@pytest.mark.parametrize("env", GAMES)
def test_pettingzoos_own_tests_pass(env: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for masks in ("observation", "info"):
        options: dict[str, Any] = {"masks": masks}
        api_test(ludus.pettingzoo_env(env, **options), num_cycles=20)
        seed_test(lambda options=options: ludus.pettingzoo_env(env, **options), num_cycles=10)
    parallel_api_test(ludus.pettingzoo_env(env, api="parallel"), num_cycles=20)
    parallel_seed_test(lambda: ludus.pettingzoo_env(env, api="parallel"), num_cycles=10)
    assert capsys.readouterr().out.count("Passed") == 3


def test_agents_take_turns_and_are_paid_at_the_end() -> None:
    env = ludus.pettingzoo_env(KUHN, seed=0)
    env.reset()
    order, totals = [], dict.fromkeys(env.possible_agents, 0.0)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        totals[agent] += reward
        if terminated or truncated:
            env.step(None)
            continue
        order.append(agent)
        assert observation["action_mask"].tolist() == [1, 1]
        assert env.observe(env.possible_agents[1 - env.possible_agents.index(agent)])["action_mask"].sum() == 0
        env.step(1)
    assert order == ["player_0", "player_1"]
    assert list(totals.values()) == env.game.returns.tolist()
    assert env.agents == []


def test_agents_that_act_at_once_are_asked_in_order() -> None:
    env = ludus.pettingzoo_env(COINS, seed=0)
    env.reset()
    assert env.agent_selection == "player_0"
    env.step(1)
    assert env.agent_selection == "player_1"
    env.step(0)
    assert [env.rewards[name] for name in env.agents] == [1.0, -1.0]


def test_who_leaves_is_terminated_and_who_stays_is_truncated() -> None:
    env = ludus.pettingzoo_env(Leaving, api="parallel")
    env.reset(seed=0)
    action = {"blue_0": 2, "blue_1": 1, "red_0": 0}
    env.step(action)
    _, rewards, terminations, truncations, _ = env.step(action)
    assert rewards == {"blue_0": 2.0, "blue_1": 1.0, "red_0": 10.0}
    assert terminations["blue_0"]
    assert env.agents == ["blue_1", "red_0"]
    env.step(action)
    _, _, terminations, truncations, _ = env.step(action)
    assert truncations == {"blue_1": True, "red_0": True}
    assert not any(terminations.values())
    assert env.agents == []
    with pytest.raises(EnvError, match="is over"):
        env.step(action)


def test_in_parallel_who_is_not_due_has_one_legal_action() -> None:
    env = ludus.pettingzoo_env(KUHN, api="parallel", masks="info", seed=0)
    observations, infos = env.reset()
    assert observations["player_0"].shape == (11,)
    assert [infos[name]["action_mask"].tolist() for name in env.agents] == [[1, 1], [1, 0]]
    with pytest.raises(EnvError, match="no action of agent 'player_0'"):
        env.step({"player_1": 0})


def test_pickles_are_new_environments_and_wrong_arguments_errors() -> None:
    env = ludus.pettingzoo_env(KUHN, seed=1)
    env.reset()
    first = env.observe("player_0")["observation"]
    other = pickle.loads(pickle.dumps(env))
    other.reset()
    assert np.array_equal(other.observe("player_0")["observation"], first)
    wrong: list[Any] = [{"api": "turns"}, {"masks": "none"}, {"illegal_actions": "skip"}]
    for arguments in wrong:
        with pytest.raises(ConfigError, match="allowed"):
            ludus.pettingzoo_env(KUHN, **arguments)
