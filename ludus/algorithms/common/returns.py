"""Returns, advantages and targets over ragged trajectories: pure functions, compiled, in float64.

Every function takes rows in segments: segment s owns rows start[s] … start[s + 1] - 1 in order of time (`Trajectories`). What comes
after a segment's last row is said by `bootstrap_value` float64[S], the value of the bootstrap observation: 0 where the episode terminated
(there is nothing after it), an estimate where it was truncated or cut (it went on). `bootstrap_values` makes it from estimates.
γ discounts per own decision.
"""

from __future__ import annotations

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
    """Values of the bootstrap observations float[S], with 0 where `tail` is TERMINATED, whatever was estimated there."""
    return np.where(tail == SegmentEnd.TERMINATED, 0.0, value).astype(np.float64)


@kernel
def gae(
    start: NDArray[np.int64], reward: Array, value: Array, bootstrap_value: Floats, gamma: float, lam: float
) -> tuple[Floats, Floats]:
    """Generalised advantage estimates float64[N], and the λ-returns that they make with the values, float64[N].

    δ_t = r_t + γ V_{t+1} - V_t;  A_t = δ_t + γ λ A_{t+1};  G_t = A_t + V_t.  (Schulman et al. 2016, equations 11 and 16.)
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
    """`gae` of decisions that are not equally far apart: discount float[N] is that of what follows each row, γ^Δt where Δt steps pass.

    δ_t = r_t + γ^Δt V_{t+1} - V_t;  A_t = δ_t + γ^Δt λ A_{t+1}: λ counts decisions, as in options of many lengths. (Sutton, Precup and
    Singh 1999, "Between MDPs and semi-MDPs", equation 6, for the discount.)
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
    """λ-returns float64[N]: G_t = r_t + γ ((1 - λ) V_{t+1} + λ G_{t+1}). (Sutton and Barto 2018, equation 12.18.)"""
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
    """n-step transitions: (reward sum float64[N], discount float64[N], next int64[N]) of each row.

    R_t = Σ_{k < m} γ^k r_{t+k} with m = min(n, rows left in the segment); the target of row t is R_t + discount_t V(next_t).
    next: a row, or -1 - s for the bootstrap observation of segment s. discount is γ^m, and 0 where the segment terminated by then.
    (Sutton and Barto 2018, equation 7.1.)
    """
    total, discount = np.empty(len(reward)), np.empty(len(reward))
    following = np.empty(len(reward), np.int64)
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
                discount[t], following[t] = factor, k
            else:
                discount[t], following[t] = (0.0 if tail[s] == 0 else factor), -1 - s
    return total, discount, following


def follow(rows: Array, bootstrap: Array, following: NDArray[np.int64]) -> Array:
    """What `n_step` points at: rows[following], or bootstrap[-1 - following] where that is negative."""
    out: Array = rows[np.maximum(following, 0)]
    end = following < 0
    out[end] = bootstrap[-1 - following[end]]
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
    """V-trace targets float64[N] and policy-gradient advantages float64[N] from log(π/μ) of the actions taken.

    ρ_t = min(ρ̄, π/μ), c_t = λ min(c̄, π/μ);  v_t = V_t + ρ_t δ_t + γ c_t (v_{t+1} - V_{t+1}),  δ_t = r_t + γ V_{t+1} - V_t;
    advantage ρ_t (r_t + γ (λ v_{t+1} + (1 - λ) V_{t+1}) - V_t), which is `gae`'s, and the targets its λ-returns, where the policies are the
    same and ρ̄, c̄ >= 1. (Espeholt et al. 2018, equation 1 and remarks 1 and 2; λ as in DeepMind's rlax.)
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
    """What on-policy learners keep of N rows in S segments: observation, action, logp of the behaviour, advantage, target of the value, and
    value, float32[N]. reward float64[N] as they learn from it, value float64[N], after float64[S]: of the bootstrap observations.
    in_time: γ is of an environment step, else of an own decision."""
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
    """Environment steps float64[N] from each decision to what follows it. Raises PolicyError for trajectories that do not say."""
    if rows.dt is None:
        raise PolicyError(
            "trajectories without `dt` were given, and discount=step counts the environment steps between decisions. Use those that "
            "workers make, or discount=decision."
        )
    return rows.dt.astype(np.float64)


def not_finite(columns: Mapping[str, Any]) -> str:
    """What in `learned_columns` is NaN or infinite; "": nothing. Nobody asks a device, where the loss will say so."""
    names = {"advantage": "the advantages", "target": "the value targets"}
    here = ((columns[name], label) for name, label in names.items() if isinstance(columns[name], np.ndarray))
    return next((label for column, label in here if not np.isfinite(column).all()), "")


def trace_columns(
    start: NDArray[np.int64], reward: Array, value: Array, bootstrap_value: Floats
) -> Mapping[str, Array]:
    """Columns that `corrected` needs beside "logp": reward float64[N], ends bool[N] at the last row of each segment, and after float64[N]:
    the value of what follows a row, of the weights of now."""
    last = start[1:] - 1
    ends = np.zeros(len(reward), np.bool_)
    ends[last] = True
    after = np.append(value[1:], 0.0).astype(np.float64)
    after[last] = bootstrap_value
    return {"reward": reward.astype(np.float64), "ends": ends, "after": after}


# --------------------------------------------------------------------------------------------------------------------
# In torch, on any device, for rows of segments side by side: ends bool[n] at the last row of each, and after float[n],
# the value of what follows each row.


def scanned(add: Tensor, factor: Tensor, *, longest: int | None = None) -> Tensor:
    """y_t = add_t + factor_t y_{t+1} of rows float[n], whose last factor counts as 0: in log2(n) steps of whole vectors (Hillis and Steele
    1986, "Data parallel algorithms"). longest: rows after which a factor is 0 at the latest, for which fewer steps are enough."""
    y, f, reach = add.clone(), factor.clone(), 1
    f[-1:] = 0.0
    while reach < (len(y) if longest is None else min(longest, len(y))):
        y = torch.cat([y[:-reach] + f[:-reach] * y[reach:], y[-reach:]])
        f = torch.cat([f[:-reach] * f[reach:], torch.zeros_like(f[-reach:])])
        reach *= 2
    return y


def corrected(
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
    """`vtrace`'s (targets, advantages not yet weighted, weights ρ) float64[n] of n rows in order of time, from the values and
    log-probabilities [n] that the learner's weights give. What follows a segment, or a row whose successor is in another batch, has the
    value of when it arrived. compiled: by `vtrace` itself; None: on a CPU."""
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
    target = value + scanned(delta, gamma * lam * ratio.clamp(max=c_bar) * (~ends).double())
    target_after = torch.where(ends, after, torch.cat([target[1:], target[:1]]))
    return target, reward + gamma * (lam * target_after + (1.0 - lam) * after) - value, weight


def normalised(advantage: Tensor, weight: Tensor | None = None) -> Tensor:
    """Advantages [n] with mean 0 and variance 1; with weights, the means are weighted ones, and so is what is answered. (To subtract a mean
    from advantages that are weighted already would move the policy by rows that weigh nothing.)"""
    if weight is None:
        return (advantage - advantage.mean()) / (advantage.std(correction=0) + _TINY)
    total = weight.sum()
    centred = advantage - (weight * advantage).sum() / total
    return weight * centred / (((weight * centred.square()).sum() / total).sqrt() + _TINY)
