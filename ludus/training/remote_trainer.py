"""Trainers in processes of their own: one group of ranks for each task in progress.

    hosts --trajectories--> object store --> every rank: Trainer, which takes its share of each batch; gradients are summed
      ^                                                                    |
      +--------------------- weights, as a reference <---- rank 0 ---------+

The driver sees references, counts and metrics. A rank that dies, or whose process is stopped, ends the run: its learner's state is that
of the last checkpoint.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import distributed

from ludus.backend.ranks import SINGLE_RANK, RankGroup, rank_slice
from ludus.core.errors import PartDied, RunError
from ludus.core.machine import deterministic_algorithms
from ludus.core.recorders import Timings
from ludus.core.types import Array, PolicySpec, State, Weights
from ludus.policies.registry import build_policy
from ludus.replay.episode_server import EpisodeServer
from ludus.replay.trajectories import Trajectories, join
from ludus.rollout.host import PolicyMessage
from ludus.rollout.rollouts import RemotePolicy
from ludus.runtime.base import Handle, Peer, Ref, Runtime
from ludus.training.trainer import HOST_REPLAY, BatchPlacement, LearnResult, Trainer, TrainerSpec

__all__ = ["ProcessGroup", "RankMeeting"]

# --------------------------------------------------------------------------------------------------------------------
# Ranks in processes: sums through torch.distributed (gloo for arrays and CPU tensors, nccl for tensors on a GPU).
#
#     rank 0      meeting = RankMeeting(host)                      a small store in its process, whose address the driver
#                                                                  hands out
#     every rank  group = ProcessGroup(meeting.address, rank=…, size=…)
#                 learner = algorithm.learner(LearnerContext(…, ranks=group), start)
#                 …  group.close();  rank 0: meeting.close()
#
# The groups are their own: torch's default group is not touched, so a process may be in several. Between machines,
# gloo listens on the interface that its host's name resolves to; GLOO_SOCKET_IFNAME names another.

dist: Any = distributed  # much of it has no types
LOCAL = "127.0.0.1"


class RankMeeting:
    """Where the ranks of one group find each other. It lives in rank 0's process and must outlive the group.

    host: a name or number of this machine by which the others reach it; a port that is free is taken.
    """

    def __init__(self, host: str = LOCAL) -> None:
        self._store: Any = None
        try:
            self._store = dist.TCPStore(host, 0, None, True, wait_for_workers=False)
        except (RuntimeError, ValueError) as error:
            raise RunError(
                f"ranks cannot meet at {host}: {_first_line(error)} Its name must lead to this machine, and a port be free there."
            ) from error
        self.address = f"{host}:{self._store.port}"

    def close(self) -> None:
        """Stop listening. Closing twice is harmless."""
        self._store = None


class ProcessGroup:
    """`RankGroup` in processes. Making one waits until all of them are there.

    address: of a `RankMeeting`, or `file:///path` of a file that does not exist yet and that all ranks see (it stays behind).
    timeout: seconds that it waits for the others, now and in each sum; the slowest rank's share of an update must fit into it.
    One group meets at an address. Raises RunError if they do not come.
    """

    def __init__(self, address: str, *, rank: int, size: int, timeout: float = 60.0) -> None:
        if not 0 <= rank < size:
            raise RunError(f"rank {rank} of {size}: ranks are numbered from 0 to {size - 1}.")
        self.rank, self.size, self._seconds = rank, size, timeout
        self._timeout = timedelta(seconds=timeout)
        self._closed = False
        self._nccl: Any = None
        try:
            self._store: Any = dist.PrefixStore("ludus", self._join(address))
            self._gloo: Any = self._make_gloo(address)
            self._gloo.barrier().wait(self._timeout)  # or who is done at once leaves while others still connect
        except (RuntimeError, ValueError) as error:
            raise RunError(
                f"rank {rank} of {size} met not all others at {address} within {timeout:g} s: {_first_line(error)} Are they all started, "
                "with this address, and can they reach it?"
            ) from error

    def share(self, count: int) -> slice:
        """See `RankGroup.share`."""
        return rank_slice(count, rank=self.rank, size=self.size)

    def sum(self, array: Array | torch.Tensor) -> None:
        """See `RankGroup.sum`."""
        self.summing(array)()

    def summing(self, array: Array | torch.Tensor) -> Callable[[], None]:
        """See `RankGroup.summing`. On a GPU the end is waited for there: what is queued after it is computed after it, and the caller does
        not wait (a rank that does not come in time ends the process, as nccl does it)."""
        if self._closed:
            raise RunError(f"rank {self.rank} of {self.size} has left its group; make a new one.")
        tensor = torch.from_numpy(array) if isinstance(array, np.ndarray) else array
        on_cpu = tensor.device.type == "cpu"
        group = self._gloo if on_cpu else self._on_gpu()
        try:
            work = group.allreduce([tensor])
        except RuntimeError as error:
            raise self._broken(_first_line(error)) from error
        return partial(self._wait, work, (self._timeout,) if on_cpu else ())

    def _wait(self, work: Any, limit: tuple[timedelta, ...]) -> None:
        try:
            done = work.wait(*limit)
        except RuntimeError as error:
            raise self._broken(_first_line(error)) from error
        if done is False:
            raise self._broken("the sum was given up.")

    def close(self) -> None:
        """Leave; the others' next sum fails. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            for group in (self._gloo, self._nccl):
                if group is not None:
                    group.shutdown()
            self._gloo = self._nccl = self._store = None

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _join(self, address: str) -> Any:
        if address.startswith("file://"):
            store = dist.FileStore(address.removeprefix("file://"), self.size)
            store.set_timeout(self._timeout)
            return store
        host, separator, port = address.rpartition(":")
        if not (separator and port.isdecimal()):
            raise RunError(f"ranks meet at {address!r}; expected HOST:PORT of a RankMeeting, or file:///PATH.")
        return dist.TCPStore(host, int(port), None, False, timeout=self._timeout, wait_for_workers=False)

    def _make_gloo(self, address: str) -> Any:
        backend = dist.ProcessGroupGloo
        options = backend._Options()
        options._timeout = self._timeout
        local = address.rpartition(":")[0] in (LOCAL, "localhost")  # whose sockets nobody else need reach
        options._devices = [backend.create_device(hostname=LOCAL) if local else backend.create_default_device()]
        return backend(self._store, self.rank, self.size, options)

    def _on_gpu(self) -> Any:
        if self._nccl is None:
            backend = getattr(dist, "ProcessGroupNCCL", None)
            if backend is None:
                raise RunError(
                    "a tensor on a GPU is to be summed, and this torch has no NCCL; install one that has, or train on CPUs."
                )
            options = backend.Options()
            options._timeout = self._timeout
            self._nccl = backend(dist.PrefixStore("nccl", self._store), self.rank, self.size, options)
        return self._nccl

    def _broken(self, why: str) -> RunError:
        return RunError(
            f"rank {self.rank} of {self.size}: another rank died, left, or did not come to a sum within {self._seconds:g} s ({why}) The "
            "group is of no more use; end the other ranks too, and go on from the last checkpoint with a new one."
        )


def _first_line(error: BaseException) -> str:
    """Return the message without torch's trace of its own sources."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].rpartition("] ")[2][:200].rstrip(".") + "."


# Seconds that a rank may wait for another that is there in an update; one that died is noticed at once.
_PATIENCE = 300.0
_LAST_WORDS = 10.0  # seconds in which a rank that has no memory says so after others have missed it
_HEARTBEAT_SECONDS = 20.0  # seconds at least that a rank's process may take to say that it runs


@dataclass(frozen=True, slots=True)
class RankSpec:
    """One rank of how many. seed: of the run. shards: that its tables are spread over. feed: as of `Trainer`. threads: of torch."""

    rank: int
    size: int
    seed: int
    shards: tuple[Peer, ...] = ()
    feed: BatchPlacement = HOST_REPLAY
    threads: int = 1


class TrainerHost:
    """The part: one rank, which trains one policy after the other."""

    def __init__(self, spec: RankSpec) -> None:
        self._spec = spec
        self._ranks: RankGroup = SINGLE_RANK
        self._meeting: Any = None
        self._trainer: Trainer | None = None
        self._open = ExitStack()  # for the time of a task
        self._received: dict[int, Sequence[Trajectories]] = {}
        if spec.threads > 1:  # a part's process has one until it asks for more
            torch.set_num_threads(spec.threads)

    def rendezvous(self, local: bool) -> str:
        """Return where the ranks find each other. Of rank 0. local: all are on one machine."""
        self._meeting = RankMeeting(LOCAL if local else _address())
        return str(self._meeting.address)

    def join(self, address: str) -> None:
        """Wait for the other ranks."""
        self._ranks = ProcessGroup(address, rank=self._spec.rank, size=self._spec.size, timeout=_PATIENCE)

    def begin(self, spec: TrainerSpec) -> PolicySpec:
        """Begin a task, and return the spec of its policy."""
        self.end()
        self._open.enter_context(deterministic_algorithms(spec.context.device.deterministic))
        rank_spec = replace(spec, context=replace(spec.context, ranks=self._ranks))
        episodes = EpisodeServer(self._spec.seed, self._spec.shards)
        self._trainer = Trainer(rank_spec, episodes, feed=self._spec.feed)
        return self._trainer.spec

    def heartbeat(self) -> bool:
        """Answer that its process runs, however long it learns. Called from another thread."""
        return True

    def receive(self, numbers: Sequence[int], *parts: Sequence[Trajectories]) -> None:
        """Keep what hosts have left, under these numbers, until the next `learn`."""
        self._received.update(zip(numbers, parts, strict=True))

    def learn(self, version: int, numbers: Sequence[int]) -> LearnResult:
        """See `Trainer.learn`. Of what was received, these parts; everything is one batch."""
        received, self._received = self._received, {}
        collected = [trajectories for number in numbers for trajectories in received[number]]
        learned = self._own.learn([join(collected)] if collected else [], version=version)
        if learned.full and isinstance(self._ranks, ProcessGroup):  # who waits for this rank learns of it at once
            self._ranks.close()
        return learned

    def message(self) -> PolicyMessage:
        """Return the policy with its present weights, for hosts."""
        return PolicyMessage(build_policy(self._own.spec, self._own.weights))

    def weights(self) -> Weights:
        return self._own.weights

    def place(self) -> str:
        return self._own.place

    def announce(self, version: int) -> None:
        self._own.announce(version)

    def state_dict(self) -> State:
        return self._own.state_dict()

    def load_state_dict(self, state: State) -> None:
        self._own.load_state_dict(state)

    def end(self) -> None:
        """End the task."""
        self._received = {}
        if self._trainer is not None:
            self._trainer.close()
            self._trainer = None
        self._open.close()

    @property
    def _own(self) -> Trainer:
        assert self._trainer is not None
        return self._trainer


@dataclass(frozen=True, slots=True, eq=False)
class _RankParts:
    """The parts of a group. deadline: seconds without an answer after which a rank is asked whether its process runs (None: never)."""

    runtime: Runtime
    handles: Sequence[Handle]
    deadline: float | None

    def call(self, method: str, *args: Any) -> list[Ref]:
        """Ask every rank."""
        return [self.runtime.call(rank, method, *args) for rank in self.handles]

    def answers(self, method: str, *args: Any) -> list[Any]:
        """Return what every rank answers. Raises as `gather`."""
        return self.gather(self.call(method, *args))

    def first(self, method: str, *args: Any) -> Any:
        """Return what rank 0 answers, which alone is asked. Raises as `gather`."""
        return self.gather([self.runtime.call(self.handles[0], method, *args)])[0]

    def gather(self, answers: Sequence[Ref]) -> list[Any]:
        """Return the values of answers of the first ranks. The first error ends it: the others wait for one that will not come. Raises
        RunError for a rank whose process does not run."""
        values: dict[int, Any] = {}
        pending = answers
        while pending:
            done, pending = self.runtime.wait(pending, at_least=1, timeout=self.deadline)
            values.update((id(answer), self.runtime.get(answer)) for answer in done)
            if not done:
                self._require_running([rank for rank, answer in enumerate(answers) if id(answer) not in values])
        return [values[id(answer)] for answer in answers]

    def _require_running(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            seconds = max(_HEARTBEAT_SECONDS, self.deadline or 0.0)
            try:
                self.runtime.get(self.runtime.heartbeat(self.handles[rank]), timeout=seconds)
            except PartDied:
                continue  # as its answer will say
            except TimeoutError:
                raise RunError(
                    f"trainer {rank} has not answered for {self.deadline:g} seconds, and for {seconds:g} more it has not said that its "
                    "process runs: it is stopped, or its machine is too busy. `ludus resume` goes on from the last checkpoint; if it only "
                    "was slow, raise runtime.deadline."
                ) from None


class RemoteTrainer:
    """A `Trainer` that lives elsewhere, in one part for each rank. Every method raises PartDied if one of them is dead, and RunError if
    the process of one is stopped."""

    def __init__(
        self,
        ranks: _RankParts,
        spec: TrainerSpec,
        profile: Timings,
        *,
        over: Callable[[], None] = lambda: None,
    ) -> None:
        """over: called when the ranks cannot learn together any more. Raises what `Algorithm.learner` raises."""
        self._runtime, self._ranks, self._profile, self._over = ranks.runtime, ranks, profile, over
        self.spec: PolicySpec = ranks.answers("begin", self._runtime.put(spec))[0]
        self._policy: tuple[int, RemotePolicy] | None = None
        self._parts = 0  # received so far

    def receive(self, left: Sequence[Ref]) -> Sequence[int]:
        """Let every rank take what hosts have left, and return the keys for `learn`. It is lost where a host's node dies before that; once
        one rank learns, the others must have it, too, since they wait for each other."""
        numbers = range(self._parts, self._parts + len(left))
        self._parts += len(left)
        self._ranks.answers("receive", numbers, *left)
        return numbers

    def learn(self, collected: Sequence[Any], *, version: int) -> LearnResult:
        """See `Trainer.learn`. collected: as `receive` gave it, or some of it."""
        answers = self._ranks.call("learn", version, collected)
        with self._profile.part("learning"):
            try:
                learned: list[LearnResult] = self._ranks.gather(answers)
            except RunError as error:
                if isinstance(error, PartDied) or (full := self._full(answers)) is None:
                    raise
                raise RunError(
                    f"{full} This was one of {len(answers)} trainers that learn together, and the others cannot go on without it: the run "
                    "ends here, and `ludus resume` goes on from its last checkpoint."
                ) from error
        first = next((one for one in learned if one.full), learned[0])
        if first.full and len(learned) > 1:
            self._over()
        return first

    def _full(self, answers: Sequence[Ref]) -> str | None:
        """Return what a rank says that has no memory, while others say that they miss it."""
        for answer in self._runtime.wait(answers, at_least=len(answers), timeout=_LAST_WORDS)[0]:
            with suppress(RunError):
                learned: LearnResult = self._runtime.get(answer)
                if learned.full:
                    return learned.failure
        return None

    def policy(self, version: int) -> RemotePolicy:
        """Return the policy with the present weights, which are `version`."""
        if self._policy is None or self._policy[0] != version:
            self._policy = version, RemotePolicy(self._runtime.call(self._ranks.handles[0], "message"))
        return self._policy[1]

    @property
    def weights(self) -> Weights:
        weights: Weights = self._ranks.first("weights")
        return weights

    @property
    def place(self) -> str:
        """Where the ranks learn, as the first says."""
        place: str = self._ranks.first("place")
        return place

    def announce(self, version: int) -> None:
        self._ranks.call("announce", version)

    def state_dict(self) -> State:
        state: State = self._ranks.first("state_dict")
        return state

    def load_state_dict(self, state: State) -> None:
        self._policy = None
        self._ranks.answers("load_state_dict", self._runtime.put(state))

    def close(self) -> None:
        self._ranks.call("end")


class Trainers:
    """Of a run: `size` ranks for every task slot, made when the task slot is first used. They belong to it."""

    def __init__(
        self,
        runtime: Runtime,
        size: int,
        *,
        seed: int,
        profile: Timings,
        resources: Mapping[str, float] | None = None,
        shards: Sequence[Peer] = (),
        feed: BatchPlacement = HOST_REPLAY,
        threads: int = 1,
        deadline: float | None = None,
    ) -> None:
        """resources: of each rank. shards, feed, threads: as of `RankSpec`. deadline: seconds without an answer after which a rank is asked
        whether its process runs (None: never); learning may take longer."""
        self._runtime, self._resources, self._profile, self._deadline = runtime, resources, profile, deadline
        self._ranks = [RankSpec(k, size, seed, tuple(shards), feed, threads) for k in range(size)]
        self._task_slots: dict[int, _RankParts] = {}
        self._over: set[int] = set()  # task slots whose ranks are no group any more

    def begin(self, spec: TrainerSpec, *, task_slot: int) -> RemoteTrainer:
        """Return a trainer for a task in this task slot; the task slot's earlier one is over."""
        if task_slot in self._over:
            self._over.remove(task_slot)
            self._stop(self._task_slots.pop(task_slot))
        if task_slot not in self._task_slots:
            self._task_slots[task_slot] = self._group()
        ranks, over = self._task_slots[task_slot], partial(self._over.add, task_slot)
        return RemoteTrainer(ranks, spec, self._profile, over=over)

    def close(self) -> None:
        """End the parts."""
        for ranks in self._task_slots.values():
            self._stop(ranks)
        self._task_slots = {}

    def _stop(self, ranks: _RankParts) -> None:
        for rank in ranks.handles:
            self._runtime.stop(rank)

    def _group(self) -> _RankParts:
        runtime = self._runtime
        handles = [
            runtime.spawn(TrainerHost, spec, resources=self._resources, heartbeat=True, name=f"trainer {rank}")
            for rank, spec in enumerate(self._ranks)
        ]
        nodes = {runtime.node(rank) for rank in handles}  # waits until all are there: no deadline holds for that
        ranks = _RankParts(runtime, handles, self._deadline)
        if len(handles) > 1:
            ranks.answers("join", ranks.first("rendezvous", len(nodes) == 1))
        return ranks


def _address() -> str:
    """Return a number by which other machines reach this one."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect(("192.0.2.1", 9))  # sends nothing: it only chooses the interface that leads elsewhere
        return str(route.getsockname()[0])
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise RunError(
            f"the number of this machine ({socket.gethostname()!r}) cannot be found: {error}. Give its name one in /etc/hosts."
        ) from error
