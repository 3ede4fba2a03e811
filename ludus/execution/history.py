"""What the driver remembers of a run besides populations and payoffs; part of every checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from ludus.stopping.progress import Progress
from ludus.types import State


@dataclass(slots=True)
class History:
    """What the run's progress record is made of."""

    counters: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("env_steps", "decisions", "episodes", "samples", "updates"), 0)
    )
    generations: int = 0
    nash_conv: list[float] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)  # [P] of the newest profile of meta-strategies
    responses: list[float] = field(default_factory=list)  # [P] returns of the newest best responses
    checkpoints: int = 0
    seconds: float = 0.0

    @staticmethod
    def of(players: int) -> History:
        """Of a run that has not begun."""
        return History(values=[0.0] * players, responses=[float("nan")] * players)

    def count(self, counters: Mapping[str, int]) -> None:
        """Add what a training task played and learned."""
        for name, count in counters.items():
            self.counters[name] += count

    def generation(self, number: int, *, values: Sequence[float], nash_conv: float | None) -> None:
        """A generation was solved: `values` float[P] of its meta-strategies. The responses so far were trained against the last one's."""
        gains = np.subtract(self.responses, self.values)
        if number:
            self.gains.append(float(np.nanmax(gains)) if not np.isnan(gains).all() else float("nan"))
        if nash_conv is not None:
            self.nash_conv.append(nash_conv)
        self.generations, self.values = number, list(values)
        self.responses = [float("nan")] * len(values)

    def progress(self, seconds: float) -> Progress:
        counters = self.counters
        return Progress(
            env_steps=counters["env_steps"],
            decisions=counters["decisions"],
            episodes=counters["episodes"],
            samples=counters["samples"],
            updates=counters["updates"],
            seconds=seconds,
            generations=self.generations,
            nash_conv=tuple(self.nash_conv),
            gains=tuple(self.gains),
        )

    def state_dict(self, seconds: float) -> State:
        return {**{f.name: getattr(self, f.name) for f in fields(self)}, "seconds": seconds}
