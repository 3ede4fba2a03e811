"""Returns, advantages and targets over ragged trajectories: pure functions, compiled, in float64.

Every function takes rows in segments: segment s owns rows start[s] … start[s + 1] - 1 in order of time
(`Trajectories`). What follows a segment's last row is given by `bootstrap_value` float64[S], the value of the bootstrap
observation: 0 where the episode terminated, an estimate where it was truncated or cut (`bootstrap_values` makes it from
estimates). γ discounts per own decision.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.core.arrays import kernel
from ludus.core.errors import PolicyError
from ludus.core.types import Array, SegmentEnd
from ludus.replay.trajectories import Trajectories

Floats = NDArray[np.float64]


def bootstrap_values(tail: NDArray[np.int8], value: Array) -> Floats:
    """Return the values of bootstrap observations float64[S], with 0 where the episode terminated.

    Args:
        tail: `SegmentEnd` int8[S].
        value: Estimates float[S].
    """
    return np.where(tail == SegmentEnd.TERMINATED, 0.0, value).astype(np.float64)


@kernel
def gae(
    start: NDArray[np.int64], reward: Array, value: Array, bootstrap_value: Floats, gamma: float, lam: float
) -> tuple[Floats, Floats]:
    """Return generalised advantage estimates and λ-returns, float64[N] each.

    δ_t = r_t + γ V_{t+1} - V_t;  A_t = δ_t + γ λ A_{t+1};  G_t = A_t + V_t.  (Schulman et al. 2016, equations 11 and
    16.)

    `gae_in_time` discounts by elapsed steps; `ludus.algorithms.on_policy.ondevice.learning` has GAE of blocks on a
    device, by `reverse_linear_scan`.

    Args:
        start: int64[S + 1], where segments begin, and the end.
        reward: float[N], r.
        value: float[N], V.
        bootstrap_value: float64[S], values after the segments.
        gamma: γ, per own decision.
        lam: λ.
    """
    advantage, target = np.empty(len(reward)), np.empty(len(reward))
    for s in range(len(start) - 1):
        after, running = bootstrap_value[s], 0.0
        for t in range(start[s + 1] - 1, start[s] - 1, -1):
            running = reward[t] + gamma * after - value[t] + gamma * lam * running
            advantage[t] = running
            target[t] = running + value[t]
            after = value[t]
    return advantage, target


@kernel
def gae_in_time(
    start: NDArray[np.int64], reward: Array, value: Array, bootstrap_value: Floats, discount: Array, lam: float
) -> tuple[Floats, Floats]:
    """Return generalised advantage estimates (`gae`) of decisions at irregular times, and λ-returns, float64[N] each.

    δ_t = r_t + γ^Δt V_{t+1} - V_t;  A_t = δ_t + γ^Δt λ A_{t+1}: λ counts decisions, as for options of different
    lengths. (Sutton, Precup and Singh 1999, "Between MDPs and semi-MDPs", equation 6, for the discount.)

    Args:
        start: int64[S + 1], where segments begin, and the end.
        reward: float[N].
        value: float[N].
        bootstrap_value: float64[S], values after the segments.
        discount: float[N], γ^Δt from each row to what follows it, Δt steps later.
        lam: λ.
    """
    advantage, target = np.empty(len(reward)), np.empty(len(reward))
    for s in range(len(start) - 1):
        after, running = bootstrap_value[s], 0.0
        for t in range(start[s + 1] - 1, start[s] - 1, -1):
            running = reward[t] + discount[t] * after - value[t] + discount[t] * lam * running
            advantage[t] = running
            target[t] = running + value[t]
            after = value[t]
    return advantage, target


@kernel
def lambda_returns(
    start: NDArray[np.int64], reward: Array, value: Array, bootstrap_value: Floats, gamma: float, lam: float
) -> Floats:
    """Return λ-returns float64[N]: G_t = r_t + γ ((1 - λ) V_{t+1} + λ G_{t+1}). (Sutton and Barto 2018, equation
    12.18.)

    Args:
        start: int64[S + 1], where segments begin, and the end.
        reward: float[N].
        value: float[N].
        bootstrap_value: float64[S], values after the segments.
        gamma: γ, per own decision.
        lam: λ.
    """
    out = np.empty(len(reward))
    for s in range(len(start) - 1):
        after, running = bootstrap_value[s], bootstrap_value[s]
        for t in range(start[s + 1] - 1, start[s] - 1, -1):
            running = reward[t] + gamma * ((1.0 - lam) * after + lam * running)
            out[t] = running
            after = value[t]
    return out


@kernel
def n_step(
    start: NDArray[np.int64], reward: Array, tail: NDArray[np.int8], gamma: float, n: int
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return n-step transitions: (sum of rewards float64[N], discount float64[N], next row int64[N]) of each row.

    R_t = Σ_{k < m} γ^k r_{t+k} with m = min(n, rows left in the segment); the target of row t is R_t + discount_t
    V(next_t). (Sutton and Barto 2018, equation 7.1.)

    Args:
        start: int64[S + 1], where segments begin, and the end.
        reward: float[N].
        tail: `SegmentEnd` int8[S].
        gamma: γ, per own decision.
        n: Rows that are summed.

    Returns:
        The next row is -1 - s for the bootstrap observation of segment s (`gather_next` resolves it). The discount is
        γ^m, and 0 where the segment terminated by then.
    """
    total, discount = np.empty(len(reward)), np.empty(len(reward))
    next_index = np.empty(len(reward), np.int64)
    for s in range(len(start) - 1):
        end = start[s + 1]
        for t in range(start[s], end):
            g, factor, k = 0.0, 1.0, t
            while k < end and k < t + n:
                g += factor * reward[k]
                factor *= gamma
                k += 1
            total[t] = g
            if k < end:
                discount[t], next_index[t] = factor, k
            else:
                discount[t], next_index[t] = (0.0 if tail[s] == 0 else factor), -1 - s
    return total, discount, next_index


def gather_next(rows: Array, bootstrap: Array, next_index: NDArray[np.int64]) -> Array:
    """Return the entries that follow: rows[next_index], or bootstrap[-1 - next_index] where that is negative.

    Args:
        rows: [N, …], entries of rows.
        bootstrap: [S, …], entries of bootstrap observations.
        next_index: int64[n], as `n_step` returns it.
    """
    out: Array = rows[np.maximum(next_index, 0)]
    end = next_index < 0
    out[end] = bootstrap[-1 - next_index[end]]
    return out


@kernel
def vtrace(
    start: NDArray[np.int64],
    reward: Array,
    value: Array,
    bootstrap_value: Floats,
    log_ratio: Array,
    gamma: float,
    lam: float,
    rho_bar: float,
    c_bar: float,
) -> tuple[Floats, Floats]:
    """Return V-trace targets and policy-gradient advantages, float64[N] each.

    ρ_t = min(ρ̄, π/μ), c_t = λ min(c̄, π/μ);  v_t = V_t + ρ_t δ_t + γ c_t (v_{t+1} - V_{t+1}),  δ_t = r_t + γ V_{t+1} -
    V_t; advantage ρ_t (r_t + γ (λ v_{t+1} + (1 - λ) V_{t+1}) - V_t), which is `gae`'s, and the targets its λ-returns,
    where the policies are the same and ρ̄, c̄ ≥ 1. (Espeholt et al. 2018, equation 1 and remarks 1 and 2; λ as in
    DeepMind's rlax.)

    Args:
        start: int64[S + 1], where segments begin, and the end.
        reward: float[N].
        value: float[N], V.
        bootstrap_value: float64[S], values after the segments.
        log_ratio: float[N], log(π/μ) of the actions taken.
        gamma: γ, per own decision.
        lam: λ.
        rho_bar: ρ̄, clip of the importance weights.
        c_bar: c̄, clip of the traces.
    """
    target, advantage = np.empty(len(reward)), np.empty(len(reward))
    for s in range(len(start) - 1):
        after, target_after = bootstrap_value[s], bootstrap_value[s]
        for t in range(start[s + 1] - 1, start[s] - 1, -1):
            ratio = np.exp(min(log_ratio[t], 60.0))  # clipped below in any case; this keeps exp finite
            rho, c = min(rho_bar, ratio), lam * min(c_bar, ratio)
            delta = rho * (reward[t] + gamma * after - value[t])
            advantage[t] = rho * (reward[t] + gamma * (lam * target_after + (1.0 - lam) * after) - value[t])
            target_after = value[t] + delta + gamma * c * (target_after - after)
            target[t] = target_after
            after = value[t]
    return target, advantage


# --------------------------------------------------------------------------------------------------------------------
# Experience that older weights made, seen by the weights that learn from it: V-trace over rows in the order of a
# table. Rows keep what is needed when they are learned from, however long they waited: rewards, where their
# segments end, and the behaviour's log-probabilities, which were recorded when it acted.

_FAR = 60.0  # logs of ratios beyond this are as good as infinite
_TINY = 1e-8


def learned_columns(
    rows: Trajectories, *, reward: Floats, value: Floats, after: Floats, gamma: float, lam: float, in_time: bool = False
) -> dict[str, Array]:
    """Return the columns that on-policy learners store of N rows in S segments: observation, action, log-probability of
    the behaviour, advantage, value target and value, float32[N].

    Args:
        rows: The trajectories.
        reward: float64[N], as they are learned from.
        value: float64[N].
        after: float64[S], values of the bootstrap observations.
        gamma: γ.
        lam: λ.
        in_time: Whether γ is per environment step; False: per own decision.
    """
    end = bootstrap_values(rows.tail, after)
    if in_time:
        advantage, target = gae_in_time(rows.start, reward, value, end, gamma ** elapsed(rows), lam)
    else:
        advantage, target = gae(rows.start, reward, value, end, gamma, lam)
    return {
        "observation": rows.observation,
        "action": rows.action,
        "logp": rows.logp,
        "advantage": advantage.astype(np.float32),
        "target": target.astype(np.float32),
        "value": value.astype(np.float32),
    }


def elapsed(rows: Trajectories) -> Floats:
    """Return the environment steps float64[N] from each decision to what follows it. Raise PolicyError for trajectories
    without `dt`."""
    if rows.dt is None:
        raise PolicyError(
            "trajectories without `dt` were given, and discount=step counts the environment steps between decisions. Use those that "
            "workers make, or discount=decision."
        )
    return rows.dt.astype(np.float64)


def not_finite(columns: Mapping[str, Any]) -> str:
    """Return what in `learned_columns` is NaN or infinite; "": nothing. Columns on a device are not checked: there the
    loss shows it."""
    names = {"advantage": "the advantages", "target": "the value targets"}
    here = ((columns[name], label) for name, label in names.items() if isinstance(columns[name], np.ndarray))
    return next((label for column, label in here if not np.isfinite(column).all()), "")


def trace_columns(
    start: NDArray[np.int64], reward: Array, value: Array, bootstrap_value: Floats
) -> Mapping[str, Array]:
    """Return the columns that `vtrace_targets` needs in addition to "logp".

    Args:
        start: int64[S + 1], where segments begin, and the end.
        reward: float[N].
        value: float[N].
        bootstrap_value: float64[S], values after the segments.

    Returns:
        reward float64[N]; ends bool[N], True at the last row of each segment; after float64[N], the value of what
        follows a row, by the present weights.
    """
    last = start[1:] - 1
    ends = np.zeros(len(reward), np.bool_)
    ends[last] = True
    after = np.append(value[1:], 0.0).astype(np.float64)
    after[last] = bootstrap_value
    return {"reward": reward.astype(np.float64), "ends": ends, "after": after}


# --------------------------------------------------------------------------------------------------------------------
# In torch, on any device, for rows of several segments: ends bool[n] at the last row of each, and after float[n],
# the value of what follows each row.


def reverse_linear_scan(add: Tensor, factor: Tensor, *, longest: int | None = None) -> Tensor:
    """Return y with y_t = add_t + factor_t y_{t+1}, float[n], in log2(n) steps of whole vectors (Hillis and Steele
    1986, "Data parallel algorithms"): the recursion of GAE, V-trace and discounted returns, without a loop over time.

    Args:
        add: float[n].
        factor: float[n]; the last one counts as 0.
        longest: Rows after which a factor is 0 at the latest, for which fewer steps are enough; None: n.
    """
    y, f, reach = add.clone(), factor.clone(), 1
    f[-1:] = 0.0
    while reach < (len(y) if longest is None else min(longest, len(y))):
        y = torch.cat([y[:-reach] + f[:-reach] * y[reach:], y[-reach:]])
        f = torch.cat([f[:-reach] * f[reach:], torch.zeros_like(f[-reach:])])
        reach *= 2
    return y


def vtrace_targets(
    columns: Mapping[str, Tensor],
    *,
    value: Tensor,
    logp: Tensor,
    gamma: float,
    lam: float,
    rho_bar: float,
    c_bar: float,
    compiled: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return `vtrace`'s (targets, advantages before weighting, weights ρ) float64[n] of n rows in order of time.

    What follows a segment, or a row whose successor is in another batch, has the value of when it arrived.

    Args:
        columns: Those of `trace_columns`, and "logp" of the behaviour.
        value: float[n], by the learner's weights.
        logp: float[n], by the learner's weights.
        gamma: γ, per own decision.
        lam: λ.
        rho_bar: ρ̄, clip of the importance weights.
        c_bar: c̄, clip of the traces.
        compiled: Whether the compiled `vtrace` computes them; None: on a CPU.
    """
    ends = columns["ends"].clone()
    ends[-1:] = True
    value, reward, after = (tensor.double() for tensor in (value, columns["reward"], columns["after"]))
    log_ratio = (logp.double() - columns["logp"].double()).clamp(-_FAR, _FAR)
    ratio = log_ratio.exp()
    weight = ratio.clamp(max=rho_bar)
    if value.device.type == "cpu" if compiled is None else compiled:
        stop = np.flatnonzero(ends.numpy()) + 1
        start, rows = np.concatenate([[0], stop]), (reward.numpy(), value.numpy(), after.numpy()[stop - 1])
        result = vtrace(start, *rows, log_ratio.numpy(), gamma, lam, rho_bar, c_bar)
        target, weighted = map(torch.from_numpy, result)
        return target, weighted / weight, weight
    after = torch.where(ends, after, torch.cat([value[1:], value[:1]]))
    delta = weight * (reward + gamma * after - value)
    target = value + reverse_linear_scan(delta, gamma * lam * ratio.clamp(max=c_bar) * (~ends).double())
    target_after = torch.where(ends, after, torch.cat([target[1:], target[:1]]))
    return target, reward + gamma * (lam * target_after + (1.0 - lam) * after) - value, weight


def normalize_advantages(advantage: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return advantages [n] with mean 0 and variance 1.

    Args:
        advantage: float[n].
        weight: float[n], importance weights; mean and variance are then weighted, and the result is multiplied by them.
            (Subtracting a mean from weighted advantages would move the policy by rows of weight 0.)
    """
    if weight is None:
        return (advantage - advantage.mean()) / (advantage.std(correction=0) + _TINY)
    total = weight.sum()
    centred = advantage - (weight * advantage).sum() / total
    return weight * centred / (((weight * centred.square()).sum() / total).sqrt() + _TINY)


_RENAMED = {"corrected": "vtrace_targets", "follow": "gather_next", "normalised": "normalize_advantages"}
"""Names of earlier releases, which still work and warn."""


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{__name__}.{name} is called {_RENAMED[name]} now.", DeprecationWarning, stacklevel=2)
    return globals()[_RENAMED[name]]
