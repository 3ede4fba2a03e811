"""Which rows of an update belong to which agent, and which belong together: what a team's agents did at the same time.

Kept in host memory, wherever the rows are, so that nothing within an update waits for a device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.on_policy.batch import rows_in, unpadded
from ludus.algorithms.on_policy.experience import ExperienceBuilder
from ludus.algorithms.on_policy.model import Model, OnPolicyConfig
from ludus.policies.actor_critic import agents_in, agents_of
from ludus.replay.base import ItemColumns
from ludus.replay.trajectories import Trajectories

AGENT: Final = "agent"
"""int16[n]: which agent of its team decided."""
STEP: Final = "joint_step"
"""int64[n]: the same for all that a team's agents did at one time; rises with it, within an episode."""
ENDS: Final = "ends_segment"
"""bool[n]: the last row of a segment."""
_SEATS, _TIMES = 128, 1 << 24


class TurnExperience(ExperienceBuilder):
    """Builds items with their agent and time. With a network per agent, agents are those of the ids in observations;
    else those of the seats."""

    def __init__(self, config: OnPolicyConfig, model: Model, context: LearnerContext) -> None:
        super().__init__(config, model, context)
        self._networks, self._places = agents_in(model.spec), context.env.agent_index.astype(np.int16)

    def extra_columns(self, rows: Trajectories) -> ItemColumns:
        length = np.diff(rows.start)
        ends = np.zeros(rows.num_rows, np.bool_)
        ends[rows.start[1:] - 1] = True
        team = np.repeat(rows.episode * _SEATS + rows.seat, length)
        if self._networks > 1:
            agent = agents_of(rows.observation, self._networks).astype(np.int16)
        else:
            agent = np.repeat(self._places[rows.agent], length)
        return {AGENT: agent, STEP: team * _TIMES + rows.t, ENDS: ends}


@dataclass(frozen=True, slots=True, eq=False)
class TeamRows:
    """Agents and times of n rows: agent int16[n], step int64[n] in 0 … steps - 1 in order of time within an episode, t
    int64[n] its environment step, ends bool[n] at the last row of each segment. team int64[n]: the same for the rows of
    one team's episode. start int64[S + 1]: of sequences, with a memory."""

    agent: NDArray[np.int16]
    team: NDArray[np.int64]
    step: NDArray[np.int64]
    t: NDArray[np.int64]
    ends: NDArray[np.bool_]
    steps: int
    start: NDArray[np.int64] | None = None

    @staticmethod
    def of(columns: Mapping[str, Any], *, memory: bool) -> TeamRows:
        """Return the rows of items as `TurnExperience` builds them."""
        start = None
        if memory:
            names = ("length", AGENT, STEP, ENDS)
            columns, start = unpadded({name: columns[name] for name in names})
        keys, step = np.unique(columns[STEP], return_inverse=True)
        team, t = np.divmod(columns[STEP], _TIMES)
        return TeamRows(columns[AGENT], team, step.reshape(-1).astype(np.int64), t, columns[ENDS], len(keys), start)

    @property
    def gaps(self) -> NDArray[np.float64]:
        """Return the environment steps float64[n] from each row to the next of its segment; 0 for the last one."""
        return np.where(self.ends, 0, np.append(self.t[1:], 0) - self.t).astype(np.float64)

    @property
    def longest(self) -> int:
        """Return the number of rows of the longest segment."""
        return int(np.diff(np.concatenate([[-1], np.flatnonzero(self.ends), [len(self.ends) - 1]])).max(initial=0))

    def rows_of(self, agent: int) -> NDArray[np.int64]:
        return np.flatnonzero(self.agent == agent)

    def units_of(self, agent: int) -> NDArray[np.int64]:
        """Return an agent's units as `Batch.part` takes them: rows, or sequences."""
        return self.rows_of(agent) if self.start is None else np.flatnonzero(self.agent[self.start[:-1]] == agent)

    def rows_in(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of units, in the order of `Batch.part`."""
        return units if self.start is None else rows_in(self.start, units)[0]

    def lots(self, count: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """Return the units in `count` lots, or as many as possible: rows of one joint step stay together; with
        sequences, those of a team's episode."""
        keys, of = np.unique(self.step if self.start is None else self.team[self.start[:-1]], return_inverse=True)
        count = min(count, len(keys))
        lot = np.empty(len(keys), np.int64)
        for k, some in enumerate(np.array_split(rng.permutation(len(keys)), max(1, count))):
            lot[some] = k
        return [np.flatnonzero(lot[of.reshape(-1)] == k) for k in range(count)]
