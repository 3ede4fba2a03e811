"""What MPO and V-MPO share: weights of actions, divergences of means and standard deviations apart, and multipliers of the bounds. Pure
functions of rows, in torch.

Of an expectation-maximisation: the E-step says how likely actions should be, by what they are worth and within ε nats of the policy that
drew them; the M-step fits the policy to that, within a trust region around the same policy. Each bound has a multiplier, which is moved
down its dual function together with the policy. (2018a: Abdolmaleki et al., "Maximum a posteriori policy optimisation"; 2018b: the same,
"Relative entropy regularized policy iteration".)
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from ludus.algorithms.common.losses import Normal

# --------------------------------------------------------------------------------------------------------------------
# The E-step.


def improved(q: Tensor, prior: Tensor, temperature: Tensor) -> Tensor:
    """Logarithms [n, K] of q(a|s) ∝ prior(a|s) exp(Q(s, a) / η): the policy of highest value among those that are as near to the prior. Q,
    and logarithms of the prior [n, K], which are -inf for what is illegal; of K samples of it, -log K each. (Abdolmaleki et al. 2018a,
    section 4.2.)"""
    return torch.log_softmax(q / temperature + prior, dim=-1)


def moved(logp: Tensor, prior: Tensor) -> Tensor:
    """KL(q ‖ prior) [n] in nats, of log-probabilities [n, K] that are -inf for what is illegal."""
    log_ratio = (logp - prior).masked_fill(torch.isneginf(prior), 0.0)
    return (logp.exp() * log_ratio).sum(dim=-1)


# --------------------------------------------------------------------------------------------------------------------
# The M-step.


def fit_loss(z: Tensor, weight: Tensor, old: Normal, new: Normal) -> Tensor:
    """-Σ_k w_k [log N(z_k; μ, σ_old) + log N(z_k; μ_old, σ)] [n], less what no parameter moves: mean and standard deviation are fitted to
    weighted samples z [n, K, d], each as if the other were the old one. weight [n, K]. (Abdolmaleki et al. 2018b, section 4.)"""
    by_mean = ((z - new.mean[:, None]) / old.log_std.exp()[:, None]).square()
    by_std = ((z - old.mean[:, None]) / new.log_std.exp()[:, None]).square() + 2.0 * new.log_std[:, None]
    return 0.5 * (weight * (by_mean + by_std).sum(dim=2)).sum(dim=1)


def cross_entropy(weight: Tensor, logp: Tensor) -> Tensor:
    """-Σ w log π [n] over the actions [n, A] that are not illegal (-inf in logp)."""
    return -(weight * logp.masked_fill(torch.isneginf(logp), 0.0)).sum(dim=-1)


# --------------------------------------------------------------------------------------------------------------------
# Multipliers.

FLOOR = -18.0  # of what is learned: a multiplier that is no longer needed stays within reach
_LEAST = 1e-8


class Multipliers(nn.Module):
    """Of bounds, by name: softplus(x) + 1e-8 of what is learned, so that they are positive."""

    def __init__(self, start: Mapping[str, tuple[float, int]]) -> None:
        """start: what each is at first, and how many of it there are."""
        super().__init__()
        self.raw = nn.ParameterDict(
            {
                name: nn.Parameter(torch.full((count,), inverse_softplus(value)))
                for name, (value, count) in start.items()
            }
        )

    def forward(self) -> dict[str, Tensor]:
        """Their values, float32[count] each."""
        return {name: functional.softplus(raw) + _LEAST for name, raw in self.raw.items()}


def inverse_softplus(value: float) -> float:
    """x of log(1 + e^x) = value > 0."""
    return value + math.log(-math.expm1(-value))


def multiplier_loss(alpha: Tensor, divergence: Tensor, epsilon: float) -> Tensor:
    """Σ_d α_d (ε - KL_d) [n], of divergences [n, D] that are held fixed: it raises the multiplier of a bound that is broken. (Abdolmaleki
    et al. 2018a, section 4.3.)

    The temperature's too: the slope of its dual, η ε + η mean log Σ prior exp(Q / η), is ε - KL(q ‖ prior), since what else η moves there
    is at its best.
    """
    return (alpha * (epsilon - divergence.detach())).sum(dim=-1)


def penalty(alpha: Tensor, divergence: Tensor) -> Tensor:
    """Σ_d α_d KL_d [n], with multipliers that are held fixed."""
    return (alpha.detach() * divergence).sum(dim=-1)
