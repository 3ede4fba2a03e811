"""The losses of magnetic mirror descent over compressed rows (`ludus.learners.ppo.compressed`), and their compiled gradients.

Per row, with r = π(a|s) / π_old(a|s) and advantage A, the loss is

    -min(r A, clip(r, 1 ± ε) A) + α KL(π(·|s) ‖ magnet(·|s)) + β KL(π(·|s) ‖ before(·|s))

whose minimiser over one state's π, unclipped and with exact advantages, is the mirror descent step of Sokota et al. (2023, equation 6, for
negative entropy): π ∝ [before^β magnet^α exp(A)]^(1 / (α + β)), β being 1 / η. The two divergences are taken over all actions and weighted
by visits, so they cost one pass over the states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.core.types import Array
from ludus.learners.base import LearnerContext
from ludus.learners.ppo.compressed import CompressedRows
from ludus.learners.returns import bootstrap_values, gae
from ludus.learners.spaces import reward_scale
from ludus.replay.base import ItemColumns
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.learners.mmd.options import MMD

# --------------------------------------------------------------------------------------------------------------------
# R-NaD's reward transformation (Perolat et al. 2022, "Mastering the game of Stratego", supplement A): a player pays
# η log(π/π_reg) for each of its actions, and is paid as much for each of its opponent's, so that a zero-sum game
# stays one.

Floats = NDArray[np.float64]


def regularised(trajectories: Trajectories, reward: Floats, cost: Floats, *, opponents: bool) -> Floats:
    """Rewards float64[N] of rows that cost float64[N] = η log(π(a|s) / π_reg(a|s)).

    opponents: pay each row's cost to the other seats' segments of the same episode, where they are in the trajectories: to the last
    decision at or before it. (What the opponent does before a player's first decision is not in its hands, and is left out.)
    """
    out = reward - cost
    if opponents:
        order = np.argsort(trajectories.episode, kind="stable")
        _pay(out, cost, trajectories.start, trajectories.t, trajectories.seat, trajectories.episode, order)
    return out


@njit(cache=True)
def _pay(out, cost, start, t, seat, episode, order):  # type: ignore[no-untyped-def]
    begin = 0
    while begin < len(order):
        end = begin
        while end < len(order) and episode[order[end]] == episode[order[begin]]:
            end += 1
        for receiver in order[begin:end]:
            for payer in order[begin:end]:
                if seat[receiver] == seat[payer]:
                    continue
                last = start[receiver] - 1
                for k in range(start[payer], start[payer + 1]):
                    while last + 1 < start[receiver + 1] and t[last + 1] <= t[k]:
                        last += 1
                    if last >= start[receiver]:
                        out[last] += cost[k]
        begin = end


@dataclass(frozen=True, slots=True)
class MMDLosses:
    """Means over rows: the surrogate (a loss), entropy in nats, KL(π ‖ magnet), KL(π ‖ before), share of rows outside the clip range."""

    surrogate: float
    entropy: float
    magnet: float
    moved: float
    clipped: float


@njit(cache=True)
def log_policy(out: Array, mask: NDArray[np.bool_]) -> Floats:
    """Log-probabilities float64[m, A] of network outputs float[m, >= A]; 0 where illegal."""
    logp = np.zeros(mask.shape)
    for s in range(len(mask)):
        _log_softmax(out[s], mask[s], logp[s])
    return logp


@njit(cache=True)
def log_uniform(mask: NDArray[np.bool_]) -> Floats:
    """Log-probabilities float64[m, A] of the uniform policy; 0 where illegal."""
    return log_policy(np.zeros(mask.shape), mask)


def policy_losses(
    out: Array,
    mask: NDArray[np.bool_],
    compressed: CompressedRows,
    *,
    magnet: Floats,
    before: Floats,
    alpha: float,
    beta: float,
    clip: float | None,
    gradient: Array,
) -> MMDLosses:
    """Losses of network outputs float[m, >= A] against log-probabilities magnet and before float64[m, A], and the gradient of
    surrogate + `alpha` KL + `beta` KL, written to gradient[:, :A]. clip None: never."""
    columns = (
        compressed.state,
        compressed.action,
        compressed.logp,
        compressed.up,
        compressed.down,
        compressed.weight,
        compressed.count,
    )
    bound = math.inf if clip is None else clip
    return MMDLosses(
        *_losses(out, mask, *columns, float(compressed.rows), magnet, before, alpha, beta, bound, gradient)
    )


@njit(cache=True)
def _log_softmax(out, mask, logp):  # type: ignore[no-untyped-def]
    top = -np.inf
    for a in range(len(mask)):
        if mask[a] and not (out[a] <= top):  # a NaN is taken, so that it cannot hide
            top = float(out[a])
    total = 0.0
    for a in range(len(mask)):
        if mask[a]:
            total += math.exp(float(out[a]) - top)
    shift = top + math.log(total) if total != 0.0 else 0.0
    for a in range(len(mask)):
        logp[a] = float(out[a]) - shift if mask[a] else 0.0


@njit(cache=True)
def _losses(  # type: ignore[no-untyped-def]
    out, mask, state, action, old, up, down, weight, count, rows, magnet, before, alpha, beta, clip, gradient
):
    actions = mask.shape[1]
    logp, prob = np.zeros(mask.shape), np.zeros(mask.shape)
    entropy, attracted, moved = 0.0, 0.0, 0.0
    for s in range(len(mask)):
        _log_softmax(out[s], mask[s], logp[s])
        share, h, to_magnet, to_before = count[s] / rows, 0.0, 0.0, 0.0
        for a in range(actions):
            if mask[s, a]:
                p = math.exp(logp[s, a])
                prob[s, a] = p
                h -= p * logp[s, a]
                to_magnet += p * (logp[s, a] - magnet[s, a])
                to_before += p * (logp[s, a] - before[s, a])
        entropy += share * h
        attracted += share * to_magnet
        moved += share * to_before
        for a in range(actions):  # d KL(p ‖ q) / d logit = p (log p - log q - KL)
            pull = alpha * (logp[s, a] - magnet[s, a] - to_magnet) + beta * (logp[s, a] - before[s, a] - to_before)
            gradient[s, a] = share * prob[s, a] * pull
    surrogate, clipped = 0.0, 0.0
    for c in range(len(state)):
        s, taken = state[c], action[c]
        ratio = math.exp(logp[s, taken] - old[c])
        slope = 0.0
        if ratio >= 1.0 + clip:  # a NaN takes the other branch, and shows in the loss
            surrogate -= up[c] * (1.0 + clip)
        else:
            slope += up[c]
            surrogate -= up[c] * ratio
        if ratio <= 1.0 - clip:
            surrogate -= down[c] * (1.0 - clip)
        else:
            slope += down[c]
            surrogate -= down[c] * ratio
        if abs(ratio - 1.0) > clip:
            clipped += weight[c]
        slope *= ratio / rows
        for a in range(actions):
            gradient[s, a] += slope * prob[s, a]
        gradient[s, taken] -= slope
    return surrogate / rows, entropy, attracted, moved, clipped / rows


# --------------------------------------------------------------------------------------------------------------------
# From trajectories to the rows that magnetic mirror descent learns from.


class MMDTransitions:
    """Scales rewards, transforms them where they are regularised (`transforms`), and estimates advantages."""

    def __init__(self, config: MMD, context: LearnerContext) -> None:
        self.transforms = config.regularise == "reward"
        self._config = config
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)
        self._opponents = context.env.zero_sum and context.env.num_players == 2
        self._ids = context.env.enumeration is not None

    def columns(
        self, rows: Trajectories, *, value: Floats, after: Floats, magnet: Floats | None, progress: float
    ) -> ItemColumns:
        """Of N rows in S segments: value float64[N], after float64[S] of the bootstrap observations, magnet float64[N] the log-probability
        that it gives the actions taken."""
        config = self._config
        reward = rows.reward.astype(np.float64) * self._scale
        if magnet is not None:
            cost = config.alpha.at(progress) * (rows.logp - magnet)
            reward = regularised(rows, reward, cost, opponents=self._opponents)
        bootstrap_value = bootstrap_values(rows.tail, after)
        advantage, target = gae(rows.start, reward, value, bootstrap_value, config.gamma, config.gae_lambda)
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


def not_finite(columns: ItemColumns) -> str | None:
    """What in the rows is NaN or infinite, if anything is."""
    for name in ("advantage", "target"):
        if not np.isfinite(columns[name]).all():
            return f"the {name}s"
    return None


def explained(columns: ItemColumns) -> float:
    """1 - Var(G - V) / Var(G) of the values that the advantages were made with."""
    spread = float(np.var(columns["target"]))
    unexplained = float(np.var(columns["target"] - columns["value"]))
    return 1.0 - unexplained / spread if spread > 0 else 0.0
