"""Schedules: numbers that change over a training task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from ludus.algorithms.common.base import CollectConfig, LearnerContext
from ludus.core.config import Config, refuse_unread
from ludus.core.types import SegmentEnd, State
from ludus.replay.trajectories import Trajectories


class Schedule(Config):
    """A number that goes from `start` to `end` over the first `over` of the training budget, and then stays.

    Progress is the learner's own count of collected episodes or decisions (whichever `response` limits; of both, the
    unit of its `CollectConfig`) over `LearnerContext.total`; with no total the value stays at `start`. In a scenario a
    plain number is a constant.

    Attributes:
        start: Value at the beginning.
        end: Value at the end; None: constant.
        shape: Interpolation: linear, exponential (both ends positive), cosine, or step (`start` until `over`, then
            `end`).
        over: Share of the budget until `end` is reached, in (0, 1].
    """

    start: float = Field(ge=0, allow_inf_nan=False)
    end: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    shape: Literal["linear", "exponential", "cosine", "step"] = "linear"
    over: float = Field(default=1.0, gt=0, le=1)

    @model_validator(mode="after")
    def _check(self) -> Schedule:
        if self.shape == "exponential" and self.end is not None and min(self.start, self.end) <= 0:
            raise ValueError(
                "an exponential schedule needs a positive start and end; use shape=linear to reach 0 "
                f"(given: {self.start:g} to {self.end:g})"
            )
        refuse_unread(self, {name: (self.end is not None, "an end") for name in ("shape", "over")})
        return self

    @property
    def largest(self) -> float:
        """Return the largest value."""
        return self.start if self.end is None else max(self.start, self.end)

    def at(self, progress: float) -> float:
        """Return the value at `progress` of the budget, in [0, 1]."""
        if self.end is None:
            return self.start
        x = min(max(progress / self.over, 0.0), 1.0)
        if self.shape == "step":
            return self.end if x >= 1.0 else self.start
        if self.shape == "exponential":
            return float(self.start * (self.end / self.start) ** x)
        if self.shape == "cosine":
            x = 0.5 * (1.0 - math.cos(math.pi * x))
        return self.start + (self.end - self.start) * x


def _constant(value: Any) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return {"start": value}
    if isinstance(value, (Mapping, Schedule)):
        return value
    raise ValueError("a number was expected, or a schedule such as {start: 0.001, end: 0}")


Scheduled = Annotated[Schedule, BeforeValidator(_constant)]
"""A field that takes a number or a `Schedule`."""


# --------------------------------------------------------------------------------------------------------------------
# How much of its training budget a learner has seen: what its schedules follow.


@dataclass(slots=True)
class Budget:
    """Progress of a learner: collected `unit`s over the context's `total`. Episodes are those in which the learner had
    a decision, in one seat or several."""

    unit: str
    total: int | None
    collected: int = 0

    @staticmethod
    def of(collect: CollectConfig, context: LearnerContext) -> Budget:
        return Budget(context.unit or collect.unit, context.total)

    def add(self, trajectories: Trajectories) -> None:
        """Count a rollout: its decisions, or the episodes that ended in it."""
        ended = trajectories.tail != SegmentEnd.CUT
        if trajectories.added is not None:
            ended &= ~trajectories.added
        self.count(trajectories.num_decisions, len(np.unique(trajectories.episode[ended])))

    def count(self, rows: int, episodes: int) -> None:
        """Count decisions and episodes that ended."""
        self.collected += rows if self.unit == "decisions" else episodes

    @property
    def progress(self) -> float:
        """Return the progress in [0, 1]; 0 where the total is unknown."""
        return min(1.0, self.collected / self.total) if self.total else 0.0

    def state_dict(self) -> State:
        return {"collected": self.collected}

    def load_state_dict(self, state: State) -> None:
        self.collected = int(state["collected"])
