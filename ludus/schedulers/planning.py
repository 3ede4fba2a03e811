"""Tasks on their way from a scheduler: planned, out, answered; and what all schedulers that plan in groups have in common."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter

from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.types import (
    EvaluationTask,
    MetaSolution,
    Mixture,
    State,
    Task,
    TaskResult,
    TrainingResult,
    TrainingTask,
)
from ludus.metagame.population.base import View, seats_in

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
