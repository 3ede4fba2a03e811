"""Ranks find each other while all of them live; one that dies meanwhile ends the run at once, not after the others' time to wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ludus.core.errors import PartDied
from ludus.core.timings import Timings
from ludus.training.remote import RankSpec, TrainerHost, Trainers


class Runtime:
    """Of three ranks, the first of which waits for the last, which has died."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []

    def spawn(self, factory: type, spec: RankSpec, *, resources: object) -> int:
        assert factory is TrainerHost
        return spec.rank

    def node(self, rank: int) -> str:
        return "here"

    def call(self, rank: int, method: str, *args: Any) -> tuple[int, str]:
        self.asked.append((rank, method))
        return rank, method

    def wait(self, answers: Sequence[tuple[int, str]], *, at_least: int) -> tuple[list[Any], list[Any]]:
        """The dead one's answer comes first."""
        assert at_least == 1
        return [max(answers)], sorted(answers)[:-1]

    def get(self, answer: tuple[int, str]) -> str:
        if answer == (0, "meet"):
            return "here:1"
        assert answer == (2, "join"), "it waits for a rank that waits for the dead one"
        raise PartDied("part 'TrainerHost' died")


def test_a_rank_that_dies_before_they_have_met_is_noticed_at_once() -> None:
    runtime = Runtime()
    trainers = Trainers(runtime, 3, seed=0, profile=Timings())  # type: ignore[arg-type]
    with pytest.raises(PartDied, match="'TrainerHost' died"):
        trainers.begin(None, task_slot=0)  # type: ignore[arg-type]
    assert runtime.asked == [(0, "meet"), (0, "join"), (1, "join"), (2, "join")]
