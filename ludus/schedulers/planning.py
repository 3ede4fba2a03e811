"""What schedulers have in common: tasks that are planned in groups, out, answered; the matches that are played before a meta-game is
solved, all that are missing, or those that matter until enough is known; and training in chunks.

scheduler ── game, needed ──► PayoffTasks (MatchSelection) ──► EvaluationTask ──► results ──► and again, until nothing is missing
scheduler ◄── payoffs without holes ── PayoffTasks.completed

Training in chunks:

    repeat
        cells that matter and are missing ── EvaluationTask(profiles) ──► matches
        announce the meta-strategies      ── EvaluationTask(solution) ──► exploitability
        chunks done?                      stop
        a chunk of training of each learner ── TrainingTask(continues) ──► a snapshot, which is a member from now on

A chunk is a barrier: learners that play each other's live weights train together, and all of them finish it. What a learner is and has
is then nothing but results, so that a run can stop and go on anywhere.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol, TypedDict, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from ludus.core import seeding
from ludus.core.errors import ConfigError, RunError, ScenarioError
from ludus.core.types import (
    EvaluationTask,
    MetaSolution,
    Mixture,
    PolicyRef,
    State,
    Task,
    TaskResult,
    TrainingResult,
    TrainingTask,
)
from ludus.metagame.population.base import Payoffs, Places, View, seats_in
from ludus.metagame.solvers.base import MetaSolver
from ludus.metagame.solvers.match_selection import AdaptiveEvaluation, Goal, PolicyProfile, impute_missing, mirrored
from ludus.schedulers.config import PlayMode, ScheduleContext, ScheduleOptions
from ludus.schedulers.win_rates import return_ranges

# --------------------------------------------------------------------------------------------------------------------
# Tasks and solutions as checkpoint state: arrays and JSON values.

_TRAINING = TypeAdapter(TrainingTask)
_MIXTURE = TypeAdapter(Mixture)


def pack_solution(solution: MetaSolution) -> State:
    """Return a solution field by field; arrays as they are."""
    return {f.name: getattr(solution, f.name) for f in dataclasses.fields(solution)}


def unpack_solution(state: Mapping[str, Any]) -> MetaSolution:
    """Return what `pack_solution` packed."""
    marginals = state["marginals"]
    return MetaSolution(
        None if marginals is None else tuple(marginals),
        float(state["gap"]),
        joint=state["joint"],
        warm=state["warm"],
        note=str(state.get("note", "")),  # runs of old have none
    )


def pack_task(task: Task) -> State:
    """Return a task under "training" or "evaluation"."""
    if isinstance(task, TrainingTask):
        return {"training": _TRAINING.dump_python(task, mode="json")}
    solution = None if task.solution is None else pack_solution(task.solution)
    return {
        "evaluation": {
            "id": task.id,
            "generation": task.generation,
            "profiles": [list(p) for p in task.profiles],
            "solution": solution,
        }
    }


def unpack_task(state: State) -> Task:
    """Return what `pack_task` packed."""
    if "training" in state:
        return _TRAINING.validate_python(state["training"])
    fields = state["evaluation"]
    solution = None if fields["solution"] is None else unpack_solution(fields["solution"])
    profiles = tuple(tuple(int(i) for i in p) for p in fields["profiles"])
    return EvaluationTask(str(fields["id"]), int(fields["generation"]), profiles, solution)


def pack_mixture(mixture: Mixture) -> State:
    """Return a mixture as JSON values."""
    packed: State = _MIXTURE.dump_python(mixture, mode="json")
    return packed


def unpack_mixture(state: Mapping[str, Any]) -> Mixture:
    """Return what `pack_mixture` packed."""
    return _MIXTURE.validate_python(state)


T = TypeVar("T", bound=Task)


class TaskQueue:
    """First in, first out, by groups: the tasks of a group are given out together or not at all, since they play each other's live
    weights."""

    def __init__(self) -> None:
        self._planned: list[tuple[Task, ...]] = []
        self._out: list[tuple[Task, ...]] = []

    def plan(self, groups: Iterable[Sequence[Task]]) -> None:
        """Add groups at the end."""
        self._planned += [tuple(group) for group in groups if group]

    @property
    def idle(self) -> bool:
        """Nothing is planned, and nothing is out."""
        return not self._planned and not self._out

    @property
    def training(self) -> bool:
        """Whether a training task is planned or out."""
        return any(isinstance(task, TrainingTask) for group in (*self._out, *self._planned) for task in group)

    @property
    def together(self) -> int:
        """Tasks of the largest group."""
        return max(map(len, (*self._out, *self._planned)), default=0)

    def take(self, free: int) -> list[Task]:
        """Return the next groups that fit into `free` tasks; they are out now. Raises ScenarioError if the next group does not fit and
        nothing is out that could make room."""
        tasks: list[Task] = []
        while self._planned and len(tasks) + len(self._planned[0]) <= free:
            group = self._planned.pop(0)
            self._out.append(group)
            tasks += group
            evaluates = all(isinstance(task, EvaluationTask) for task in group)
            if evaluates and sum(map(len, self._planned)) > free - len(tasks):
                break  # the driver does these first, and asks again: they must not take a place among those that train together
        if free > 0 and self._planned and not self._out:
            needed = len(self._planned[0])
            raise ScenarioError(
                f"{needed} tasks play each other's newest weights, so they are trained together, and only {free} may be in progress "
                f"at a time. Set runtime.tasks to {needed}, or train fewer together."
            )
        return tasks

    def answered(self, task: Task) -> bool:
        """Strike a task off; False if it is not out, as when a result is given twice."""
        for k, group in enumerate(self._out):
            if any(task.id == other.id for other in group):
                left = tuple(other for other in group if other.id != task.id)
                self._out[k : k + 1] = [left] if left else []
                return True
        return False

    def state_dict(self) -> State:
        """Return groups, those in flight first; tasks of them that were answered are left out."""
        return {"groups": [[pack_task(task) for task in group] for group in (*self._out, *self._planned)]}

    def load_state_dict(self, state: State) -> None:
        """Load a state: everything that was in flight is planned again."""
        self._out = []
        self._planned = [tuple(unpack_task(task) for task in group) for group in state["groups"]]


def one_task_per_group(tasks: Iterable[T]) -> list[Sequence[T]]:
    """Return each task as a group of its own."""
    return [(task,) for task in tasks]


def announcement(generation: int, solution: MetaSolution) -> EvaluationTask:
    """Return the task that announces a generation's meta-strategies, and requests their exploitability."""
    return EvaluationTask(f"exploitability-{generation}", generation, solution=solution)


def require_two_players(population: Sequence[int], what: str) -> None:
    """Raise ConfigError unless the game has two players. what: is for such games alone, as "odo is"."""
    if len(population) != 2:
        raise ConfigError(f"{what} for two players; this game has {len(population)}.")


class PlanningScheduler(ABC):
    """Plans what can be done now whenever nothing is planned or out. State: the tasks that are."""

    together = 1

    def __init__(self, population: tuple[int, ...]) -> None:
        """population: [P] index of each player's population (equal where players share one)."""
        self.population = population
        self._queue = TaskQueue()

    @property
    def populations(self) -> tuple[int, ...]:
        """The indices of the populations."""
        return tuple(sorted(set(self.population)))

    def seats(self, population: int) -> tuple[int, ...]:
        """Return the players of a population."""
        return seats_in(self.population, population)

    def against(self, population: int) -> list[int]:
        """Return the populations that learners of this one meet: their own too, if that has other seats."""
        return [k for k in self.populations if k != population or len(self.seats(k)) > 1]

    def next_tasks(self, view: View, free: int) -> Sequence[Task]:
        if self._queue.idle:
            self._queue.plan(self._plan(view))
        return self._queue.take(free)

    def on_result(self, result: TaskResult, view: View) -> None:
        if not self._queue.answered(result.task):
            return  # given twice
        if isinstance(result, TrainingResult):
            self.trained(result, view)
            if not self._queue.training:
                self.advance()

    @abstractmethod
    def _plan(self, view: View) -> Sequence[Sequence[Task]]:
        """Return groups of what can be done now; none when the schedule is complete."""

    def trained(self, result: TrainingResult, view: View) -> None:  # noqa: B027 - the view may have all that is needed
        """Record a training result; called once for each."""

    @abstractmethod
    def advance(self) -> None:
        """Go on: all training tasks that were planned are answered."""

    def state_dict(self) -> State:
        """Return the state; tasks that are in flight or planned are kept whole, and given out again after loading."""
        return {"tasks": self._queue.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self._queue.load_state_dict(state["tasks"])
        self.together = max(self.together, self._queue.together)  # with other options later groups may be smaller


@runtime_checkable
class MatchSelection(Protocol):
    """State: how far the evaluation of one meta-game is. With the same state and payoffs it wants the same."""

    def begin(self) -> None:
        """Begin with a new meta-game."""
        ...

    def next_profiles(
        self, payoffs: Payoffs, *, game: Places | None, needed: Iterable[PolicyProfile] = ()
    ) -> tuple[PolicyProfile, ...]:
        """Return what to play now, given the results of all that was asked for before; empty: enough is known. A profile that is listed k
        times is to play k portions of episodes. game: the policies whose meta-game is solved; None: none is. needed: cells that are read
        one by one."""
        ...

    def completed(self, payoffs: Payoffs) -> Payoffs:
        """Return what the meta-solver is given."""
        ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class AllMissing:
    """Each missing cell once, one portion each."""

    def __init__(self) -> None:
        self._asked = False

    def begin(self) -> None:
        """See `MatchSelection`."""
        self._asked = False

    def next_profiles(
        self, payoffs: Payoffs, *, game: Places | None, needed: Iterable[PolicyProfile] = ()
    ) -> tuple[PolicyProfile, ...]:
        """Return all missing profiles, in the order of the table."""
        if self._asked:
            return ()
        holes = ~payoffs.exact & (payoffs.count == 0) & wanted(payoffs, game, needed)
        self._asked = bool(holes.any())
        return tuple(map(tuple, np.argwhere(holes).tolist()))

    def completed(self, payoffs: Payoffs) -> Payoffs:
        """Return the payoffs as they are: solvers refuse missing entries."""
        return payoffs

    def state_dict(self) -> State:
        return {"asked": self._asked}

    def load_state_dict(self, state: State) -> None:
        self._asked = bool(state["asked"])


class AdaptiveSelection:
    """Portions of episodes go where the goal (by default the meta-strategy) depends on them, as `AdaptiveEvaluation` says; cells that were
    never played are guessed (`impute_missing`). Needed cells get `episodes` first."""

    def __init__(
        self,
        *,
        solver: MetaSolver,
        budget: int,
        portion: int,
        episodes: int,
        seed: int,
        goal: Goal | None = None,
        start: int | None = 10,
        tolerance: float = 0.0,
        confidence: float = 0.95,
        batch: int = 1000,
    ) -> None:
        """solver: whose solutions steer. The rest: see `AdaptiveEvaluation`, which has a seed of its own for each meta-game. Raises
        ConfigError for what makes no sense."""
        self._make = partial(
            AdaptiveEvaluation,
            solver=solver,
            budget=budget,
            goal=goal,
            portion=portion,
            start=start,
            tolerance=tolerance,
            confidence=confidence,
            batch=batch,
        )
        self._portion, self._episodes, self._seed = portion, episodes, seed
        self._number = 0  # of the meta-game
        self._asked = False  # for the needed cells
        self._evaluation = self._made()

    def _made(self) -> AdaptiveEvaluation:
        return self._make(seed=seeding.key(self._seed, "payoffs", self._number))

    def begin(self) -> None:
        """See `MatchSelection`."""
        self._number, self._asked = self._number + 1, False
        self._evaluation = self._made()

    def next_profiles(
        self, payoffs: Payoffs, *, game: Places | None, needed: Iterable[PolicyProfile] = ()
    ) -> tuple[PolicyProfile, ...]:
        """Return the next profiles; none where all that counts is exact."""
        if not self._asked and (lacking := self._lacking(payoffs, needed)):
            self._asked = True
            return lacking
        if game is None:
            return ()
        part = payoffs.part(game)
        if part.exact.all():
            return ()
        places = [list(game[which]) for which in payoffs.population]
        return tuple(
            tuple(places[p][i] for p, i in enumerate(profile)) for profile in self._evaluation.next_profiles(part)
        )

    def _lacking(self, payoffs: Payoffs, needed: Iterable[PolicyProfile]) -> tuple[PolicyProfile, ...]:
        """Return portions up to `episodes`, in every order of the seats."""
        orders = {order for profile in needed for order in mirrored(profile, payoffs.population)}
        short = {p: self._episodes - int(payoffs.count[p]) for p in sorted(orders) if not payoffs.exact[p]}
        return tuple(Counter({p: -(-most // self._portion) for p, most in short.items()}).elements())

    def completed(self, payoffs: Payoffs) -> Payoffs:
        """Return the payoffs with estimates of missing entries."""
        return impute_missing(payoffs)

    def state_dict(self) -> State:
        return {"number": self._number, "asked": self._asked, "evaluation": self._evaluation.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self._number, self._asked = int(state["number"]), bool(state["asked"])
        self._evaluation = self._made()
        self._evaluation.load_state_dict(state["evaluation"])


def wanted(payoffs: Payoffs, game: Places | None, needed: Iterable[PolicyProfile]) -> NDArray[np.bool_]:
    """Return bool[n_0, …]: the cells of a game, and the needed ones."""
    out = np.zeros(payoffs.sizes, dtype=np.bool_)
    if game is not None:
        out[np.ix_(*(game[which] for which in payoffs.population))] = True
    if cells := list(needed):
        out[tuple(np.array(cells).T)] = True
    return out


class PayoffTasks:
    """Has the meta-games of a scheduler evaluated, one after the other: what a selection wants, as tasks. State: how far the present one
    is."""

    def __init__(self, selection: MatchSelection | None) -> None:
        """None: every hole."""
        self._selection, self._steps = selection or AllMissing(), 0

    def begin(self) -> None:
        """Begin with a new meta-game."""
        self._steps = 0
        self._selection.begin()

    def missing(
        self,
        name: str,
        generation: int,
        payoffs: Payoffs,
        *,
        game: Places | None,
        needed: Iterable[PolicyProfile] = (),
    ) -> Sequence[Sequence[EvaluationTask]]:
        """Return the next task, as a group; empty: enough is known. name: of the meta-game. game, needed: as `MatchSelection.next_profiles`
        takes them."""
        profiles = self._selection.next_profiles(payoffs, game=game, needed=needed)
        if not profiles:
            return []
        self._steps += 1
        number = "" if self._steps == 1 else f"-{self._steps}"
        return one_task_per_group([EvaluationTask(f"payoffs-{name}{number}", generation, profiles)])

    def completed(self, payoffs: Payoffs) -> Payoffs:
        """Return what the meta-solver is given."""
        return self._selection.completed(payoffs)

    def state_dict(self) -> State:
        return {"steps": self._steps, "selection": self._selection.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Of a scheduler's state. Its selection is None where it was another rule's, since the run goes on with another one."""
        self._steps = int(state["steps"])
        if state["selection"] is not None:
            self._selection.load_state_dict(state["selection"])


Start = PolicyRef | str | None


class Source(TypedDict):
    """Two fields of a `TrainingTask`."""

    continues: str | None
    start: Start


class ChunkedOptions(ScheduleOptions):
    """Options of learners that train in chunks, one a generation.

    Attributes:
        generations: Chunks of training of each learner.
        mode: How snapshots are played; the learners they came from explore.
        start: The file of a policy that each learner starts from.
    """

    start: str | None = None

    @property
    def chunks(self) -> int:
        """Chunks of training that there may be at most."""
        return self.generations

    @property
    def complete(self) -> bool:
        """Whether the game among all policies is solved after each chunk, also if the next one does not need that."""
        return False

    @property
    def asks_for_all(self) -> bool:
        return self.complete

    def meets_first(self, population: Sequence[int]) -> bool:
        return self.complete

    def check_schedule(self, context: ScheduleContext) -> None:
        super().check_schedule(context)
        if self.start is not None:
            context.check_file("start", self.start)


class OwnPastOptions(ChunkedOptions):
    """What self-play and its kin have in common. A learner goes on from generation to generation; each adds a snapshot of it to its
    population.

    Attributes:
        mode: How snapshots are played.
        cells: Which payoffs are computed, those that the schedule reads (needed), or all; of self-play also those that say whether it
            improves (progress).
        span: Returns that count as a clear defeat and a clear victory, where win rates are read; by default the least and the largest
            return of the game, which in poker are so rare that all rates are near one half.
    """

    mode: PlayMode = "explore"
    cells: Literal["needed", "progress", "all"] = "needed"
    span: tuple[float, float] | None = None

    @property
    def complete(self) -> bool:
        return self.cells == "all"

    @property
    def reads_rates(self) -> bool:
        """Whether win rates are read, where there are opponents."""
        return False

    def meets_first(self, population: Sequence[int]) -> bool:
        """Return whether it does, also by win rates against the past, which begins with them, where all others in a match are of one
        population."""
        pairs = len(population) == 2 or len(set(population)) == 1
        return super().meets_first(population) or (self.reads_rates and pairs)

    def check_schedule(self, context: ScheduleContext) -> None:
        super().check_schedule(context)
        if self.reads_rates and context.env.num_players > 1:
            return_ranges(context.env.utility_range, self.span)


class ChunkedScheduler(PlanningScheduler):
    """State beyond the tasks: how many chunks are done. `together`: learners that play each other's live weights."""

    options: ChunkedOptions

    def __init__(
        self, options: ChunkedOptions, *, population: tuple[int, ...], selection: MatchSelection | None = None
    ) -> None:
        """population: [P] index of each player's population. selection: what is played after a chunk, by default every hole."""
        super().__init__(population)
        self.options, self.payoffs = options, PayoffTasks(selection)
        self.chunk = 0  # chunks that are done
        self._announced = False  # their meta-strategies
        self._failed: dict[
            str, tuple[int, str]
        ] = {}  # tasks that ended early -> generation, and the policy that was saved

    # ------------------------------------------------------------------------------------------ what subclasses say

    @abstractmethod
    def groups(self, view: View) -> Sequence[Sequence[TrainingTask]]:
        """Return the training tasks of the next chunk, in groups that are given out together."""

    def needed(self, view: View) -> Iterable[PolicyProfile]:
        """Return the cells that the next chunk depends on."""
        return ()

    def game(self, view: View) -> Places | None:
        """Return the policies whose meta-game the next chunk depends on; None: on none."""
        return None

    def review(self, view: View) -> None:
        """Called once after each chunk (and before the first), when the needed cells are there."""

    @abstractmethod
    def solution(self, view: View) -> MetaSolution:
        """Return the meta-strategies that are announced after a chunk."""

    def trained(self, result: TrainingResult, view: View) -> None:
        """Called once per training result; whoever adds to it calls this one too."""
        now = result.task.generation
        self._failed = {task: saved for task, saved in self._failed.items() if saved[0] == now}
        if result.failure is not None:
            self._failed[result.task.id] = (now, result.ref.policy)

    @property
    def over(self) -> bool:
        """Whether there is nothing more to train."""
        return self.chunk >= self.options.chunks

    # ------------------------------------------------------------------------------------------ what they share

    def source(self, population: int, before: str | None, start: Start = None) -> Source:
        """Return what a learner's next task goes on from: task `before`, or its last good weights if that ended early; without one,
        `start`."""
        if before is None:
            return {"continues": None, "start": start}
        if before in self._failed:
            return {"continues": None, "start": PolicyRef(population, self._failed[before][1], mode=self.options.mode)}
        return {"continues": before, "start": None}

    def seat_by_seat(
        self, population: int, view: View, opponents_from: Callable[[int], tuple[Sequence[PolicyRef], Sequence[float]]]
    ) -> Mixture:
        """Return the opponents of a population's learners, in each seat independently. The only seat of the learners' own population is
        theirs, whatever is named there.

        Args:
            opponents_from: Gives the members of a population and their probabilities.
        """
        marginals: dict[int, tuple[Sequence[PolicyRef], Sequence[float]]] = {}
        for seat, which in enumerate(self.population):
            others = which in self.against(population)
            marginals[seat] = opponents_from(which) if others else ([view.populations[which][0]], [1.0])
        return Mixture.product(marginals)

    # ------------------------------------------------------------------------------------------ the scheduler

    def advance(self) -> None:
        """Begin the next chunk."""
        self.chunk, self._announced = self.chunk + 1, False
        self.payoffs.begin()

    def _plan(self, view: View) -> Sequence[Sequence[Task]]:
        """Return groups of what can be done now; none when the schedule is complete. Raises ConfigError if a population is empty."""
        if empty := [k for k in self.populations if not view.populations[k]]:
            raise ConfigError(f"population {empty[0]} is empty; add a policy to it first.")
        groups: list[Sequence[Task]] = []
        if not self._announced:
            game = view.payoffs.everyone if self.options.complete else self.game(view)
            needed, name = self.needed(view), str(self.chunk)
            if missing := self.payoffs.missing(name, self.chunk, view.payoffs, game=game, needed=needed):
                return missing
            self.review(view)
            groups += one_task_per_group([announcement(self.chunk, self.solution(view))])
            self._announced = True
        if not self.over:
            groups += self.groups(view)
        return groups

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            **self.payoffs.state_dict(),
            "chunk": self.chunk,
            "announced": self._announced,
            "failed": {task: list(saved) for task, saved in self._failed.items()},
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.payoffs.load_state_dict(state)
        self.chunk, self._announced = int(state["chunk"]), bool(state["announced"])
        self._failed = {task: (int(saved[0]), str(saved[1])) for task, saved in state["failed"].items()}


def refuse_changes(saved: Mapping[str, object], options: Mapping[str, object]) -> None:
    """Raise RunError if an option's value is another one than in the saved state, which cannot follow it."""
    for name, value in options.items():
        if saved[name] != value:
            raise RunError(
                f"the run was saved with {name}: {saved[name]}, and the options say {name}: {value}, which cannot change on the way. "
                f"Go on with {saved[name]}, or start a new run."
            )
