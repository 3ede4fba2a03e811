"""Trainings that play each other's newest weights, resumed: none is scored before all have their weights again."""

from __future__ import annotations

from typing import Any

from ludus.core.types import Mixture, OpponentFactor, PolicyRef, TrainingTask
from ludus.training.training import Barriers, train


class Fake:
    """A training that is over, and notes what is done to it."""

    def __init__(self, task: TrainingTask, notes: list[tuple[str, str]]) -> None:
        self.task, self._notes = task, notes

    def set_live_opponents(self, learners: dict[tuple[int, str], Any]) -> None:
        self._notes.append(("meet", self.task.id))

    def load_state_dict(self, state: Any) -> None:
        self._notes.append(("load", self.task.id))

    def offer(self) -> None:
        self._notes.append(("offer", self.task.id))

    def finished(self) -> str:
        return "it is over"

    def result(self) -> str:
        return self.task.id


def test_scored_when_all_have_their_weights_again() -> None:
    def task(name: str, other: str) -> TrainingTask:
        live = Mixture((OpponentFactor((0,), ((PolicyRef(0, other, None),),), (1.0,)),))
        return TrainingTask(name, 1, 0, (0,), name, live)

    notes: list[tuple[str, str]] = []
    results = train(
        [task("a", "b"), task("b", "a"), task("c", "a")],
        make=lambda task, task_slot: Fake(task, notes),  # type: ignore[arg-type, return-value]
        barriers=Barriers(1),
        proceed=lambda share, metrics: None,
        checkpoint=lambda states: None,
        states={"a": {}, "b": {}},
        keep=lambda task, state: None,
    )
    assert list(results) == ["a", "b", "c"]
    assert notes == [
        ("load", "a"),
        ("load", "b"),
        ("meet", "a"),
        ("meet", "b"),
        ("meet", "c"),
        ("offer", "a"),
        ("offer", "b"),
    ]
