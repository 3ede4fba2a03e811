"""Schedulers decide what to do next; the driver does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ludus.core.types import Mixture, State, Task, TaskResult
from ludus.metagame.population.base import View


@runtime_checkable
class Scheduler(Protocol):
    """Decides which tasks a run does. Its state is explicit, and it can be resumed anywhere: equal states and results give equal tasks.

    Attributes:
        together: Least number of training tasks that must be in progress at a time, since they play against each other.
    """

    together: int

    def next_tasks(self, view: View, free: int) -> Sequence[Task]:
        """Return at most `free` new tasks. None, while none is in flight, means that the schedule is complete.

        Args:
            view: Populations and payoffs.
            free: Most tasks.
        """
        ...

    def on_result(self, result: TaskResult, view: View) -> None:
        """Process the result of a task, which is in `view` already. A result that comes twice counts once."""
        ...

    def state_dict(self) -> State:
        """Return all that the next tasks depend on, those in flight included."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Load a state into a new scheduler: tasks that were in flight are given out again."""
        ...


@runtime_checkable
class Concludes(Protocol):
    """Scheduler that may be complete before it has done all that its options allow."""

    @property
    def conclusion(self) -> str:
        """Why it has no more tasks, as the run's reason to stop; "" while it has some, or has done everything."""
        ...


@runtime_checkable
class TakesOpponents(Protocol):
    """Scheduler whose learners play against imported policies by the weights given for them. These are members of its populations before
    the first task."""

    @property
    def opponent_seats(self) -> tuple[int, ...]:
        """Seats in which the learners have an opponent."""
        ...

    def set_opponents(self, opponents: Mixture, *, lacking: tuple[int, ...] = ()) -> None:
        """Set the opponents, once, before the first task.

        Args:
            opponents: Distribution over members, for all seats.
            lacking: Seats for which no policy was given; their part of the mixture is ignored.
        """
        ...
