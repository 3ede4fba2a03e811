"""Targets and losses of action-value learning as pure torch functions of rows; each answers one number or distribution per row.

Shapes: q float[n, A] action values, mask bool[n, A] of legal actions (at least one in every row), K atoms or quantiles, everything else
float[n]. Nothing here holds back gradients: the caller says where they stop.
"""

from __future__ import annotations

import torch
from torch import Tensor


def greedy(q: Tensor, mask: Tensor) -> Tensor:
    """int64[n]: the first best legal action."""
    return q.masked_fill(~mask, -torch.inf).argmax(dim=-1)


def taken(values: Tensor, action: Tensor) -> Tensor:
    """values[i, action[i]]: float[n, A, …] -> float[n, …]."""
    index = action.view(-1, *[1] * (values.ndim - 1)).expand(-1, 1, *values.shape[2:])
    return values.gather(1, index)[:, 0]


def double_values(chooser: Tensor, judge: Tensor, mask: Tensor) -> Tensor:
    """judge[argmax over legal a of chooser[a]]: judge float[n, A, …] -> float[n, …]. Double Q-learning has the online values as chooser and
    the target's as judge (van Hasselt et al. 2016, equation 4); plain Q-learning has the target's as both."""
    return taken(judge, greedy(chooser, mask))


def project(values: Tensor, probability: Tensor, support: Tensor) -> Tensor:
    """The distribution with `probability` float[n, M] on `values` float[n, M], moved onto the evenly spaced `support` float[K], rising:
    each value's mass goes to its two neighbours, in proportion to how near they are, and what lies outside to the ends. -> float[n, K] with
    the mass of `probability`. (C51: Bellemare et al. 2017, algorithm 1.)"""
    low, high, last = support[0], support[-1], len(support) - 1
    place = (values.clamp(low, high) - low) / (high - low) * last  # in units of the spacing
    below = place.nan_to_num(0.0).floor()  # a NaN is seen in the masses
    above = (below + 1.0).clamp(max=last)
    upper = place - below
    out = torch.zeros(len(values), len(support), dtype=values.dtype)
    out.scatter_add_(1, below.long(), probability * (1.0 - upper))
    out.scatter_add_(1, above.long(), probability * upper)
    return out


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """-Σ_k target_k log softmax(logits)_k: logits and target float[n, K] -> float[n]."""
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


def midpoints(count: int) -> Tensor:
    """The levels (k + ½) / count, float32[count], at which QR-DQN has its quantiles (Dabney et al. 2018, lemma 2)."""
    return (torch.arange(count, dtype=torch.float32) + 0.5) / count


def soft_policy(q: Tensor, mask: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """(π, τ log π), float[n, A] each, of π = softmax(q / τ) over legal actions; both 0 where illegal. τ log π is
    q - max q - τ log Σ exp((q - max q) / τ), which is exact for small τ too (Vieillard et al. 2020, "Munchausen RL", appendix B.1)."""
    masked = q.masked_fill(~mask, -torch.inf)
    above = masked - masked.amax(dim=-1, keepdim=True)
    scaled = above - temperature * torch.logsumexp(above / temperature, dim=-1, keepdim=True)
    policy = torch.softmax(masked / temperature, dim=-1)
    return policy, scaled.masked_fill(~mask, 0.0)


def munchausen_bonus(log_policy: Tensor, action: Tensor, *, weight: float, least: float) -> Tensor:
    """α max(l₀, τ log π(a)), to be added to the reward: log_policy float[n, A] = τ log π as `soft_policy` gives it, action int64[n],
    least = l₀ <= 0. (Vieillard et al. 2020, equation 2 and §4, "clipping".)"""
    return weight * taken(log_policy, action).clamp(min=least, max=0.0)


def rescale(x: Tensor, *, epsilon: float = 1e-3) -> Tensor:
    """h(x) = sign(x) (√(|x| + 1) - 1) + ε x. (Pohlen et al. 2018, proposition A.2; R2D2: Kapturowski et al. 2019, §2.3.)"""
    return torch.sign(x) * ((x.abs() + 1.0).sqrt() - 1.0) + epsilon * x


def unscale(x: Tensor, *, epsilon: float = 1e-3) -> Tensor:
    """The inverse of `rescale`: sign(x) (((√(1 + 4 ε (|x| + 1 + ε)) - 1) / 2 ε)² - 1), in a form that does not cancel in float32:
    with y = |x| + 1 + ε the root is 2 y / (√(1 + 4 ε y) + 1)."""
    y = x.abs() + 1.0 + epsilon
    root = 2.0 * y / ((1.0 + 4.0 * epsilon * y).sqrt() + 1.0)
    return torch.sign(x) * (root.square() - 1.0)


def mixed_priority(error: Tensor, present: Tensor, *, mix: float) -> Tensor:
    """η max |error| + (1 - η) mean |error| over the rows of each sequence that are present: error float[n, T], present bool[n, T] ->
    float[n]; 0 where none is. (R2D2: Kapturowski et al. 2019, §2.3.)"""
    size = error.abs() * present
    return mix * size.amax(dim=1) + (1.0 - mix) * size.sum(dim=1) / present.sum(dim=1).clamp(min=1)
