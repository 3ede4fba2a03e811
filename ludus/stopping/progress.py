"""The progress record that stoppers, schedules and displays read. Counters are separate and named (invariant 9)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts since the start of what it describes (a run, or one training task), global over workers.

    env_steps: steps of single environments. decisions: of learners. episodes: training episodes. samples: rows learned from.
    updates: calls of `Learner.update`. seconds: wall time, summed over resumed sessions. Histories are oldest first.
    """

    env_steps: int = 0
    decisions: int = 0
    episodes: int = 0
    samples: int = 0
    updates: int = 0
    seconds: float = 0.0
    generations: int = 0
    nash_conv: tuple[float, ...] = ()  # per generation, where known
    scores: tuple[float, ...] = ()  # per evaluation: mean return of the learner
    win_rates: tuple[tuple[float, int], ...] = ()  # per evaluation: (share won, matches)
    gains: tuple[float, ...] = ()  # per generation: best response's return over the meta-strategy's value
