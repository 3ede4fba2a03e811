"""Vectors in subprocesses: the same as in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import subprocess_games as games

from ludus.core.errors import ConfigError, EnvError
from ludus.core.seeding import keys
from ludus.envs.base import SupportsRender, VectorEnv
from ludus.envs.processes.vector import SubprocessVectorEnv
from ludus.envs.registry import make_env
from ludus.envs.tree.game_tree import GameTree
from ludus.testing.env import check_env
from ludus.testing.ledger import Actor, record, same

SEEDS = keys(1, "subprocesses", count=4)
Made = Callable[..., SubprocessVectorEnv]
Slow = pytest.mark.slow  # each subprocess takes half a second to start; the fast tests need few


@pytest.fixture(scope="module")
def shared() -> Iterator[SubprocessVectorEnv]:
    """One vector for the tests that do not break it."""
    env = SubprocessVectorEnv(games.turns, 4, workers=2, restarts=1)
    yield env
    env.close()


# ------------------------------------------------------------------------------------------ the contract


@Slow
@pytest.mark.parametrize("make", [games.teams, pytest.param(games.turns, marks=pytest.mark.long)])
def test_vector_in_subprocesses_satisfies_vector_env_contract(make: Callable[[int], VectorEnv], made: Made) -> None:
    check_env(lambda n: made(make, n, workers=min(n, 2)), num_envs=3, steps=40, team="split", early_rewards=True)


def test_equals_the_vector_in_this_process(shared: SubprocessVectorEnv) -> None:
    check_equal(shared, games.turns(4))


@Slow
@pytest.mark.parametrize(("make", "workers"), [(games.teams, 3), (games.arms, 2)])
def test_others_equal_the_vector_in_this_process(make: Callable[[int], VectorEnv], workers: int, made: Made) -> None:
    check_equal(made(make, 4, workers=workers, restarts=1), make(4))


def check_equal(env: SubprocessVectorEnv, bare: VectorEnv) -> None:
    assert env.spec.agents == bare.spec.agents
    for quota in (None, np.array([2, 0, 1, 3])):
        same(traced(env, quota), traced(bare, quota), "in subprocesses")
    assert env.restarts == 0
    assert env.waited > 0


def traced(env: VectorEnv, quota: Any) -> list[list[Any]]:
    actor = Actor(env.spec, SEEDS)
    timestep = env.reset(SEEDS, episodes=quota)
    trace: list[list[Any]] = [[] for _ in SEEDS]
    for _ in range(30):
        record(env.spec, timestep, trace)
        trace[0].append(("state", None if timestep.state is None else timestep.state.tolist()))
        trace[0].append(("final", None if timestep.final_state is None else timestep.final_state.tolist()))
        timestep = env.step(actor.actions(timestep))
    return trace


def test_buffers_are_made_once_and_live_for_two_steps(shared: SubprocessVectorEnv) -> None:
    env = shared
    timesteps = [env.reset(SEEDS)]
    for t in range(4):
        timesteps.append(env.step(tuple(np.zeros(len(due.slot), np.int64) for due in timesteps[-1].due)))
        assert timesteps[t].due[t % 2].observation[:, 0].tolist() == [t] * 4
    assert np.shares_memory(timesteps[0].due[0].observation, timesteps[2].due[0].observation)
    assert not np.shares_memory(timesteps[0].due[0].observation, timesteps[1].due[1].observation)


def test_render_snapshot_and_illegal_actions(shared: SubprocessVectorEnv) -> None:
    env = shared
    assert isinstance(env, VectorEnv)
    assert isinstance(env, SupportsRender)
    with pytest.raises(EnvError, match="3 seeds were given for 4 environments"):
        env.reset(keys(0, "three", count=3))
    timestep = env.reset(SEEDS)
    assert env.render(3) == "move 0"
    assert env.snapshot() is None
    with pytest.raises(EnvError, match="cannot be resumed"):
        env.restore(b"")
    with pytest.raises(EnvError, match="illegal action 3 in row 2; legal: \\[0, 1, 2\\]"):
        env.step((np.array([0, 0, 3, 0]), np.zeros(0, np.int64)))
    with pytest.raises(EnvError, match="given 1 actions for 4 due decisions"):
        env.step((np.zeros(1, np.int64), np.zeros(0, np.int64)))
    assert env.restarts == 0
    assert len(timestep.due[0].slot) == 4
    env.step((np.zeros(4, np.int64), np.zeros(0, np.int64)))
    assert env.render(0) == "move 1"


@Slow
def test_a_compiled_game_has_its_tree() -> None:
    env = make_env("openspiel/kuhn_poker", num_envs=1, workers=1)
    assert isinstance(env, SubprocessVectorEnv)
    env.close()
    assert isinstance(env.tree, GameTree)


def test_wrong_parameters_are_refused(made: Made) -> None:
    with pytest.raises(ConfigError, match="workers=3 was given for 2 environments; expected 1 to 2"):
        made(games.turns, 2, workers=3)
    with pytest.raises(ConfigError, match=r"^size=-1 was given; expected 1 or more.$"):
        made(games.wrong_option, 2, workers=1)


@Slow
def test_environment_that_no_subprocess_can_make_raises(made: Made) -> None:
    with pytest.raises(
        EnvError, match="environments 0 to 1 of 2 cannot be made: the subprocess ended with exit code 5"
    ):
        made(games.dies_young, 2, workers=1)
    with pytest.raises(ConfigError, match="cannot be sent to a subprocess"):
        made(lambda num_envs: games.turns(num_envs), 2, workers=1)
