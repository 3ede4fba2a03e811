"""Ranks as threads of this process."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np

from ludus.core.errors import RunError
from ludus.learners.ranks import share_of


class Group:
    def __init__(self, size):
        self.size, self.sums = size, 0
        self.barrier, self.arrays = threading.Barrier(size, timeout=30), [None] * size

    def sum(self, rank, array):
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
        return share_of(count, rank=self.rank, size=self.size)

    def sum(self, array):
        self.group.sum(self.rank, array)


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
