"""Magnetic mirror descent with a table: its step in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ludus.algorithms.common.base import ROLLOUTS, LearnerContext
from ludus.algorithms.common.config import Budget
from ludus.algorithms.common.returns import learned_columns, not_finite
from ludus.algorithms.common.space_checks import reward_scale
from ludus.algorithms.mmd.kernels import log_policy, log_uniform
from ludus.algorithms.mmd.magnet import regularized_rewards
from ludus.algorithms.on_policy.model import Floats
from ludus.core.errors import TrainingError
from ludus.core.types import Array, Metrics, SegmentEnd, State, Weights
from ludus.policies.categorical import epsilon_mix
from ludus.policies.registry import build_policy
from ludus.policies.specs import information_state_ids, joined
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.algorithms.mmd.config import MMD

_LEAST = 1e-12  # probability that a warm start's actions have at least


def mirror_step(
    before: Floats, magnet: Floats, advantage: Floats, mask: NDArray[np.bool_], *, alpha: float, eta: float
) -> Floats:
    """Return log-probabilities float64[m, A] of π ∝ [before^(1/η) magnet^α exp(advantage)]^(1 / (α + 1/η)); 0 where
    illegal. (Sokota et al. 2023, equation 6 for negative entropy.)

    Args:
        before: Log-probabilities float64[m, A] of the present policy.
        magnet: Those of the magnet.
        advantage: float64[m, A].
        mask: bool[m, A].
        alpha: α.
        eta: η.
    """
    beta = 1.0 / eta
    return log_policy((beta * before + alpha * magnet + advantage) / (alpha + beta), mask)


def _explained_variance(target: Array, value: Array) -> float:
    """Return 1 - Var(G - V) / Var(G) of the values that the advantages were made with."""
    spread = float(np.var(target))
    return 1.0 - float(np.var(target - value)) / spread if spread > 0 else 0.0


class TabularMMDLearner:
    """A log-probability per information state and action, and a value per state. The advantage of an action is the mean
    over a state's rows of (advantage / probability) of those that took it, within ±`bound`."""

    empties_tables = True  # as `OnPolicyLearner`

    def __init__(self, config: MMD, context: LearnerContext, start: Weights | None = None) -> None:
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        assert context.env.enumeration is not None
        ids = information_state_ids(context.env.enumeration, context.seats)
        self._mask, self._base = np.ascontiguousarray(context.env.enumeration.mask[ids]), ids.start
        self._logp = log_uniform(self._mask)
        if start is not None:
            self._logp = self._start(start)
        self._magnet = self._logp.copy() if config.magnet != "uniform" else log_uniform(self._mask)
        self._average = self._logp.copy()
        self._value = np.zeros(len(self._mask))
        self._env, self._scale = context.env, reward_scale(context.env, context.seats, enabled=config.scale_rewards)
        self._budget = Budget.of(config.collect(), context)
        self._progress = 0.0  # of the budget, before the rows of the next update were collected
        self._updates = self._waiting = self._unknown_bootstraps = 0

    def _start(self, weights: Weights) -> Floats:
        """Return the log-probabilities of a warm start: of what it published."""
        probs = build_policy(self.spec, weights).weights()
        table = probs["probs" if self.config.announce == "newest" else "average/probs"]
        return log_policy(np.log(np.maximum(np.asarray(table), _LEAST)), self._mask)

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return decision rows with advantage and value target (in scaled rewards), from the present values."""
        rows = trajectories
        state, known = rows.observation - self._base, rows.bootstrap_observation >= 0
        self._unknown_bootstraps += int(np.count_nonzero(~known & (rows.tail != SegmentEnd.TERMINATED)))
        after = np.where(known, self._value[np.where(known, rows.bootstrap_observation - self._base, 0)], 0.0)
        config, reward = self.config, rows.reward.astype(np.float64) * self._scale
        if config.regularise == "reward":
            index = state, rows.action.astype(np.int64)
            logp = (
                rows.logp if config.explore == 0.0 else self._logp[index]
            )  # rows have that of what played, which was mixed
            reward = regularized_rewards(config, self._env, rows, reward, logp - self._magnet[index], self._progress)
        columns = learned_columns(
            rows, reward=reward, value=self._value[state], after=after, gamma=config.gamma, lam=config.gae_lambda
        )
        columns["version_lo"] = np.repeat(rows.version_lo, np.diff(rows.start))
        self._budget.add(rows)
        self._waiting += rows.num_rows
        return [(ROLLOUTS, columns)]

    def batches(self) -> Sequence[tuple[str, int]]:
        """Return one update on all waiting rows."""
        return [(ROLLOUTS, 0)] if self._waiting else []

    def update(self, batch: Sample) -> Metrics:
        """Take one step. Raise TrainingError before anything is changed, if rewards or values are not finite."""
        config, columns = self.config, batch.columns
        if bad := not_finite(columns):
            raise TrainingError(
                f"{type(config).__name__} update {self._updates + 1}: {bad} became NaN or infinite. The policy from before this update is "
                "kept; check the environment's rewards."
            )
        alpha, eta = config.alpha.at(self._progress), config.eta.at(self._progress)
        state, before = columns["observation"] - self._base, self._logp
        visits = np.bincount(state, minlength=len(self._mask)).astype(np.float64)
        magnet = self._magnet
        new = mirror_step(
            before,
            magnet,
            self._advantages(columns, state, visits),
            self._mask,
            alpha=alpha if config.regularise == "loss" else 0.0,
            eta=eta,
        )
        self._logp = np.where(visits[:, None] > 0, new, before)
        self._learn_values(columns, state, visits)
        self._updates += 1
        self._waiting = 0
        self._progress = self._budget.progress
        self._move_magnet()
        share, policy = visits / max(1.0, visits.sum()), np.exp(self._logp) * self._mask
        return {
            "rows": float(len(state)),
            "alpha": alpha,
            "eta": eta,
            "entropy": float(-share @ (policy * self._logp).sum(1)),
            "kl_magnet": float(share @ (policy * (self._logp - magnet)).sum(1)),
            "kl": float(share @ (policy * (self._logp - before)).sum(1)),
            "explained_variance": _explained_variance(columns["target"], columns["value"]),
            "visited": float(np.count_nonzero(visits)) / len(visits),
            "tails_without_value": float(self._unknown_bootstraps),
        }

    def _advantages(self, columns: ItemColumns, state: NDArray[np.int32], visits: Floats) -> Floats:
        actions = self._mask.shape[1]
        weighted = columns["advantage"] * np.exp(-columns["logp"].astype(np.float64))
        total = np.bincount(state * actions + columns["action"], weights=weighted, minlength=self._mask.size)
        mean = total.reshape(self._mask.shape) / np.maximum(visits, 1.0)[:, None]
        return np.clip(mean, -self.config.bound, self.config.bound)

    def _learn_values(self, columns: ItemColumns, state: NDArray[np.int32], visits: Floats) -> None:
        """Move each row's state's value by the share `value_rate` towards its target (as if sequentially)."""
        target = np.bincount(state, weights=columns["target"], minlength=len(visits)) / np.maximum(visits, 1.0)
        self._value += (1.0 - (1.0 - self.config.value_rate) ** visits) * (target - self._value)

    def _move_magnet(self) -> None:
        config, averaged = self.config, self.config.announce == "average"
        if averaged:
            self._average = self._towards_newest(self._average, config.average_rate.at(self._progress))
        if config.magnet == "moving":
            self._magnet = self._towards_newest(self._magnet, config.magnet_rate.at(self._progress))
        elif config.magnet == "policy" and self._updates % config.magnet_period == 0:
            self._magnet = (self._average if averaged else self._logp).copy()

    def _towards_newest(self, logp: Floats, share: float) -> Floats:
        return log_policy(logp + share * (self._logp - logp), self._mask)

    def weights(self) -> Weights:
        """Return probabilities of every state."""
        announced = self._magnet if self.config.announce == "magnet" else self._average
        newest, slow = (np.where(self._mask, np.exp(logp), 0.0) for logp in (self._logp, announced))
        if self.config.announce == "newest":
            return {"probs": newest}
        newest = epsilon_mix(newest, self._mask, self.config.explore)
        return joined({"newest": {"probs": newest}, "average": {"probs": slow}})

    def state_dict(self) -> State:
        return {
            "logp": self._logp.copy(),
            "magnet": self._magnet.copy(),
            "average": self._average.copy(),
            "value": self._value.copy(),
            "budget": self._budget.state_dict(),
            "progress": self._progress,
            "counts": [self._updates, self._waiting, self._unknown_bootstraps],
        }

    def load_state_dict(self, state: State) -> None:
        self._logp, self._magnet = np.array(state["logp"]), np.array(state["magnet"])
        self._average, self._value = np.array(state["average"]), np.array(state["value"])
        self._budget.load_state_dict(state["budget"])
        self._progress = float(state["progress"])
        self._updates, self._waiting, self._unknown_bootstraps = map(int, state["counts"])
