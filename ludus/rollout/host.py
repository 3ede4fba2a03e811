"""Who plays requests: a host in one process, with the workers of some shards and the policies that they have had; and rollouts in this
process, which have one host that plays a request as soon as it is started. `ludus.rollout.manager` is for hosts elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic, perf_counter
from typing import Any, ClassVar, Protocol

import numpy as np

from ludus.core.errors import PartDied, TrainingError
from ludus.core.machine import files_to_keep, out_of_memory
from ludus.core.recorders import Timings
from ludus.core.types import CPU, DeviceChoice, EnvSpec, PolicyRef, PolicySpec, Weights
from ludus.envs.base import VectorEnv
from ludus.envs.families import closed_on_error
from ludus.policies.base import Policy
from ludus.policies.bots import BotPolicy, BotSettings
from ludus.policies.registry import build_policy
from ludus.replay.trajectories import Trajectories
from ludus.rollout import rollouts
from ludus.rollout.base import PolicyBank, RecentCache, Rollout, RolloutRequest, Shard, check_shares, merge, split_envs
from ludus.rollout.bot_players import BotPlayers
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.inference.remote import RemoteBank
from ludus.rollout.rollouts import Pending, ProgressCallback, Receive, RemotePolicy, Rollouts, report_faults
from ludus.rollout.worker import EndlessWarning, RolloutWorker
from ludus.runtime.base import Peer, Ref

SCORED = -1
"""The task slot of matches that count other rewards than learners are paid."""
CACHE_BYTES = 256 << 20
"""Bytes of policies that a host keeps from request to request: many thousands of small ones."""


class MakeEnv(Protocol):
    """Makes a vector of environments in whatever process it is called in, so it must be picklable where there are several."""

    def __call__(self, *, num_envs: int) -> VectorEnv: ...


@dataclass(frozen=True, slots=True, eq=False)
class HostSpec:
    """shards: those that the host carries, in order. fetch: gives the value of a reference, where the host is; None: policies come as they
    are. ready: a vector that exists already, for the first shard; only within one process. kept: bytes of policies that stay from request
    to request. client: the host's name on an inference server, which comes with each request; empty: it keeps copies of the policies
    itself. bots: where they play. device: where the copies are asked to compute. scored: makes the environments of the slot `SCORED`,
    where matches have others. between: called between two steps of a match, or another request of whole episodes (and see
    `RolloutHost.heard`), with what says how many episodes of a match have ended, and `RolloutWorker.unended`; only within one process."""

    make_env: MakeEnv
    shards: tuple[Shard, ...]
    fetch: Callable[[Ref], Any] | None = None
    ready: VectorEnv | None = None
    cache_bytes: int = CACHE_BYTES
    client: str = ""
    bots: BotSettings = field(default_factory=BotSettings)
    device: DeviceChoice = CPU
    scored: MakeEnv | None = None
    between: Callable[[Callable[[], tuple[int, int]]], None] | None = None


class BotsOnDemand:
    """What the workers of a host ask where a bot plays, made when the first one does."""

    def __init__(self, settings: BotSettings) -> None:
        self._settings = settings
        self.players: BotPlayers | None = None

    def __call__(self) -> BotPlayers:
        if self.players is None:
            from ludus.rollout.bot_process import bot_players

            self.players = bot_players(self._settings)
        return self.players

    @property
    def restarted(self) -> int:
        """Processes of bots that were replaced so far."""
        return getattr(self.players, "restarted", 0)


class RolloutHost:
    """Plays requests, shard by shard. A policy is fetched when a request names it and it is not kept from an earlier one.

    Requests of different task slots belong to different tasks: each task slot has environments of its own, made when it is first played in.
    """

    called: ClassVar[str] = "rollout worker"
    """In messages, before its number."""
    heard: ClassVar[bool] = False
    """Whether `HostSpec.between` is called within requests of learners, too."""

    def __init__(self, spec: HostSpec) -> None:
        self._spec = spec
        self._policies: RecentCache[Policy] = RecentCache(spec.cache_bytes, most=files_to_keep())
        self._bots = BotsOnDemand(spec.bots)
        self._task_slots: dict[int, list[RolloutWorker]] = {}
        self._begun = 0
        self._playing: Sequence[RolloutWorker] = ()  # the present evaluation, or the last request, if it was one
        self._collected: list[Rollout] | Exception = []
        self._workers(0)  # what is wrong with an environment shows now

    def play(
        self,
        task_slot: int,
        request: RolloutRequest,
        policies: Sequence[tuple[PolicyRef, Any]],
        server: Peer | None = None,
    ) -> list[Rollout]:
        """Return one rollout per shard. policies: references to their messages; a `BotPolicy` itself, since bots play here. server: what
        holds the policies, where the host does not. Raises what `RolloutWorker.play` raises; PartDied if the server died, TrainingError if
        a device has not enough memory to act there: then episodes that are open in the task slot are lost, as if the host had died
        itself."""
        before = self._bots.restarted
        played = self._played(task_slot, request, policies, server)
        if restarts := self._bots.restarted - before:
            first = replace(played[0], counters={**played[0].counters, "bot_restarts": restarts})
            return [first, *played[1:]]
        return played

    def _played(
        self, task_slot: int, request: RolloutRequest, policies: Sequence[tuple[PolicyRef, Any]], server: Peer | None
    ) -> list[Rollout]:
        self._begun += 1
        self._playing = ()
        workers = self._workers(task_slot)
        for worker in workers:
            worker.episodes = 0
        if request.learner is None:
            self._playing = workers
        try:
            if self._spec.fetch is None:
                return self._play(workers, request, policies)
            if server is None:
                loaded = [
                    (ref, sent if isinstance(sent, BotPolicy) else self._policy(ref, sent)) for ref, sent in policies
                ]
                self._policies.trim(len(policies))
                return self._play(workers, request, loaded)
            for worker in workers:
                assert isinstance(worker.policies, RemoteBank)
                worker.policies.server = server
            return self._play(workers, request, policies)
        except Exception as error:
            full = out_of_memory(error)
            if full is None and not isinstance(error, PartDied | TrainingError):
                raise
            self._task_slots[task_slot] = [self._worker(task_slot, k, worker.env) for k, worker in enumerate(workers)]
            if full is None:
                raise
            count = sum(worker.env.num_envs for worker in workers)
            raise TrainingError(
                f"there was not enough memory to act in {count} environments: {full}. Give fewer env.num_envs, fewer tasks on one GPU "
                "(runtime.tasks), or device=cpu."
            ) from error

    def collect(
        self,
        task_slot: int,
        request: RolloutRequest,
        policies: Sequence[tuple[PolicyRef, Ref]],
        server: Peer | None = None,
    ) -> list[Trajectories]:
        """`play` for a request with a learner, in two answers: the trajectories, and what `collected_rollouts` gives next.
        So whoever gives requests need not see the first."""
        try:
            rollouts = self.play(task_slot, request, policies, server)
        except Exception as error:
            self._collected = error
            raise
        self._collected = [replace(rollout, trajectories=None) for rollout in rollouts]
        return [rollout.trajectories for rollout in rollouts if rollout.trajectories is not None]

    def collected_rollouts(self) -> list[Rollout]:
        """Return the rollouts of the last `collect`, without trajectories. Raises what it raised."""
        if isinstance(self._collected, Exception):
            raise self._collected
        return self._collected

    def heartbeat(self) -> list[float]:
        """Return numbers that change with every step: finished episodes of the present evaluation, the largest `RolloutWorker.unended`,
        requests that were begun, steps of each worker, and calls of bots. Called from another thread."""
        workers = [worker for task_slot in list(self._task_slots.values()) for worker in list(task_slot)]
        return [
            self._ended(),
            max(worker.unended for worker in workers),
            self._begun,
            *(worker.steps for worker in workers),
            *([] if self._bots.players is None else self._bots.players.heartbeat()),
        ]

    def ready(self) -> None:
        """Answer as soon as the host is created, and has done what was requested before."""

    def close(self) -> None:
        """Close the environments, whatever some of them raise, and let the bots go."""
        with ExitStack() as stack:
            if self._bots.players is not None:
                stack.callback(self._bots.players.close)
            for workers in self._task_slots.values():
                for worker in workers:
                    stack.callback(worker.close)

    def _play(
        self, workers: Sequence[RolloutWorker], request: RolloutRequest, policies: Sequence[tuple[PolicyRef, Any]]
    ) -> list[Rollout]:
        """One after the other; of the time that there is, each has as much as those after it."""
        looked_at = self.heard or request.learner is None or (request.unit == "episodes" and request.seconds is None)
        if self._spec.between is not None and looked_at:
            return [self._stepwise(worker, request, policies, self._spec.between) for worker in workers]
        if request.seconds is None:
            return [worker.play(request, policies) for worker in workers]
        end = perf_counter() + request.seconds
        rollouts = []
        for k, worker in enumerate(workers):
            left = max(0.0, end - perf_counter()) / (len(workers) - k)
            rollouts.append(worker.play(replace(request, seconds=left), policies))
        return rollouts

    def _stepwise(
        self,
        worker: RolloutWorker,
        request: RolloutRequest,
        policies: Sequence[tuple[PolicyRef, Any]],
        between: Callable[[Callable[[], tuple[int, int]]], None],
    ) -> Rollout:
        steps = worker.stepwise(request, policies)
        while (rollout := next(steps)) is None:
            between(lambda: (self._ended(), worker.unended))
        return rollout

    def _ended(self) -> int:
        """Return episodes of the evaluation that is played."""
        return sum(worker.episodes for worker in self._playing)

    def _workers(self, task_slot: int) -> list[RolloutWorker]:
        if task_slot not in self._task_slots:
            make = self._spec.make_env if task_slot != SCORED or self._spec.scored is None else self._spec.scored
            workers: list[RolloutWorker] = []
            with ExitStack() as stack:  # all of a task slot's shards or none, so that the next request makes them again
                for k, shard in enumerate(self._spec.shards):
                    ready = self._spec.ready if task_slot == 0 and k == 0 else None
                    env = make(num_envs=shard.num_envs) if ready is None else ready
                    stack.enter_context(closed_on_error(env))
                    workers.append(self._worker(task_slot, k, env))
            self._task_slots[task_slot] = workers
        return self._task_slots[task_slot]

    def _worker(self, task_slot: int, number: int, env: VectorEnv) -> RolloutWorker:
        """Return a worker around the environments of a shard."""
        client = self._spec.client
        bank: PolicyBank = (
            RemoteBank(env.spec, env.num_envs, client=f"{client}, task slot {task_slot}, shard {number}")
            if client
            else LocalBank(env.spec, env.num_envs, device=self._spec.device)
        )
        name = task_slot, number
        return RolloutWorker(env, bank, shard=self._spec.shards[number], bots=self._bots, name=name)

    def _policy(self, ref: PolicyRef, sent: Ref) -> Policy:
        policy = self._policies.find(sent)
        if policy is None:
            assert self._spec.fetch is not None
            message: PolicyMessage = self._spec.fetch(sent)
            policy = message.policy
            self._policies.keep(sent, policy, message.size, series=(ref.population, ref.policy))
        return policy


class PolicyMessage:
    """A policy on its way to hosts. Within a process it is the policy itself; between processes its spec and weights travel. size: bytes
    of the weights, counted once, since asking for them copies them."""

    __slots__ = ("policy", "size")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.size = sum(np.asarray(array).nbytes for array in policy.weights().values())

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpack, (self.policy.spec, dict(self.policy.weights()))


def _unpack(spec: PolicySpec, weights: Weights) -> PolicyMessage:
    return PolicyMessage(build_policy(spec, weights))


@dataclass(frozen=True, slots=True, eq=False)
class LocalPending(Pending):
    """A request that was played. answer: one rollout per shard, or what playing it raised."""

    answer: list[Rollout] | Exception


class StepReporter:
    """Tells, between two steps, how many of a match's episodes have ended, and whether none does. It is no method of the owner of hosts,
    which would then wait for the garbage collector."""

    def __init__(self, unended: Callable[[int], None]) -> None:
        """unended: takes `RolloutWorker.unended`."""
        self._unended = unended
        self._on_progress: ProgressCallback | None = None
        self._next = 0.0

    @contextmanager
    def reporting_to(self, on_progress: ProgressCallback | None) -> Iterator[None]:
        """Report to this callback inside of the block."""
        self._on_progress, self._next = on_progress, monotonic() + rollouts.REPORT_SECONDS
        try:
            yield
        finally:
            self._on_progress = None

    def __call__(self, standing: Callable[[], tuple[int, int]]) -> None:
        """Report, between two steps."""
        if (now := monotonic()) >= self._next:
            self._next = now + rollouts.REPORT_SECONDS
            ended, unended = standing()
            self._unended(unended)
            if self._on_progress is not None:
                self._on_progress(ended)


class LocalRollouts(Rollouts[LocalPending]):
    """Runs `num_envs` environments in `shards` shards in this process. A request is played when it is started; what playing it raises is
    raised when it is finished."""

    def __init__(
        self,
        make_env: MakeEnv,
        *,
        spec: EnvSpec,
        num_envs: int,
        shards: int = 1,
        ready: VectorEnv | None = None,
        bots: BotSettings | None = None,
        device: DeviceChoice = CPU,
        kind: type[RolloutHost] = RolloutHost,
        tell: Callable[[str], None] = lambda _: None,
        warn: Callable[[str], None] = lambda _: None,
        scored: MakeEnv | None = None,
    ) -> None:
        """Create the environments, except those of the first shard that are `ready`. The others are as in `RolloutManager`."""
        self.spec, self.num_envs, self.profile = spec, num_envs, Timings()
        self.match_slot = 0 if scored is None else SCORED
        self._shards, self._tell = split_envs(num_envs, shards), tell
        self._between = StepReporter(EndlessWarning(warn, spec, self._shards[0].num_envs))
        self._host = kind(
            HostSpec(
                make_env,
                self._shards,
                ready=ready,
                bots=bots or BotSettings(),
                device=device,
                scored=scored,
                between=self._between,
            )
        )

    @staticmethod
    def around(env: VectorEnv) -> LocalRollouts:
        """Return rollouts in a vector that exists already."""
        return LocalRollouts(_is_started, spec=env.spec, num_envs=env.num_envs, ready=env)

    @property
    def hosts(self) -> int:
        return 1

    def life(self, host: int) -> str:
        return "0"

    def playing(self, unit: str, amount: int) -> list[int]:
        return [0]

    def start(
        self,
        request: RolloutRequest,
        policies: Sequence[tuple[PolicyRef, Policy | RemotePolicy]],
        *,
        task_slot: int = 0,
        hosts: Sequence[int] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> LocalPending:
        check_shares(request, len(self._shards))
        begun = perf_counter()
        answer: list[Rollout] | Exception
        with self._between.reporting_to(on_progress):
            try:
                answer = self._host.play(task_slot, request, policies)
            except Exception as error:  # noqa: BLE001 (held for `finish`)
                answer = error
        return LocalPending(request, task_slot, perf_counter() - begun, answer)

    def finish(
        self, pending: LocalPending, *, receive: Receive | None = None, on_progress: ProgressCallback | None = None
    ) -> Rollout:
        if isinstance(pending.answer, Exception):
            raise pending.answer
        rollout = pending.answer[0] if len(pending.answer) == 1 else merge(pending.answer)
        report_faults(rollout.counters, self._tell)
        self.profile.rollout(pending.seconds, rollout.seconds, rollout.counters)
        return rollout

    def take(self, pending: LocalPending, *, receive: Receive | None = None) -> Rollout:
        return self.finish(pending)

    def done(
        self, pending: Sequence[LocalPending], *, at_least: int, timeout: float | None = None
    ) -> list[LocalPending]:
        return list(pending)

    def cancel(self, pending: LocalPending) -> None:
        return None

    def close(self) -> None:
        self._host.close()


def _is_started(*, num_envs: int) -> Any:
    raise AssertionError(f"the vector of {num_envs} environments was given")
