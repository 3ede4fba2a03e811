"""From trajectories to the rows that magnetic mirror descent learns from."""

from __future__ import annotations

import numpy as np

from ludus.algorithms.base import LearnerContext
from ludus.algorithms.mmd.config import MMD
from ludus.algorithms.mmd.rewards import regularised
from ludus.algorithms.mmd.terms import Floats
from ludus.algorithms.returns import gae, tail_values
from ludus.algorithms.spaces import reward_scale
from ludus.data.base import Columns
from ludus.data.trajectories import Trajectories


class Data:
    """Scales rewards, transforms them where they are regularised (`transforms`), and estimates advantages."""

    def __init__(self, config: MMD, context: LearnerContext) -> None:
        self.transforms = config.regularise == "reward"
        self._config = config
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)
        self._opponents = context.env.zero_sum and context.env.num_players == 2
        self._ids = context.env.enumeration is not None

    def columns(
        self, rows: Trajectories, *, value: Floats, after: Floats, magnet: Floats | None, progress: float
    ) -> Columns:
        """Of N rows in S segments: value float64[N], after float64[S] of the tail observations, magnet float64[N] the log-probability
        that it gives the actions taken."""
        config = self._config
        reward = rows.reward.astype(np.float64) * self._scale
        if magnet is not None:
            cost = config.alpha.at(progress) * (rows.logp - magnet)
            reward = regularised(rows, reward, cost, opponents=self._opponents)
        tail_value = tail_values(rows.tail, after)
        advantage, target = gae(rows.start, reward, value, tail_value, config.gamma, config.gae_lambda)
        out = {
            "observation": rows.observation,
            "action": rows.action,
            "logp": rows.logp,
            "advantage": advantage.astype(np.float32),
            "target": target.astype(np.float32),
            "value": value.astype(np.float32),
            "version_lo": np.repeat(rows.version_lo, np.diff(rows.start)),
        }
        if not self._ids and rows.mask is not None:
            out["mask"] = rows.mask
        return out


def not_finite(columns: Columns) -> str | None:
    """What in the rows is NaN or infinite, if anything is."""
    for name in ("advantage", "target"):
        if not np.isfinite(columns[name]).all():
            return f"the {name}s"
    return None


def explained(columns: Columns) -> float:
    """1 - Var(G - V) / Var(G) of the values that the advantages were made with."""
    spread = float(np.var(columns["target"]))
    unexplained = float(np.var(columns["target"] - columns["value"]))
    return 1.0 - unexplained / spread if spread > 0 else 0.0
