"""Schedulers decide what to do next; the driver does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ludus.core.types import Mixture, State, Task, TaskResult
from ludus.metagame.population.base import View


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


@runtime_checkable
class Concludes(Protocol):
    """A scheduler that may be complete before it has done all that its options ask for."""

    @property
    def conclusion(self) -> str:
        """Why it has no more tasks, as the run's reason to stop; "" while it has some, or has done everything."""
        ...


@runtime_checkable
class TakesOpponents(Protocol):
    """A scheduler whose learners meet policies from elsewhere by the weights that they were given with. They are members of its populations
    before the first task."""

    @property
    def opponent_seats(self) -> tuple[int, ...]:
        """Seats in which somebody is met."""
        ...

    def set_opponents(self, opponents: Mixture, *, lacking: tuple[int, ...] = ()) -> None:
        """Who they became, once, before the first task. lacking: seats that nobody was given for; their part of the mixture is ignored."""
        ...
