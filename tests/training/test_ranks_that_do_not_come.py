"""Ranks find each other while all of them live; one that dies meanwhile, or has no memory to learn, is noticed at once, not after the
others' time to wait. One whose process is stopped is noticed after the deadline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ludus.core.errors import PartDied, RunError
from ludus.core.recorders import Timings
from ludus.training.remote_trainer import RankSpec, RemoteTrainer, TrainerHost, Trainers
from ludus.training.trainer import LearnResult


class Runtime:
    """Of three ranks, the first of which waits for the last, which has died."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []

    def spawn(self, factory: type, spec: RankSpec, *, resources: object, heartbeat: bool, name: str = "") -> int:
        assert factory is TrainerHost
        return spec.rank

    def node(self, rank: int) -> str:
        return "here"

    def call(self, rank: int, method: str, *args: Any) -> tuple[int, str]:
        self.asked.append((rank, method))
        return rank, method

    def wait(
        self, answers: Sequence[tuple[int, str]], *, at_least: int, timeout: float | None
    ) -> tuple[list[Any], list[Any]]:
        """The dead one's answer comes first."""
        assert at_least == 1
        if len(answers) == 1:
            return list(answers), []
        return [max(answers)], sorted(answers)[:-1]

    def get(self, answer: tuple[int, str]) -> str:
        if answer == (0, "rendezvous"):
            return "here:1"
        assert answer == (2, "join"), "it waits for a rank that waits for the dead one"
        raise PartDied("part 'TrainerHost' died")


def test_a_rank_that_dies_before_they_have_met_is_noticed_at_once() -> None:
    runtime = Runtime()
    trainers = Trainers(runtime, 3, seed=0, profile=Timings())  # type: ignore[arg-type]
    with pytest.raises(PartDied, match="'TrainerHost' died"):
        trainers.begin(None, task_slot=0)  # type: ignore[arg-type]
    assert runtime.asked == [(0, "rendezvous"), (0, "join"), (1, "join"), (2, "join")]


class Scripted(Runtime):
    """Of two ranks, whose answers to `learn` are given."""

    def __init__(self, *learned: LearnResult | Exception) -> None:
        super().__init__()
        self.learned, self.spawned, self.stopped = learned, 0, 0
        self.tell = lambda text: None

    def spawn(self, factory: type, spec: RankSpec, *, resources: object, heartbeat: bool, name: str = "") -> int:
        self.spawned += 1
        return spec.rank

    def put(self, value: object) -> object:
        return value

    def stop(self, rank: int) -> None:
        self.stopped += 1

    def wait(self, answers: Any, *, at_least: int, timeout: float | None = None) -> tuple[list[Any], list[Any]]:
        return list(answers), []

    def get(self, answer: tuple[int, str]) -> Any:
        rank, method = answer
        if method == "learn" and isinstance(self.learned[rank], Exception):
            raise self.learned[rank]
        return self.learned[rank] if method == "learn" else "127.0.0.1:1"


FULL = LearnResult(failure="there was not enough memory: give a smaller batch.", full=True)


@pytest.mark.parametrize("first", [FULL, LearnResult()])
def test_ranks_that_have_no_memory_fail_the_task_and_others_learn_the_next(first: LearnResult) -> None:
    """All of them; or one, when nobody waits for it any more."""
    runtime = Scripted(first, FULL)
    trainers = Trainers(runtime, 2, seed=0, profile=Timings())  # type: ignore[arg-type]
    assert trainers.begin(None, task_slot=0).learn([], version=0) == FULL  # type: ignore[arg-type]
    trainers.begin(None, task_slot=0)  # type: ignore[arg-type]
    assert (runtime.spawned, runtime.stopped) == (4, 2)
    trainers.begin(None, task_slot=0)  # type: ignore[arg-type]
    assert (runtime.spawned, runtime.stopped) == (4, 2)


@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_without_memory_says_why_others_miss_it(who: int) -> None:
    missed = RunError("another rank died")
    trainers = Trainers(Scripted(*((FULL, missed) if who == 0 else (missed, FULL))), 2, seed=0, profile=Timings())  # type: ignore[arg-type]
    with pytest.raises(RunError, match=r"not enough memory: give a smaller batch. This was one of 2 trainers"):
        trainers.begin(None, task_slot=0).learn([], version=0)  # type: ignore[arg-type]
    died = Trainers(Scripted(missed, LearnResult()), 2, seed=0, profile=Timings())  # type: ignore[arg-type]
    with pytest.raises(RunError, match=r"another rank died$"):
        died.begin(None, task_slot=0).learn([], version=0)  # type: ignore[arg-type]


class Slow(Scripted):
    """Of two ranks, the second of which learns for longer than the deadline. runs: what its heartbeat says each time it is asked."""

    def __init__(self, *runs: bool) -> None:
        super().__init__(LearnResult(samples=3), LearnResult(samples=3))
        self.runs = list(runs)

    def wait(self, answers: Any, *, at_least: int, timeout: float | None = None) -> tuple[list[Any], list[Any]]:
        if (1, "learn") not in answers:
            return list(answers), []
        assert timeout in (600.0, 10.0)  # the others are heard, too
        done = answers if not self.runs else [answer for answer in answers if answer != (1, "learn")]
        return list(done), [answer for answer in answers if answer not in done]

    def heartbeat(self, rank: int) -> tuple[int, str]:
        assert rank == 1, "the other one has answered"
        return rank, "heartbeat"

    def get(self, answer: tuple[int, str], *, timeout: float | None = None) -> Any:
        if answer != (1, "heartbeat"):
            return super().get(answer)
        assert timeout == 600.0
        if not self.runs.pop(0):
            raise TimeoutError
        return True


def test_a_rank_may_learn_for_long_and_its_process_may_not_be_stopped() -> None:
    def trainer(*runs: bool) -> RemoteTrainer:
        trainers = Trainers(Slow(*runs), 2, seed=0, profile=Timings(), deadline=600.0)  # type: ignore[arg-type]
        return trainers.begin(None, task_slot=0)  # type: ignore[arg-type]

    assert trainer(True, True).learn([], version=0).samples == 3
    with pytest.raises(
        RunError, match=r"trainer 1 has not answered for 600 seconds.*stopped.*ludus resume.*runtime\.deadline"
    ):
        trainer(True, False).learn([], version=0)
