"""Losses that MPO and V-MPO share: weights of actions, separate divergences of means and standard deviations, and
multipliers of the bounds. Pure functions of rows, in torch.

Expectation maximisation: the E-step computes how likely actions should be, by their values and within ε nats of the
policy that sampled them; the M-step fits the policy to that, within a trust region around the same policy. Each bound
has a multiplier, which follows its dual function together with the policy. (2018a: Abdolmaleki et al., "Maximum a
posteriori policy optimisation"; 2018b: the same, "Relative entropy regularized policy iteration".)
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
    """Return log q(a|s) [n, K] of q ∝ prior(a|s) exp(Q(s, a) / η), the policy of highest value within the KL bound.
    (Abdolmaleki et al. 2018a, section 4.2.)

    Args:
        q: Values [n, K].
        prior: Log-probabilities [n, K], -inf where illegal; -log K each of K samples of the prior.
        temperature: η.
    """
    return torch.log_softmax(q / temperature + prior, dim=-1)


def moved(logp: Tensor, prior: Tensor) -> Tensor:
    """Return KL(q ‖ prior) [n] in nats, of log-probabilities [n, K] that are -inf where illegal."""
    log_ratio = (logp - prior).masked_fill(torch.isneginf(prior), 0.0)
    return (logp.exp() * log_ratio).sum(dim=-1)


# --------------------------------------------------------------------------------------------------------------------
# The M-step.


def fit_loss(z: Tensor, weight: Tensor, old: Normal, new: Normal) -> Tensor:
    """Return -Σ_k w_k [log N(z_k; μ, σ_old) + log N(z_k; μ_old, σ)] [n], up to a constant: mean and standard deviation
    are fitted to weighted samples separately. (Abdolmaleki et al. 2018b, section 4.)

    Args:
        z: Samples [n, K, d].
        weight: float[n, K], w.
        old: Normal distribution that sampled them.
        new: Normal distribution that is fitted.
    """
    by_mean = ((z - new.mean[:, None]) / old.log_std.exp()[:, None]).square()
    by_std = ((z - old.mean[:, None]) / new.log_std.exp()[:, None]).square() + 2.0 * new.log_std[:, None]
    return 0.5 * (weight * (by_mean + by_std).sum(dim=2)).sum(dim=1)


def cross_entropy(weight: Tensor, logp: Tensor) -> Tensor:
    """Return -Σ w log π [n] over the actions [n, A] that are legal (not -inf in logp)."""
    return -(weight * logp.masked_fill(torch.isneginf(logp), 0.0)).sum(dim=-1)


# --------------------------------------------------------------------------------------------------------------------
# Multipliers.

FLOOR = -18.0  # of what is learned: a multiplier that is no longer needed stays within reach
_LEAST = 1e-8


class Multipliers(nn.Module):
    """Positive multipliers of bounds, by name: softplus(x) + 1e-8 of the parameters x."""

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
        """Return their values, float32[count] each."""
        return {name: functional.softplus(raw) + _LEAST for name, raw in self.raw.items()}


def inverse_softplus(value: float) -> float:
    """Return x with log(1 + e^x) = value > 0."""
    return value + math.log(-math.expm1(-value))


def multiplier_loss(alpha: Tensor, divergence: Tensor, epsilon: float) -> Tensor:
    """Return Σ_d α_d (ε - KL_d) [n] with divergences [n, D] held fixed, which raises the multiplier of a violated
    bound. (Abdolmaleki et al. 2018a, section 4.3.)

    It also holds for the temperature: the derivative of its dual, η ε + η mean log Σ prior exp(Q / η), is ε - KL(q ‖
    prior), since all else that η changes there is at its optimum.
    """
    return (alpha * (epsilon - divergence.detach())).sum(dim=-1)


def penalty(alpha: Tensor, divergence: Tensor) -> Tensor:
    """Return Σ_d α_d KL_d [n] with multipliers held fixed."""
    return (alpha.detach() * divergence).sum(dim=-1)
