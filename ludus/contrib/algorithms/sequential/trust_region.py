"""A natural-gradient step as far as a limit on the KL divergence lets it: conjugate gradients, and a line search. (Schulman et al. 2015,
"Trust region policy optimization", section 6 and appendix C.)

Vectors are float64[size], of the parameters one after the other. Off a CPU nothing is read back: what decides is a bool on the device, and
all tries of the line search are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

_SOLVED = 1e-20  # of the squared residual: what is left is rounding


def conjugate_gradients(product: Callable[[Tensor], Tensor], b: Tensor, *, steps: int) -> Tensor:
    """x with `product`(x) ≈ b, of a symmetric positive definite matrix that `product` multiplies by: exact, but for rounding, after as many
    steps as it has different eigenvalues. (Hestenes and Stiefel 1952.)"""
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
    """float64[size]"""
    return torch.cat([tensor.reshape(-1) for tensor in tensors]).double()


def slope(value: Tensor, parameters: Sequence[nn.Parameter], *, twice: bool = False) -> Tensor:
    """Gradient float64[size] of a scalar, which can be asked again; 0 for parameters that it does not depend on. twice: what is answered
    can be differentiated, too."""
    gradients = torch.autograd.grad(
        value, list(parameters), retain_graph=True, create_graph=twice, allow_unused=True, materialize_grads=True
    )
    return flattened(gradients)


def curvature(divergence: Tensor, parameters: Sequence[nn.Parameter], *, damping: float) -> Callable[[Tensor], Tensor]:
    """v -> (F + damping I) v, F being the Hessian of a mean divergence from the policy as it is: the Fisher matrix. (Pearlmutter 1994: the
    slope of the product of the gradient and v.)"""
    first = slope(divergence, parameters, twice=True)

    def product(v: Tensor) -> Tensor:
        return slope(first @ v, parameters) + damping * v

    return product


class Measured(NamedTuple):
    """Of a policy, as scalars: the gain that is to be made large, and its mean divergence from the policy before."""

    gain: Tensor
    divergence: Tensor


@dataclass(frozen=True, slots=True)
class TrustRegion:
    """max_kl: the limit on the mean divergence, in nats. backtrack: from one try to the next; accept: the least share of the gain that the
    slope promises for it."""

    max_kl: float
    damping: float
    conjugate_steps: int
    line_search_steps: int
    backtrack: float
    accept: float


class TrustStep(NamedTuple):
    """What became of a step, as scalars: gain and divergence of the policy after it, the gain that the slope promised for the whole step,
    the share of that step which was made (0: no try was good enough), and a bool: the gain or its slope is no number."""

    gain: Tensor
    divergence: Tensor
    promised: Tensor
    share: Tensor
    wrong: Tensor


def natural_step(measure: Callable[[], Measured], parameters: Sequence[nn.Parameter], region: TrustRegion) -> TrustStep:
    """Moves the parameters up the gain that `measure` finds of them, by the largest step of the line search that keeps within `max_kl` and
    gains enough; where none does, they stay."""
    before = measure()
    gradient = slope(before.gain, parameters)
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
