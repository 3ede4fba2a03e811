"""How much of its training budget a learner has seen: what its schedules follow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ludus.algorithms.base import Collect, LearnerContext
from ludus.data.trajectories import Trajectories
from ludus.types import State, Tail


@dataclass(slots=True)
class Budget:
    """Counts collected `unit`s over the context's `total`. Episodes are those in which the learner had a decision."""

    unit: str
    agents: int  # of the learner in one episode
    total: int | None
    collected: int = 0

    @staticmethod
    def of(collect: Collect, context: LearnerContext) -> Budget:
        return Budget(collect.unit, max(1, len(context.env.agents_of(context.seats[0]))), context.total)

    def add(self, trajectories: Trajectories) -> None:
        """Count a rollout: its rows, or the episodes that ended in it."""
        if self.unit == "decisions":
            self.collected += trajectories.num_rows
        else:
            self.collected += int(np.count_nonzero(trajectories.tail != Tail.CUT)) // self.agents

    @property
    def progress(self) -> float:
        """0 to 1; 0 where the total is unknown."""
        return min(1.0, self.collected / self.total) if self.total else 0.0

    def state_dict(self) -> State:
        return {"collected": self.collected}

    def load_state_dict(self, state: State) -> None:
        self.collected = int(state["collected"])
