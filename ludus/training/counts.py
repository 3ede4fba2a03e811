"""What a training task has counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ludus.evaluation.matches import won
from ludus.rollout.base import Rollout
from ludus.stopping.progress import Progress
from ludus.types import State


@dataclass(slots=True)
class Counts:
    """Sums over the task; also what a checkpoint keeps of it."""

    iterations: int = 0
    env_steps: int = 0
    decisions: int = 0
    episodes: int = 0
    samples: int = 0
    updates: int = 0
    orders: int = 0
    cut_at: int = 0  # orders at the last barrier
    truncated: int = 0  # episodes that barriers ended
    stale: int = 0  # decisions that were too old to learn from
    next_episode: int = 0  # above all ids of episodes so far, those that were left open included
    seconds: float = 0.0  # of earlier sessions
    returns: list[float] = field(default_factory=list)  # mean return of the learner's episodes, per iteration
    wins: list[tuple[float, int]] = field(default_factory=list)  # (share won, episodes), per iteration
    metrics: dict[str, float] = field(default_factory=dict)  # of the last update

    def add(self, rollout: Rollout) -> None:
        """Count what was collected for one iteration."""
        self.env_steps += rollout.counters["env_steps"]
        self.decisions += rollout.counters["learner_decisions"]
        self.episodes += rollout.counters["episodes"]
        self.next_episode = max(self.next_episode, rollout.next_episode)
        episodes = rollout.episodes
        if len(episodes.seat):
            mine = episodes.returns[np.arange(len(episodes.seat)), episodes.seat]
            self.returns.append(float(mine.mean()))
            self.wins.append((won(episodes.returns, episodes.seat), len(mine)))

    @property
    def totals(self) -> Mapping[str, int]:
        """What was counted since the task began, by name."""
        return {name: getattr(self, name) for name in ("env_steps", "decisions", "episodes", "samples", "updates")}

    def progress(self, seconds: float) -> Progress:
        """What stoppers look at."""
        return Progress(
            env_steps=self.env_steps,
            decisions=self.decisions,
            episodes=self.episodes,
            samples=self.samples,
            updates=self.updates,
            seconds=seconds,
            scores=tuple(self.returns),
            win_rates=tuple(self.wins),
        )

    def state_dict(self) -> State:
        return {name: getattr(self, name) for name in self.__slots__}

    @staticmethod
    def of(state: State) -> Counts:
        """From what `state_dict` gave."""
        counts = Counts(**{name: state[name] for name in Counts.__slots__})
        counts.wins = [(share, episodes) for share, episodes in counts.wins]
        return counts
