"""Vectors in subprocesses: faults are clear errors or repaired, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import subprocess_games as games

from ludus.core.errors import EnvError
from ludus.core.seeding import keys
from ludus.envs.base import VectorEnv
from ludus.envs.processes.vector import SubprocessVectorEnv
from ludus.envs.publisher_kernels import episode_seed
from ludus.testing.ledger import Actor, play, same

SEEDS = keys(1, "subprocesses", count=4)
Made = Callable[..., SubprocessVectorEnv]
Slow = pytest.mark.slow  # each subprocess takes half a second to start; the fast tests need few


def pids(env: SubprocessVectorEnv) -> list[int]:
    return [process.pid for process in env._processes]


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
    "deaf": "the subprocess did not answer within the deadline and was killed",
}


@Slow
@pytest.mark.parametrize("fault", SENTENCE)
def test_a_lost_subprocess_is_one_clear_error(fault: str, made: Made) -> None:
    env = made(early(fault, [2]), 4, workers=2, deadline=0.5 if fault in ("hang", "deaf") else None)
    with pytest.raises(EnvError, match=SENTENCE[fault]) as caught:
        steps(env, 5)
    seeds = SEEDS[2:].tolist()
    assert f"environments 2 to 3 of 4, seeds {seeds}, episodes [0, 0], steps [3, 3]" in str(caught.value)
    with pytest.raises(EnvError, match="before reset, or after an error; reset"):
        env.step((np.zeros(4, np.int64), np.zeros(0, np.int64)))


@Slow
def test_the_message_of_a_lost_subprocess_names_a_few_of_its_environments(made: Made) -> None:
    seeds = np.arange(6, dtype=np.uint64)
    env = made(partial(games.bad, fault="exit"), 6, workers=1)
    with pytest.raises(
        EnvError, match=r"environments 0 to 5 of 6, seeds \[0, 1, 2, 3\] …, episodes \[0, 0, 0, 0\] …"
    ) as caught:
        steps(env, 20, seeds)
    assert "Of all of them: seeds [0, 1, 2, 3, 4, 5], episodes [0, 0, 0, 0, 0, 0]" in caught.value.__notes__[-1]


@Slow
@pytest.mark.parametrize(
    ("fault", "sentence"), [("raise", "raised RuntimeError: out of fuel"), ("quit", "raised SystemExit: no licence")]
)
def test_an_exception_keeps_its_message_and_brings_its_traceback(fault: str, sentence: str, made: Made) -> None:
    env = made(early(fault, [1]), 4, workers=2)
    with pytest.raises(EnvError, match=sentence) as caught:
        steps(env, 5)
    assert f"seed {SEEDS[1]}, episode 0, step 3" in str(caught.value)
    assert "in step" in caught.value.__notes__[0]
    assert "environments 0 to 1" in caught.value.__notes__[0]
    assert len(env.reset(SEEDS).due[0].slot) == 4  # the subprocess is still there, with a new vector


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["exit", pytest.param("raise", marks=Slow)])
def test_a_fault_may_be_repaired_and_its_episodes_are_truncated(fault: str, made: Made) -> None:
    env = made(early(fault, [2]), 4, workers=2, restarts=1)
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


@Slow
def test_a_copy_that_an_environment_forks_answers_nothing(made: Made) -> None:
    env = made(early("copy", [2]), 4, workers=2)
    same(play(env, SEEDS, 30), play(games.turns(4), SEEDS, 30), "without copies")
    assert env.restarts == 0


@Slow
def test_grandchildren_end_with_the_subprocess(made: Made) -> None:
    env = made(early("orphan", [2]), 4, workers=2, restarts=1)
    group = pids(env)[1]
    steps(env, 5)
    assert env.restarts == 1
    until = time.monotonic() + 30
    while members(group):
        assert time.monotonic() < until
        time.sleep(0.05)


def members(group: int) -> list[str]:
    """Processes of a group that are no zombies."""
    table = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True)
    return [line for line in table.stdout.splitlines() if line.split()[0] == str(group) and line.split()[1][0] != "Z"]


@Slow
def test_close_waits_for_a_subprocess_that_died_unseen(made: Made) -> None:
    env = made(games.turns, 1, workers=1)
    (pid,) = pids(env)
    os.kill(pid, signal.SIGKILL)
    while games.running(pid):
        time.sleep(0.01)
    env.close()
    assert not games.alive(pid)


@Slow
def test_episodes_after_a_restart_are_deterministic(made: Made) -> None:
    env = made(early("raise", [0, 3]), 4, workers=3, restarts=4)
    one = play(env, SEEDS, 30)
    assert env.restarts == 2
    same(one, play(env, SEEDS, 30), "a second time")
    assert env.restarts == 4
    # Environments 2 and 3 are alone with their subprocesses: nobody else is disturbed by what 3 does.
    same(one[2:3], play(games.turns(4), SEEDS, 30)[2:3], "beside a faulty one")


@Slow
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


@Slow
def test_faults_are_repaired_so_many_times_only(made: Made) -> None:
    env = made(partial(games.bad, fault="exit"), 1, workers=1, restarts=2)
    named = f"(after 2 restarts), environment 0 of 1, seeds [{episode_seed(SEEDS[0], np.uint64(2))}], episodes [0], steps [3]"
    with pytest.raises(EnvError, match=re.escape(named)):
        steps(env, 20, SEEDS[:1])
    assert env.restarts == 2


@Slow
def test_more_faults_at_once_than_may_be_repaired(made: Made) -> None:
    env = made(early("exit", [0, 1, 2]), 4, workers=4, restarts=2)
    for _ in range(2):
        with pytest.raises(EnvError, match=r"environment 2 of 4, .*: the subprocess ended with exit code 3"):
            steps(env, 5)
    assert env.restarts == 0


@Slow
def test_a_vector_made_anew_has_more_time_than_a_step(made: Made) -> None:
    """In the same subprocess too."""
    make = partial(games.makes_slowly, fault="raise", seeds=early("raise", [0]).keywords["seeds"], seconds=2.0)
    env = made(make, 1, workers=1, deadline=0.5, restarts=2)
    steps(env, 5, SEEDS[:1])
    assert env.restarts == 1


@Slow
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


@Slow
def test_a_failing_render_is_an_error_and_disturbs_nobody(made: Made) -> None:
    env = made(games.arms, 2, workers=2)
    env.reset(SEEDS[:2])
    with pytest.raises(EnvError, match=r"environment 1 of 2.*RuntimeError: no screen"):
        env.render(1)
    assert env.step((np.ones((2, 2), np.float32),)).due[0].observation.tolist() == [[1, 1], [1, 1]]


# ------------------------------------------------------------------------------------------ nothing left behind


@Slow
def test_close_ends_all_even_those_that_hang(made: Made) -> None:
    env = made(early("hang", [0]), 2, workers=2, deadline=0.2)
    with pytest.raises(EnvError):
        steps(env, 5, SEEDS[:2])
    running = pids(env)
    env.close()
    env.close()
    assert not any(games.alive(pid) for pid in running)
    with pytest.raises(EnvError, match="is closed"):
        env.reset(SEEDS[:2])


@Slow
def test_an_interrupted_step_is_not_taken_up_again(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    env = made(games.turns, 2, workers=2)
    timestep = env.reset(SEEDS[:2])
    running = pids(env)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(env._processes[1], "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        env.step((np.zeros(2, np.int64), np.zeros(0, np.int64)))
    with pytest.raises(EnvError, match="was interrupted while its subprocesses were at work; make a new one"):
        env.reset(SEEDS[:2])
    assert len(timestep.due[0].slot) == 2
    env.close()
    assert not any(games.alive(pid) for pid in running)
