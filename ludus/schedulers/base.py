"""Schedulers decide what to do next; the driver does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ludus.core.errors import ScenarioError
from ludus.core.own_code import brief, own_name
from ludus.core.types import EvaluationTask, Mixture, State, Task, TaskResult, TrainingTask
from ludus.population.base import View


@runtime_checkable
class Scheduler(Protocol):
    """Explicit state, resumable in the middle: the same state and the same results give the same tasks.

    together: how many training tasks must be in progress at a time, at least, since they play against each other.
    """

    together: int

    def next_tasks(self, view: View, free: int) -> Sequence[Task]:
        """At most `free` new tasks. Nothing, with nothing in flight, means that the schedule is complete."""
        ...

    def on_result(self, result: TaskResult, view: View) -> None:
        """A task was answered and its result is in `view`. A result given twice counts once."""
        ...

    def state_dict(self) -> State:
        """Everything that the next tasks depend on, those that are out included."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Into a new scheduler: tasks that were out and not answered are given out again."""
        ...


def tasks_of(scheduler: Scheduler, view: View, *, free: int) -> Sequence[Task]:
    """Its next tasks. Raises ScenarioError for an answer that is none, for more than `free` and for populations that there are not."""
    tasks = scheduler.next_tasks(view, free=free)
    who = f"scheduler {own_name(scheduler)}"
    if not isinstance(tasks, list | tuple) or not all(
        isinstance(task, TrainingTask | EvaluationTask) for task in tasks
    ):
        raise ScenarioError(
            f"{who}.next_tasks answered {brief(tasks)}; expected a list of TrainingTask and EvaluationTask, empty once it is complete."
        )
    if len(tasks) > free:
        raise ScenarioError(f"{who}.next_tasks answered {len(tasks)} tasks; expected at most {free}, which were free.")
    for task in tasks:
        if isinstance(task, TrainingTask) and not 0 <= task.population < len(view.populations):
            raise ScenarioError(
                f"{who} trains population {task.population} in task {task.id!r}; expected 0 to {len(view.populations) - 1}."
            )
    return tasks


@runtime_checkable
class MeetsGiven(Protocol):
    """A scheduler whose learners meet policies from elsewhere, which are members of their populations before the first task."""

    @property
    def met(self) -> tuple[int, ...]:
        """Seats in which somebody is met."""
        ...

    def meet(self, opponents: Mixture, *, lacking: tuple[int, ...] = ()) -> None:
        """Who they became, once, before the first task. lacking: seats that nobody was given for; their part of the mixture is ignored."""
        ...
