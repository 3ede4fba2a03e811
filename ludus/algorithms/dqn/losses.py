"""Targets and losses of action-value learning as pure functions of rows, compiled or in torch; the latter answer one number or
distribution per row.

Shapes: q float[n, A] action values, mask bool[n, A] of legal actions (at least one in every row, but where it is said), K atoms or
quantiles, everything else float[n]. Nothing here holds back gradients: the caller says where they stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.core.arrays import kernel
from ludus.core.types import Array
from ludus.policies.action_values import midpoints

# --------------------------------------------------------------------------------------------------------------------
# DQN's targets and loss, compiled.


@kernel
def next_values(online: Array, target: Array, mask: NDArray[np.bool_], index: NDArray[np.int32]) -> NDArray[np.float64]:
    """target[s, argmax over legal a of online[s, a]] of the states s = index[k]; 0 where index is -1. online: values by the online
    network, target: by the target network (double Q-learning: van Hasselt et al. 2016, equation 4); plain Q-learning gives the target's
    as both."""
    out = np.zeros(len(index))
    for k in range(len(index)):
        s = index[k]
        if s >= 0:
            best = -1
            for a in range(mask.shape[1]):
                if mask[s, a] and (best < 0 or online[s, a] > online[s, best]):
                    best = a
            if best >= 0:
                out[k] = target[s, best]
    return out


@kernel
def q_loss(
    q: Array,
    mask: NDArray[np.bool_],
    state: NDArray[np.int32],
    action: NDArray[np.int32],
    target: NDArray[np.float64],
    weight: NDArray[np.float64],
    delta: float,
    gradient: Array,
    joint: int,
) -> tuple[float, float, NDArray[np.float64]]:
    """Huber loss of q[state, action] - target times weight, and q[state, action], each summed over n rows and divided by `joint` (n, or the
    rows of all ranks); and |error| float64[n]. The gradient of the first with respect to the network's outputs is written to gradient
    float[m, A], or [m, A + 1] of a dueling network."""
    rows, loss, value, size = max(1, joint), 0.0, 0.0, np.empty(len(state))
    actions = mask.shape[1]
    gradient[:] = 0
    for k in range(len(state)):
        q_action = float(q[state[k], action[k]])
        error = q_action - target[k]
        value += q_action
        size[k] = abs(error)
        inside = min(size[k], delta)
        loss += weight[k] * (0.5 * inside * inside + delta * (size[k] - inside))
        gradient[state[k], action[k]] += weight[k] * (inside if error > 0.0 else -inside) / rows
    if gradient.shape[1] > actions:
        for s in range(len(mask)):
            total, legal = 0.0, 0
            for a in range(actions):
                total += float(gradient[s, a])
                legal += mask[s, a]
            for a in range(actions):
                if mask[s, a]:
                    gradient[s, a] -= total / legal
            gradient[s, actions] = total
    return loss / rows, value / rows, size


def greedy(q: Tensor, mask: Tensor) -> Tensor:
    """int64[n]: the first best legal action."""
    return q.masked_fill(~mask, -torch.inf).argmax(dim=-1)


def taken(values: Tensor, action: Tensor) -> Tensor:
    """values[i, action[i]]: float[n, A, …] -> float[n, …]."""
    index = action.view(-1, *[1] * (values.ndim - 1)).expand(-1, 1, *values.shape[2:])
    return values.gather(1, index)[:, 0]


def double_values(online: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """target[argmax over legal a of online[a]]: target float[n, A, …] -> float[n, …]. online: values by the online network,
    target: by the target network (double Q-learning: van Hasselt et al. 2016, equation 4); plain Q-learning gives the target's as both. 0
    where no action is legal."""
    some = mask.any(dim=-1).view(-1, *[1] * (target.ndim - 2))
    return taken(target, greedy(online, mask)).where(some, 0.0)


def project(values: Tensor, probability: Tensor, support: Tensor) -> Tensor:
    """The distribution with `probability` float[n, M] on `values` float[n, M], moved onto the evenly spaced `support` float[K], rising:
    each value's mass goes to its two neighbours, in proportion to how near they are, and what lies outside to the ends. -> float[n, K] with
    the mass of `probability`. (C51: Bellemare et al. 2017, algorithm 1.)"""
    low, high, last = support[0], support[-1], len(support) - 1
    place = (values.clamp(low, high) - low) / (high - low) * last  # in units of the spacing
    below = place.nan_to_num(0.0).floor()  # a NaN is seen in the masses
    above = (below + 1.0).clamp(max=last)
    upper = place - below
    out = values.new_zeros(len(values), len(support))
    out.scatter_add_(1, below.long(), probability * (1.0 - upper))
    out.scatter_add_(1, above.long(), probability * upper)
    return out


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """-Σ_k target_k log softmax(logits)_k: logits and target float[…, K] -> float[…]."""
    return -(target * torch.log_softmax(logits, dim=-1)).sum(dim=-1)


def kl_divergence(logits: Tensor, target: Tensor) -> Tensor:
    """KL(target ‖ softmax(logits)) in nats, float[n]: what Rainbow's priorities are (Hessel et al. 2018, §3)."""
    entropy: Tensor = -torch.special.xlogy(target, target).sum(dim=-1)
    return cross_entropy(logits, target) - entropy


def quantile_huber(value: Tensor, level: Tensor, target: Tensor, *, delta: float) -> Tensor:
    """Quantile regression: value float[n, K] at levels float[n, K] or [K] in (0, 1), against target float[n, M] -> float[n].

    Σ_k mean over m of |level_k - 1(u < 0)| H(u) / δ with u = target_m - value_k and H Huber's loss of half-width δ; |u| for H(u) / δ where
    δ is 0. (Dabney et al. 2018, "Distributional RL with quantile regression", equation 10; "Implicit quantile networks", equation 3.)
    """
    shape = (*value.shape, target.shape[1])  # [n, K, M]
    of, to = value[:, :, None].expand(shape), target[:, None, :].expand(shape)
    if delta > 0.0:
        size = torch.nn.functional.huber_loss(of, to, reduction="none", delta=delta) / delta
    else:
        size = (of - to).abs()
    at = level.to(value.dtype)[..., None]
    return (torch.where(to < of, 1.0 - at, at) * size).mean(dim=2).sum(dim=1)


def soft_policy(q: Tensor, mask: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """(π, τ log π), float[n, A] each, of π = softmax(q / τ) over legal actions; both 0 where illegal, also where none is legal. τ log π is
    q - max q - τ log Σ exp((q - max q) / τ), which is exact for small τ too (Vieillard et al. 2020, "Munchausen RL", appendix B.1)."""
    masked = q.masked_fill(~(mask | ~mask.any(dim=-1, keepdim=True)), -torch.inf)
    above = masked - masked.amax(dim=-1, keepdim=True)
    scaled = above - temperature * torch.logsumexp(above / temperature, dim=-1, keepdim=True)
    policy = torch.softmax(masked / temperature, dim=-1).masked_fill(~mask, 0.0)
    return policy, scaled.masked_fill(~mask, 0.0)


def munchausen_bonus(log_policy: Tensor, action: Tensor, *, weight: float, least: float) -> Tensor:
    """α max(l₀, τ log π(a)), to be added to the reward: log_policy float[n, A] = τ log π as `soft_policy` gives it, action int64[n],
    least = l₀ <= 0. (Vieillard et al. 2020, equation 2 and §4, "clipping".)"""
    return weight * taken(log_policy, action).clamp(min=least, max=0.0)


def mixed_priority(error: Tensor, present: Tensor, *, mix: float) -> Tensor:
    """η max |error| + (1 - η) mean |error| over the rows of each sequence that are present: error float[n, T], present bool[n, T] ->
    float[n]; 0 where none is. (R2D2: Kapturowski et al. 2019, §2.3.)"""
    size = error.abs() * present
    return mix * size.amax(dim=1) + (1.0 - mix) * size.sum(dim=1) / present.sum(dim=1).clamp(min=1)


# --------------------------------------------------------------------------------------------------------------------
# What is learned of the return: its mean, chances of fixed values (C51), or quantiles. Each kind makes targets and
# compares. A target is made from C candidates per row, of weights w float[n, C] that sum to 1: the chosen action
# alone, or all actions under a soft policy, each with a penalty float[n, C] that is taken off its value. values
# float[n, C, K] as the network answers them.


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What may come next: values float[n, C, K], weight float[n, C], penalty float[n, C]; without these two, C = 1 is all that may."""

    values: Tensor
    weight: Tensor | None = None
    penalty: Tensor | None = None

    def mixed(self) -> Tensor:
        """Means of the values less their penalties, float[n, K]."""
        if self.weight is None or self.penalty is None:
            return self.values[:, 0]
        return (self.weight[..., None] * (self.values - self.penalty[..., None])).sum(dim=1)


class ReturnKind(Protocol):
    """One kind of answer of a network."""

    def target(self, reward: Tensor, discount: Tensor, after: Candidates) -> Tensor:
        """reward + discount × the mixture of candidates: float[n, M]."""
        ...

    def compare(self, out: Tensor, target: Tensor, levels: Tensor | None) -> tuple[Tensor, Tensor]:
        """(loss float[n], size of the error float[n]) of out float[n, K], at `levels` float[n, K] where they were asked for."""
        ...


@dataclass(frozen=True, slots=True)
class MeanReturn:
    """K = 1: Huber's loss of the difference."""

    delta: float

    def target(self, reward: Tensor, discount: Tensor, after: Candidates) -> Tensor:
        """See `ReturnKind`: float[n, 1]."""
        return reward[:, None] + discount[:, None] * after.mixed()

    def compare(self, out: Tensor, target: Tensor, levels: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `ReturnKind`; the error is |Q - target|."""
        loss = torch.nn.functional.huber_loss(out, target, reduction="none", delta=self.delta)
        return loss[:, 0], (out.detach() - target)[:, 0].abs()


@dataclass(frozen=True, slots=True, eq=False)
class CategoricalReturn:
    """Logits of `support` float[K]: cross entropy with the target, moved onto the support."""

    support: Tensor

    def target(self, reward: Tensor, discount: Tensor, after: Candidates) -> Tensor:
        """See `ReturnKind`: chances float[n, K]."""
        probability = after.values.softmax(dim=-1)
        probability = probability if after.weight is None else after.weight[..., None] * probability
        support = self.support if after.penalty is None else self.support - after.penalty[..., None]
        values = reward[:, None, None] + discount[:, None, None] * support
        return project(values.flatten(1), probability.flatten(1), self.support)

    def compare(self, out: Tensor, target: Tensor, levels: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `ReturnKind`; the error is the Kullback-Leibler divergence from the target."""
        return cross_entropy(out, target), kl_divergence(out.detach(), target).clamp(min=0.0)


@dataclass(frozen=True, slots=True)
class QuantileReturn:
    """Quantiles at given levels, or the middles of equal shares: quantile regression."""

    delta: float

    def target(self, reward: Tensor, discount: Tensor, after: Candidates) -> Tensor:
        """See `ReturnKind`: quantiles float[n, K]; those of a mixture are taken to be the mixture of the quantiles, as in
        Munchausen-IQN."""
        return reward[:, None] + discount[:, None] * after.mixed()

    def compare(self, out: Tensor, target: Tensor, levels: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `ReturnKind`; the error is the difference of the means."""
        at = midpoints(out.shape[1], out.device) if levels is None else levels
        error = (out.detach().mean(dim=1) - target.mean(dim=1)).abs()
        return quantile_huber(out, at, target, delta=self.delta), error
