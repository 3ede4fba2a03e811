"""Callbacks that tests name as `callback_tools:Class`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ludus.core.types import TaskResult, TrainingResult, TrainingTask
from ludus.rollout.base import EpisodeResults
from ludus.storage.base import GenerationRecord, RunInfo, RunSummary
from ludus.training.callbacks import Callback, UpdateRecord

TOLD: list[tuple[Any, ...]] = []


@dataclass
class Teller(Callback):
    """Keeps what it was told, without clocks, in `TOLD`."""

    def on_run_start(self, info: RunInfo, *, generation: int) -> None:
        TOLD.append(("start", info.name, generation))

    def on_episodes(self, task: TrainingTask, episodes: EpisodeResults) -> None:
        names = ("returns", "length", "terminated", "seat", "entry", "index")
        sums = [hashlib.sha256(np.ascontiguousarray(getattr(episodes, name)).tobytes()).hexdigest() for name in names]
        TOLD.append(("episodes", task.id, len(episodes.index), *sums))

    def on_update(self, update: UpdateRecord) -> None:
        numbers = tuple((name, repr(value)) for name, value in sorted(update.metrics.items()))
        TOLD.append(("update", update.task.id, update.iteration, update.updates, dict(update.counters), numbers))

    def on_task(self, result: TaskResult) -> None:
        TOLD.append(("task", result.task.id, type(result).__name__))

    def on_generation(self, record: GenerationRecord) -> None:
        TOLD.append(("generation", record.number, record.episodes))

    def on_run_end(self, summary: RunSummary) -> None:
        TOLD.append(("end", summary.generations, summary.complete))


@dataclass
class Fails(Callback):
    """Raises in a hook, at its `after`-th call."""

    hook: str = "on_update"
    after: int = 1
    calls: int = field(default=0, init=False)

    def _called(self, hook: str) -> None:
        self.calls += hook == self.hook
        if hook == self.hook and self.calls == self.after:
            raise ZeroDivisionError("division by zero")

    def on_run_start(self, info: RunInfo, *, generation: int) -> None:
        self._called("on_run_start")

    def on_episodes(self, task: TrainingTask, episodes: EpisodeResults) -> None:
        self._called("on_episodes")

    def on_update(self, update: UpdateRecord) -> None:
        self._called("on_update")

    def on_task(self, result: TaskResult) -> None:
        if isinstance(result, TrainingResult):
            self._called("on_task")

    def on_generation(self, record: GenerationRecord) -> None:
        self._called("on_generation")

    def on_run_end(self, summary: RunSummary) -> None:
        self._called("on_run_end")


@dataclass
class Options(Callback):
    path: Path = Path("there.csv")
    widths: tuple[int, ...] = (1, 2)
    opened: Any = field(default=None, init=False, compare=False)


class Plain(Callback):
    """Without options it need not be a dataclass."""


class OwnInit(Callback):
    def __init__(self, path: str = "x") -> None:
        self.path = path


@dataclass
class OwnKind(Callback):
    kind: str = "x"


class Misspelt(Callback):
    def on_epsiodes(self, task: TrainingTask, episodes: EpisodeResults) -> None:
        """Would never be called."""


class OtherArguments(Callback):
    def on_episodes(self, episodes: EpisodeResults) -> None:  # type: ignore[override]
        """Would raise when the first episodes are there."""


class NoCallback:
    def on_episodes(self, task: TrainingTask, episodes: EpisodeResults) -> None:
        """It has a hook, but not the others."""


@dataclass
class Changes(Callback):
    def on_episodes(self, task: TrainingTask, episodes: EpisodeResults) -> None:
        episodes.returns[:] = 0.0


@dataclass
class Answers(Callback):
    def on_generation(self, record: GenerationRecord) -> bool:  # type: ignore[override]
        return True


@dataclass
class Trusting(Callback):
    """Expects that NashConv is always known."""

    def on_generation(self, record: GenerationRecord) -> None:
        assert f"{record.nash_conv:.3f}"
