"""Vectors in subprocesses: the same as in this process, faults, and nothing left behind."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import subprocess_games as games

from ludus.envs.base import Renders, VectorEnv
from ludus.envs.publisher_kernels import episode_seed
from ludus.envs.subprocesses import SubprocessVectorEnv
from ludus.errors import ConfigError, EnvError
from ludus.seeding import keys
from ludus.testing.actor import Actor
from ludus.testing.env import check_env
from ludus.testing.traces import play, record, same

SEEDS = keys(1, "subprocesses", count=4)
Made = Callable[..., SubprocessVectorEnv]


@pytest.fixture
def made() -> Iterator[Made]:
    """Makes vectors that are closed after the test."""
    vectors: list[SubprocessVectorEnv] = []

    def make(*arguments: Any, **options: Any) -> SubprocessVectorEnv:
        vectors.append(SubprocessVectorEnv(*arguments, **options))
        return vectors[-1]

    yield make
    for vector in vectors:
        vector.close()


def pids(env: SubprocessVectorEnv) -> list[int]:
    return [process.pid for process in env._processes]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ------------------------------------------------------------------------------------------ the contract


@pytest.mark.slow
@pytest.mark.parametrize("make", [games.teams, games.turns])
def test_contract(make: Callable[[int], VectorEnv], made: Made) -> None:
    check_env(lambda n: made(make, n, workers=min(n, 2)), num_envs=3, steps=40, team="split", early_rewards=True)


@pytest.mark.parametrize(("make", "workers"), [(games.teams, 3), (games.turns, 2), (games.arms, 2)])
def test_equals_the_vector_in_this_process(make: Callable[[int], VectorEnv], workers: int, made: Made) -> None:
    env = made(make, 4, workers=workers, restarts=1)
    bare = make(4)
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


def test_buffers_are_made_once_and_live_for_two_steps(made: Made) -> None:
    env = made(games.turns, 4, workers=2)
    timesteps = [env.reset(SEEDS)]
    for t in range(4):
        timesteps.append(env.step(tuple(np.zeros(len(due.slot), np.int64) for due in timesteps[-1].due)))
        assert timesteps[t].due[t % 2].observation[:, 0].tolist() == [t] * 4
    assert np.shares_memory(timesteps[0].due[0].observation, timesteps[2].due[0].observation)
    assert not np.shares_memory(timesteps[0].due[0].observation, timesteps[1].due[1].observation)


def test_render_snapshot_and_illegal_actions(made: Made) -> None:
    env = made(games.turns, 4, workers=2, restarts=1)
    assert isinstance(env, VectorEnv)
    assert isinstance(env, Renders)
    with pytest.raises(EnvError, match="before reset"):
        env.step((np.zeros(4, np.int64), np.zeros(0, np.int64)))
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


def test_wrong_parameters_are_refused(made: Made) -> None:
    with pytest.raises(ConfigError, match="workers=3 was given for 2 environments; expected 1 to 2"):
        made(games.turns, 2, workers=3)
    with pytest.raises(ConfigError, match=r"^size=-1 was given; expected 1 or more.$"):
        made(games.wrong_option, 2, workers=2)
    with pytest.raises(
        EnvError, match="environments 0 to 1 of 2 cannot be made: the subprocess ended with exit code 5"
    ):
        made(games.dies_young, 2, workers=1)
    with pytest.raises(ConfigError, match="cannot be sent to a subprocess"):
        made(lambda num_envs: games.turns(num_envs), 2, workers=1)
    env = made(games.turns, 2, workers=1)
    with pytest.raises(EnvError, match="3 seeds were given for 2 environments"):
        env.reset(keys(0, "three", count=3))


# ------------------------------------------------------------------------------------------ faults


def steps(env: VectorEnv, count: int, seeds: Any = SEEDS) -> list[Any]:
    timestep = env.reset(seeds)
    out = []
    for _ in range(count):
        timestep = env.step(tuple(np.zeros(len(due.slot), np.int64) for due in timestep.due))
        out.append(timestep)
    return out


def early(fault: str, environments: list[int]) -> partial[Any]:
    """Misbehaves in the first episodes of some environments."""
    seeds = [int(episode_seed(SEEDS[e], np.uint64(0)) & np.uint64(0x7FFFFFFF)) for e in environments]
    return partial(games.bad, fault=fault, seeds=seeds)


SENTENCE = {
    "exit": "the subprocess ended with exit code 3",
    "abort": "the subprocess was killed by SIGABRT",
    "hang": "the subprocess did not answer within the deadline and was killed",
}


@pytest.mark.parametrize("fault", SENTENCE)
def test_a_lost_subprocess_is_one_clear_error(fault: str, made: Made) -> None:
    env = made(early(fault, [2]), 4, workers=2, deadline=0.5)
    with pytest.raises(EnvError, match=SENTENCE[fault]) as caught:
        steps(env, 5)
    seeds = SEEDS[2:].tolist()
    assert f"environments 2 to 3 of 4, seeds {seeds}, episodes [0, 0], steps [3, 3]" in str(caught.value)
    with pytest.raises(EnvError, match="after an error; reset"):
        env.step((np.zeros(4, np.int64), np.zeros(0, np.int64)))


def test_an_exception_keeps_its_message_and_brings_its_traceback(made: Made) -> None:
    env = made(early("raise", [1]), 4, workers=2)
    with pytest.raises(EnvError, match="raised RuntimeError: out of fuel") as caught:
        steps(env, 5)
    assert f"seed {SEEDS[1]}, episode 0, step 3" in str(caught.value)
    assert "in step" in caught.value.__notes__[0]
    assert "environments 0 to 1" in caught.value.__notes__[0]
    assert len(env.reset(SEEDS).due[0].slot) == 4  # the subprocess is still there, with a new vector


@pytest.mark.parametrize("fault", [*SENTENCE, "raise"])
def test_a_fault_may_be_repaired_and_its_episodes_are_truncated(fault: str, made: Made) -> None:
    env = made(early(fault, [2]), 4, workers=2, deadline=0.5, restarts=1)
    before = pids(env)
    timesteps = steps(env, 4)
    timestep = timesteps[2]
    assert env.restarts == 1
    assert pids(env)[0] == before[0]
    assert (pids(env)[1] == before[1]) == (fault == "raise")
    assert timestep.finished.environment.tolist() == [2, 3]
    assert timestep.finished.terminated.tolist() == [False, False]
    assert timestep.finished.length.tolist() == [3, 3]
    # Player 0 moved 1st and 3rd and was told of 1 - 1 with its 3rd; player 1 was paid after its 2nd, of which nobody heard.
    assert timestep.finished.returns.tolist() == [[0, 0], [0, 0]]
    for player, seen in ((0, [2, 0]), (1, [1, 0])):  # its own last decision's
        ended = timestep.ended[player]
        assert ended.slot.tolist() == [2, 3]
        assert ended.observation.tolist() == [seen, seen]
        assert ended.reward.tolist() == [0, 0]
        assert ended.terminated.tolist() == [False, False]
        assert ended.mask is not None
        assert ended.mask.tolist() == [[True, True, player == 0]] * 2
    assert timestep.due[0].slot.tolist() == [2, 3]  # new episodes begin; environments 0 and 1 go on
    assert timestep.due[0].first.tolist() == [True, True]
    assert timestep.due[0].observation.tolist() == [[0, 0], [0, 0]]
    assert timestep.due[1].slot.tolist() == [0, 1]
    assert timesteps[3].due[1].slot.tolist() == [2, 3]


def test_what_comes_after_a_repair_is_the_same_again(made: Made) -> None:
    env = made(early("raise", [0, 3]), 4, workers=3, restarts=4)
    one = play(env, SEEDS, 30)
    assert env.restarts == 2
    same(one, play(env, SEEDS, 30), "a second time")
    assert env.restarts == 4
    # Environments 2 and 3 are alone with their subprocesses: nobody else is disturbed by what 3 does.
    same(one[2:3], play(games.turns(4), SEEDS, 30)[2:3], "beside a faulty one")


def test_a_truncated_episode_counts_towards_the_quota(made: Made) -> None:
    env = made(early("raise", [0]), 4, workers=2, restarts=1)
    actor = Actor(env.spec, SEEDS)
    timestep = env.reset(SEEDS, episodes=np.array([2, 1, 2, 0]))
    played: list[tuple[int, bool]] = []
    while any(len(due.slot) for due in timestep.due):
        timestep = env.step(actor.actions(timestep))
        finished = timestep.finished
        played += zip(finished.environment.tolist(), finished.terminated.tolist(), strict=True)
    assert sorted(played) == [(0, False), (0, True), (1, False), (2, True), (2, True)]


def test_faults_are_repaired_so_many_times_only(made: Made) -> None:
    env = made(partial(games.bad, fault="exit"), 1, workers=1, restarts=2)
    with pytest.raises(EnvError, match=r"\(after 2 restarts\), environment 0 of 1, .* episodes \[2\], steps \[3\]"):
        steps(env, 20, SEEDS[:1])
    assert env.restarts == 2


def test_a_subprocess_that_is_killed_from_outside_is_repaired(made: Made) -> None:
    env = made(games.arms, 2, workers=2, restarts=1)
    timestep = env.reset(SEEDS[:2])
    timestep = env.step((np.ones((2, 2), np.float32),))
    os.kill(pids(env)[1], 9)
    timestep = env.step((np.ones((2, 2), np.float32),))
    assert timestep.finished.environment.tolist() == [1]
    assert timestep.finished.returns.tolist() == [[2]]  # of the first step; what the second was paid nobody knows
    assert timestep.ended[0].observation.tolist() == [[1, 1]]
    assert timestep.final_state is not None
    assert timestep.final_state.tolist() == [[1]]
    assert timestep.due[0].observation.tolist() == [[2, 2], [0, 0]]


def test_a_failing_render_is_an_error_and_disturbs_nobody(made: Made) -> None:
    env = made(games.arms, 2, workers=2)
    env.reset(SEEDS[:2])
    with pytest.raises(EnvError, match=r"environment 1 of 2.*RuntimeError: no screen"):
        env.render(1)
    assert env.step((np.ones((2, 2), np.float32),)).due[0].observation.tolist() == [[1, 1], [1, 1]]


# ------------------------------------------------------------------------------------------ nothing left behind


def test_close_ends_all_even_those_that_hang(made: Made) -> None:
    env = made(early("hang", [0]), 2, workers=2, deadline=0.2)
    with pytest.raises(EnvError):
        steps(env, 5, SEEDS[:2])
    running = pids(env)
    env.close()
    env.close()
    assert not any(alive(pid) for pid in running)
    with pytest.raises(EnvError, match="is closed"):
        env.reset(SEEDS[:2])


def test_a_vector_that_nobody_holds_ends_its_subprocesses() -> None:
    env = SubprocessVectorEnv(games.turns, 2, workers=2)
    running = pids(env)
    del env
    gc.collect()
    assert not any(alive(pid) for pid in running)


def test_an_interrupted_step_is_not_taken_up_again(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    env = made(games.turns, 2, workers=2)
    timestep = env.reset(SEEDS[:2])
    running = pids(env)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(env._processes[1], "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        env.step((np.zeros(2, np.int64), np.zeros(0, np.int64)))
    with pytest.raises(EnvError, match="was interrupted while its subprocesses were at work; make it anew"):
        env.reset(SEEDS[:2])
    assert len(timestep.due[0].slot) == 2
    env.close()
    assert not any(alive(pid) for pid in running)
