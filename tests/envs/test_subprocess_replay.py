"""Vectors in subprocesses that are killed: the other environments go on as if nothing had happened."""

from __future__ import annotations

import os
import signal
import zlib

import numpy as np
import pytest

from ludus.envs.registry import make_env
from ludus.envs.subprocesses import SubprocessVectorEnv
from ludus.seeding import keys
from ludus.testing.traces import Trace, record
from ludus.types import Array, Timestep

pytestmark = pytest.mark.slow

ENVS, WORKERS = 5, 3
SEEDS = keys(2, "replay", count=ENVS)


def actions(timestep: Timestep) -> tuple[Array, ...]:
    """A function of what is seen, so that an episode is one of its seed, whatever was played before it."""
    return tuple(
        np.array([zlib.crc32(row.tobytes()) % 2 for row in due.observation], np.int64).reshape(len(due.slot))
        for due in timestep.due
    )


def test_the_others_are_not_disturbed() -> None:
    """Bit for bit, step by step: environments of the subprocesses that live."""

    def steps(env: SubprocessVectorEnv, kill: bool) -> Trace:
        trace: Trace = [[] for _ in range(ENVS)]
        timestep = env.reset(SEEDS)
        for t in range(200):
            record(env.spec, timestep, trace)
            if kill and t in (0, 50, 100, 199):
                os.kill(env._processes[1].pid, signal.SIGKILL)
            timestep = env.step(actions(timestep))
        env.close()
        return trace

    runs = []
    for kill in (False, True):
        env = make_env("gymnasium/CartPole-v1", num_envs=ENVS, vector="python", workers=WORKERS, restarts=4)
        assert isinstance(env, SubprocessVectorEnv)
        runs.append(steps(env, kill))
        assert env.restarts == 4 * kill
    spared = [0, 1, 4]
    assert [runs[0][e] for e in spared] == [runs[1][e] for e in spared]
    assert runs[0][2] != runs[1][2]
