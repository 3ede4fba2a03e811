"""Shards: some of the environments with random streams of their own, so that results do not depend on how many processes carry them.

A request goes to every shard as it is; each plays its share, and the partial results are merged in the order of the shards. Numbers of
environments and indices of episodes are those of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.errors import ScenarioError
from ludus.replay.trajectories import join
from ludus.rollout.base import EpisodeResults, Rollout, RolloutRequest


@dataclass(frozen=True, slots=True)
class Shard:
    """The `index`-th of `count` shards: environments `first` to `first + num_envs - 1` of `total`."""

    index: int
    count: int
    first: int
    num_envs: int
    total: int

    @property
    def environments(self) -> NDArray[np.int64]:
        """Their numbers, int64[num_envs]."""
        return self.first + np.arange(self.num_envs)

    def keys(self, seed: int, what: str) -> NDArray[np.uint64]:
        """Return one stream for each environment, uint64[num_envs], which does not depend on how the whole is cut into shards."""
        return seeding.keys(seed, what, count=self.total)[self.first : self.first + self.num_envs]

    def noise(self, seed: int) -> np.random.Generator:
        """Return the stream that the shard's policies draw their actions with."""
        return seeding.generator(seed, "noise") if self.count == 1 else seeding.generator(seed, "noise", self.index)

    def quota(self, episodes: int) -> NDArray[np.int64]:
        """Return how many of `episodes` each environment plays, int64[num_envs]."""
        quota: NDArray[np.int64] = episodes // self.total + (self.environments < episodes % self.total)
        return quota

    def decisions(self, amount: int) -> int:
        """Return how many of `amount` decisions are this shard's."""
        return amount // self.count + (self.index < amount % self.count)


def whole(num_envs: int) -> Shard:
    """All environments in one shard."""
    return Shard(0, 1, 0, num_envs, num_envs)


def split_envs(num_envs: int, count: int) -> tuple[Shard, ...]:
    """`num_envs` environments in `count` shards, whose sizes differ by one at most. Raises ScenarioError for more shards than that."""
    if not 1 <= count <= num_envs:
        raise ScenarioError(
            f"{num_envs} environments cannot be cut into {count} shards; give num_envs={count} or more, or fewer shards."
        )
    bounds = [k * num_envs // count for k in range(count + 1)]
    return tuple(Shard(k, count, first, end - first, num_envs) for k, (first, end) in enumerate(pairwise(bounds)))


def check_shares(request: RolloutRequest, count: int) -> None:
    """Raise ScenarioError if a shard would have nothing to do for a request in decisions."""
    if request.unit == "decisions" and request.amount < count:
        raise ScenarioError(
            f"{request.amount} decisions cannot be collected by {count} shards; collect at least one in each, or give fewer shards."
        )


def merge(rollouts: Sequence[Rollout]) -> Rollout:
    """Return the partial results of one request, in the order of their shards; counters and seconds are sums."""
    trajectories = [rollout.trajectories for rollout in rollouts if rollout.trajectories is not None]
    names = dict.fromkeys(name for rollout in rollouts for name in rollout.counters)
    parts = dict.fromkeys(name for rollout in rollouts for name in rollout.seconds)
    return Rollout(
        trajectories=join(trajectories) if trajectories else None,
        episodes=_episodes([rollout.episodes for rollout in rollouts]),
        counters={name: sum(rollout.counters.get(name, 0) for rollout in rollouts) for name in names},
        seconds={name: sum(rollout.seconds.get(name, 0.0) for rollout in rollouts) for name in parts},
        next_episode=max(rollout.next_episode for rollout in rollouts),
        left=[reference for rollout in rollouts for reference in rollout.left],
        sums=rollouts[0].sums if len(rollouts) == 1 else None,  # what is played on a device is played by one
    )


def _episodes(episodes: Sequence[EpisodeResults]) -> EpisodeResults:
    if len(episodes) == 1:
        return episodes[0]
    joined = EpisodeResults.joined(episodes)
    return joined.take(np.argsort(joined.index, kind="stable"))
