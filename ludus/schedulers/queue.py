"""Tasks on their way from a scheduler: planned, out, answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from ludus.errors import ScenarioError
from ludus.schedulers.pack import pack_task, unpack_task
from ludus.types import State, Task, TrainingTask

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

    def take(self, free: int) -> list[Task]:
        """The next groups that fit into `free` tasks; they are out now. Raises ScenarioError if the next group does not fit and nothing is
        out that could make room."""
        taken: list[Task] = []
        while self._planned and len(taken) + len(self._planned[0]) <= free:
            group = self._planned.pop(0)
            self._out.append(group)
            taken += group
        if free > 0 and self._planned and not self._out:
            needed = len(self._planned[0])
            raise ScenarioError(
                f"{needed} tasks play each other's newest weights, so they are trained together, and only {free} may be in progress "
                f"at a time. Set runtime.tasks to {needed}, or train fewer together."
            )
        return taken

    def answered(self, task: Task) -> bool:
        """Strike a task off; False if it is not out, as when a result is given twice."""
        for k, group in enumerate(self._out):
            if any(task.id == other.id for other in group):
                left = tuple(other for other in group if other.id != task.id)
                self._out[k : k + 1] = [left] if left else []
                return True
        return False

    def state_dict(self) -> State:
        """Groups, those that are out first; what of them was answered is left out."""
        return {"groups": [[pack_task(task) for task in group] for group in (*self._out, *self._planned)]}

    def load_state_dict(self, state: State) -> None:
        """Everything that was out is planned again."""
        self._out = []
        self._planned = [tuple(unpack_task(task) for task in group) for group in state["groups"]]


def alone(tasks: Iterable[T]) -> list[Sequence[T]]:
    """Each task as a group of its own."""
    return [(task,) for task in tasks]
