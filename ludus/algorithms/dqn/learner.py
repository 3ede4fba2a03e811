"""DQN's learners: from trajectories to n-step transitions. How they learn from them is in `compiled` and `module`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ludus.algorithms.base import LearnerContext
from ludus.algorithms.dqn.base import TABLE
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.dqn.updates import Parameters, QLearner
from ludus.algorithms.returns import follow, n_step
from ludus.data.base import Columns
from ludus.data.trajectories import Trajectories
from ludus.types import PolicySpec


class DQNLearner(QLearner):
    """Learns from n-step transitions that its table replays."""

    def __init__(
        self, config: DQN, context: LearnerContext, spec: PolicySpec, *, online: Parameters, target: Parameters
    ) -> None:
        super().__init__(config, context, spec, online=online, target=target)
        self.config = config

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, Columns]]:
        """n-step transitions, in scaled rewards."""
        rows = trajectories
        reward, discount, following = n_step(rows.start, rows.reward, rows.tail, self.config.gamma, self.config.n_step)
        after = follow(rows.observation, rows.tail_observation, following)
        if self._states is not None:
            unseen = after < 0
            self._blind += int(np.count_nonzero(unseen & (discount > 0.0)))
            discount = np.where(unseen, 0.0, discount)
        columns = {
            "observation": rows.observation,
            "action": rows.action,
            "reward": (reward * self._scale).astype(np.float32),
            "discount": discount.astype(np.float32),
            "next": after,
            "version_lo": np.repeat(rows.version_lo, np.diff(rows.start)),
        }
        if self._states is None and rows.mask is not None:
            tail_mask = (
                rows.tail_mask if rows.tail_mask is not None else np.ones((len(rows.tail), self._actions), np.bool_)
            )
            columns["mask"] = rows.mask
            columns["next_mask"] = follow(rows.mask, tail_mask, following)
        self._budget.add(rows)
        self._inserted += rows.num_rows
        return [(TABLE, columns)]
