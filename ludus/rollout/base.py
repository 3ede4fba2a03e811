"""Rollouts: decisions in, actions out; trajectories of the learner and results of the episodes back, shard by shard.

A shard is some of the environments with random streams of their own, so that results do not depend on how many processes carry them. A
request goes to every shard as it is; each plays its share, and the partial results are merged in the order of the shards. Numbers of
environments and indices of episodes are those of the whole.
"""

from __future__ import annotations

import math
import warnings
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ScenarioError
from ludus.core.seeding import generator, keys
from ludus.core.types import ActionRequests, Mixture, PolicyOutput, PolicyRef
from ludus.policies.base import Policy
from ludus.replay.base import ProcessesTrajectories
from ludus.replay.trajectories import Trajectories, join


@dataclass(frozen=True, slots=True, eq=False)
class PlannedEpisodes:
    """Evaluation episodes whose seats and chance outcomes are decided in advance. Such an episode is the same whatever is played with it
    (up to the rounding of batches), so that many profiles can be played together, and split at will.

    Attributes:
        refs: Policies.
        seats: int32[n, P], the policy of each seat, by index in `refs`.
        luck: uint64[n], the environment's seeds.
        noise: uint64[n], keys of the players' random numbers, of which decision d draws number d · 2**16 + w as its w-th.
    """

    refs: tuple[PolicyRef, ...]
    seats: NDArray[np.int32]
    luck: NDArray[np.uint64]
    noise: NDArray[np.uint64]

    def of_players(self) -> PlannedEpisodes:
        """Return the same episodes with only those of `refs` that play in one: every named policy is sent to the hosts."""
        playing, seats = np.unique(self.seats, return_inverse=True)
        places = seats.reshape(self.seats.shape).astype(np.int32)
        return replace(self, refs=tuple(self.refs[k] for k in playing), seats=places)

    def requests(self, num_envs: int) -> Iterator[RolloutRequest]:
        """Yield the requests that play them all, in order, one at a time in each of `num_envs` environments."""
        for first in range(0, len(self.luck), num_envs):
            rows = slice(first, first + num_envs)
            part = PlannedEpisodes(self.refs, self.seats[rows], self.luck[rows], self.noise[rows])
            yield RolloutRequest.evaluation(Mixture(()), len(part.luck), seed=0, planned=part)


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """Request to play episodes or to collect decisions.

    Attributes:
        learner: Its newest weights act in every training episode, in the seats `seats` (environment e plays seats[e mod len]); None: an
            evaluation, in which every seat is drawn from `opponents`.
        seats: Seats of the learner.
        opponents: Every other seat, drawn once per episode.
        unit: What `amount` counts.
        amount: Exactly this number of whole episodes (preassigned indices, never the first to finish); or at least this number of decisions
            of the learner, leaving episodes open that the next request with `carry_on` continues.
        seed: Key of this request's random streams of shards.
        carry_on: Continue the episodes that the last request left open (their opponents stay); the learner's weights are the new ones.
        extras: Names of `PolicyOutput.extras` to record for the learner's rows.
        first_episode: Number from which the request's episode indices count, so that they can be unique within a task; ignored by
            `carry_on`, which continues counting.
        together: The learner plays all of `seats` in every episode, against itself, and learns from all of them.
        modes: The learner plays each seat of an episode in one of these modes, with these probabilities (`ludus.policies.specs`); ():
            in its ref's.
        modes_seed: Key of the draw of modes.
        state: Whether the environment's state is recorded with the learner's rows.
        planned: For an evaluation, instead of `opponents` and `seed`: episode k in environment k.
        seconds: With a learner, how long a host may play its share; None: without limit. After that it is cut short: fragments where they
            are; of whole episodes, each environment ends its present one, and those that others have begun meanwhile do not count. So at
            least one decision, or one episode of each environment that has a share, is played, and short episodes are not preferred.
        processing: Processings of the learner's trajectories before they are returned.
        place: Whether the first number of the learner's noise is not uniform but the position of its environment among all of them, from 0
            (the first) to 1 (the last), so that each may explore differently. It does not depend on shards.
        bootstrap_value: Extra in which the learner's policy, which must have no memory, returns the value of an observation; it is also
            evaluated on bootstrap observations (`Trajectories.bootstrap_value`); "": it is not.
    """

    learner: PolicyRef | None
    seats: tuple[int, ...]
    opponents: Mixture
    unit: Literal["episodes", "decisions"]
    amount: int
    seed: int
    carry_on: bool = False
    extras: tuple[str, ...] = ()
    first_episode: int = 0
    together: bool = False
    modes: tuple[tuple[str, float], ...] = ()
    modes_seed: int = 0
    state: bool = False
    planned: PlannedEpisodes | None = None
    seconds: float | None = None
    processing: tuple[ProcessesTrajectories, ...] = ()
    place: bool = False
    bootstrap_value: str = ""

    @staticmethod
    def evaluation(
        players: Mixture, episodes: int, *, seed: int, planned: PlannedEpisodes | None = None
    ) -> RolloutRequest:
        """Return the request of an evaluation: whole episodes in which no policy learns.

        Args:
            players: Distribution over all seats.
            episodes: Number of episodes.
            seed: Key of its random streams.
            planned: Instead of `players` and `seed`.
        """
        return RolloutRequest(None, (), players, "episodes", episodes, seed=seed, planned=planned)


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeResults:
    """Finished episodes, n rows in rising index.

    Attributes:
        returns: float64[n, P].
        length: int32[n], environment steps.
        terminated: bool[n].
        seat: int8[n] of the learner (its first one, where it plays several; -1: none).
        entry: int32[n, F], entry drawn of each factor of the opponents (-1: a factor for the learner's own seats).
        index: int64[n].
        statistics: float64[n, P, S] as in `FinishedEpisodes`; None where the environment has none.
    """

    returns: NDArray[np.float64]
    length: NDArray[np.int32]
    terminated: NDArray[np.bool_]
    seat: NDArray[np.int8]
    entry: NDArray[np.int32]
    index: NDArray[np.int64]
    statistics: NDArray[np.float64] | None = None

    def take(self, rows: NDArray[Any]) -> EpisodeResults:
        """Return the given rows (indices or bool[n]), in their order."""
        chosen: list[Any] = [None if column is None else column[rows] for column in self.columns]
        return EpisodeResults(*chosen)

    @property
    def learner_returns(self) -> NDArray[np.float64]:
        """float64[n]: the learner's return of each episode."""
        return np.asarray(self.returns[np.arange(len(self.seat)), self.seat])

    @property
    def earned(self) -> NDArray[np.float64]:
        """`learner_returns`, by its former name."""
        warnings.warn("EpisodeResults.earned is called learner_returns now.", DeprecationWarning, stacklevel=2)
        return self.learner_returns

    def mean_statistics(self, names: Sequence[str]) -> Mapping[str, float]:
        """Return the mean of each statistic over the learner's episodes in which it is known (NaN where it never is), by name; empty where
        the environment has none."""
        if self.statistics is None or not len(self.seat):
            return {}
        own = self.statistics[np.arange(len(self.seat)), self.seat]
        known = ~np.isnan(own)
        with np.errstate(invalid="ignore"):
            mean = np.where(known, own, 0.0).sum(axis=0) / known.sum(axis=0)
        return dict(zip(names, mean.tolist(), strict=True))

    @property
    def columns(self) -> list[Any]:
        """The arrays, in the order of the fields."""
        return [getattr(self, column.name) for column in fields(self)]

    @staticmethod
    def joined(parts: Sequence[EpisodeResults]) -> EpisodeResults:
        """Return the concatenation of several results."""
        columns = zip(*(part.columns for part in parts), strict=True)
        together: list[Any] = [None if column[0] is None else np.concatenate(column) for column in columns]
        return EpisodeResults(*together)


@dataclass(frozen=True, slots=True)
class EpisodeSums:
    """Aggregates of finished episodes for the learner, where these were played on a device.

    Attributes:
        count: Number of episodes.
        mean: Mean of its returns.
        m2: Sum of squared deviations of its returns.
        low: Least return.
        high: Greatest return.
        length: Mean length.
        won: Share that it won (`ludus.metagame.population.match_log.win_rate`).
    """

    count: int
    mean: float
    m2: float
    low: float
    high: float
    length: float
    won: float


@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """Result of a request.

    Attributes:
        trajectories: Of the learner; None where they are `left`.
        episodes: That ended.
        counters: env_steps (timesteps in which an environment had a decision due, summed over environments), decisions (of all players),
            learner_decisions, episodes; env_restarts too, where the environment counts them.
        seconds: environment (its reset and steps), inference (the bank's answers), writing (trajectories, episodes, draws), waiting (what
            the environment was blocked on other processes; not in its own).
        next_episode: Above the index of every episode in it, those that were left open included.
        left: Where the trajectories stayed with the runtime: references to lists of them, in order of the shards, or their keys where they
            were received; where they stayed on a device, their `Block`.
        sums: Of the episodes, where these stayed on a device; then `episodes` has none.
    """

    trajectories: Trajectories | None
    episodes: EpisodeResults
    counters: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    next_episode: int = 0
    left: Sequence[Any] = ()
    sums: EpisodeSums | None = None


@runtime_checkable
class PolicyBank(Protocol):
    """Evaluates policies, from local copies or by a shared server, in the same way for the worker. Index k of `refs` is what `bind` refers
    to.

    Attributes:
        refs: Loaded policies.
        recurrent: Whether any loaded policy has memory.
    """

    refs: Sequence[PolicyRef]
    recurrent: bool

    def load(self, policies: Sequence[tuple[PolicyRef, Policy]], *, extras: Sequence[str] = ()) -> None:
        """Load the policies of the next request. Those that were loaded already are kept, not rebuilt, and slots that are bound to others
        keep them until they are bound again. A ref with a version always stands for the same weights; one without is loaded again each
        time.

        Args:
            policies: All policies of the request.
            extras: Names of the extras that the request will record.
        """
        ...

    def release(self) -> None:
        """Unbind all slots: before a request that does not carry on, so that what is evaluated together with its policies does not depend
        on the request before it (a resumed run has none)."""
        ...

    def bind(
        self, player: int, slots: NDArray[np.int32], policy: NDArray[np.int32], *, keep_memory: bool = False
    ) -> None:
        """Bind slots of a player to loaded policies.

        Args:
            player: Index of the player.
            slots: int32[n].
            policy: int32[n], index in `refs` of the policy of each.
            keep_memory: Whether their memory stays (a learner's newer weights within an episode); otherwise it starts at zero.
        """
        ...

    def memory(self, player: int, slots: NDArray[Any], policy: int) -> NDArray[np.float32] | None:
        """Return a copy of the recurrent memory float32[n, *shape] that the last `act` of each of `slots`, by loaded policy `policy`,
        started from; None without."""
        ...

    def act(self, player: int, due: ActionRequests, noise: NDArray[np.float32]) -> PolicyOutput:
        """Return the answers for the due rows, in their order; valid until the player's next `act`. Rows are grouped by policy, and
        policies of one architecture are stacked into one batched product.

        Args:
            player: Index of the player.
            due: Its due decisions, n rows.
            noise: float32[n, noise_width], uniform random numbers.
        """
        ...

    @property
    def noise_width(self) -> int:
        """Uniform numbers per row that `act` needs: the most that any loaded policy does."""
        ...


T = TypeVar("T")


_OF_SERIES = 8
"""More than requests in flight ask for at a time."""


class RecentCache(Generic[T]):
    """Cache of values by key; `trim` drops the least recently used. Of a series of values, such as a learner's versions, the newest few
    are kept.

    Args:
        limit: Bytes of all values together.
        most: Number of values, where each may hold an open file.
    """

    def __init__(self, limit: int, *, most: float = math.inf) -> None:
        self.size = 0
        self._limit, self._most = limit, most
        self._values: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._series: dict[Hashable, list[Hashable]] = {}  # series -> keys, the newest last

    def __len__(self) -> int:
        return len(self._values)

    def find(self, key: Hashable) -> T | None:
        """Return the value and mark it as used; None if it was never kept, or dropped."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key][0]

    def keep(self, key: Hashable, value: T, size: int, *, series: Hashable = None) -> None:
        """Keep a value. size: bytes. series: that it is the newest of; None: of none."""
        self._drop(key)
        self._values[key] = value, size
        self.size += size
        if series is not None:
            keys = [*(k for k in self._series.get(series, ()) if k in self._values and k != key), key]
            for old in keys[:-_OF_SERIES]:
                self._drop(old)
            self._series[series] = keys[-_OF_SERIES:]

    def _drop(self, key: Hashable) -> None:
        if key in self._values:
            self.size -= self._values.pop(key)[1]

    def trim(self, needed: int) -> None:
        """Drop values down to the limits, except the `needed` most recently used."""
        while len(self._values) > needed and (self.size > self._limit or len(self._values) > self._most):
            _, (_, size) = self._values.popitem(last=False)
            self.size -= size


# --------------------------------------------------------------------------------------------------------------------
# Shards: the environments of a request that share random streams.


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
        return keys(seed, what, count=self.total)[self.first : self.first + self.num_envs]

    def noise(self, seed: int) -> np.random.Generator:
        """Return the stream that the shard's policies draw their actions with."""
        return generator(seed, "noise") if self.count == 1 else generator(seed, "noise", self.index)

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
