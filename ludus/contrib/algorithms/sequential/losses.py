"""Losses of teams as pure torch functions of rows; each answers one loss per row, float[n], unless it says otherwise.

A row is one agent's decision. Its ratio is r = π/π_old of its action; others float[n] is the product of the ratios of what its teammates
did at the same time. A teammate that did nothing then, dead or not due, counts 1 in it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.algorithms.common.losses import ppo_surrogate
from ludus.algorithms.common.returns import scanned


def compound_ratios(log_ratio: Tensor, step: Tensor, *, steps: int) -> Tensor:
    """log Π_j r^j float64[steps] of the joint steps, of rows log_ratio float64[n] that belong to steps `step` int64[n]. Who has no row at
    a step counts 1. (Kuba et al. 2022, section 4: the compound ratio M^{1:m} of the agents that have been updated; that of the others
    is 1.)"""
    return torch.zeros(steps, dtype=torch.float64, device=log_ratio.device).index_add(0, step, log_ratio)


def others_of(log_ratio: Tensor, step: Tensor, *, steps: int) -> Tensor:
    """Π_{j≠i} r^j float32[n] of each row's teammates, of rows as `compound_ratios` takes them."""
    return (compound_ratios(log_ratio, step, steps=steps)[step] - log_ratio).exp().float()


def happo_surrogate(logp: Tensor, old_logp: Tensor, advantage: Tensor, others: Tensor, *, clip: float) -> Tensor:
    """-min(r M A, clip(r, 1 - ε, 1 + ε) M A), M being what the agents before this one have made of theirs. (Kuba et al. 2022,
    section 4.2, as a loss.)"""
    return others * ppo_surrogate(logp, old_logp, advantage, clip=clip)


def joint_surrogate(
    logp: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    others: Tensor,
    *,
    clip: Tensor | float,
    others_clip: Tensor | float,
) -> Tensor:
    """-min(l A, clip(l, 1 - ε, 1 + ε) A) with l = r clip(Π_{j≠i} r^j, 1 - ε', 1 + ε'): the joint ratio is clipped twice.

    CoPPO's, where all agents are moved at once (Wu et al. 2021, section 3), and A2PO's, where teammates have been moved before, with
    ε' = ε/2 (Wang et al. 2023, section 4), as a loss. clip and others_clip: of all rows, or [n].
    """
    ratio = (logp - old_logp).exp() * _near_one(others, others_clip)
    return -torch.minimum(ratio * advantage, _near_one(ratio, clip) * advantage)


def _near_one(ratio: Tensor, reach: Tensor | float) -> Tensor:
    return ratio.clamp(1.0 - reach, 1.0 + reach)  # type: ignore[arg-type]  # both are numbers, or both tensors


def trust_region_surrogate(logp: Tensor, old_logp: Tensor, advantage: Tensor, others: Tensor) -> Tensor:
    """-r M A. (Kuba et al. 2022, section 4.1, as a loss.)"""
    return -(logp - old_logp).exp() * others * advantage


def preceding_advantages(
    advantage: Tensor, trace: Tensor, ends: Tensor, *, decay: Tensor | float, longest: int | None = None
) -> Tensor:
    """Advantages float64[n] of an agent's rows, corrected for what the agents before it have become (Wang et al. 2023, section 4):

        A_t = δ_t + Σ_{k≥1} (Π_{j=1}^k γ λ min(1, ρ_{t+j})) δ_{t+k}

    ρ_t is the joint ratio of what those agents did at t. advantage float64[n]: generalised estimates, which are the same for ρ = 1, so
    that δ_t = A_t - γ λ A_{t+1} (the values, rewards and bootstraps are in there). trace float64[n]: log of the running product of
    min(1, ρ) over the team's joint steps, up to the row's own; what lies between an agent's decisions counts, too. ends bool[n]: at the
    last row of each segment; longest: rows of the longest one. decay: γ λ, or float64[n] from each row to the next.
    """
    follows = (~ends).double() * decay
    following = torch.cat([advantage[1:], torch.zeros_like(advantage[:1])])
    held = torch.cat([trace[1:] - trace[:-1], torch.zeros_like(trace[:1])]).clamp(max=0.0).exp()
    return scanned(advantage - follows * following, follows * held, longest=longest)


def order_clip(clip: float, *, base: float, place: int, agents: int) -> float:
    """ε (c + (1 - c) k / n) of the k-th of n agents, which are `place` and `agents`: the first ones may go less far, since they change
    what the later ones learn from; `base` is c. (Wang et al. 2023, section 4.)"""
    return clip * (base + (1.0 - base) * place / agents)
