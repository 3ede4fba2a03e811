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
from dataclasses import dataclass, field, fields
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ludus.algorithms.common.registry import COMPUTED
from ludus.core import recorders
from ludus.core.errors import ScenarioError, reading_state
from ludus.core.machine import reserve_stack, resources_in_use
from ludus.core.types import (
    AdaptiveMixture,
    Array,
    Curve,
    EvaluationResult,
    EvaluationTask,
    MetaSolution,
    Metrics,
    Mixture,
    PolicyRef,
    State,
    Task,
    TaskResult,
    TrainingResult,
    TrainingTask,
)
from ludus.core.user_code import qualified_name, short_repr
from ludus.metagame.population.agent_manager import AgentManager
from ludus.metagame.population.base import View
from ludus.metagame.solvers.confidence import indistinct
from ludus.metagame.solvers.limits import watched
from ludus.metagame.solvers.match_selection import impute_missing
from ludus.metagame.solvers.normal_form import values_against
from ludus.rollout.opponents import live_refs
from ludus.runs.control import LOOK, Control, StopRequest
from ludus.runs.task_runner import TaskRunner
from ludus.schedulers.base import Concludes, Scheduler
from ludus.schedulers.planning import pack_mixture, unpack_mixture
from ludus.storage import checkpoint
from ludus.storage.base import GenerationRecord, Observer
from ludus.storage.checkpoint import PolicyFiles
from ludus.storage.store import Store
from ludus.training.diagnosis import TrainingRecord, diagnose, largest_entropy
from ludus.training.stopping import Progress, Stopper, limit_in_unit, stop_reason
from ludus.training.training import TrainingParts

# --------------------------------------------------------------------------------------------------------------------
# What the driver remembers of a run besides populations and payoffs; part of every checkpoint.


@dataclass(slots=True)
class History:
    """What the run's progress record is made of."""

    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(recorders.PROGRESS, 0))
    generations: int = 0
    nash_conv: list[float] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)  # [P] of the newest profile, or of what was met since
    responses: list[float] = field(default_factory=list)  # [P] what the best of the newest responses earns
    unmeasured: list[State] = field(default_factory=list)  # responses since, as `Response.pack` gives them
    checkpoints: int = 0
    seconds: float = 0.0
    trained: int = 0  # responses
    failures: int = 0  # of these
    failure: str = ""  # the first
    warnings: dict[str, int] = field(default_factory=dict)  # how often there was one, by kind
    diagnoses: dict[str, list[str]] = field(default_factory=dict)  # of each training in progress: their kinds
    places: dict[str, str] = field(default_factory=dict)  # where who learned last
    newcomers: list[list[Any]] = field(default_factory=list)  # (population, policy) learned since the last generation
    repeats: int = 0  # generations, the last ones, of which no learned response was new

    @staticmethod
    def of(players: int) -> History:
        """Return the history of a run that has not begun."""
        return History(values=[0.0] * players, responses=[float("nan")] * players)

    @staticmethod
    def of_state(state: State) -> History:
        """Return the history from a state of `state_dict`, also of an earlier version."""
        names = {f.name for f in fields(History)}
        return History(**{name: value for name, value in state.items() if name in names})

    def count(self, counters: Mapping[str, int]) -> None:
        """Add what a training task played and learned."""
        for name, count in counters.items():
            self.counters[name] += count

    def record_response(self, seat: int, earned: float) -> None:
        """Record what a new response earns in a seat; of several the best one counts."""
        self.responses[seat] = float(np.fmax(self.responses[seat], earned))

    def record_baseline(self, seat: int, earned: float) -> None:
        """Record what the strategies of a seat earn where its response was trained, if that is known; without it, in the newest profile."""
        if not np.isnan(earned):
            self.values[seat] = earned

    def generation(self, number: int, *, values: Sequence[float], nash_conv: float | None) -> None:
        """Record a solved generation: `values` float[P] of its meta-strategies. The responses so far were trained against the last
        one's."""
        gains = np.subtract(self.responses, self.values)
        if number:
            self.gains.append(float(np.nanmax(gains)) if not np.isnan(gains).all() else float("nan"))
        if nash_conv is not None:
            self.nash_conv.append(nash_conv)
        self.generations, self.values = number, list(values)
        self.responses = [float("nan")] * len(values)

    def progress(self, seconds: float) -> Progress:
        counters: Mapping[str, Any] = {name: self.counters[name] for name in recorders.PROGRESS}
        return Progress(
            **counters,
            seconds=seconds,
            generations=self.generations,
            nash_conv=tuple(self.nash_conv),
            gains=tuple(self.gains),
        )

    def state_dict(self, seconds: float) -> State:
        return {**{f.name: getattr(self, f.name) for f in fields(self)}, "seconds": seconds}


# --------------------------------------------------------------------------------------------------------------------
# What a generation came to.


class Response(NamedTuple):
    """A policy that was trained in a seat against `players`, in which whoever is drawn for that seat does not count."""

    ref: PolicyRef
    seat: int
    players: Mixture

    def pack(self) -> State:
        """Return it as JSON values."""
        return {"ref": list(self.ref), "seat": self.seat, "players": pack_mixture(self.players)}

    @staticmethod
    def unpack(state: State) -> Response:
        """Return the response that `pack` packed."""
        return Response(PolicyRef(*state["ref"]), int(state["seat"]), unpack_mixture(state["players"]))


def training_opponents(result: TrainingResult) -> Mixture | None:
    """Return what a policy was trained against, on average where a rule has moved it; None where somebody was met who was still
    learning."""
    opponents = result.task.opponents if result.average is None else result.average
    return None if isinstance(opponents, AdaptiveMixture) or live_refs(opponents) else opponents


def generation_record(
    result: EvaluationResult, solution: MetaSolution, *, history: History, mean: Array, seconds: float, solving: float
) -> GenerationRecord:
    """mean: float64[P, n_0 … n_(P-1)] payoffs. seconds: of the run so far; solving: of the meta-solver."""
    exploitability, joint = result.exploitability, solution.joint
    profiles = None if joint is None else np.argwhere(joint > 0).astype(np.int32)
    return GenerationRecord(
        number=result.task.generation,
        seconds=seconds,
        episodes=history.counters["episodes"],
        nash_conv=None if exploitability is None else exploitability.nash_conv,
        gains=() if exploitability is None else tuple(exploitability.gain.tolist()),
        values=tuple(_values(mean, solution)),
        marginals=tuple(tuple(m.tolist()) for m in solution.strategies),
        solver_gap=solution.gap,
        solver_seconds=solving,
        responses=tuple(history.responses),
        profiles=profiles,
        probabilities=None if joint is None or profiles is None else joint[tuple(profiles.T)],
    )


def _values(mean: Array, solution: MetaSolution) -> list[float]:
    """Return [P] expected returns of the meta-strategies against each other, by the payoff table."""
    if solution.joint is not None:
        return [float((table * solution.joint).sum()) for table in mean]
    strategies = solution.strategies
    if np.isnan(mean).any():  # nobody needs to know what is never played
        played = [np.flatnonzero(m) for m in strategies]
        mean = mean[np.ix_(np.arange(len(mean)), *played)]
        strategies = tuple(m[support] for m, support in zip(strategies, played, strict=True))
    if len(strategies) == 1:
        return [float(strategies[0] @ mean[0])]
    return [float(m @ values_against(mean, strategies, p)) for p, m in enumerate(strategies)]


COMPLETE = "the schedule is complete"
_REPEATS = 2  # generations in a row whose responses say nothing new, before that is a warning
_SOON = 0.02  # seconds of a scheduler's last call: after a shorter one the next is waited for, and needs no copy of its state


class Interrupted(Exception):
    """A stop was asked for in the middle of a task, or of solving. Says why, where the request does not."""


@dataclass(slots=True)
class Driver:
    """The parts of a run, and the loop over its tasks."""

    scheduler: Scheduler
    work: TaskRunner
    store: Store
    files: PolicyFiles
    observer: Observer
    stop: StopRequest
    control: Control
    stopper: Stopper | None
    generations: int  # of the schedule
    sequential: bool  # whether the responses of a generation train in sequence, each against those before it
    history: History
    named: list[str] = field(default_factory=list)  # checkpoints that the database names
    _started: float = field(default_factory=time.perf_counter)
    _last_barrier_seconds: float | None = None  # seconds of the run at the last barrier of this session
    _processor_seconds: float = field(
        default_factory=lambda: resources_in_use()["processor_seconds"]
    )  # at the last barrier
    _checkpointed: bool = False  # by a checkpoint: nothing happened since
    _matches: int = 0  # since the last barrier
    _training: Sequence[TrainingTask] = ()  # that are in progress
    _solving: float = float("inf")  # seconds of the last call of the scheduler, in which the meta-solver runs
    _watched: float = 0.0  # when it was last looked whether to stop that

    @property
    def manager(self) -> AgentManager:
        """Populations and payoffs."""
        return self.work.manager

    @property
    def parts(self) -> TrainingParts:
        """What plays and learns."""
        return self.work.parts

    @reserve_stack
    def run(self) -> str:
        """Run until the schedule is complete, a stopper fires or a stop is requested, and return the reason."""
        self.control.measure(self._usage)
        try:
            while True:
                if reason := self._over():
                    return reason
                begun = time.perf_counter()
                self.control.doing = "the meta-solver"
                with self.parts.profile.part("meta-solver"):
                    tasks = self._next_tasks()
                self.control.doing = ""
                self._solving = time.perf_counter() - begun
                if not tasks:
                    return self._conclusion()
                self._checkpointed = False
                for together in _groups(tasks):
                    self._do_all(together)
                    self.control.check(self.parts.profile.rollout_seconds, checkpoint=self._checkpoint_now)
                    if self.stop.requested:
                        return self.stop.reason
        except Interrupted as interruption:
            return str(interruption) or self.stop.reason

    def _next_tasks(self) -> Sequence[Task]:
        """Return the scheduler's next tasks. Its meta-solver may take long: it is watched, and where it is stopped, the scheduler is as it
        was before."""
        if self._solving < _SOON:
            return request_tasks(self.scheduler, self.manager.view(), free=self.work.task_slots)
        before = self.scheduler.state_dict()
        try:
            with watched(self._watch):
                return request_tasks(self.scheduler, self.manager.view(), free=self.work.task_slots)
        except Interrupted:
            self.scheduler.load_state_dict(before)
            raise

    def _watch(self) -> None:
        """Look for orders, between two iterations of a meta-solver."""
        now = time.perf_counter()
        if now - self._watched < LOOK:
            return
        self._watched = now
        self.control.check(self.parts.profile.rollout_seconds)
        if self.stop.requested:
            raise Interrupted
        if self.stopper is not None and (reason := stop_reason(self.stopper, self.progress)):
            raise Interrupted(reason)

    def _conclusion(self) -> str:
        """Return why the schedule has no more tasks."""
        early = self.scheduler.conclusion if isinstance(self.scheduler, Concludes) else ""
        return early or COMPLETE

    def _over(self) -> str | None:
        self.control.check(self.parts.profile.rollout_seconds, checkpoint=self._checkpoint_now)
        if self.stop.requested:
            return self.stop.reason
        return stop_reason(self.stopper, self.progress) if self.stopper else None

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
        self._training = [task for task in tasks if isinstance(task, TrainingTask)]
        for task in tasks:
            self.store.generation = task.generation
            self.store.task_started(task)
            self.observer.task_started(task)
        results = self.work.results(
            tasks, proceed=self._on_iteration, on_progress=self._on_match_progress, checkpoint=self.checkpoint
        )
        for result in results:
            self._record(result)
            self.scheduler.on_result(result, self.manager.view())
            if isinstance(result, EvaluationResult):
                if result.task.solution is not None:
                    self._after_generation(result.task.generation)
                else:
                    self._after_matches(result)

    def _on_iteration(self, fraction: float | None, metrics: Metrics) -> None:
        """Report progress and look for orders, between two iterations."""
        self.observer.task_progress(fraction, metrics)
        self.control.check(self.parts.profile.rollout_seconds)
        if self.stop.requested:
            raise Interrupted

    def _on_match_progress(self, fraction: float) -> None:
        """Report progress and look for orders, within a match, which may take minutes."""
        self.observer.task_progress(fraction, {})
        self.control.look()
        if self.stop.requested:
            raise Interrupted

    # ------------------------------------------------------------------------------------------ results

    def _record(self, result: TaskResult) -> None:
        self._checkpointed = False
        self.store.task_done(result)
        self.observer.task_done(result)
        if isinstance(result, TrainingResult):
            self._add(result)
        elif result.task.solution is not None:
            self._announce(result, result.task.solution)
        else:
            declared = self.manager.table.utility_range
            self.manager.on_result(result)
            if (widened := self.manager.table.utility_range) != declared:
                self.warn(
                    "utility_range",
                    f"returns were outside of {declared}, the range of {self.parts.rollouts.spec.id}; {widened} is used from now on, "
                    "and what rests on it is less certain than it says. Give a range that holds (env.options.utility_range).",
                )

    def _add(self, result: TrainingResult) -> None:
        self.store.check_place()  # a policy's file would make the folder again
        task, history = result.task, self.history
        history.trained += task.takes_row is None  # a row that is saved is no training
        if result.failure is not None:
            history.failures += 1
            history.diagnoses.pop(task.id, None)
            history.failure = history.failure or result.failure
            self.store.event("training", result.failure, level="error")
            self.observer.message(f"training stopped early, last good weights kept: {result.failure}")
        else:
            truncated = result.metrics.get("truncated_episodes", 0.0)
            record = self._training_record(task, result.counters, result.curve, truncated=truncated, over=True)
            self._diagnose(record)
        if task.takes_row is None:
            history.places[self.work.algorithms.label(task.population, task.role)] = result.place
        history.count(result.counters)
        self._join(result)
        what = "response" if task.restricted is None else "meta"
        metrics = {f"{what}/{task.population}/{name}": value for name, value in result.metrics.items()}
        self.store.metrics_recorded("generations", task.generation, metrics)
        if task.restricted is None and (players := training_opponents(result)) is not None:
            history.unmeasured += [Response(result.ref, seat, players).pack() for seat in task.seats]

    def _join(self, result: TrainingResult) -> None:
        """Add the policy as a member, unless it adds nothing to the present ones."""
        task = result.task
        if result.member:
            self.store.event("no_gain", f"{task.policy} was not added: member {result.ref.policy} earns as much")
            return
        self.manager.on_result(result)
        self.work.admit(result.ref)
        if result.place != COMPUTED and not task.keep and task.restricted is None and task.takes_row is None:
            self.history.newcomers.append([task.population, task.policy])

    def warn(self, kind: str, text: str) -> None:
        """Report that something about the run is wrong.

        Args:
            kind: A name for what it is. The first of a kind is shown, and stays in the run's results as a warning; later ones are only in
                its log.
            text: What was observed, what it means and what to do.
        """
        first = kind not in self.history.warnings
        self.history.warnings[kind] = self.history.warnings.get(kind, 0) + 1
        self.store.event(kind, text, level="warning" if first else "info")
        if first:
            self.observer.message(f"warning: {text}")

    def _diagnose(self, record: TrainingRecord) -> None:
        """Warn of what is wrong with a training, once of each thing."""
        known = self.history.diagnoses.setdefault(record.task, [])
        for kind, text in diagnose(record):
            if kind not in known:
                known.append(kind)
                self.warn(kind, text)
        if record.over:
            del self.history.diagnoses[record.task]

    def _training_record(
        self, task: TrainingTask, counters: Mapping[str, int], curve: Curve | None, *, truncated: float, over: bool
    ) -> TrainingRecord:
        rollouts = self.parts.rollouts
        agent = rollouts.spec.agents_of(task.seats[0])[0]
        start = task.start.policy if isinstance(task.start, PolicyRef) else task.start
        return TrainingRecord(
            task.id,
            task.policy,
            counters,
            curve or recorders.EMPTY,
            truncated=int(truncated),
            num_envs=rollouts.num_envs,
            over=over,
            warm="" if start is None or task.continues is not None else start,
            entropy=largest_entropy(agent.action),
            goes_on=task.keep and self.generations != 1,
            limited=limit_in_unit(self.work.response, "updates") is not None,
        )

    def _measure(self, mean: Array) -> None:
        """Record what the responses of this generation earn against what they were trained against: once they have been evaluated. mean:
        float64[P, n_0, …] payoffs."""
        known = self.work.exact is not None or not np.isnan(mean).all()
        for response in map(Response.unpack, self.history.unmeasured if known else ()):
            seat, players = response.seat, response.players
            self.history.record_response(seat, self.work.value(players.with_seat_fixed(seat, response.ref), seat, mean))
            # In sequence it met those that were added since the last profile was solved.
            if self.sequential:
                self.history.record_baseline(seat, self.work.value(players, seat, mean))
        self.history.unmeasured = []

    def _announce(self, result: EvaluationResult, solution: MetaSolution) -> None:
        mean = self._mean()
        self._measure(mean)
        record = generation_record(
            result,
            solution,
            history=self.history,
            mean=mean,
            seconds=self.seconds,
            solving=self._solving,
        )
        self.history.generation(record.number, values=list(record.values), nash_conv=record.nash_conv)
        self.store.generation_done(record)
        self.store.metrics_recorded("generations", record.number, self.parts.profile.pop_metrics())
        self._compare_newcomers()
        if solution.note:
            self.warn("meta_solver", f"generation {record.number}: {solution.note}")
        if result.note:
            self.warn("exploitability", f"generation {record.number} has no exploitability: {result.note}")
        for population, ratings in enumerate(self.manager.elo()):
            self.store.ratings_recorded(population, ratings)
        self.observer.generation_done(record)

    def _compare_newcomers(self) -> None:
        """Warn of responses whose payoffs say nothing new."""
        newcomers, self.history.newcomers = self.history.newcomers, []
        if not newcomers:
            return
        payoffs = self.manager.table.view()
        alike = []
        for population, policy in newcomers:
            other = indistinct(payoffs, population, self.manager.record_of(PolicyRef(population, policy)).index)
            if other is not None:
                alike.append(f"{policy} from those of {self.manager.populations[population][other].policy}")
                self.store.event("indistinct", f"the payoffs of {alike[-1]} cannot be told", level="info")
        self.history.repeats = self.history.repeats + 1 if len(alike) == len(newcomers) else 0
        if self.history.repeats == _REPEATS:
            self.warn(
                "same_payoffs",
                f"for {_REPEATS} generations the payoffs of no response could be told from those of a member, against each opponent. The "
                f"last ones: {', '.join(alike)}. Either nothing is left to gain, or responses train too little, or start where they cannot "
                "get away from; see `response`, `warm_start`, and the exploitability.",
            )

    def _mean(self) -> Array:
        """Return float64[P, n_0, …]: the payoffs; where evaluation is adaptive, guesses are in the cells that it has left out. Contiguous:
        products round by how numbers lie in memory, and a table that has grown lies otherwise than one that was loaded."""
        payoffs = self.manager.table.view()
        return np.ascontiguousarray(
            (payoffs if self.work.evaluation.adaptive is None else impute_missing(payoffs)).mean
        )

    # ------------------------------------------------------------------------------------------ barriers

    def _after_matches(self, result: EvaluationResult) -> None:
        """An evaluation in several steps may take long."""
        self._matches += len(result.matches)
        if self._matches >= self.work.checkpoints.iterations:
            self.checkpoint({})

    def _after_generation(self, generation: int) -> None:
        self.work.forget(generation)
        if generation % self.work.checkpoints.generations == 0:
            self.checkpoint({})

    def checkpoint(self, trainings: Mapping[str, State]) -> None:
        """Write a checkpoint, at a barrier: everything so far becomes durable, together. `trainings`: states of the tasks that are in
        progress, by id."""
        with self.parts.profile.part("checkpoints"):
            self._checkpoint(trainings)

    def _checkpoint(self, trainings: Mapping[str, State]) -> None:
        self.store.check_place()
        self.history.checkpoints += 1
        curve_of = {task: recorders.of_state(training.get("curve")) for task, training in trainings.items()}
        self._diagnose_in_progress(trainings, curve_of)
        self.files.sync()
        state = {
            "format": checkpoint.FORMAT,
            "scheduler": self.scheduler.state_dict(),
            "manager": self.manager.state_dict(),
            "exact": None if self.work.exact is None else list(self.work.exact.known),
            "exact_payoffs": self._exact_payoffs(),
            "history": self.history.state_dict(self.seconds),
            "trainings": dict(trainings),
            "kept": dict(self.work.learners),
            "profile": self.parts.profile.state_dict(),
        }
        for task, curve in curve_of.items():
            self.store.curve_recorded(task, curve)
        self._record_throughput(list(curve_of.values()))
        name = checkpoint.save(self.checkpoints, self.history.checkpoints, state)
        self.store.commit(name)
        self.manager.release_log()
        self.named.append(name)
        self.clean()
        self._checkpointed, self._matches = True, 0
        self.control.checkpointed(self.history.checkpoints)

    def _diagnose_in_progress(self, trainings: Mapping[str, State], curve_of: Mapping[str, Curve]) -> None:
        for task in self._training:
            if (state := trainings.get(task.id)) is not None:
                counts = state["counts"]
                self._diagnose(
                    self._training_record(task, counts, curve_of[task.id], truncated=counts["truncated"], over=False)
                )

    def _exact_payoffs(self) -> Array | None:
        """Return what the exact evaluator has computed of payoffs for itself (the exploitability of joint meta-strategies asks for that)
        where the table has played ones; None where the table has them."""
        exact = self.work.exact
        if exact is None or self.manager.table.view().exact[tuple(map(slice, exact.known))].all():
            return None
        return exact.table.copy()

    def _checkpoint_now(self) -> None:
        """Between tasks one may be taken at any time: nothing of the run depends on it. Within one it may not, as open episodes end at a
        barrier; those of the schedule come by themselves."""
        if not self._checkpointed:
            self.checkpoint(self.work.resumed)

    def _record_throughput(self, trainings: Sequence[Curve]) -> None:
        """Record where the time since the last barrier went. trainings: of the tasks in progress."""
        lags = [float(curve["lag_mean"][-1]) for curve in trainings if "lag_mean" in curve.columns]
        lag = {"lag": float(np.mean(lags))} if lags else {}
        values = self._throughput()
        self._last_barrier_seconds = values["seconds"]
        self._processor_seconds = values.pop("processor_seconds")
        self.parts.profile.seconds_since_last()
        self.store.metrics_recorded("barriers", self.history.checkpoints, {**values, **lag})

    def _throughput(self) -> dict[str, float]:
        """Return where the time since the last barrier went, and what the run uses. processor_seconds: since the session began."""
        before, seconds = self._last_barrier_seconds, self.seconds
        wall = seconds - (self.history.seconds if before is None else before)
        stretch, usage = self.parts.profile.stretch, resources_in_use()
        spent = max(0.0, usage["processor_seconds"] - self._processor_seconds)
        parts = {name: value for name, value in stretch.items() if name.startswith("seconds/")}
        return {
            "seconds": seconds,
            "wall": wall,
            "env_steps": stretch.get("env_steps", 0.0),
            **parts,
            **usage,
            "processor": spent / wall if wall > 0 else 0.0,
        }

    def _usage(self) -> dict[str, float]:
        """Return `_throughput` and the episodes of the trainings that are done, for the live status."""
        usage = self._throughput()
        del usage["processor_seconds"]
        return {**usage, "episodes": float(self.history.counters["episodes"])}

    def finish(self) -> None:
        """Write a last checkpoint, unless nothing happened since the one before it."""
        if not self._checkpointed:
            self.checkpoint({})

    @property
    def checkpoints(self) -> Path:
        return self.files.run_dir / "checkpoint"

    def clean(self) -> None:
        """Remove old checkpoints, and what a kill has left of one."""
        checkpoint.clean(self.checkpoints, self.work.checkpoints.keep, self.named)

    def restore(self, state: State) -> None:
        """Go on from what `checkpoint` saved. Raises RunError if its policies are gone, or no run wrote the state."""
        with reading_state():
            self.manager.load_state_dict(state["manager"])
            for population in self.manager.populations:
                for ref in population:
                    self.work.admit(ref)
            if self.work.exact is not None and state["exact"] is not None:
                known, played = tuple(state["exact"]), state.get("exact_payoffs")
                payoffs = self.manager.table.view()
                if played is not None:
                    self.work.exact.restore(known, np.asarray(played))
                elif payoffs.exact[tuple(map(slice, known))].all():
                    self.work.exact.restore(known, payoffs.mean)
            self.scheduler.load_state_dict(state["scheduler"])
            self.work.task_slots = max(self.work.task_slots, self.scheduler.together)
            self.history = History.of_state(state["history"])
            self.work.resumed, self.work.learners = state["trainings"], state["kept"]
            self.parts.profile.load_state_dict(state["profile"])
        self._checkpointed = True


def _groups(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Yield tasks in groups: training tasks that follow each other are done together."""
    for training, group in groupby(tasks, lambda task: isinstance(task, TrainingTask)):
        if training:
            yield list(group)
        else:
            yield from ([task] for task in group)


def request_tasks(scheduler: Scheduler, view: View, *, free: int) -> Sequence[Task]:
    """Return its next tasks. Raises ScenarioError for an answer that is none, for more than `free` and for populations that there are
    not."""
    tasks = scheduler.next_tasks(view, free=free)
    if flaw := _flaw_of_tasks(tasks, len(view.populations), free):
        raise ScenarioError(f"scheduler {qualified_name(scheduler)}{flaw}")
    return tasks


def _flaw_of_tasks(tasks: Any, populations: int, free: int) -> str:
    if not isinstance(tasks, list | tuple) or not all(isinstance(t, TrainingTask | EvaluationTask) for t in tasks):
        return f".next_tasks answered {short_repr(tasks)}; expected a list of TrainingTask and EvaluationTask, empty once it is complete."
    if len(tasks) > free:
        return f".next_tasks answered {len(tasks)} tasks; expected at most {free}, which were free."
    for task in tasks:
        if isinstance(task, TrainingTask) and not 0 <= task.population < populations:
            return f" trains population {task.population} in task {task.id!r}; expected 0 to {populations - 1}."
        if isinstance(task, TrainingTask) and {"/", "\0"} & set(task.policy):
            return f" names the policy of task {task.id!r} {task.policy!r}; expected the name of a file: without '/'."
    return ""
