"""What a real run with asynchronous workers does, as labels of the machine `Pacing`, on a runtime whose workers answer and die by lot."""

from __future__ import annotations

import os
import random
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import pytest

from benchmarks.protocols_explorer import Label, Refusal, Replay
from benchmarks.protocols_pacing import Pacing, TaskState
from benchmarks.protocols_rounds import Rounds
from ludus.core.errors import PartDied, RunWarning
from ludus.rollout.async_limits import InFlightLimiter
from ludus.rollout.manager import HostsPending, RolloutManager
from ludus.runs.driver import Driver
from ludus.runs.scenario_runtime import RuntimeChoice
from ludus.runtime.inprocess import Answer, InProcess, Part
from ludus.training import training as trainings
from ludus.training.collecting import AsyncCollector
from ludus.training.training import Training

SCENARIO = """
env: {id: openspiel/kuhn_poker, num_envs: 8}
algorithm: {kind: tabular_q, batch: 30, batch_unit: decisions}
response: {decisions: 240}
evaluation: {payoffs: simulate, episodes: 20}
generations: 1
checkpoints: {iterations: 3}
runtime: {kind: processes, mode: async, workers: 2, shards: 2, restarts: 1000, deadline: null, in_flight: 2, max_lag: 1, min_completed: 1}
"""


class RealTask(Pacing):
    """The machine without bounds: how much a task needs, and when it is enough, is not its concern."""

    def may_stop_asking(self, task: TaskState) -> bool:
        return True

    def may_end(self, task: TaskState) -> bool:
        return True

    def must_end(self, task: TaskState) -> bool:
        return False

    def may_put_off(self, task: TaskState) -> bool:
        return True


class RealProcesses(RealTask):
    """The same, where nobody sees when a worker answers."""

    hidden = RealTask.hidden | {"played"}


_BOUNDS: dict[str, Any] = {"hosts": 2, "in_flight": 2, "least": 1, "max_lag": 1, "barrier": 3, "publish": 1}
"""Of the scenario."""


def machine(tasks: int) -> RealTask:
    """Return the machine of the scenario."""
    return RealTask(**_BOUNDS, total=10**6, tasks=tasks, restarts=10**6)


def machine_of_processes() -> RealProcesses:
    """Return the machine of the scenario with one task."""
    return RealProcesses(**_BOUNDS, total=10**6, restarts=10**6)


class LotRuntime(InProcess):
    """Workers play at once, and answer when a lot says so, each in order; or they die, and what they had not answered is lost.

    deaths: probability that a worker dies in place of answering.
    """

    def __init__(self, seed: int, deaths: float, trace: Trace | RoundTrace) -> None:
        super().__init__()
        self._random, self._deaths, self._trace = random.Random(seed), deaths, trace
        self._hosts: list[Part] = []
        self._owed: list[tuple[int, Answer]] = []

    def spawn(self, *args: Any, **options: Any) -> Part:
        part = super().spawn(*args, **options)
        self._hosts.append(part)
        return part

    def call(self, handle: Part, method: str, *args: Any) -> Answer:
        answer = super().call(handle, method, *args)
        if method == "play":
            self._owed.append((self._hosts.index(handle), answer))
        return answer

    def wait(
        self, refs: Sequence[Answer], *, at_least: int = 1, timeout: float | None = None
    ) -> tuple[list[Answer], list[Answer]]:
        while True:
            owed = [answer for _, answer in self._owed]
            done = [ref for ref in refs if ref not in owed]
            if len(done) >= at_least and (not owed or self._random.random() < 0.6):
                return done, [ref for ref in refs if ref in owed]
            self._happens()

    def _happens(self) -> None:
        host = self._random.choice([host for host, _ in self._owed])
        if self._random.random() < self._deaths:
            self._trace.dies(host)
            lost = [answer for other, answer in self._owed if other == host]
            self._owed = [(other, answer) for other, answer in self._owed if other != host]
            for answer in lost:
                answer.value, answer.error = None, PartDied("died by lot")
            self.restart(self._hosts[host])
            return
        at = next(at for at, (other, _) in enumerate(self._owed) if other == host)
        self._trace.played(host, self._owed.pop(at)[1])


class Trace:
    """The events of a run, by groups of tasks in progress together."""

    def __init__(self, on_learned: Callable[[], object] = bool) -> None:
        """on_learned: called after each iteration."""
        self.on_learned = on_learned
        self.groups: list[list[Label]] = []
        self.sizes: list[int] = []
        self._tasks: dict[int, int] = {}  # by id of a training or a collector
        self._active: set[int] = set()
        self._collectors: list[AsyncCollector] = []
        self._versions: dict[int, int] = {}  # of rollouts, by id
        self._rollouts: list[object] = []  # which keeps their ids
        self._current: Any = None  # the request that is looked at
        self._first: dict[int, int] = {}  # versions of tasks
        self._collected: Any = None
        self._barrier: int | None = None

    @property
    def learned(self) -> int:
        """Iterations so far."""
        return sum(label[0] == "learn" for group in self.groups for label in group)

    def refusals(self) -> list[Refusal]:
        """Return what the machine does not permit, of each group that it refuses."""
        replays = [Replay(machine(size)) for size in self.sizes]
        followed = [replay.follow(group) for replay, group in zip(replays, self.groups, strict=True)]
        return [refusal for refusal in followed if refusal is not None]

    def _event(self, *label: Any) -> None:
        self.groups[-1].append(label)

    def dies(self, host: int) -> None:
        if self._active:
            self._event("dies", host)

    def played(self, host: int, answer: Answer) -> None:
        for collector in self._collectors:
            for request in collector._in_flight:
                if request.pending.partials[0].answer is answer:  # type: ignore[attr-defined]
                    self._event("played", host)

    def begins(self, tasks: int) -> None:
        """Record that tasks begin to be in progress together."""
        self.groups.append([])
        self.sizes.append(tasks)
        self._tasks, self._collectors, self._first, self._active = {}, [], {}, set(range(tasks))

    # ------------------------------------------------------------------------------------------ spies

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Wrap the functions whose calls are events."""
        for owner, name, spy in (
            (trainings, "train", self._train),
            (Training, "_learn", self._learn),
            (Training, "_learned", self._learned),
            (Training, "_publish_newest", self._publish_newest),
            (Training, "barrier", self._barrier_),
            (Training, "finished", self._finished),
            (Driver, "checkpoint", self._checkpoint),
            (AsyncCollector, "_ask", self._ask),
            (AsyncCollector, "_deliver", self._deliver),
            (AsyncCollector, "_keep", self._keep),
            (AsyncCollector, "on_published", self._on_published),
            (InFlightLimiter, "release", self._release),
        ):
            self._wrap(patch, owner, name, spy)

    def _wrap(self, patch: pytest.MonkeyPatch, owner: Any, name: str, spy: Any) -> None:
        call = getattr(owner, name)
        patch.setattr(owner, name, lambda *args, **kwargs: spy(call, *args, **kwargs))
        if owner is trainings:  # which the task runner has by its own name
            patch.setattr(f"ludus.runs.task_runner.{name}", getattr(owner, name))

    def _train(self, call: Any, tasks: Sequence[Any], **options: Any) -> Any:
        make = options.pop("make")
        self.begins(len(tasks))

        def making(task: Any, task_slot: int) -> Training:
            made: Training = make(task, task_slot)
            assert isinstance(made._collector, AsyncCollector)
            self._tasks[id(made)] = self._tasks[id(made._collector)] = task_slot
            self._collectors.append(made._collector)
            self._first[task_slot] = made._first
            return made

        return call(tasks, make=making, **options)

    def _learn(self, call: Any, training: Training, collected: Any, **options: Any) -> None:
        self._collected = collected
        call(training, collected, **options)

    def _learned(self, call: Any, training: Training, rollout: Any) -> Any:
        learned = call(training, rollout)
        versions = tuple(sorted(self._versions[id(rollout)] for rollout in self._collected.rollouts))
        self._event("learn", self._tasks[id(training)], versions)
        self.on_learned()
        return learned

    def _publish_newest(self, call: Any, training: Training) -> None:
        call(training)
        t = self._tasks[id(training)]
        self._event("publish", t, training._version - self._first[t])

    def _barrier_(self, call: Any, training: Training) -> None:
        self._event("barrier", self._tasks[id(training)])
        call(training)
        self._barrier = self._tasks[id(training)]

    def _finished(self, call: Any, training: Training) -> str | None:
        why: str | None = call(training)
        t = self._tasks.get(id(training))
        if why is not None and t in self._active:
            self._active.remove(t)
            self._collectors.remove(training._collector)  # type: ignore[arg-type]
            self._event("over", t)
            self._barrier = None
        return why

    def _checkpoint(self, call: Any, driver: Driver, states: Any) -> None:
        call(driver, states)
        if self._barrier is not None:
            self._event("checkpoint", self._barrier)
            self._barrier = None

    def _ask(self, call: Any, collector: AsyncCollector, host: int) -> bool:
        before = len(collector._in_flight)
        asked: bool = call(collector, host)
        if len(collector._in_flight) > before:
            self._event("ask", self._tasks[id(collector)], host, self._version(collector, collector._in_flight[-1]))
        return asked

    def _deliver(self, call: Any, collector: AsyncCollector, request: Any) -> Any:
        before, is_owed = len(collector._in_flight), request in collector._in_flight
        rollout = call(collector, request)
        if rollout is None and is_owed:
            count = before - len(collector._in_flight)
            self._event("lost", self._tasks[id(collector)], request.host, count)
        return rollout

    def _keep(self, call: Any, collector: AsyncCollector, rollouts: list[Any], request: Any, rollout: Any) -> Any:
        self._current, before = (collector, request), len(rollouts)
        stale = call(collector, rollouts, request, rollout)
        self._current = None
        if len(rollouts) > before:
            version = self._version(collector, request)
            self._versions[id(rollout)] = version
            self._rollouts.append(rollout)
            self._event("take", self._tasks[id(collector)], request.host, version)
        return stale

    def _on_published(self, call: Any, collector: AsyncCollector) -> None:
        count = len(collector._taken)
        call(collector)
        self._event("release", self._tasks[id(collector)], count)

    def _release(self, call: Any, limiter: InFlightLimiter, leases: Any) -> int:
        released: int = call(limiter, leases)
        if self._current is not None:  # one that is too old
            collector, request = self._current
            self._event("drop", self._tasks[id(collector)], request.host, self._version(collector, request))
        return released

    def _version(self, collector: AsyncCollector, request: Any) -> int:
        version: int = request.pending.request.learner.version - self._first[self._tasks[id(collector)]]
        return version


class RoundTrace:
    """The events of synchronous requests, each apart."""

    def __init__(self) -> None:
        self.requests: list[list[Label]] = []
        self._open: dict[int, tuple[HostsPending, list[Label]]] = {}
        self._coming: list[Label] = []  # of the request that is being started

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Wrap the functions whose calls are events."""
        start, ask = RolloutManager.start, RolloutManager._ask
        ask_again, merged = RolloutManager._ask_again, RolloutManager._merged

        def starting(*args: Any, **options: Any) -> HostsPending:
            self._coming = []
            pending = start(*args, **options)
            self.requests.append(self._coming)
            self._open[id(pending)] = pending, self._coming
            return pending

        def asking(manager: RolloutManager, host: int, *args: Any) -> Any:
            self._coming.append(("ask", host))
            return ask(manager, host, *args)

        def asking_again(manager: RolloutManager, pending: HostsPending, partial_result: Any) -> None:
            self._coming = []  # this is no start
            ask_again(manager, pending, partial_result)
            self._open[id(pending)][1].append(("ask again", partial_result.host))

        def merging(manager: RolloutManager, pending: HostsPending, *args: Any) -> Any:
            self._open.pop(id(pending))[1].append(("merge",))
            return merged(manager, pending, *args)

        for name, spy in (("start", starting), ("_ask", asking), ("_ask_again", asking_again), ("_merged", merging)):
            patch.setattr(RolloutManager, name, spy)

    def dies(self, host: int) -> None:
        for _, events in self._open.values():
            events.append(("dies", host))

    def played(self, host: int, answer: Answer) -> None:
        for pending, events in self._open.values():
            if any(each.answer is answer for each in pending.partials):
                events.append(("played", host))

    def refusals(self) -> list[Refusal]:
        """Return what the machine does not permit, of each request that it refuses."""
        machine = Rounds(hosts=2, restarts=10**6, leave=False)
        followed = [Replay(machine).follow(events) for events in self.requests]
        return [refusal for refusal in followed if refusal is not None]


T = TypeVar("T", Trace, RoundTrace)


@contextmanager
def watched(
    patch: pytest.MonkeyPatch,
    *,
    seed: int,
    deaths: float,
    kind: type[T] = Trace,  # type: ignore[assignment]
) -> Iterator[T]:
    """Have runs that ask for processes get workers that answer and die by lot, and yield their trace, of this kind."""
    trace = kind()
    with patch.context() as own, warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)  # of every death
        own.setattr(RuntimeChoice, "build", lambda self, learns: LotRuntime(seed, deaths, trace))
        trace.watch(own)
        yield trace


@contextmanager
def watched_processes(patch: pytest.MonkeyPatch, *, kills: Sequence[int]) -> Iterator[Trace]:
    """Have a worker of runs in processes killed after these iterations, in turn, and yield their trace."""
    build, workers, lives = RuntimeChoice.build, list[Any](), list[int]()

    def building(choice: RuntimeChoice, *, learns: bool) -> Any:
        runtime: Any = build(choice, learns=learns)
        spawn = runtime.spawn

        def spawning(*args: Any, **options: Any) -> Any:
            workers.append(spawn(*args, **options))
            lives.append(0)
            return workers[-1]

        def noticing(call: Any, *args: Any, **options: Any) -> Any:
            try:
                return call(*args, **options)
            finally:
                for host, worker in enumerate(workers):
                    while lives[host] < runtime.incarnation(worker):
                        lives[host] += 1
                        trace.dies(host)

        runtime.spawn = spawning
        runtime.wait, runtime.get = (partial(noticing, call) for call in (runtime.wait, runtime.get))
        return runtime

    def kill() -> None:
        if trace.learned in kills:
            victim = workers[kills.index(trace.learned) % 2]
            os.kill(victim.life.process, signal.SIGKILL)

    trace = Trace(kill)
    with patch.context() as own, warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        own.setattr(RuntimeChoice, "build", building)
        trace.watch(own)
        yield trace
