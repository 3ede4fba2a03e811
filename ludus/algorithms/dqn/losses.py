"""Targets and losses of action-value learning as pure functions of rows in torch, which return one number or
distribution per row. DQN's CPU kernels: `ludus.algorithms.dqn.kernels`.

Shapes: q float[n, A] action values, mask bool[n, A] of legal actions (at least one in every row, unless documented), K
atoms or quantiles, everything else float[n]. No function stops gradients: the caller does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ludus.policies.action_values import midpoints


def greedy(q: Tensor, mask: Tensor) -> Tensor:
    """Return the first best legal action, int64[n]."""
    return q.masked_fill(~mask, -torch.inf).argmax(dim=-1)


def gather_actions(values: Tensor, action: Tensor) -> Tensor:
    """Return values[i, action[i]]: float[n, A, …] -> float[n, …]."""
    index = action.view(-1, *[1] * (values.ndim - 1)).expand(-1, 1, *values.shape[2:])
    return values.gather(1, index)[:, 0]


def double_values(online: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Return target[argmax over legal a of online[a]]: target float[n, A, …] -> float[n, …]; 0 where no action is
    legal. (Double Q-learning: van Hasselt et al. 2016, equation 4; plain Q-learning passes the target's values as
    both.)"""
    some = mask.any(dim=-1).view(-1, *[1] * (target.ndim - 2))
    return gather_actions(target, greedy(online, mask)).where(some, 0.0)


def project(values: Tensor, probability: Tensor, support: Tensor) -> Tensor:
    """Return a distribution moved onto the support, float[n, K]: each value's mass goes to its two neighbours in
    proportion to their nearness, and mass outside to the ends. (C51: Bellemare et al. 2017, algorithm 1.)

    Args:
        values: float[n, M].
        probability: float[n, M].
        support: float[K], evenly spaced, ascending.
    """
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
    """Return -Σ_k target_k log softmax(logits)_k: logits and target float[…, K] -> float[…]."""
    return -(target * torch.log_softmax(logits, dim=-1)).sum(dim=-1)


def kl_divergence(logits: Tensor, target: Tensor) -> Tensor:
    """Return KL(target ‖ softmax(logits)) in nats, float[n]: Rainbow's priorities (Hessel et al. 2018, section 3)."""
    entropy: Tensor = -torch.special.xlogy(target, target).sum(dim=-1)
    return cross_entropy(logits, target) - entropy


def quantile_huber(value: Tensor, level: Tensor, target: Tensor, *, delta: float) -> Tensor:
    """Return the quantile regression loss float[n]: Σ_k mean over m of |level_k - 1(u < 0)| H(u) / δ with u = target_m
    - value_k.

    H is Huber's loss of half-width δ; |u| replaces H(u) / δ where δ is 0. (Dabney et al. 2018, "Distributional RL with
    quantile regression", equation 10; "Implicit quantile networks", equation 3.)

    Args:
        value: float[n, K].
        level: float[n, K] or [K], in (0, 1).
        target: float[n, M].
        delta: δ.
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
    """Return (π, τ log π), float[n, A] each, of π = softmax(q / τ) over legal actions; both 0 where illegal.

    τ log π is q - max q - τ log Σ exp((q - max q) / τ), which is exact for small τ, too (Vieillard et al. 2020,
    "Munchausen RL", appendix B.1).
    """
    masked = q.masked_fill(~(mask | ~mask.any(dim=-1, keepdim=True)), -torch.inf)
    above = masked - masked.amax(dim=-1, keepdim=True)
    scaled = above - temperature * torch.logsumexp(above / temperature, dim=-1, keepdim=True)
    policy = torch.softmax(masked / temperature, dim=-1).masked_fill(~mask, 0.0)
    return policy, scaled.masked_fill(~mask, 0.0)


def munchausen_bonus(log_policy: Tensor, action: Tensor, *, weight: float, least: float) -> Tensor:
    """Return α max(l₀, τ log π(a)) [n], to be added to the reward. (Vieillard et al. 2020, equation 2 and section 4,
    "clipping".)

    Args:
        log_policy: float[n, A], τ log π as `soft_policy` returns it.
        action: int64[n].
        weight: α.
        least: l₀ <= 0.
    """
    return weight * gather_actions(log_policy, action).clamp(min=least, max=0.0)


def mixed_priority(error: Tensor, present: Tensor, *, mix: float) -> Tensor:
    """Return η max |error| + (1 - η) mean |error| over the present rows of each sequence, float[n]; 0 where none is.
    (R2D2: Kapturowski et al. 2019, section 2.3.)

    Args:
        error: float[n, T].
        present: bool[n, T].
        mix: η.
    """
    size = error.abs() * present
    return mix * size.amax(dim=1) + (1.0 - mix) * size.sum(dim=1) / present.sum(dim=1).clamp(min=1)


# --------------------------------------------------------------------------------------------------------------------
# What is learned of the return: its mean, chances of fixed values (C51), or quantiles. Each kind makes targets and
# compares. A target is made from C candidates per row, of weights w float[n, C] that sum to 1: the chosen action
# alone, or all actions under a soft policy, each with a penalty float[n, C] that is taken off its value. values
# float[n, C, K] as the network answers them.


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Next values: values float[n, C, K], weight float[n, C], penalty float[n, C]; without these two, C = 1."""

    values: Tensor
    weight: Tensor | None = None
    penalty: Tensor | None = None

    def mixed(self) -> Tensor:
        """Return the means of the values minus their penalties, float[n, K]."""
        if self.weight is None or self.penalty is None:
            return self.values[:, 0]
        return (self.weight[..., None] * (self.values - self.penalty[..., None])).sum(dim=1)


class ReturnKind(Protocol):
    """How one kind of network output is learned."""

    def target(self, reward: Tensor, discount: Tensor, after: Candidates) -> Tensor:
        """Return reward + discount × the mixture of candidates: float[n, M]."""
        ...

    def compare(self, out: Tensor, target: Tensor, levels: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (loss float[n], size of the error float[n]) of out float[n, K], at `levels` float[n, K] if they were
        sampled."""
        ...


@dataclass(frozen=True, slots=True)
class MeanReturn:
    """K = 1: Huber's loss of the difference."""

    delta: float

    def target(self, reward: Tensor, discount: Tensor, after: Candidates) -> Tensor:
        """Return targets float[n, 1]; see `ReturnKind`."""
        return reward[:, None] + discount[:, None] * after.mixed()

    def compare(self, out: Tensor, target: Tensor, levels: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return loss and |Q - target|; see `ReturnKind`."""
        loss = torch.nn.functional.huber_loss(out, target, reduction="none", delta=self.delta)
        return loss[:, 0], (out.detach() - target)[:, 0].abs()


@dataclass(frozen=True, slots=True, eq=False)
class CategoricalReturn:
    """Logits of `support` float[K]: cross entropy with the target, moved onto the support."""

    support: Tensor

    def target(self, reward: Tensor, discount: Tensor, after: Candidates) -> Tensor:
        """Return target probabilities float[n, K]; see `ReturnKind`."""
        probability = after.values.softmax(dim=-1)
        probability = probability if after.weight is None else after.weight[..., None] * probability
        support = self.support if after.penalty is None else self.support - after.penalty[..., None]
        values = reward[:, None, None] + discount[:, None, None] * support
        return project(values.flatten(1), probability.flatten(1), self.support)

    def compare(self, out: Tensor, target: Tensor, levels: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return loss and the Kullback-Leibler divergence from the target; see `ReturnKind`."""
        return cross_entropy(out, target), kl_divergence(out.detach(), target).clamp(min=0.0)


@dataclass(frozen=True, slots=True)
class QuantileReturn:
    """Quantiles at given levels, or at the midpoints of equal shares: quantile regression."""

    delta: float

    def target(self, reward: Tensor, discount: Tensor, after: Candidates) -> Tensor:
        """Return target quantiles float[n, K]; those of a mixture are taken to be the mixture of the quantiles, as in
        Munchausen-IQN."""
        return reward[:, None] + discount[:, None] * after.mixed()

    def compare(self, out: Tensor, target: Tensor, levels: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return loss and the difference of the means; see `ReturnKind`."""
        at = midpoints(out.shape[1], out.device) if levels is None else levels
        error = (out.detach().mean(dim=1) - target.mean(dim=1)).abs()
        return quantile_huber(out, at, target, delta=self.delta), error
