"""Agents that die and join, masks, rewards and final observations, in games whose numbers are worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from zoo_games import Relay, Shift

from ludus.core.errors import EnvError
from ludus.core.types import Timestep
from ludus.envs.adapters.agent_seats import Sides
from ludus.envs.adapters.pettingzoo_vector import zoo_vector
from ludus.envs.base import VectorEnv
from ludus.testing.env import check_env

ONE = np.array([7], np.uint64)


def relay(num_envs: int = 1, masks: str = "", **sides: Any) -> VectorEnv:
    return zoo_vector(lambda: Relay(masks), num_envs, id="tests/relay", sides=Sides(**sides))


def shift(num_envs: int = 1, silent: bool = False, **sides: Any) -> VectorEnv:
    return zoo_vector(lambda: Shift(silent), num_envs, id="tests/shift", sides=Sides(**sides))


def constant(env: VectorEnv, timestep: Timestep, action: int) -> Timestep:
    return env.step(tuple(np.full(len(due.slot), action) for due in timestep.due))


@pytest.mark.parametrize("masks", ["", "observation", "info"])
@pytest.mark.parametrize("teams", [None, "prefix", "one"])
def test_custom_turn_based_envs_satisfy_vector_env_contract(masks: str, teams: Any) -> None:
    check_env(lambda n: relay(n, masks, teams=teams), num_envs=2, steps=40, team="split", early_rewards=True)


@pytest.mark.parametrize("teams", [None, "one", {"red": ["worker_1"], "blue": ["worker_2", "worker_0"]}])
@pytest.mark.parametrize("silent", [False, True])
def test_custom_parallel_envs_satisfy_vector_env_contract(silent: bool, teams: Any) -> None:
    check_env(lambda n: shift(n, silent, teams=teams), num_envs=2, steps=40, team="split")


def test_turns_with_deaths_and_a_guard_that_joins() -> None:
    env = relay()
    timestep = env.reset(ONE)
    movers, paid, ended = [], [], {}
    for _ in range(7):
        (player,) = (p for p, due in enumerate(timestep.due) if len(due.slot))
        movers.append(player)
        paid.append(timestep.due[player].reward.tolist())
        timestep = constant(env, timestep, 1)
        for p, end in enumerate(timestep.ended):
            if len(end.slot):
                ended[p] = (len(movers), end.reward.tolist(), end.terminated.tolist(), end.observation.tolist())
    # The guard joins after the second move and is next; the fourth is scout 0's second.
    assert movers == [0, 1, 2, 0, 1, 2, 1]
    # Actions count from 0 here; the guard's 1 is its own action 2. Sums since the own last decision:
    # scout 0: 1 - 1 - 1 (own, scout 1, guard). scout 1: 1 - 1 - 1, then 1 - 1 (guard; scout 0 is gone). guard: 2 - 1 - 1.
    assert paid == [[0], [0], [0], [-1], [-1], [0], [0]]
    assert ended[0] == (4, [1], [False], [[0, 4]])  # truncated by its second move
    assert ended[1] == (7, [1], [True], [[1, 7]])
    assert ended[2] == (7, [1], [True], [[2, 7, 5]])  # 2 for its own, -1 for the last move
    # scout 0: 1 - 1 - 1 + 1. scout 1: -1 + 1 - 1 - 1 + 1 - 1 + 1. guard: 2 - 1 - 1 + 2 - 1.
    assert timestep.finished.returns.tolist() == [[0, -1, 1]]
    assert timestep.finished.terminated.tolist() == [True]
    assert timestep.finished.length.tolist() == [7]


def test_an_agent_that_dies_is_closed_once_and_its_team_scores_on() -> None:
    env = shift(teams="one")
    timestep = env.reset(ONE)
    slots, closed = [], []
    for _ in range(4):
        slots.append(timestep.due[0].slot.tolist())
        timestep = constant(env, timestep, 2)
        closed.append((timestep.ended[0].slot.tolist(), timestep.ended[0].terminated.tolist()))
    assert slots == [[0, 1, 2], [0, 1, 2], [1, 2], [1, 2]]
    assert closed == [([], []), ([0], [True]), ([], []), ([1, 2], [False, False])]
    # Everybody there is paid the sum of the actions: 6 to three, twice; then 4 to two, twice.
    assert timestep.finished.returns.tolist() == [[3 * 6 * 2 + 2 * 4 * 2]]
    assert timestep.finished.terminated.tolist() == [False]
    assert timestep.ended[0].observation.tolist() == [[1, 4], [2, 4]]


def test_who_is_shown_nothing_at_its_end_is_closed_with_what_it_saw_last() -> None:
    env = shift(silent=True)
    timestep = env.reset(ONE)
    for _ in range(2):
        timestep = constant(env, timestep, 0)
    assert timestep.ended[0].observation.tolist() == [[0, 1]]
    for _ in range(2):
        timestep = constant(env, timestep, 0)
    assert timestep.ended[1].observation.tolist() == [[1, 3]]


def test_state_at_every_step_and_at_the_end() -> None:
    env = shift(state=True)
    assert env.spec.state is not None
    assert env.spec.state.shape == (2,)
    timestep = env.reset(ONE)
    states = []
    for _ in range(4):
        assert timestep.state is not None
        states.append(timestep.state[0].tolist())
        timestep = constant(env, timestep, 0)
    assert states == [[0, 3], [1, 3], [2, 2], [3, 2]]
    assert timestep.final_state is not None
    assert timestep.final_state.tolist() == [[4, 0]]
    assert timestep.state is not None
    assert timestep.state.tolist() == [[0, 3]]


@pytest.mark.parametrize("masks", ["observation", "info"])
def test_masks_are_found_and_illegal_moves_never_get_there(masks: str) -> None:
    env = relay(masks=masks)
    timestep = env.reset(ONE)
    assert timestep.due[0].mask is not None
    assert timestep.due[0].mask.tolist() == [[True, True]]
    timestep = constant(env, timestep, 1)
    assert timestep.due[1].mask is not None
    assert timestep.due[1].mask.tolist() == [[True, False]]
    with pytest.raises(EnvError, match="illegal action 1 in row 0; legal: \\[0\\]"):
        constant(env, timestep, 1)


def test_one_team_with_padded_observations_and_actions() -> None:
    env = relay(teams="one")
    assert [str(agent.action) for agent in env.spec.agents] == ["Discrete(4)"] * 3
    assert [agent.observation.shape for agent in env.spec.agents] == [(3,)] * 3
    timestep = env.reset(ONE)
    assert timestep.due[0].observation.tolist() == [[0, 0, 0]]
    assert timestep.due[0].mask is not None
    assert timestep.due[0].mask.tolist() == [[True, True, False, False]]
    for _ in range(2):
        timestep = constant(env, timestep, 1)
    assert timestep.due[0].slot.tolist() == [2]
    assert timestep.due[0].observation.tolist() == [[2, 2, 5]]
    assert timestep.due[0].mask.tolist() == [[True, True, True, True]]
    for _ in range(2):
        timestep = constant(env, timestep, 1)
    assert timestep.ended[0].mask is not None  # scout 0 is truncated: only its own two actions may be bootstrapped from
    assert timestep.ended[0].mask.tolist() == [[True, True, False, False]]


def test_text_of_a_game() -> None:
    env = zoo_vector(lambda: Relay(render_mode="ansi"), 1, id="tests/relay", sides=Sides())
    timestep = env.reset(ONE)
    constant(env, timestep, 0)
    assert env.render(0) == "move 1"
    silent = relay()
    silent.reset(ONE)
    with pytest.raises(EnvError, match="made without a render_mode"):
        silent.render(0)
