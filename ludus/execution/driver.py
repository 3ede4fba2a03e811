"""The driver: asks the scheduler for tasks, does them, records what came out, and passes checkpoint barriers.

    Scheduler --TrainingTask | EvaluationTask--> Driver --TaskResult--> AgentManager (populations, payoffs) --rows--> Store
        ^                                                                    |
        +----------------------- view: populations, payoffs with holes <-----+

Single mode: one task at a time, in one thread, by calls that never wait. Where workers are processes of their own, training tasks of
a generation are in progress together: one learns while workers play for another.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from ludus.algorithms.base import ComputedOracle
from ludus.evaluation.exact import ExactEvaluator
from ludus.evaluation.matches import MatchPlayer, Profile
from ludus.execution import checkpoint
from ludus.execution.control import Control
from ludus.execution.generation import record_of
from ludus.execution.history import History
from ludus.execution.interrupt import StopRequest
from ludus.observe.base import Observer
from ludus.observe.policy_files import PolicyFiles
from ludus.observe.store import Store
from ludus.pacing import Pace
from ludus.policies.file import load_policy
from ludus.population.agent_manager import AgentManager
from ludus.scenario import Scenario
from ludus.schedulers.base import Scheduler
from ludus.stopping.progress import Progress
from ludus.stopping.stoppers import Stopper
from ludus.training.tasks import train
from ludus.training.training import Parts, Training
from ludus.types import (
    Evaluated,
    EvaluationTask,
    Match,
    Metrics,
    Mixture,
    PolicyRef,
    Solution,
    State,
    Task,
    TaskResult,
    Trained,
    TrainingTask,
)

COMPLETE = "the schedule is complete"
_AHEAD = 4  # matches that are given out at a time


class Interrupted(Exception):
    """A stop was asked for in the middle of a task."""


@dataclass(slots=True)
class Driver:
    """The parts of a run, and the loop over its tasks. `exact` is None where the game has no tree."""

    scenario: Scenario
    scheduler: Scheduler
    manager: AgentManager
    parts: Parts
    exact: ExactEvaluator | None
    matches: MatchPlayer
    store: Store
    files: PolicyFiles
    observer: Observer
    stop: StopRequest
    control: Control
    stopper: Stopper | None
    history: History
    named: list[str] = field(default_factory=list)  # checkpoints that the database names
    resumed: Mapping[str, State] = field(default_factory=dict)  # training tasks that a checkpoint was taken in
    lanes: int = 1  # tasks that are in progress at a time
    pace: Pace | None = None  # of workers that play apart
    _started: float = field(default_factory=time.perf_counter)
    _covered: bool = False  # by a checkpoint: nothing happened since
    _computed: ComputedOracle | None = None  # the oracle, if it needs no training
    _solving: float = 0.0  # seconds of the last call of the scheduler, in which the meta-solver runs

    def __post_init__(self) -> None:
        oracle = (
            self.scenario.oracle
        )  # asked once: checking a protocol at run time costs as much as a small best response
        self._computed = oracle if isinstance(oracle, ComputedOracle) else None

    def run(self) -> str:
        """Until the schedule is complete, a stopper fires or a stop is asked for; says which."""
        try:
            while True:
                if reason := self._over():
                    return reason
                begun = time.perf_counter()
                with self.parts.profile.part("meta-solver"):
                    tasks = self.scheduler.next_tasks(self.manager.view(), free=self.lanes)
                self._solving = time.perf_counter() - begun
                if not tasks:
                    return COMPLETE
                self._covered = False
                for together in _groups(tasks):
                    self._do_all(together)
        except Interrupted:
            return self.stop.reason

    def _over(self) -> str | None:
        self.control.check(self.parts.profile.played)
        if self.stop.requested:
            return self.stop.reason
        return self.stopper.reason(self.progress) if self.stopper else None

    @property
    def seconds(self) -> float:
        """Time of the run, summed over its sessions, without what it was made to wait."""
        return self.history.seconds + self.control.clock() - self._started

    @property
    def progress(self) -> Progress:
        return self.history.progress(self.seconds)

    # ------------------------------------------------------------------------------------------ tasks

    def _do_all(self, tasks: Sequence[Task]) -> None:
        """Do tasks that can be in progress together, and take their results in order."""
        for task in tasks:
            self.store.generation = task.generation
            self.store.task_started(task)
            self.observer.task_started(task)
        for result in self._results(tasks):
            self._record(result)
            self.scheduler.on_result(result, self.manager.view())
            if isinstance(result, Evaluated) and result.task.solution is not None:
                self._after_generation(result.task.generation)

    def _results(self, tasks: Sequence[Task]) -> Iterator[TaskResult]:
        training = [task for task in tasks if isinstance(task, TrainingTask)]
        for task in tasks:
            if isinstance(task, EvaluationTask):
                yield self._evaluate(task)
        if self._computed is not None:
            yield from (self._compute(task, self._computed) for task in training)
        elif training:
            yield from train(
                training,
                make=self._training,
                every=self.scenario.checkpoints.iterations,
                proceed=self._proceed,
                checkpoint=lambda last: self.checkpoint({**self.resumed, **last}),
                states=self._resumed(training),
            )

    def _resumed(self, tasks: Sequence[TrainingTask]) -> Mapping[str, State]:
        """The states of these tasks; those of others, whose turn comes later, stay in checkpoints until then."""
        mine = {task.id: self.resumed[task.id] for task in tasks if task.id in self.resumed}
        self.resumed = {name: state for name, state in self.resumed.items() if name not in mine}
        return mine

    def _proceed(self, fraction: float | None, metrics: Metrics) -> None:
        """Between two iterations."""
        self.observer.task_progress(fraction, metrics)
        self.control.check(self.parts.profile.played)
        if self.stop.requested:
            raise Interrupted

    def _evaluate(self, task: EvaluationTask) -> Evaluated:
        if task.solution is not None:
            exploitability = None
            if self.exact is not None and self.scenario.evaluation.exploitability != "off":
                with self.parts.profile.part("evaluation"):
                    exploitability = self.exact.exploitability(task.solution)
            return Evaluated(task, exploitability=exploitability)
        if self.exact is not None and self.scenario.evaluation.payoffs != "simulate":
            with self.parts.profile.part("evaluation"):
                return Evaluated(task, payoffs=self.exact.payoffs())
        return Evaluated(task, matches=tuple(self._matches(task)))

    def _matches(self, task: EvaluationTask) -> Iterator[Match]:
        populations, which = self.manager.populations, self.manager.table.population
        profiles = (
            Profile(index, tuple(populations[p][i] for p, i in zip(which, index, strict=True)))
            for index in task.profiles
        )
        ahead = 1 if self.lanes == 1 else _AHEAD
        for done, match in enumerate(self.matches.play(profiles, self.scenario.evaluation.episodes, ahead=ahead)):
            yield match
            self._proceed((done + 1) / len(task.profiles), {})

    def _compute(self, task: TrainingTask, oracle: ComputedOracle) -> Trained:
        assert self.exact is not None
        with self.parts.profile.part("learning"):
            response = oracle.respond(self.exact.tree, task.seats, task.opponents, self.exact.stack)
        metrics = {**response.metrics, "return": float(np.mean(list(response.value.values())))}
        ref = PolicyRef(task.population, task.policy, mode=task.mode)
        task = replace(task, start=None)  # a computed response starts from nothing, and its lineage says so
        return Trained(task, ref, response.spec, response.weights, metrics, counters={})

    def _training(self, task: TrainingTask, lane: int) -> Training:
        start = None
        if isinstance(task.start, PolicyRef):
            start = self.manager.weights_of(task.start)[1]
        elif task.start is not None:
            start = load_policy(task.start).weights()
        return Training(
            task,
            algorithm=self.scenario.oracle,
            parts=self.parts,
            stop=self.scenario.response,
            start=start,
            lane=lane,
            pace=self.pace,
        )

    # ------------------------------------------------------------------------------------------ results

    def _record(self, result: TaskResult) -> None:
        self.store.task_done(result)
        if isinstance(result, Trained):
            self._add(result)
        elif result.task.solution is not None:
            self._announce(result, result.task.solution)
        else:
            self.manager.on_result(result)

    def _add(self, result: Trained) -> None:
        task, history = result.task, self.history
        if result.failure is not None:
            self.store.event("training", result.failure, level="error")
            self.observer.message(f"training stopped early, last good weights kept: {result.failure}")
        history.count(result.counters)
        self.manager.on_result(result)
        self.admit(result.ref)
        metrics = {f"response/{task.population}/{name}": value for name, value in result.metrics.items()}
        self.store.metrics_recorded("generations", task.generation, metrics)
        for seat in task.seats:
            history.responses[seat] = self._return_of(result, seat)

    def admit(self, ref: PolicyRef) -> None:
        """Tell the exact evaluator of a new member."""
        if self.exact is not None:
            self.exact.add(ref, self.parts.policy(ref))

    def _return_of(self, result: Trained, seat: int) -> float:
        """What a new response earns against what it was trained against: exactly where possible, else in its last rollout."""
        opponents = result.task.opponents
        if self.exact is not None and isinstance(opponents, Mixture):
            return self.exact.value_against(result.ref, seat, opponents)
        return float(result.metrics.get("return", np.nan))

    def _announce(self, result: Evaluated, solution: Solution) -> None:
        record = record_of(
            result,
            solution,
            history=self.history,
            mean=self.manager.table.view().mean,
            seconds=self.seconds,
            solving=self._solving,
        )
        self.history.generation(record.number, values=list(record.values), nash_conv=record.nash_conv)
        self.store.generation_done(record)
        self.store.metrics_recorded("generations", record.number, self.parts.profile.take())
        for population, ratings in enumerate(self.manager.elo()):
            self.store.ratings_recorded(population, ratings)
        self.observer.generation_done(record)

    # ------------------------------------------------------------------------------------------ barriers

    def _after_generation(self, generation: int) -> None:
        if generation % self.scenario.checkpoints.generations == 0:
            self.checkpoint({})

    def checkpoint(self, trainings: Mapping[str, State]) -> None:
        """A barrier: everything so far becomes durable, together. `trainings`: states of the tasks that are in progress, by id."""
        with self.parts.profile.part("checkpoints"):
            self._checkpoint(trainings)

    def _checkpoint(self, trainings: Mapping[str, State]) -> None:
        self.history.checkpoints += 1
        self.files.sync()
        state = {
            "scheduler": self.scheduler.state_dict(),
            "manager": self.manager.state_dict(),
            "exact": None if self.exact is None else list(self.exact.known),
            "history": self.history.state_dict(self.seconds),
            "trainings": dict(trainings),
            "profile": self.parts.profile.state_dict(),
        }
        name = checkpoint.save(self.checkpoints, self.history.checkpoints, state)
        self.store.commit(name)
        self.named.append(name)
        self.clean()
        self._covered = True

    def finish(self) -> None:
        """A last barrier, unless nothing happened since the one before it."""
        if not self._covered:
            self.checkpoint({})

    @property
    def checkpoints(self) -> Path:
        return self.files.run_dir / "checkpoint"

    def clean(self) -> None:
        """Remove old checkpoints, and what a kill has left of one."""
        checkpoint.clean(self.checkpoints, self.scenario.checkpoints.keep, self.named)

    def restore(self, state: State) -> None:
        """Go on from what `checkpoint` saved. Raises RunError if the policies are not there any more."""
        self.manager.load_state_dict(state["manager"])
        for population in self.manager.populations:
            for ref in population:
                self.admit(ref)
        if self.exact is not None and state["exact"] is not None:
            self.exact.restore(tuple(state["exact"]), self.manager.table.view().mean)
        self.scheduler.load_state_dict(state["scheduler"])
        self.history = History(**state["history"])
        self.resumed = state["trainings"]
        self.parts.profile.load_state_dict(state["profile"])
        self._covered = True


def _groups(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Training tasks that follow each other are done together."""
    for training, some in groupby(tasks, lambda task: isinstance(task, TrainingTask)):
        if training:
            yield list(some)
        else:
            yield from ([task] for task in some)
