"""Time in each environment: which episode it is in, how far it has come, and how many it is to play."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.rollout import kernels
from ludus.rollout.base import RolloutOrder
from ludus.rollout.shards import Shard


class Clocks:
    """Of the E environments of a shard. episode int64[E]: how many they have finished; index int64[E]: of the present ones; quota
    int64[E]: how many they play, -1 without end; clock int64[E, 2]: see `kernels`. step: number of the present one; active: how many have
    not played their quota."""

    def __init__(self, shard: Shard) -> None:
        num_envs = shard.num_envs
        self.shard = shard
        self.episode = np.zeros(num_envs, np.int64)
        self.index = np.zeros(num_envs, np.int64)
        self.quota = np.full(num_envs, -1, np.int64)
        self.clock = np.zeros((num_envs, 2), np.int64)
        self.step = self.active = 0

    def restart(self, order: RolloutOrder) -> int | NDArray[np.int64] | None:
        """Everything anew. What the environments' reset is told about the episodes to play."""
        self.episode.fill(0)
        self.clock[:] = -1, 0
        self.step = 0
        self.index[:] = order.first_episode + self.shard.environments
        self.quota.fill(-1)
        quota: int | NDArray[np.int64] | None = None
        if order.unit == "episodes":
            self.quota[:] = self.shard.quota(order.amount)
            quota = int(self.quota[0]) if (self.quota == self.quota[0]).all() else self.quota.copy()
        self.active = int(np.count_nonzero(self.quota))
        return quota

    def tick(self, slots: NDArray[np.int32], agents: int) -> int:
        """The environments of these slots have a decision due in this step. For how many of them it is the first to be seen."""
        return int(kernels.tick(slots, agents, self.clock, self.step))
