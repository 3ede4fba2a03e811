"""Losses as pure torch functions of rows; each answers one loss per row, so that weights and means are the caller's.

Shapes: logits float[n, A], mask bool[n, A] or None, everything else [n].
"""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.errors import PolicyError


def masked_log_softmax(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Log-probabilities [n, A] over legal actions; -inf where illegal."""
    if mask is not None:
        logits = logits.masked_fill(~mask, -torch.inf)
    return torch.log_softmax(logits, dim=-1)


def log_prob(logits: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
    """Log-probability [n] of the actions taken, int[n]."""
    return masked_log_softmax(logits, mask).gather(-1, action.long()[:, None])[:, 0]


def entropy(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """-Σ p log p [n] in nats, over legal actions; 0 where there is one."""
    logp = masked_log_softmax(logits, mask)
    finite = logp.masked_fill(torch.isneginf(logp), 0.0)
    return -(logp.exp() * finite).sum(dim=-1)


def ppo_surrogate(logp: Tensor, old_logp: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """-min(r A, clip(r, 1 - ε, 1 + ε) A) with r = π/π_old. (Schulman et al. 2017, equation 7, as a loss.)"""
    ratio = (logp - old_logp).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)


def policy_gradient(logp: Tensor, advantage: Tensor) -> Tensor:
    """-A log π, with the advantage held fixed. (Williams 1992.)"""
    _require_alike(logp, advantage, "log-probabilities", "advantages")
    return -logp * advantage.detach()


def value_loss(value: Tensor, target: Tensor, *, old_value: Tensor | None = None, clip: float | None = None) -> Tensor:
    """½ (V - G)²; with `clip`, the larger of that and the same for V clipped to old_value ± clip (Engstrom et al. 2020, §3)."""
    _require_alike(value, target, "values", "targets")
    loss = 0.5 * (value - target).square()
    if clip is None or old_value is None:
        return loss
    clipped = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum(loss, 0.5 * (clipped - target).square())


def huber(error: Tensor, *, delta: float = 1.0) -> Tensor:
    """½ e² up to |e| = δ, and δ (|e| - ½ δ) beyond. (Huber 1964.)"""
    size = error.abs()
    inside = size.clamp(max=delta)
    return 0.5 * inside.square() + delta * (size - inside)


def approximate_kl(logp: Tensor, old_logp: Tensor) -> Tensor:
    """(r - 1) - log r with r = π/π_old: an estimate of KL(π_old ‖ π) that is never negative. (Schulman 2020, estimator k3.)"""
    log_ratio = logp - old_logp
    return log_ratio.exp() - 1.0 - log_ratio


def _require_alike(first: Tensor, second: Tensor, one: str, other: str) -> None:
    """Raises PolicyError for shapes that would be broadcast: a critic's [n, 1] beside [n] becomes [n, n] without a word."""
    if first.shape != second.shape:
        raise PolicyError(
            f"{one} of shape {list(first.shape)} beside {other} of shape {list(second.shape)} were given; expected one number "
            "a row of both. Of an output [n, 1] take [:, 0]."
        )
