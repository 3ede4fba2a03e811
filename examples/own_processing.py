"""Processing of one's own: a cost for each step, and shaping by a potential.

PYTHONPATH=examples ludus train cartpole-dqn 'algorithm.processing=[{kind: own_processing:StepCost, cost: 0.1}]'
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from ludus.core.types import EnvSpec, SegmentEnd
from ludus.replay.processing import Processed, Processing
from ludus.replay.trajectories import Trajectories


class StepCost(Processing):
    """Each decision costs something."""

    cost: float = Field(0.01, ge=0)

    def process(self, rows: Trajectories, *, env: EnvSpec, rng: np.random.Generator) -> Processed:
        return Processed(reward=rows.reward - np.float32(self.cost))


class Shaped(Processing):
    """Potential-based shaping (Ng, Harada and Russell 1999), which leaves optimal policies optimal: reward + gamma Φ(next) − Φ(now), where
    Φ is `weight` × minus the distance of an entry of the observation from 0, and 0 where an episode has ended."""

    entry: int = Field(2, ge=0)
    weight: float = 1.0
    gamma: float = Field(0.99, ge=0, le=1)

    def process(self, rows: Trajectories, *, env: EnvSpec, rng: np.random.Generator) -> Processed:
        now = -self.weight * np.abs(rows.observation[:, self.entry])
        last = rows.start[1:] - 1
        after = np.append(now[1:], 0.0)
        after[last] = -self.weight * np.abs(rows.bootstrap_observation[:, self.entry])
        after[last[rows.tail == SegmentEnd.TERMINATED]] = 0.0
        return Processed(reward=rows.reward + self.gamma * after - now)
