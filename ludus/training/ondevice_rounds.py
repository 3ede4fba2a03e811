"""Rounds of a training task on its learner's device: several iterations, each a rollout and an update, are on their way before a number of
them is read. Tasks of several players have streams of their own, so that a GPU plays and learns for all of them at once.

host:    settings of k rounds --> | . . . . . . . . . . . . . . . . |  --> numbers of k rounds, read once
device:                           | play, learn, play, learn, …     |      (two graphs a round)
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import torch
from torch import Tensor

from ludus.algorithms.common.base import CollectConfig
from ludus.algorithms.common.device_policy import RoundSettings, SupportsOnDevice, SupportsRounds
from ludus.backend.streams import DeviceClock, side_stream
from ludus.core.errors import TrainingError
from ludus.core.recorders import Timings
from ludus.core.types import EnvSpec
from ludus.rollout.base import Rollout
from ludus.rollout.ondevice_trees import DeviceRollout, TreePlay
from ludus.training.collecting import Collected, MakeRequest
from ludus.training.ondevice_collector import DeviceVectors, OnDeviceCollector
from ludus.training.trainer import LearnResult, Trainer

_SECONDS = 0.5
"""Of rounds that are read together, at most: progress is shown, and a stop is obeyed, in between."""


def supports_rounds(learner: SupportsOnDevice, spec: EnvSpec, collect: CollectConfig) -> bool:
    """Return whether a task's rounds can be read together: whole games of a tree, and updates that are graphs."""
    whole = spec.enumeration is not None and collect.unit == "episodes"
    return whole and isinstance(learner, SupportsRounds) and not learner.rounds_unsupported_reason()


@dataclass(frozen=True, slots=True, eq=False)
class _Round:
    """A round whose numbers are not read."""

    rollout: DeviceRollout
    settings: RoundSettings


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class _Burst:
    """Rounds on their way. numbers: float64[k, m] of all. clock: marks before and after each rollout, and after each update. seconds: that
    this process took to enqueue them."""

    rounds: Sequence[_Round]
    numbers: Tensor
    clock: DeviceClock
    seconds: float


class RoundsCollector(OnDeviceCollector):
    """Plays and learns on the learner's device, whole games of a tree (`Collector`).

    Args:
        vectors: Of the run.
        trainer: Of the task.
        learner: The trainer's.
        request: Makes requests.
        collect: How much is collected in each.
        task_slot: Whose vector is played on.
        profile: Where the time goes.
        rounds_ahead: Returns how many rounds may be on their way before anything of them is looked at, at least 1.
    """

    def __init__(
        self,
        vectors: DeviceVectors,
        trainer: Trainer,
        learner: SupportsRounds,
        request: MakeRequest,
        collect: CollectConfig,
        *,
        task_slot: int,
        profile: Timings,
        rounds_ahead: Callable[[], int],
    ) -> None:
        super().__init__(vectors, learner, request, collect, task_slot=task_slot, profile=profile, each=False)
        self._trainer, self._rounds_learner, self._rounds_ahead = trainer, learner, rounds_ahead
        self._stream = partial(side_stream, learner.placement.torch, 1 + task_slot)
        self._burst: _Burst | None = None
        self._failure: TrainingError | None = None
        self._read_rounds: deque[tuple[Rollout, LearnResult]] = deque()

    def begin(self) -> None:
        """Enqueue rounds, unless some are on their way or have been read."""
        if self._burst is not None or self._failure is not None or self._read_rounds:
            return
        try:
            with self._enough_memory(), self._stream():
                before = self._rounds_learner.snapshot()
                try:
                    self._burst = self._enqueue()
                except Exception:  # in the middle of an update, or after others that nothing is known of
                    self._rounds_learner.restore(before)
                    raise
        except TrainingError as error:
            self._failure = error

    def take(self) -> Collected:
        """Return the next round. Raises as `OnDeviceCollector.take`."""
        if not self._read_rounds:
            self._read()
        rollout, learned = self._read_rounds.popleft()
        return Collected((rollout,), learned=(learned,))

    def drain(self) -> Collected:
        """Return all rounds that are on their way."""
        if self._burst is not None:
            self._read()
        rounds = [*self._read_rounds]
        self._read_rounds.clear()
        return Collected([rollout for rollout, _ in rounds], learned=[learned for _, learned in rounds])

    def close(self) -> None:
        super().close()
        self._burst = None
        self._read_rounds.clear()

    def _enqueue(self) -> _Burst:
        learner, since = self._rounds_learner, perf_counter()
        clock = DeviceClock(learner.placement.torch)
        rounds, numbers, count = list[_Round](), list[Tensor](), 1
        table = learner.table()
        clock.mark()
        while len(rounds) < count:
            request, policies = self._request(carry_on=False, host=0)
            self._opponents.policies = dict(policies)
            playing = self._playing(request)
            assert isinstance(playing, TreePlay)
            if not rounds and playing.always_decides(request):  # what schedules will say is known
                count = self._count()
            rollout = playing.enqueue(request, table)
            clock.mark()
            settings = learner.round_settings(len(rounds), request.amount)
            update, table = learner.enqueue_update(rollout.block, settings)
            rounds.append(_Round(rollout, settings))
            numbers.append(torch.cat([rollout.numbers, update]))
            clock.mark()
        burst = _Burst(rounds, torch.stack(numbers), clock, perf_counter() - since)
        # one that is never read, where a run is stopped, still writes to memory that others get when the model is gone
        weakref.finalize(burst, clock.wait).atexit = False
        return burst

    def _count(self) -> int:
        """Return how many rounds are read together."""
        seconds = self._vectors.round_seconds.get(self._task_slot)
        in_time = 1 if seconds is None else max(1, int(_SECONDS / seconds))
        return min(self._rounds_ahead(), in_time)

    def _read(self) -> None:
        """Wait for the rounds that are on their way, and read what they come to."""
        self.begin()
        if self._failure is not None:
            raise self._failure
        burst, self._burst = self._burst, None
        assert burst is not None
        since = perf_counter()
        with self._enough_memory(), self._stream():
            rows_of_numbers: list[list[float]] = burst.numbers.tolist()
        self._time(burst, burst.seconds + perf_counter() - since)
        for k, (one, numbers) in enumerate(zip(burst.rounds, rows_of_numbers, strict=True)):
            width = len(one.rollout.numbers)
            rollout = one.rollout.read(numbers[:width], block=False)
            rollout = replace(rollout, next_episode=rollout.next_episode + k * rollout.counters["episodes"])
            rows, episodes = rollout.counters["learner_decisions"], one.rollout.episodes(numbers[:width])
            read = partial(self._rounds_learner.finish_update, one.settings, numbers[width:], rows, episodes)
            learned = self._trainer.learn_in_place(read, rows) if rows else LearnResult()
            self._profile.rollout(0.0, {}, rollout.counters)
            self._read_rounds.append((rollout, learned))
            if learned.failure is not None:
                return

    def _time(self, burst: _Burst, wall: float) -> None:
        """Record where the time of rounds went. wall: seconds in which this process was busy with them, or waited."""
        spans, rounds = burst.clock.seconds(), len(burst.rounds)
        self._profile.split(wall, {"device": sum(spans[0::2]), "learning": sum(spans[1::2])})
        self._vectors.round_seconds[self._task_slot] = max(wall, sum(spans)) / rounds
