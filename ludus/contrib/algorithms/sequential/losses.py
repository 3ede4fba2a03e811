"""Losses of teams as pure torch functions of rows; each returns one loss per row, float[n], unless documented
otherwise.

A row is one agent's decision. Its ratio is r = π/π_old of its action; others float[n] is the product of the ratios of
its teammates' simultaneous actions. A teammate without a decision then has ratio 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.algorithms.common.losses import ppo_surrogate
from ludus.algorithms.common.returns import reverse_linear_scan


def compound_ratios(log_ratio: Tensor, step: Tensor, *, steps: int) -> Tensor:
    """Return log Π_j r^j float64[steps] of the joint steps. (Kuba et al. 2022, section 4: the compound ratio M^{1:m} of
    the updated agents; the ratio of the others is 1.)

    Args:
        log_ratio: float64[n] of rows.
        step: int64[n], the joint step of each row.
        steps: Number of joint steps.
    """
    return torch.zeros(steps, dtype=torch.float64, device=log_ratio.device).index_add(0, step, log_ratio)


def others_of(log_ratio: Tensor, step: Tensor, *, steps: int) -> Tensor:
    """Return Π_{j≠i} r^j float32[n] of each row's teammates; arguments as of `compound_ratios`."""
    return (compound_ratios(log_ratio, step, steps=steps)[step] - log_ratio).exp().float()


def happo_surrogate(logp: Tensor, old_logp: Tensor, advantage: Tensor, others: Tensor, *, clip: float) -> Tensor:
    """Return -min(r M A, clip(r, 1 - ε, 1 + ε) M A) [n], with M the product of the ratios of the agents updated before.
    (Kuba et al. 2022, section 4.2, as a loss.)"""
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
    """Return -min(l A, clip(l, 1 - ε, 1 + ε) A) [n] with l = r clip(Π_{j≠i} r^j, 1 - ε', 1 + ε'): the joint ratio is
    clipped twice.

    CoPPO's, where all agents move together (Wu et al. 2021, section 3), and A2PO's, where teammates have moved before,
    with ε' = ε/2 (Wang et al. 2023, section 4), as a loss. clip and others_clip: of all rows, or [n].
    """
    ratio = (logp - old_logp).exp() * _near_one(others, others_clip)
    return -torch.minimum(ratio * advantage, _near_one(ratio, clip) * advantage)


def _near_one(ratio: Tensor, reach: Tensor | float) -> Tensor:
    return ratio.clamp(1.0 - reach, 1.0 + reach)  # type: ignore[arg-type]  # both are numbers, or both tensors


def trust_region_surrogate(logp: Tensor, old_logp: Tensor, advantage: Tensor, others: Tensor) -> Tensor:
    """Return -r M A [n]. (Kuba et al. 2022, section 4.1, as a loss.)"""
    return -(logp - old_logp).exp() * others * advantage


def preceding_advantages(
    advantage: Tensor, trace: Tensor, ends: Tensor, *, decay: Tensor | float, longest: int | None = None
) -> Tensor:
    """Return the advantages float64[n] of an agent's rows, corrected for the updates of the agents before it (Wang et
    al. 2023, section 4):

        A_t = δ_t + Σ_{k≥1} (Π_{j=1}^k γ λ min(1, ρ_{t+j})) δ_{t+k}

    where ρ_t is the joint ratio of those agents' actions at t.

    Args:
        advantage: float64[n], generalised estimates, which are the result for ρ = 1, so that δ_t = A_t - γ λ A_{t+1}.
        trace: float64[n], log of the running product of min(1, ρ) over the team's joint steps, up to the row's own;
            steps between an agent's decisions count, too.
        ends: bool[n], True at the last row of each segment.
        decay: γ λ, or float64[n] from each row to the next.
        longest: Rows of the longest segment.
    """
    follows = (~ends).double() * decay
    following = torch.cat([advantage[1:], torch.zeros_like(advantage[:1])])
    held = torch.cat([trace[1:] - trace[:-1], torch.zeros_like(trace[:1])]).clamp(max=0.0).exp()
    return reverse_linear_scan(advantage - follows * following, follows * held, longest=longest)


def order_clip(clip: float, *, base: float, place: int, agents: int) -> float:
    """Return the clip range ε (c + (1 - c) k / n) of the k-th of n agents: the first ones are clipped more, since the
    later ones learn after them. (Wang et al. 2023, section 4.)

    Args:
        clip: ε.
        base: c.
        place: k.
        agents: n.
    """
    return clip * (base + (1.0 - base) * place / agents)
