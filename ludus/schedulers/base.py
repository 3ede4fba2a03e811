"""Schedulers decide what to do next; the driver does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ludus.population.payoffs import Payoffs
from ludus.types import PolicyRef, State, Task, TaskResult


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What a scheduler sees: the policies of each population, and the payoffs with their holes."""

    populations: tuple[tuple[PolicyRef, ...], ...]
    payoffs: Payoffs
    counters: Mapping[str, int] = field(default_factory=dict)


@runtime_checkable
class Scheduler(Protocol):
    """Explicit state, resumable in the middle: the same state and the same results give the same tasks."""

    def next_tasks(self, view: View, free: int) -> Sequence[Task]:
        """At most `free` new tasks. Nothing, with nothing in flight, means that the schedule is complete."""
        ...

    def on_result(self, result: TaskResult, view: View) -> None:
        """A task was answered and its result is in `view`. A result given twice counts once."""
        ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...
