"""A natural-gradient step limited by the KL divergence: conjugate gradients, and a line search. (Schulman et al. 2015,
"Trust region policy optimization", section 6 and appendix C.)

Vectors are float64[size], of the parameters in order. Off the CPU no number is read back: decisions are bools on the
device, and all tries of the line search are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

_SOLVED = 1e-20  # of the squared residual: what is left is rounding


def conjugate_gradients(product: Callable[[Tensor], Tensor], b: Tensor, *, steps: int) -> Tensor:
    """Return x with `product`(x) ≈ b, of a symmetric positive definite matrix that `product` multiplies by: exact, up
    to rounding, after as many steps as it has distinct eigenvalues. (Hestenes and Stiefel 1952.)"""
    x, residual, direction = torch.zeros_like(b), b.clone(), b.clone()
    square = residual @ residual
    for _ in range(steps):
        image = product(direction)
        on = square > _SOLVED
        length = torch.where(on, square / torch.where(on, direction @ image, 1.0), 0.0)
        x = x + length * direction
        residual = residual - length * image
        after = residual @ residual
        direction = residual + torch.where(on, after / torch.where(on, square, 1.0), 0.0) * direction
        square = after
    return x


def flattened(tensors: Sequence[Tensor]) -> Tensor:
    """Return the tensors as one float64[size]."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors]).double()


def flat_gradient(value: Tensor, parameters: Sequence[nn.Parameter], *, twice: bool = False) -> Tensor:
    """Return the gradient float64[size] of a scalar by the parameters; 0 for those that it does not depend on.

    Args:
        value: The scalar; its graph is retained.
        parameters: The parameters.
        twice: Whether the result can be differentiated again.
    """
    gradients = torch.autograd.grad(
        value, list(parameters), retain_graph=True, create_graph=twice, allow_unused=True, materialize_grads=True
    )
    return flattened(gradients)


def curvature(divergence: Tensor, parameters: Sequence[nn.Parameter], *, damping: float) -> Callable[[Tensor], Tensor]:
    """Return v -> (F + damping I) v, F being the Hessian of a mean divergence from the present policy: the Fisher
    matrix. (Pearlmutter 1994: the gradient of the product of the gradient and v.)"""
    first = flat_gradient(divergence, parameters, twice=True)

    def product(v: Tensor) -> Tensor:
        return flat_gradient(first @ v, parameters) + damping * v

    return product


class Measured(NamedTuple):
    """Objective and mean divergence from the policy before, as scalars."""

    gain: Tensor
    divergence: Tensor


@dataclass(frozen=True, slots=True)
class TrustRegion:
    """Settings of a step.

    Attributes:
        max_kl: Limit of the mean divergence, in nats.
        damping: Added to the diagonal of the Fisher matrix.
        conjugate_steps: Steps of conjugate gradients.
        line_search_steps: Tries of the line search.
        backtrack: Factor from one try to the next.
        accept: Least share of the predicted gain.
    """

    max_kl: float
    damping: float
    conjugate_steps: int
    line_search_steps: int
    backtrack: float
    accept: float


class TrustStep(NamedTuple):
    """Result of a step, as scalars: gain and divergence of the new policy, the predicted gain of the whole step, the
    share of the step that was taken (0: no try was accepted), and a bool: the gain or its gradient is not finite."""

    gain: Tensor
    divergence: Tensor
    promised: Tensor
    share: Tensor
    wrong: Tensor


def natural_step(measure: Callable[[], Measured], parameters: Sequence[nn.Parameter], region: TrustRegion) -> TrustStep:
    """Move the parameters along the natural gradient of the gain, by the largest step of the line search within
    `max_kl` that gains enough; they stay if there is none.

    Args:
        measure: Returns gain and divergence of the present parameters.
        parameters: The parameters.
        region: Settings.
    """
    before = measure()
    gradient = flat_gradient(before.gain, parameters)
    product = curvature(before.divergence, parameters, damping=region.damping)
    direction = conjugate_gradients(product, gradient, steps=region.conjugate_steps)
    halved = 0.5 * direction @ product(direction)
    whole = torch.where(halved > 0.0, (region.max_kl / torch.where(halved > 0.0, halved, 1.0)).sqrt(), 0.0) * direction
    promised = gradient @ whole
    wrong = ~(before.gain.isfinite() & promised.isfinite())
    origin = flattened([p.detach() for p in parameters])
    share, gain, divergence = (
        torch.zeros_like(promised),
        before.gain.detach(),
        torch.zeros_like(before.divergence.detach()),
    )
    for k in range(region.line_search_steps):
        tried = region.backtrack**k
        _place(parameters, origin + tried * whole)
        with torch.no_grad():
            trial = measure()
        gained = (trial.gain - before.gain.detach()).double()
        good = (trial.divergence <= region.max_kl) & (gained > region.accept * tried * promised) & (gained > 0.0)
        good = good & (share == 0.0) & ~wrong
        share = torch.where(good, tried, share)
        gain, divergence = torch.where(good, trial.gain, gain), torch.where(good, trial.divergence, divergence)
        if share.device.type == "cpu" and share > 0.0:
            break
    _place(parameters, origin + share * torch.where(wrong, torch.zeros_like(whole), whole))
    return TrustStep(gain, divergence, promised, share, wrong)


@torch.no_grad()
def _place(parameters: Sequence[nn.Parameter], vector: Tensor) -> None:
    at = 0
    for p in parameters:
        p.copy_(vector[at : at + p.numel()].view_as(p))
        at += p.numel()
