"""AlphaZero's loss, of rows."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ludus.algorithms.common.losses import masked_log_softmax


def policy_loss(logits: Tensor, policy: Tensor, mask: Tensor) -> Tensor:
    """Return -Σ_a π(a) log p(a) of each row [n]. (Silver et al. 2018, equation 1, the second term.)

    Args:
        logits: float[n, A], of p.
        policy: float[n, A], π of the search.
        mask: bool[n, A], legal actions.
    """
    logp = masked_log_softmax(logits, mask)
    return -(policy * torch.where(mask, logp, torch.zeros_like(logp))).sum(1)


def value_loss(value: Tensor, target: Tensor) -> Tensor:
    """Return (z - v)² of each row [n]. (Silver et al. 2018, equation 1, the first term.)"""
    return (target - value).square()


def weight_norm(parameters: Iterable[Tensor]) -> Tensor:
    """Return ‖θ‖², the sum of all weights' squares. (Silver et al. 2018, equation 1, the third term.)"""
    return torch.stack([p.square().sum() for p in parameters]).sum()
