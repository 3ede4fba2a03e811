"""Trainers in processes of their own: one group of ranks for each task in progress.

    hosts --trajectories--> object store --> every rank: Trainer, which takes its share of each batch; gradients are summed
      ^                                                                    |
      +--------------------- weights, as a reference <---- rank 0 ---------+

The driver sees references, counts and metrics. A rank that dies ends the run: its learner's state is that of the last checkpoint.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ludus.algorithms.ranks import ALONE, Ranks
from ludus.data.episode_server import EpisodeServer
from ludus.data.trajectories import Trajectories, join
from ludus.errors import RunError
from ludus.policies.registry import build_policy
from ludus.profile import Profile
from ludus.rollout.host import Parcel
from ludus.rollout.manager import Remote
from ludus.runtime.base import Handle, Peer, Ref, Runtime
from ludus.training.trainer import Learned, Trainer, TrainerSpec
from ludus.types import PolicySpec, State, Weights

LOCAL = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RankSpec:
    """One rank of how many. seed: of the run. shards: that its tables are spread over. prefetch: as of `Trainer`. threads: of torch.
    timeout: seconds that one rank may wait for another that is there in an update; one that died is noticed at once."""

    rank: int
    size: int
    seed: int
    shards: tuple[Peer, ...] = ()
    prefetch: int = 0
    threads: int = 1
    timeout: float = 300.0


class TrainerHost:
    """The part: one rank, which trains one policy after the other."""

    def __init__(self, spec: RankSpec) -> None:
        self._spec = spec
        self._ranks: Ranks = ALONE
        self._meeting: Any = None
        self._trainer: Trainer | None = None
        if spec.threads > 1:
            import torch  # a part's process has one thread until it asks for more

            torch.set_num_threads(spec.threads)

    def meet(self, local: bool) -> str:
        """Where the ranks find each other. Of rank 0. local: all are on one machine."""
        from ludus.training.ranks import Meeting  # loads torch.distributed

        self._meeting = Meeting(LOCAL if local else _address())
        return str(self._meeting.address)

    def join(self, address: str) -> None:
        """Wait for the other ranks."""
        from ludus.training.ranks import ProcessGroup

        spec = self._spec
        self._ranks = ProcessGroup(address, rank=spec.rank, size=spec.size, timeout=spec.timeout)

    def begin(self, spec: TrainerSpec) -> PolicySpec:
        """A new task. Returns the spec of its policy."""
        self.end()
        here = replace(spec, context=replace(spec.context, ranks=self._ranks))
        episodes = EpisodeServer(self._spec.seed, self._spec.shards)
        self._trainer = Trainer(here, episodes, prefetch=self._spec.prefetch)
        return self._trainer.spec

    def learn(self, version: int, *portions: Sequence[Trajectories]) -> Learned:
        """See `Trainer.learn`. portions: what hosts have left; everything is one batch."""
        collected = [trajectories for portion in portions for trajectories in portion]
        return self._own.learn([join(collected)] if collected else [], version=version)

    def parcel(self) -> Parcel:
        """The policy with its present weights, for hosts."""
        return Parcel(build_policy(self._own.spec, self._own.weights))

    def weights(self) -> Weights:
        return self._own.weights

    def announce(self, version: int) -> None:
        self._own.announce(version)

    def state_dict(self) -> State:
        return self._own.state_dict()

    def load_state_dict(self, state: State) -> None:
        self._own.load_state_dict(state)

    def end(self) -> None:
        """The task is over."""
        if self._trainer is not None:
            self._trainer.close()
            self._trainer = None

    @property
    def _own(self) -> Trainer:
        assert self._trainer is not None
        return self._trainer


class RemoteTrainer:
    """A `Trainer` that lives elsewhere, in one part for each rank. Every method raises PartDied if one of them is dead."""

    def __init__(self, runtime: Runtime, ranks: Sequence[Handle], spec: TrainerSpec, profile: Profile) -> None:
        """Raises what `Algorithm.learner` raises."""
        self._runtime, self._ranks, self._profile = runtime, ranks, profile
        self.spec: PolicySpec = self._all("begin", runtime.put(spec))[0]
        self._policy: tuple[int, Remote] | None = None

    def learn(self, collected: Sequence[Ref], *, version: int) -> Learned:
        """See `Trainer.learn`. collected: references to what hosts have left."""
        with self._profile.part("learning"):
            learned: Learned = self._all("learn", version, *collected)[0]
        return learned

    def policy(self, version: int) -> Remote:
        """The policy with the present weights, which are `version`."""
        if self._policy is None or self._policy[0] != version:
            self._policy = version, Remote(self._runtime.call(self._ranks[0], "parcel"))
        return self._policy[1]

    @property
    def weights(self) -> Weights:
        found: Weights = self._runtime.get(self._runtime.call(self._ranks[0], "weights"))
        return found

    def announce(self, version: int) -> None:
        for rank in self._ranks:
            self._runtime.call(rank, "announce", version)

    def state_dict(self) -> State:
        state: State = self._runtime.get(self._runtime.call(self._ranks[0], "state_dict"))
        return state

    def load_state_dict(self, state: State) -> None:
        self._policy = None
        self._all("load_state_dict", self._runtime.put(state))

    def close(self) -> None:
        for rank in self._ranks:
            self._runtime.call(rank, "end")

    def _all(self, method: str, *args: Any) -> list[Any]:
        return _answers(self._runtime, self._ranks, method, *args)


class Trainers:
    """Of a run: `size` ranks for every lane, made when the lane is first used. They belong to it."""

    def __init__(
        self,
        runtime: Runtime,
        size: int,
        *,
        seed: int,
        profile: Profile,
        resources: Mapping[str, float] | None = None,
        shards: Sequence[Peer] = (),
        prefetch: int = 0,
        threads: int = 1,
    ) -> None:
        """resources: of each rank. shards, prefetch, threads: as of `RankSpec`."""
        self._runtime, self._resources, self._profile = runtime, resources, profile
        self._ranks = [RankSpec(k, size, seed, tuple(shards), prefetch, threads) for k in range(size)]
        self._lanes: dict[int, list[Handle]] = {}

    def begin(self, spec: TrainerSpec, *, lane: int) -> RemoteTrainer:
        """A trainer for a task in this lane; the lane's earlier one is over."""
        if lane not in self._lanes:
            self._lanes[lane] = self._group()
        return RemoteTrainer(self._runtime, self._lanes[lane], spec, self._profile)

    def close(self) -> None:
        """End the parts."""
        for ranks in self._lanes.values():
            for rank in ranks:
                self._runtime.stop(rank)
        self._lanes = {}

    def _group(self) -> list[Handle]:
        runtime = self._runtime
        ranks = [runtime.spawn(TrainerHost, spec, resources=self._resources) for spec in self._ranks]
        if len(ranks) > 1:
            local = len({runtime.node(rank) for rank in ranks}) == 1
            address = runtime.get(runtime.call(ranks[0], "meet", local))
            _answers(runtime, ranks, "join", address)
        return ranks


def _answers(runtime: Runtime, ranks: Sequence[Handle], method: str, *args: Any) -> list[Any]:
    """What every rank answers. The first error ends it: the other ranks wait for one that will not come."""
    answers = [runtime.call(rank, method, *args) for rank in ranks]
    found: dict[int, Any] = {}
    pending = answers
    while pending:
        done, pending = runtime.wait(pending, at_least=1)
        found.update((id(answer), runtime.get(answer)) for answer in done)
    return [found[id(answer)] for answer in answers]


def _address() -> str:
    """A number by which other machines reach this one."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect(("192.0.2.1", 9))  # sends nothing: it only chooses the interface that leads elsewhere
        return str(route.getsockname()[0])
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise RunError(
            f"the number of this machine ({socket.gethostname()!r}) cannot be found: {error}. Give its name one in /etc/hosts."
        ) from error
