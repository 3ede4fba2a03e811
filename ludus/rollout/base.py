"""Rollouts: decisions in, actions out; trajectories of the learner and results of the episodes back."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.types import ActionRequests, Mixture, PolicyOutput, PolicyRef
from ludus.policies.base import Policy
from ludus.replay.base import ProcessesTrajectories
from ludus.replay.trajectories import Trajectories


@dataclass(frozen=True, slots=True, eq=False)
class PlannedEpisodes:
    """Evaluation episodes that are each decided in advance: who sits where, and all of its luck. Such an episode is the same whatever it is
    played beside (up to the rounding of batches), so many profiles can be played together, and cut as one likes.

    refs: who plays. seats int32[n, P]: by place among `refs`. luck uint64[n]: the environment's seeds. noise uint64[n]: keys of the
    players' chance, of which decision d draws number d · 2**16 + w as its w-th.
    """

    refs: tuple[PolicyRef, ...]
    seats: NDArray[np.int32]
    luck: NDArray[np.uint64]
    noise: NDArray[np.uint64]

    def of_players(self) -> PlannedEpisodes:
        """The same episodes, with those of `refs` alone who play in one: whoever is named is sent to the hosts."""
        playing, seats = np.unique(self.seats, return_inverse=True)
        places = seats.reshape(self.seats.shape).astype(np.int32)
        return replace(self, refs=tuple(self.refs[k] for k in playing), seats=places)

    def requests(self, num_envs: int) -> Iterator[RolloutRequest]:
        """To play them all, in order, one at a time in each of `num_envs` environments."""
        for first in range(0, len(self.luck), num_envs):
            rows = slice(first, first + num_envs)
            part = PlannedEpisodes(self.refs, self.seats[rows], self.luck[rows], self.noise[rows])
            yield RolloutRequest.evaluation(Mixture(()), len(part.luck), seed=0, planned=part)


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """What a worker plays.

    learner: its newest weights act in every training episode, in the seats `seats` (environment e plays seats[e mod len]); None: an
    evaluation, every seat is drawn from `opponents`. together: the learner plays all of `seats` in every episode, against itself, and
    learns from all of them. opponents: every other seat, drawn once per episode.
    unit, amount: exactly `amount` whole episodes (preassigned indices, never the first to finish), or at least `amount` decisions
    of the learner, leaving episodes open that the next request with `carry_on` continues.
    seed: key of this request's shard streams.
    carry_on: go on with the episodes that the last request left open (their opponents stay); the learner's weights are the new ones.
    extras: names of `PolicyOutput.extras` to record for the learner's rows. state: record the environment's state with them.
    modes, modes_seed: the learner plays each seat of an episode in one of these modes (`ludus.policies.specs.drawn`); (): in its ref's.
    first_episode: what the request's episode indices count from, so that they can be unique within a task; ignored by `carry_on`,
    which goes on counting.
    planned: instead of `opponents` and `seed`, for an evaluation: episode k in environment k.
    seconds: with a learner, how long a host may play its share (None: as long as it takes). Then it is cut short: fragments where they are;
    of whole episodes, each environment ends the one that it is in, and those that others have begun meanwhile do not count. So at least
    one decision, or one episode of each environment that has a share, is played, and short episodes are not preferred.
    processing: what is done with the learner's trajectories before they come back.
    place: the first number of the noise is no uniform for the learner's policy, but says how far its environment is among all of them, from
    0 (the first) to 1 (the last), so that each may explore in a way of its own. It does not depend on shards.
    bootstrap_value: the extra in which the learner's policy, which must not remember, says what an observation is worth: it is asked about
    bootstrap observations, too (`Trajectories.bootstrap_value`); "": it is not.
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
        """So many whole episodes in which nobody learns: `players` play every seat."""
        return RolloutRequest(None, (), players, "episodes", episodes, seed=seed, planned=planned)


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeResults:
    """Finished episodes, in order of (index): returns float64[n, P], length int32[n], terminated bool[n], seat int8[n] of the learner (its
    first one, where it plays several; -1: none), entry int32[n, F] drawn of each factor of the opponents (-1: a factor for the learner's
    own seats), index int64[n]. statistics: float64[n, P, S] as in `FinishedEpisodes`; None where the environment has none."""

    returns: NDArray[np.float64]
    length: NDArray[np.int32]
    terminated: NDArray[np.bool_]
    seat: NDArray[np.int8]
    entry: NDArray[np.int32]
    index: NDArray[np.int64]
    statistics: NDArray[np.float64] | None = None

    def take(self, rows: NDArray[Any]) -> EpisodeResults:
        """Those of `rows`, places or bool[n], in their order."""
        chosen: list[Any] = [None if column is None else column[rows] for column in self.columns]
        return EpisodeResults(*chosen)

    @property
    def learner_returns(self) -> NDArray[np.float64]:
        """float64[n]: the learner's own return of each episode."""
        return np.asarray(self.returns[np.arange(len(self.seat)), self.seat])

    def mean_statistics(self, names: Sequence[str]) -> Mapping[str, float]:
        """By name of a statistic, its mean over the learner's episodes in which it is known (NaN where it never is); empty where the
        environment counts nothing."""
        if self.statistics is None or not len(self.seat):
            return {}
        own = self.statistics[np.arange(len(self.seat)), self.seat]
        known = ~np.isnan(own)
        with np.errstate(invalid="ignore"):
            mean = np.where(known, own, 0.0).sum(axis=0) / known.sum(axis=0)
        return dict(zip(names, mean.tolist(), strict=True))

    @property
    def columns(self) -> list[Any]:
        """In the order of the fields."""
        return [getattr(self, column.name) for column in fields(self)]

    @staticmethod
    def joined(parts: Sequence[EpisodeResults]) -> EpisodeResults:
        """One after the other."""
        columns = zip(*(part.columns for part in parts), strict=True)
        together: list[Any] = [None if column[0] is None else np.concatenate(column) for column in columns]
        return EpisodeResults(*together)


@dataclass(frozen=True, slots=True)
class EpisodeSums:
    """What finished episodes came to for the learner, of those that were played on a device: how many, the mean, M2 (sum of squared
    deviations), least and greatest of its returns, their mean length, and the share that it won
    (`ludus.metagame.population.match_log.won`)."""

    count: int
    mean: float
    m2: float
    low: float
    high: float
    length: float
    won: float


@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """counters: env_steps (timesteps in which an environment had a decision due, summed over environments), decisions (of all players),
    learner_decisions, episodes; env_restarts too, where the environment counts them.
    seconds: environment (its reset and steps), inference (the bank's answers), writing (trajectories, episodes, draws), waiting (what the
    environment was blocked on other processes; not in its own).
    next_episode: above the index of every episode in it, those that were left open included.
    left: where they stayed with the runtime, references to lists of the trajectories, in order of the shards, or what they are known by
    where they were received; where they stayed on a device, their `Block`. Then `trajectories` is None.
    sums: of the episodes, where these themselves stayed on a device; then `episodes` has none.
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
    """Local copies or a shared server, the same to the worker. Index k of `refs` is what `bind` refers to."""

    refs: Sequence[PolicyRef]
    recurrent: bool  # whether any loaded policy has memory

    def load(self, policies: Sequence[tuple[PolicyRef, Policy]], *, extras: Sequence[str] = ()) -> None:
        """The policies of the next request; those that were there already are kept, not rebuilt, and slots that are bound to others
        keep them until they are bound anew. A ref with a version stands for the same weights for ever; one without is taken
        anew at each load. `extras`: what the request will record."""
        ...

    def release(self) -> None:
        """No slot is bound to anything any more. Before a request that does not carry on, so that what is evaluated together with its
        policies does not depend on the request before it (a resumed run has none)."""
        ...

    def bind(
        self, player: int, slots: NDArray[np.int32], policy: NDArray[np.int32], *, keep_memory: bool = False
    ) -> None:
        """From now on `slots` of `player` are played by the loaded policies of these indices; their memory starts at zero, unless
        it is kept (a learner's newer weights within an episode)."""
        ...

    def memory(self, player: int, slots: NDArray[Any], policy: int) -> NDArray[np.float32] | None:
        """The recurrent memory float32[n, *shape] that the last `act` of each of `slots`, by loaded policy `policy`, started from (a copy);
        None without."""
        ...

    def act(self, player: int, due: ActionRequests, noise: NDArray[np.float32]) -> PolicyOutput:
        """noise: [n, noise_width]. Groups rows by policy; same-architecture policies are stacked into one batched product. The
        worker's rows, in order; valid until the player's next `act`."""
        ...

    @property
    def noise_width(self) -> int:
        """Uniforms per row that `act` wants: the most that any loaded policy does."""
        ...


T = TypeVar("T")


class RecentCache(Generic[T]):
    """Values by key, of `limit` bytes together; `trim` forgets those that were not used for longest. most: of them at a time, where each
    may hold a file that is open."""

    def __init__(self, limit: int, *, most: float = math.inf) -> None:
        self.size = 0
        self._limit, self._most = limit, most
        self._values: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def find(self, key: Hashable) -> T | None:
        """The value, which counts as used now; None if it was never kept, or forgotten."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key][0]

    def keep(self, key: Hashable, value: T, size: int) -> None:
        """size: bytes."""
        if key in self._values:
            self.size -= self._values.pop(key)[1]
        self._values[key] = value, size
        self.size += size

    def trim(self, needed: int) -> None:
        """Back to the limits, but for the `needed` values that were used last."""
        while len(self._values) > needed and (self.size > self._limit or len(self._values) > self._most):
            _, (_, size) = self._values.popitem(last=False)
            self.size -= size
