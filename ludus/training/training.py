"""Training tasks in progress: collect, insert, learn, publish, again; each of them a step that a driver paces.

Collector (RolloutWorkers) --trajectories--> Trainer (Learner, tables)
        ^                                              |
        +----------- versioned weights ----------------+

Several tasks share the workers: one of them learns while workers play for the others.

    begin all -> [ complete one -> barrier? -> begin it again ]* -> results, in the order of the tasks

Tasks that do not depend on each other give the same however many there are. Those that play against each other's newest weights go on in
step, so that these are always of the same iteration, and their barriers are one:

    [ begin all -> complete each -> barrier of all? ]* -> results
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from typing import Any, Protocol, cast

from ludus.algorithms.common.base import Algorithm, LearnerContext
from ludus.algorithms.common.behavioral_diversity import diversity_targets
from ludus.algorithms.common.device_policy import SupportsOnDevice, SupportsRounds
from ludus.core import recorders, seeding
from ludus.core.errors import TrainingError, reading_state
from ludus.core.recorders import Timings
from ludus.core.types import (
    CPU,
    AdaptiveMixture,
    DeviceChoice,
    Metrics,
    PolicyRef,
    State,
    TrainingResult,
    TrainingTask,
    Weights,
)
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.replay.episode_server import EpisodeServer
from ludus.rollout.async_limits import AsyncLimits
from ludus.rollout.base import Rollout, RolloutRequest, merge
from ludus.rollout.opponents import live_refs
from ludus.rollout.rollouts import RemotePolicy, Rollouts
from ludus.storage.base import NullObserver, Observer
from ludus.training.callbacks import CallbackObserver, UpdateRecord
from ludus.training.collecting import (
    AsyncCollector,
    Collected,
    Collector,
    Policies,
    RequestMaker,
    SyncCollector,
    TrainingCounts,
)
from ludus.training.ondevice_collector import DeviceVectors, OnDeviceCollector, select_collector
from ludus.training.ondevice_rounds import RoundsCollector, supports_rounds
from ludus.training.remote_trainer import RemoteTrainer, Trainers
from ludus.training.stopping import (
    Episodes,
    Progress,
    Stopper,
    fraction_done,
    limit_in_unit,
    stop_reason,
    training_budget,
)
from ludus.training.trainer import HOST_REPLAY, BatchPlacement, LearnResult, Trainer, TrainerSpec

LoadPolicy = Callable[[PolicyRef], Policy]


class Scorer(Protocol):
    """What scores versions of a policy while it goes on learning (`ludus.evaluation.background`)."""

    def submit(
        self, task: TrainingTask, version: int, policies: Sequence[tuple[PolicyRef, Policy | RemotePolicy]]
    ) -> None:
        """Submit a new version of a task's policy. policies: that one and its opponents."""
        ...

    def collect(self, *, wait_for: str | None = None) -> None:
        """Record the scores that have come. wait_for: a task, all of whose scores are waited for."""
        ...

    def close(self) -> None:
        """Stop; scores that are missing are dropped."""
        ...


@dataclass(frozen=True, slots=True)
class TrainingParts:
    """What training tasks of a run share. `policy` gives a frozen policy of the populations, `clock` the seconds that limits count.
    `observer` is told how they go on. vectors: of environments on devices; None: there are none. where_acts: says of a policy where it
    acts, and why; None: there is no choice."""

    rollouts: Rollouts[Any]
    episodes: EpisodeServer
    policy: LoadPolicy
    seed: int
    trainers: Trainers | None = None
    background: Scorer | None = None
    callbacks: CallbackObserver | None = None
    observer: Observer = field(default_factory=NullObserver)
    feed: BatchPlacement = HOST_REPLAY
    device: DeviceChoice = CPU
    vectors: DeviceVectors | None = None
    where_acts: Callable[[Policy], str] | None = None
    clock: Callable[[], float] = time.perf_counter

    @property
    def profile(self) -> Timings:
        """Where the run's time goes."""
        return self.rollouts.profile


class Training:
    """One `TrainingTask`. `begin` has workers play and `complete` learns from what they bring: one iteration; `step` is both. `finished`
    says why it is over. Together, it is deterministic given its task and the run's seed; `state_dict` at a barrier and
    `load_state_dict` into a new one go on bit-equally."""

    def __init__(
        self,
        task: TrainingTask,
        *,
        algorithm: Algorithm,
        parts: TrainingParts,
        stop: Stopper,
        start: Weights | None,
        task_slot: int = 0,
        async_limits: AsyncLimits | None = None,
        goes_on: State | None = None,
    ) -> None:
        """task_slot: of the rollouts. async_limits: None: collection is synchronous. goes_on: the `learner_state` of the task that this one
        continues. Raises ConfigError for opponents whose rule is none."""
        self.task, self._parts, self._stop = task, parts, stop
        self._collect = algorithm.collect()
        seed = seeding.key(parts.seed, task.id)
        self._requests = RequestMaker(
            task, self._collect, parts.rollouts, parts.policy, seed=seed, asynchronous=async_limits is not None
        )
        self._total = limit_in_unit(stop, self._collect.unit)
        self._limit = limit_in_unit(stop, "seconds")
        total, unit = training_budget(stop, self._collect.unit)
        targets = None if task.diversity is None else diversity_targets(task.diversity, parts.policy)
        context = LearnerContext(
            env=parts.rollouts.spec,
            seats=task.seats,
            seed=seed,
            total=total * task.length if total is not None and task.length else None,
            unit=unit,
            diversity=targets,
            device=parts.device,
        )
        spec = TrainerSpec(task.id, algorithm, context, start)
        self._trainer: Trainer | RemoteTrainer = (
            Trainer(spec, parts.episodes, parts.profile, feed=parts.feed)
            if parts.trainers is None
            else parts.trainers.begin(spec, task_slot=task_slot)
        )
        self._count = TrainingCounts()
        self._curve = recorders.CurveRecorder()
        self._first = 1  # version; 0 is that of the member that comes of it
        if goes_on is not None:
            self._trainer.load_state_dict(goes_on["trainer"])
            self._first, self._count.next_episode = int(goes_on["version"]), int(goes_on["next_episode"])
        self._failure: str | None = None
        self._in_step = False  # whether others play against its newest weights
        self._started = parts.clock()
        on_device: SupportsOnDevice | str = ""
        if parts.vectors is not None:
            on_device = select_collector(
                parts.vectors,
                self._trainer if isinstance(self._trainer, Trainer) else None,
                task,
                self._collect,
                frozen=self._requests.frozen,
                asynchronous=async_limits is not None,
            )
        self._in_place = None if isinstance(on_device, str) else on_device
        self._why = on_device if isinstance(on_device, str) else ""  # they are played in memory
        self._collector = self._collecting(task_slot, async_limits)
        self._publish()
        self.offer()

    def _collecting(self, task_slot: int, async_limits: AsyncLimits | None) -> Collector:
        carries_on = self._collect.unit == "decisions"
        rollouts, vectors = self._parts.rollouts, self._parts.vectors
        # In a circle with its collector, a task's networks would outlive it by a while.
        this: Training = weakref.proxy(self)

        def request(*, carry_on: bool, host: int) -> tuple[RolloutRequest, Policies]:
            return this._request(carry_on=carry_on, host=host)

        if vectors is not None and self._in_place is not None:
            profile = self._parts.profile
            each = self._parts.callbacks is not None or isinstance(self.task.opponents, AdaptiveMixture)
            learner, trainer = self._in_place, self._trainer
            if not each and isinstance(trainer, Trainer) and supports_rounds(learner, rollouts.spec, self._collect):
                return RoundsCollector(
                    vectors,
                    trainer,
                    cast(SupportsRounds, learner),
                    request,
                    self._collect,
                    task_slot=task_slot,
                    profile=profile,
                    rounds_ahead=lambda: this._rounds_ahead(),
                )
            return OnDeviceCollector(
                vectors, self._in_place, request, self._collect, task_slot=task_slot, profile=profile, each=each
            )
        receive = self._trainer.receive if isinstance(self._trainer, RemoteTrainer) else None
        if async_limits is None:
            return SyncCollector(rollouts, request, task_slot=task_slot, carries_on=carries_on, receive=receive)
        return AsyncCollector(
            rollouts,
            request,
            task_slot=task_slot,
            carries_on=carries_on,
            async_limits=async_limits,
            version=lambda: this._version,
            wants=lambda requests: this._wants(requests),
            hosts=rollouts.playing(self._collect.unit, self._collect.amount),
            receive=receive,
        )

    def set_live_opponents(self, learners: Mapping[tuple[int, str], Training]) -> None:
        """The trainings in progress together, by (population, policy), this one included: whose newest weights live opponents are. Before
        the first request."""
        self._requests.set_live_opponents(learners)
        self._in_step = any(plays_others(training.task) for training in learners.values())

    def newest(self, mode: str) -> tuple[PolicyRef, Policy | RemotePolicy]:
        """Return the weights that others play against."""
        return self._ref(mode), self._trainer.policy(self._version)

    def _ref(self, mode: str) -> PolicyRef:
        return PolicyRef(self.task.population, self.task.policy, self._version, mode)

    # ------------------------------------------------------------------------------------------ one iteration

    def begin(self) -> None:
        """Start rollouts, unless they run."""
        if self._in_step and isinstance(self._collector, RoundsCollector):
            self._trainer.policy(self._version)  # which others ask for when a round on its way may have changed it
        self._collector.begin()

    def complete(self) -> None:
        """Wait for what they bring, and learn from all that is due."""
        self._collected(self._collector.take, ahead=True)

    def step(self) -> None:
        """Collect once, and learn."""
        self.begin()
        self.complete()

    def _collected(self, take: Callable[[], Collected], *, ahead: bool) -> None:
        try:
            collected = take()
        except TrainingError as error:  # a device has not enough memory to act there
            self._fails(str(error))
            return
        self._learn(collected, ahead=ahead)

    def _fails(self, why: str) -> None:
        self._failure = f"{why} (task {self.task.id}, iteration {self._count.iterations + 1})"

    def _learn(self, collected: Collected, *, ahead: bool) -> None:
        self._count.stale += collected.stale
        rollouts = collected.rollouts
        if rollouts and not collected.learned:
            rollouts = [rollouts[0] if len(rollouts) == 1 else merge(rollouts)]
        for k, rollout in enumerate(rollouts):
            if not self._iterate(rollout, collected.learned[k] if collected.learned else None, ahead=ahead):
                return
        self._collector.on_published()

    def _iterate(self, rollout: Rollout, learned: LearnResult | None, *, ahead: bool) -> bool:
        """Do an iteration; return whether the task continues. learned: None: nothing has been learned from the rollout yet."""
        count = self._count
        returns = count.add(rollout)
        self._requests.opponents.learn(rollout.episodes)
        if ahead:
            self._collector.prefetch_requests()
        if (callbacks := self._parts.callbacks) is not None:
            callbacks.episodes_done(self.task, rollout.episodes)
        learned = self._learned(rollout) if learned is None else learned
        count.samples += learned.samples
        count.updates += learned.updates
        count.metrics = dict(learned.metrics) or count.metrics
        self._curve.add(
            {**count.totals, "iterations": count.iterations + 1},
            seconds=self._seconds,
            returns=returns,
            lengths=rollout.episodes.length,
            metrics=learned.metrics,
            statistics=rollout.episodes.mean_statistics(self._parts.rollouts.spec.statistics),
            sums=() if rollout.sums is None else astuple(rollout.sums)[: len(recorders.RETURNS)],
        )
        self._parts.observer.learned(self.task, self._curve.curve)
        if learned.failure is not None:
            self._fails(learned.failure)
            return False
        count.iterations += 1
        count.unpublished += 1
        if count.iterations % self._collect.publish_every == 0:  # whatever barriers have published between
            self._publish_newest()
        if learned.updates and callbacks is not None:
            done = UpdateRecord(self.task, count.iterations, learned.updates, self.metrics, count.totals)
            callbacks.updated(done)
        return True

    def _rounds_ahead(self) -> int:
        """Return how many iterations may be done before anything of them is looked at: all that are left, where only episodes end them."""
        looked_at = self._in_step or self._parts.background is not None or self._collect.publish_every > 1
        if looked_at or type(self._stop) is not Episodes:  # a class derived from it may stop at something else
            return 1
        return max(1, -(-(self._stop.value - self._count.episodes) // self._collect.amount))

    def _learned(self, rollout: Rollout) -> LearnResult:
        if self._in_place is not None and isinstance(self._trainer, Trainer):
            if not rollout.left:
                return LearnResult()
            (block,) = rollout.left
            with self._parts.profile.part("learning"):
                return self._trainer.learn_in_place(partial(self._in_place.learn, block), block.num_rows)
        trajectories = () if rollout.trajectories is None else (rollout.trajectories,)  # none: it never had to act
        return self._trainer.learn(rollout.left or trajectories, version=self._version)

    def _request(self, *, carry_on: bool, host: int) -> tuple[RolloutRequest, Policies]:
        if self._in_place is None:
            learner, weights = self.newest("explore")
        else:  # which acts itself, by weights that nobody else asks for
            learner, weights = self._ref("explore"), RemotePolicy(None)
        left = None if self._limit is None else max(0.0, self._limit - self._seconds)
        return self._requests.request(
            self._count, learner=learner, weights=weights, carry_on=carry_on, host=host, seconds=left
        )

    def _wants(self, requests: float) -> bool:
        """Return whether this much being played is not enough to reach the task's end, as far as that can be said."""
        if self._limit is not None and requests >= 1:  # or what nobody waits for would be played for as long again
            done = self._count.iterations
            if not done or self._seconds * (1 + requests / done) >= self._limit:
                return False
        if self._total is None or not requests:
            return True
        done = self._count.episodes if self._collect.unit == "episodes" else self._count.decisions
        return done + requests * self._collect.amount < self._total

    @property
    def _version(self) -> int:
        return self._first + self._count.published

    def _publish_newest(self) -> None:
        """Publish the trainer's weights as a new version."""
        self._count.published += 1
        self._count.unpublished = 0
        self._publish()
        self.offer()

    def _publish(self) -> None:
        """Publish the trainer's weights as the newest version."""
        self._trainer.announce(self._version)
        if self._collect.publish_every > 1:  # or they would be those of when they are first asked for
            self._trainer.policy(self._version)

    def offer(self) -> None:
        """Submit the newest version for scoring during training, if it is to be, against its opponents as they are now."""
        if self._parts.background is not None and self._requests.knows_opponents:
            opponents, policies = self._requests.playing(*self.newest("explore"))
            self._parts.background.submit(replace(self.task, opponents=opponents), self._version, policies)

    # ------------------------------------------------------------------------------------------ around it

    @property
    def progress(self) -> Progress:
        return self._count.progress(self._seconds)

    @property
    def _seconds(self) -> float:
        return self._count.seconds + self._parts.clock() - self._started

    @property
    def iterations(self) -> int:
        return self._count.iterations

    @property
    def since_barrier(self) -> int:
        """Iterations since the last barrier, or the task's start."""
        return self._count.iterations - self._count.barrier_at

    @property
    def horizon_passed(self) -> bool:
        """Whether some episode has ended since the last barrier, however long episodes are: a player has no more decisions in one than the
        environment says. True where it does not say, and where rollouts are whole episodes."""
        horizon, count = self._parts.rollouts.spec.max_decisions, self._count
        if horizon is None or self._collect.unit == "episodes":
            return True
        seats = len(self.task.seats) if self.task.together else 1
        return count.decisions - count.decisions_at >= horizon * seats * self._parts.rollouts.num_envs

    @property
    def fraction(self) -> float | None:
        """Share that is done, in [0, 1]; None if the stopper cannot say."""
        return fraction_done(self._stop, self.progress)

    @property
    def metrics(self) -> Metrics:
        """Newest numbers of the learner, its mean return in the newest rollout, how many episodes barriers have truncated, and how many
        decisions were too old."""
        count = self._count
        out = dict(count.metrics)
        if count.returns:
            out["return"] = count.returns[-1]
        if count.truncated:
            out["truncated_episodes"] = float(count.truncated)
        if count.stale:
            out["stale_decisions"] = float(count.stale)
        return out

    def finished(self) -> str | None:
        """Return why the task is over; None while it is not."""
        return self._failure or stop_reason(self._stop, self.progress)

    def barrier(self) -> None:
        """Prepare for a checkpoint, in every run: episodes that are open end as counted, bootstrapped truncations. (Their fragments were
        cut, and so bootstrapped, when they came; a decision that was still waiting for its reward is lost.)"""
        self._count.barrier_at = self._count.iterations
        if self._collect.unit == "decisions" and self._count.requests > self._count.cut_at:
            self._count.truncated += self._parts.rollouts.num_envs
        self._collected(self._collector.drain, ahead=False)
        if not self._failure:
            self.publish()
        self._count.cut_at, self._count.decisions_at = self._count.requests, self._count.decisions

    def publish(self) -> None:
        """Publish weights that wait for `publish_every`, if there are any."""
        if self._count.unpublished:
            self._publish_newest()

    def result(self) -> TrainingResult:
        """Return the trained policy; close the task with it."""
        count, task = self._count, self.task
        if self._parts.background is not None:
            self._parts.background.collect(wait_for=task.id)
        try:
            weights = self._trainer.weights
        except TrainingError as error:  # of a learner in place, whose weights are looked at only now
            self._failure = self._failure or f"{error} (task {task.id}, iteration {count.iterations})"
            weights = self._trainer.weights
        place = self._place(weights)
        self.close()
        return TrainingResult(
            task=task,
            ref=PolicyRef(task.population, task.policy, mode=task.mode),
            spec=self._trainer.spec,
            weights=weights,
            metrics=self.metrics,
            counters=count.totals,
            failure=self._failure,
            average=self._requests.opponents.average,
            curve=self._curve.curve(),
            place=place,
        )

    def _place(self, weights: Weights) -> str:
        """Where it learns, and plays."""
        if self._in_place is not None:
            return f"{self._trainer.place}; games are played there, too"
        why = f"; games are played in memory: {self._why}" if self._why else ""
        tell = self._parts.where_acts
        acts = "" if tell is None else f"; acts on {tell(build_policy(self._trainer.spec, weights))}"
        return f"{self._trainer.place}{acts}{why}"

    def close(self) -> None:
        """Free the task's tables; what workers still play is not waited for."""
        self._collector.close()
        self._trainer.close()

    def learner_state(self) -> State:
        """Return what a task that continues this one goes on from. Before this one is closed."""
        count = self._count
        version = self._version + bool(count.unpublished)
        return {"trainer": self._trainer.state_dict(), "version": version, "next_episode": count.next_episode}

    def state_dict(self) -> State:
        """Return the state, at a barrier."""
        return {
            **self._trainer.state_dict(),
            "opponents": self._requests.opponents.state_dict(),
            "failure": self._failure,
            "counts": {**self._count.state_dict(), "seconds": self._seconds},
            "curve": recorders.to_state(self._curve.settle()),
        }

    def load_state_dict(self, state: State) -> None:
        self._trainer.load_state_dict(state)
        self._requests.opponents.load_state_dict(state["opponents"])
        self._failure = state["failure"]
        self._count = TrainingCounts.of(state["counts"])
        self._curve = recorders.CurveRecorder(recorders.of_state(state.get("curve")))
        self._started = self._parts.clock()
        self._publish()


Proceed = Callable[[float | None, Metrics], None]
Checkpoint = Callable[[Mapping[str, State]], None]
Keep = Callable[[TrainingTask, State], None]


@dataclass(frozen=True, slots=True)
class Barriers:
    """When barriers come inside a task: every so many iterations; with `horizon` not before one horizon has passed since the last one, so
    that one cannot cut every episode; without, at multiples of `every`, as in runs from before there was a horizon."""

    every: int
    horizon: bool = True

    def due(self, trainings: Sequence[Training]) -> bool:
        """Return whether one comes now that trainings in progress together have done an iteration more."""
        first = max(trainings, key=lambda training: training.iterations)
        if not self.horizon:
            return first.iterations % self.every == 0
        return first.since_barrier >= self.every and all(training.horizon_passed for training in trainings)


def train(
    tasks: Sequence[TrainingTask],
    *,
    make: Callable[[TrainingTask, int], Training],
    barriers: Barriers,
    proceed: Proceed,
    checkpoint: Checkpoint,
    states: Mapping[str, State],
    keep: Keep,
) -> Iterator[TrainingResult]:
    """Yield the results of `tasks`, in their order, each as soon as it and those before it are there.

    make(task, task_slot): a new training. barriers: when they come. proceed(share, metrics): called after each
    iteration; may raise to end it all. checkpoint(states): called at barriers, with the last state of each task that is not done.
    states: those of an earlier session. keep(task, state): called with the learner of a task that says so.
    """
    trainings = [make(task, task_slot) for task_slot, task in enumerate(tasks)]
    learners = {(training.task.population, training.task.policy): training for training in trainings}
    resumed = [training for training in trainings if training.task.id in states]
    for training in resumed:
        with reading_state():
            training.load_state_dict(states[training.task.id])
    for training in trainings:
        training.set_live_opponents(learners)
    for training in resumed:  # now that its opponents have their weights again
        training.offer()
    if any(plays_others(task) for task in tasks):
        _in_step(trainings, barriers=barriers, proceed=proceed, checkpoint=checkpoint)
        for training in trainings:
            yield _result(training, keep)
    else:
        yield from _independently(
            trainings, barriers=barriers, proceed=proceed, checkpoint=checkpoint, states=states, keep=keep
        )


def plays_others(task: TrainingTask) -> bool:
    """Return whether it depends on other tasks in progress."""
    return any((ref.population, ref.policy) != (task.population, task.policy) for ref in live_refs(task.opponents))


def _result(training: Training, keep: Keep) -> TrainingResult:
    if training.task.keep:
        keep(training.task, training.learner_state())
    return training.result()


def _independently(
    trainings: Sequence[Training],
    *,
    barriers: Barriers,
    proceed: Proceed,
    checkpoint: Checkpoint,
    states: Mapping[str, State],
    keep: Keep,
) -> Iterator[TrainingResult]:
    last = {training.task.id: states[training.task.id] for training in trainings if training.task.id in states}
    active = [training for training in trainings if training.finished() is None]
    for training in active:
        training.begin()
    num_yielded = 0
    while True:
        while num_yielded < len(trainings) and trainings[num_yielded] not in active:
            last.pop(trainings[num_yielded].task.id, None)
            yield _result(trainings[num_yielded], keep)
            num_yielded += 1
        if not active:
            return
        for training in list(active):
            before = training.iterations
            training.complete()
            proceed(_share(trainings), training.metrics)
            if training.iterations > before and barriers.due([training]) and _barrier(training):
                last[training.task.id] = training.state_dict()
                checkpoint(last)
            if training.finished() is None:
                training.begin()
            else:
                active.remove(training)


def _in_step(trainings: Sequence[Training], *, barriers: Barriers, proceed: Proceed, checkpoint: Checkpoint) -> None:
    """Train until all are finished. One that is finished earlier stays as it is, for the others to play against."""
    while active := [training for training in trainings if training.finished() is None]:
        before = max(training.iterations for training in active)
        for training in active:
            training.begin()
        for training in active:
            training.complete()
            proceed(_share(trainings), training.metrics)
        after = max(training.iterations for training in active)
        if after > before and barriers.due(active) and any([_barrier(training) for training in active]):  # of all
            for training in trainings:
                training.publish()  # of one that is finished the state has its newest weights, too
            checkpoint({training.task.id: training.state_dict() for training in trainings})


def _barrier(training: Training) -> bool:
    """Return whether there is something to go on with after it: what workers still owed may end the task, or spoil it."""
    if training.finished() is None:
        training.barrier()
    return training.finished() is None


def _share(trainings: Sequence[Training]) -> float | None:
    """Return the share of the work that is done; None where one of them cannot say."""
    shares = [training.fraction for training in trainings]
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if len(known) == len(shares) else None
