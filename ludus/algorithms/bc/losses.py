"""What cloning minimises, and what it reports, as pure torch functions of the network's outputs.

Shapes: out float[n, outputs], action [n, …] as the environment takes it, mask bool[n, A] or None; answers [n].
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ludus.algorithms.distributions import Distribution


def surprise(distribution: Distribution, out: Tensor, action: Tensor, mask: Tensor | None) -> Tensor:
    """-log π(a | s) in nats: the cross-entropy of discrete actions, of continuous ones by density. (Pomerleau 1991, with likelihoods.)"""
    return -distribution.log_prob(out, action, mask)


def agreement(out: Tensor, action: Tensor, mask: Tensor | None, choices: Sequence[int]) -> Tensor:
    """1 where the most probable legal action is the one that was taken, in all entries of a vector of them. choices: actions of each
    entry."""
    if mask is not None:
        out = out.masked_fill(~mask, -torch.inf)
    best = [part.argmax(dim=1) for part in torch.split_with_sizes(out, list(choices), 1)]
    return (torch.stack(best, dim=1) == action.reshape(len(action), len(choices))).all(dim=1).to(out.dtype)
