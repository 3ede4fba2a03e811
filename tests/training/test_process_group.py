"""Groups of ranks: sums between threads here, between processes in the slow tests."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.on_policy.config import A2C
from ludus.algorithms.ppo.config import PPO
from ludus.backend.ranks import GradientSum, RankGroup
from ludus.core.errors import RunError
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import synthetic_rollout
from ludus.training.remote_trainer import ProcessGroup, RankMeeting


def meet(size, work, *, address=None, timeout=20.0):
    """[work(group)] of ranks in threads."""
    meeting = RankMeeting() if address is None else None
    where = address if meeting is None else meeting.address

    def run(rank):
        with ProcessGroup(where, rank=rank, size=size, timeout=timeout) as group:
            return work(group)

    with ThreadPoolExecutor(size) as pool:
        answers = list(pool.map(run, range(size)))
    if meeting is not None:
        meeting.close()
        meeting.close()
    return answers


def summed(group):
    array, tensor = (
        np.array([1.0 + group.rank, 0.1], np.float32),
        torch.full((2, 2), 2.0**group.rank, dtype=torch.float64),
    )
    group.sum(array)
    group.sum(tensor)
    return array.tolist(), tensor.tolist()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_sums(size):
    answers = meet(size, summed)
    array = [[1.0, np.float32(0.1)], [3.0, np.float32(0.2)], [6.0, pytest.approx(0.3)]][size - 1]
    tensor = [[2.0**size - 1] * 2] * 2
    assert answers[0] == (array, tensor)
    assert answers == [answers[0]] * size


@pytest.mark.parametrize("size", [2, 3])
def test_sums_that_go_on_beside_other_work(size):
    """Several at a time, of parts of one gradient: one sum's bits between two ranks; rings of more round as each part is cut."""

    def work(group):
        parts = torch.linspace(-1.0, 1.0, 5001) ** (1 + group.rank) / 3.0
        whole = parts.clone()
        waits = [group.summing(part) for part in parts.split(1234)]
        for wait in waits:
            wait()
        group.sum(whole)
        assert torch.equal(parts, whole) or size > 2
        torch.testing.assert_close(parts, whole, rtol=1e-6, atol=1e-6)
        return parts.tolist()

    answers = meet(size, work)
    assert answers == [answers[0]] * size


def test_ranks_meet_at_a_file(tmp_path):
    assert meet(2, summed, address=f"file://{tmp_path / 'meeting'}") == meet(2, summed)


def test_it_is_a_group_of_ranks_with_shares():
    def work(group):
        assert isinstance(group, RankGroup)
        return group.rank, group.size, group.share(5)

    assert meet(2, work) == [(0, 2, slice(0, 2)), (1, 2, slice(2, 5))]


@pytest.mark.slow
def test_who_comes_too_late_is_an_error_that_says_so():
    meeting = RankMeeting()
    with pytest.raises(RunError, match=r"rank 1 of 2 met not all others at 127.0.0.1:\d+ within 0.5 s"):
        ProcessGroup(meeting.address, rank=1, size=2, timeout=0.5)


@pytest.mark.slow
def test_a_rank_that_does_not_come_to_a_sum_is_waited_for_so_long():
    told = threading.Event()

    def work(group):
        if group.rank == 1:
            told.wait(30.0)
            return None
        with pytest.raises(
            RunError, match=r"rank 0 of 2: another rank died, left, or did not come to a sum within 0.5 s"
        ):
            group.sum(np.zeros(3))
        told.set()
        return True

    assert meet(2, work, timeout=0.5) == [True, None]


def test_a_rank_that_leaves_is_not_waited_for():
    def work(group):
        if group.rank == 0:
            group.close()
            with pytest.raises(RunError, match="rank 0 of 2 has left its group"):
                group.sum(np.zeros(3))
            return True
        with pytest.raises(RunError, match="rank 1 of 2: another rank died"):
            group.sum(np.zeros(3))
        return True

    started = time.monotonic()
    assert meet(2, work, timeout=60.0) == [True, True]
    assert time.monotonic() - started < 50


@pytest.mark.parametrize(
    ("address", "rank", "message"),
    [
        ("nowhere", 0, "expected HOST:PORT of a RankMeeting, or file:///PATH"),
        ("127.0.0.1:1", 2, "rank 2 of 2: ranks are numbered from 0 to 1"),
        pytest.param(  # torch tries to connect for two seconds
            "127.0.0.1:1", 1, "rank 1 of 2 met not all others at 127.0.0.1:1", marks=pytest.mark.slow
        ),
    ],
)
def test_process_group_errors_name_the_cause(address, rank, message):
    with pytest.raises(RunError, match=message):
        ProcessGroup(address, rank=rank, size=2, timeout=0.5)


def test_a_host_that_is_not_this_machine_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise RuntimeError("the server socket has failed to listen")

    monkeypatch.setattr("torch.distributed.TCPStore", refuses)
    with pytest.raises(
        RunError, match=r"ranks cannot meet at node7: the server socket has failed to listen\. Its name"
    ):
        RankMeeting("node7")


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_sums_on_gpus():
    def work(group):
        tensor = torch.full((3,), 1.0 + group.rank, device=f"cuda:{group.rank}")
        waits = [group.summing(part) for part in tensor.split(2)]
        for wait in waits:
            wait()
        group.sum(tensor[:1])
        return tensor.tolist()

    assert meet(2, work) == [[6.0, 3.0, 3.0]] * 2


# ------------------------------------------------------------------ processes

ALGORITHMS = {
    "ppo": PPO(epochs=4, hidden=(16,), learning_rate=0.003),
    "ppo-minibatches": PPO(epochs=2, minibatches=4, hidden=(16,), learning_rate=0.003),
    "dqn": DQN(hidden=(16,), learning_rate=0.003),
    "a2c, in buckets": A2C(hidden=(16,), learning_rate=0.003),  # by torch's backend
}


def train(name, ranks_of=None, *, dies=None):
    """Weights, after four updates, as bytes by name."""
    torch.set_num_threads(1)
    if "buckets" in name and ranks_of is not None:  # in a process of its own
        GradientSum.__init__.__kwdefaults__["bucket"] = 512
    env = make_env("openspiel/leduc_poker", num_envs=1, tree="on").spec
    algorithm = ALGORITHMS[name]
    group = ranks_of() if ranks_of is not None else None
    context = LearnerContext(env, (0,), 0) if group is None else LearnerContext(env, (0,), 0, ranks=group)
    learner = algorithm.learner(context)
    for k in range(4):
        policy = build_policy(learner.spec, learner.weights())
        rollout = synthetic_rollout(env, policy, seats=(0,), segments=100, rng=np.random.default_rng(k))
        ((_, columns),) = learner.items(rollout)
        if k == 2 and group is not None and group.rank == dies:
            os._exit(9)
        learner.update(Sample(columns, np.arange(len(columns["action"])), np.ones(len(columns["action"]))))
    if group is not None:
        group.close()
    return learner.weights()


def in_process(name, address, rank, size, dies, answers):
    try:
        weights = train(name, lambda: ProcessGroup(address, rank=rank, size=size, timeout=240.0), dies=dies)
        answers.put((rank, weights))
    except RunError as error:
        answers.put((rank, str(error)))


def processes(name, size, *, dies=None):
    meeting, context = RankMeeting(), multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ludus.algorithms.on_policy.learner", "ludus.algorithms.dqn.learner", __name__])
    answers = context.Queue()
    started = [
        context.Process(target=in_process, args=(name, meeting.address, rank, size, dies, answers))
        for rank in range(size)
    ]
    for process in started:
        process.start()
    found = dict(answers.get(timeout=280) for _ in range(size - (dies is not None)))
    for process in started:
        process.join(60)
    assert [process.exitcode for process in started] == [9 if rank == dies else 0 for rank in range(size)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [*zip(ALGORITHMS, (3, 2, 2, 3), strict=True)])
def test_processes_learn_what_one_learner_does(name, size):
    alone, found = train(name), processes(name, size)
    for rank in range(size):
        for key, array in found[rank].items():
            np.testing.assert_allclose(array, alone[key], rtol=0, atol=5e-6)
            assert array.tobytes() == found[0][key].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "a2c, in buckets"])
def test_a_process_that_is_killed_ends_the_others_with_an_error(name):
    found = processes(name, 3, dies=1)
    assert sorted(found) == [0, 2]
    for rank, message in found.items():
        assert message.startswith(f"rank {rank} of 3: another rank died")
