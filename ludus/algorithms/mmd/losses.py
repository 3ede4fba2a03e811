"""The losses of magnetic mirror descent and R-NaD: pure functions, in torch and compiled, with their gradients.

Per row, with r = π(a|s) / π_old(a|s) and advantage A, the loss of mirror descent is

    -min(r A, clip(r, 1 ± ε) A) + α KL(π(·|s) ‖ magnet(·|s)) + β KL(π(·|s) ‖ before(·|s))

whose minimiser over one state's π, unclipped and with exact advantages, is the mirror descent step of Sokota et al.
(2023, equation 6, for negative entropy): π ∝ [before^β magnet^α exp(A)]^(1 / (α + β)), β being 1 / η. The two
divergences are taken over all actions and weighted by visits, so they cost one pass over the distinct states
(`ludus.algorithms.on_policy.kernels`).

NeuRD has another first term. The gradient of r A by a logit has the factor π(a|s): unlikely actions hardly move any
more. NeuRD omits that factor (Hennes et al. 2020), and does not push a logit beyond ±threshold of the state's mean one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.losses import masked_log_softmax
from ludus.algorithms.on_policy.kernels import CompressedRows, clipped_surrogate, log_softmax
from ludus.core.arrays import inner, kernel
from ludus.core.types import Array
from ludus.replay.trajectories import Trajectories

# --------------------------------------------------------------------------------------------------------------------
# R-NaD's reward transformation (Perolat et al. 2022, "Mastering the game of Stratego", supplement A): a player pays
# η log(π/π_reg) for each of its actions, and is paid as much for each of its opponent's, so that a zero-sum game
# stays one.

Floats = NDArray[np.float64]


def regularized(trajectories: Trajectories, reward: Floats, cost: Floats, *, opponents: bool) -> Floats:
    """Return rewards float64[N] minus cost float64[N] = η log(π(a|s) / π_reg(a|s)).

    opponents: also add each row's cost to the other seats' segments of the same episode, where they are in the
    trajectories: to the last decision at or before it. (What the opponent does before a player's first decision is not
    in its control, and is left out; so is what it does before the first one of a fragment, where that of the fragment
    before has been learned from already.)
    """
    out = reward - cost
    if opponents:
        order = np.argsort(trajectories.episode, kind="stable")
        rows = trajectories
        _pay(out, cost, rows.start, rows.t, rows.seat, rows.agent, rows.episode, order)
    return out


@kernel
def _paid_until(receiver, start, t, agent, episode):  # type: ignore[no-untyped-def]
    """Return the step at which the agent's next fragment of the episode begins, which receives what comes after."""
    until = 2**31 - 1
    for later in episode:
        if agent[later] == agent[receiver] and t[start[later]] > t[start[receiver]]:
            until = min(until, t[start[later]])
    return until


@kernel
def _pay(out, cost, start, t, seat, agent, episode, order):  # type: ignore[no-untyped-def]
    begin = 0
    while begin < len(order):
        end = begin
        while end < len(order) and episode[order[end]] == episode[order[begin]]:
            end += 1
        for receiver in order[begin:end]:
            until = _paid_until(receiver, start, t, agent, order[begin:end])
            for payer in order[begin:end]:
                if seat[receiver] == seat[payer]:
                    continue
                last = start[receiver] - 1
                for k in range(start[payer], start[payer + 1]):
                    if t[k] >= until:
                        break
                    while last + 1 < start[receiver + 1] and t[last + 1] <= t[k]:
                        last += 1
                    if last >= start[receiver]:
                        out[last] += cost[k]
        begin = end


# --------------------------------------------------------------------------------------------------------------------
# Mirror descent.


@dataclass(frozen=True, slots=True)
class MMDLosses:
    """Means over rows: the surrogate (a loss), entropy in nats, KL(π ‖ magnet), KL(π ‖ before), share of rows outside
    the clip range (of NeuRD, of forces that were held back)."""

    surrogate: float
    entropy: float
    magnet: float
    moved: float
    clipped: float


@kernel
def log_policy(out: Array, mask: NDArray[np.bool_]) -> Floats:
    """Return log-probabilities float64[m, A] of network outputs float[m, >= A]; 0 where illegal."""
    logp, prob = np.zeros(mask.shape), np.zeros(mask.shape[1])
    for s in range(len(mask)):
        log_softmax(out[s], mask[s], logp[s], prob)
    return logp


@kernel
def log_uniform(mask: NDArray[np.bool_]) -> Floats:
    """Return log-probabilities float64[m, A] of the uniform policy; 0 where illegal."""
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
    """Return losses of network outputs; the gradient of surrogate + `alpha` KL + `beta` KL is written to gradient[:,
    :A].

    Args:
        out: float[m, >= A].
        mask: bool[m, A].
        compressed: The rows.
        magnet: Log-probabilities float64[m, A].
        before: Log-probabilities float64[m, A] of the policy before the update.
        alpha: α.
        beta: β.
        clip: Range ε of the ratio; None: not clipped.
        gradient: float[m, >= A], written to.
    """
    bound = math.inf if clip is None else clip
    arguments = (*compressed.columns, float(compressed.rows), magnet, before, alpha, beta, bound, gradient)
    return MMDLosses(*_losses(out, mask, *arguments))


@kernel
def _losses(  # type: ignore[no-untyped-def]
    out, mask, state, action, old, up, down, weight, count, rows, magnet, before, alpha, beta, clip, gradient
):
    logp, prob = np.zeros(mask.shape), np.zeros(mask.shape)
    entropy, attracted, moved = _divergences(out, mask, count, rows, magnet, before, alpha, beta, gradient, logp, prob)
    surrogate, _, clipped = clipped_surrogate(logp, prob, state, action, old, up, down, weight, rows, clip, gradient)
    return surrogate, entropy, attracted, moved, clipped


@inner
def _divergences(out, mask, count, rows, magnet, before, alpha, beta, gradient, logp, prob):  # type: ignore[no-untyped-def]
    """Return (entropy, KL to the magnet, KL to the policy before) as means over rows; write log-probabilities,
    probabilities, and the gradient of alpha times the second plus beta times the third."""
    actions = mask.shape[1]
    entropy, attracted, moved = 0.0, 0.0, 0.0
    for s in range(len(mask)):
        entropy += count[s] / rows * log_softmax(out[s], mask[s], logp[s], prob[s])
        share, to_magnet, to_before = count[s] / rows, 0.0, 0.0
        for a in range(actions):
            to_magnet += prob[s, a] * (logp[s, a] - magnet[s, a])
            to_before += prob[s, a] * (logp[s, a] - before[s, a])
        attracted += share * to_magnet
        moved += share * to_before
        for a in range(actions):  # d KL(p ‖ q) / d logit = p (log p - log q - KL)
            pull = alpha * (logp[s, a] - magnet[s, a] - to_magnet) + beta * (logp[s, a] - before[s, a] - to_before)
            gradient[s, a] = share * prob[s, a] * pull
    return entropy, attracted, moved


# --------------------------------------------------------------------------------------------------------------------
# NeuRD. What a row says of all actions of its state, when action a was taken with probability μ and had the advantage A, its own cost not
# counted: Q(b) - V is 1[b = a] A / μ - η log(π(b) / π_reg(b)), as DeepNash has it (Perolat et al. 2022, supplement B).


@dataclass(frozen=True, slots=True)
class LogitBounds:
    """threshold: distance from their state's mean beyond which logits are not pushed (β). clip: largest advantage of an
    action."""

    threshold: float
    clip: float


def neurd_loss(logits: Tensor, mask: Tensor | None, q: Tensor, *, bounds: LogitBounds) -> tuple[Tensor, Tensor]:
    """Return -Σ_b (y(b) - mean y) f(b) over the legal actions of each row, and the share of its forces f that bounds
    held back [n].

    f(b) = clip(Q(b) - Σ π Q, ±c), held fixed, and 0 where it would push a logit y(b) - mean y that is beyond ±β further
    out. logits y and q [n, A]. (Perolat et al. 2022, supplement B; Hennes et al. 2020.)
    """
    legal = torch.ones_like(logits, dtype=torch.bool) if mask is None else mask
    count = legal.sum(dim=1, keepdim=True)
    y = logits - logits.masked_fill(~legal, 0.0).sum(dim=1, keepdim=True) / count
    with torch.no_grad():
        chance = masked_log_softmax(logits, legal).exp()
        advantage = q - (chance * q.masked_fill(~legal, 0.0)).sum(dim=1, keepdim=True)
        wanted = advantage.clamp(-bounds.clip, bounds.clip)
        room = torch.where(wanted > 0.0, y < bounds.threshold, y > -bounds.threshold)
        force = (wanted * room).masked_fill(~legal, 0.0)
        held = ((~room | (advantage.abs() > bounds.clip)) & legal).sum(dim=1) / count[:, 0]
    return -(y.masked_fill(~legal, 0.0) * force).sum(dim=1), held


def action_values(
    logp: Tensor, magnet: Tensor, action: Tensor, old: Tensor, advantage: Tensor, *, cost: float
) -> Tensor:
    """Return Q(b) - V [n, A] as above.

    Args:
        logp: Log-probabilities [n, A] of the policy.
        magnet: Those of the policy that it is regularised towards (-inf where illegal).
        action: int64[n].
        old: Log-probability [n] of each row's action.
        advantage: float[n], which includes the row's own cost.
        cost: η.
    """
    apart = (logp - magnet).masked_fill(torch.isneginf(magnet), 0.0)
    action_cost = cost * (old - magnet.gather(1, action[:, None])[:, 0])
    action_value = (advantage + action_cost) / old.exp()
    return (-cost * apart).scatter_add(1, action[:, None], action_value[:, None])


def neurd_losses(
    out: Array,
    mask: NDArray[np.bool_],
    compressed: CompressedRows,
    rows: tuple[Array, Array, Array, Array],
    *,
    magnet: Floats,
    before: Floats,
    alpha: float,
    beta: float,
    cost: float,
    bounds: LogitBounds,
    gradient: Array,
) -> MMDLosses:
    """Return the losses of `policy_losses` with NeuRD's term. rows: state int32[n], action int32[n], logp and advantage
    float[n] of each: forces are clipped row by row."""
    arguments = (compressed.count, float(compressed.rows), magnet, before, alpha, beta, gradient)
    return MMDLosses(*_neurd(out, mask, *rows, *arguments, cost, bounds.threshold, bounds.clip))


@kernel
def _neurd(  # type: ignore[no-untyped-def]
    out, mask, state, action, old, advantage, count, rows, magnet, before, alpha, beta, gradient, cost, threshold, clip
):
    logp, prob, y, legal = np.zeros(mask.shape), np.zeros(mask.shape), np.zeros(mask.shape), np.zeros(len(mask))
    entropy, attracted, moved = _divergences(out, mask, count, rows, magnet, before, alpha, beta, gradient, logp, prob)
    _centre(out, mask, y, legal)
    force, q, held = np.zeros(mask.shape), np.zeros(mask.shape[1]), 0.0
    for k in range(len(state)):
        s, action_index, mu = state[k], action[k], float(old[k])
        for a in range(len(q)):
            q[a] = cost * (magnet[s, a] - logp[s, a])
        q[action_index] += (float(advantage[k]) + cost * (mu - magnet[s, action_index])) / math.exp(mu)
        held += _push(q, prob[s], mask[s], y[s], threshold, clip, force[s]) / legal[s]
    loss = 0.0
    for s in range(len(mask)):
        mean = 0.0
        for a in range(len(q)):
            loss -= y[s, a] * force[s, a]
            mean += force[s, a] / legal[s]
        for a in range(len(q)):
            if mask[s, a]:
                gradient[s, a] -= (force[s, a] - mean) / rows
    return loss / rows, entropy, attracted, moved, held / rows


@inner
def _centre(out, mask, y, legal):  # type: ignore[no-untyped-def]
    """Write logits minus their state's mean over legal actions to y, and the number of these to legal."""
    for s in range(len(mask)):
        total = 0.0
        for a in range(mask.shape[1]):
            if mask[s, a]:
                legal[s] += 1.0
                total += float(out[s, a])
        for a in range(mask.shape[1]):
            if mask[s, a]:
                y[s, a] = float(out[s, a]) - total / legal[s]


@inner
def _push(q, prob, mask, y, threshold, clip, force):  # type: ignore[no-untyped-def]
    """Add one row's forces to its state's. Return the number of them that were held back."""
    mean, held = 0.0, 0
    for a in range(len(q)):
        mean += prob[a] * q[a]
    for a in range(len(q)):
        if mask[a]:
            advantage = q[a] - mean
            out_of_room = y[a] >= threshold if advantage > 0.0 else y[a] <= -threshold
            if not out_of_room:
                force[a] += min(max(advantage, -clip), clip)
            held += out_of_room or abs(advantage) > clip
    return held
