"""Ranks as threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from ludus.algorithms.common.base import updated_priorities
from ludus.backend.ranks import SINGLE_RANK, rank_slice
from ludus.core.errors import RunError


class Group:
    def __init__(self, size):
        self.size, self.sums = size, 0
        self.barrier, self.arrays = threading.Barrier(size, timeout=30), [None] * size

    def sum(self, rank, array):
        array = np.asarray(array)  # of a tensor, the same memory
        try:
            self.arrays[rank] = array.copy()
            if self.barrier.wait() == 0:
                self.sums += 1
            assert len({a.shape for a in self.arrays}) == 1, "ranks that sum different things"
            total = np.sum(self.arrays, axis=0, dtype=array.dtype)
            self.barrier.wait()
        except threading.BrokenBarrierError:
            raise RunError(f"rank {rank}: another one died") from None
        array[...] = total


@dataclass
class Member:
    group: Group = field(repr=False)
    rank: int

    @property
    def size(self):
        return self.group.size

    def share(self, count):
        return rank_slice(count, rank=self.rank, size=self.size)

    def sum(self, array):
        self.group.sum(self.rank, array)

    def summing(self, array):
        self.sum(array)
        return lambda: None


def together(size, work):
    """[work(ranks) of every rank], each in a thread of its own; an exception stands for its answer."""
    group, answers = Group(size), [None] * size

    def run(rank):
        try:
            answers[rank] = work(Member(group, rank))
        except Exception as error:  # noqa: BLE001 (the test looks at it)
            answers[rank] = error
            group.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def assert_ranks_learn_alike(size, make, batches, *, atol=3e-6):
    """Metrics of ranks that update from the batches together. make(ranks) -> a learner. They are equal among themselves to the bit, in all
    that their learners hold, and to a learner that is alone but for rounding; also where some have no rows."""

    def learned(ranks):
        learner = make(ranks)
        metrics = [learner.update(batch) for batch in batches]
        state = learner.state_dict() | {"priorities": [priority for _, _, priority in updated_priorities(learner)]}
        return dict(arrays_in({"published": learner.weights(), **state})), metrics

    (alone, expected), answers = learned(SINGLE_RANK), together(size, learned)
    for answer in answers:
        assert not isinstance(answer, BaseException), answer
        held, metrics = answer
        for name, array in held.items():
            assert array.tobytes() == answers[0][0][name].tobytes() or name.startswith("priorities"), name
            if name.endswith("weights") or name.startswith("published"):
                np.testing.assert_allclose(array, alone[name], rtol=0, atol=atol, err_msg=name)
            elif name.startswith("priorities"):
                np.testing.assert_allclose(array, alone[name], atol=1e-5)
        assert metrics == answers[0][1]
        for ours, theirs in zip(metrics, expected, strict=True):
            assert ours == pytest.approx(theirs, abs=3e-6, rel=1e-4)
    return answers[0][1]


def arrays_in(state, name=""):
    """(place, array) of all arrays in nested mappings and lists."""
    if isinstance(state, Mapping):
        for key, value in state.items():
            yield from arrays_in(value, f"{name}/{key}" if name else key)
    elif isinstance(state, list):
        for k, value in enumerate(state):
            yield from arrays_in(value, f"{name}/{k}")
    elif isinstance(state, np.ndarray):
        yield name, state
