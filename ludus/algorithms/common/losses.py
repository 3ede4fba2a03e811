"""Losses as pure torch functions of rows. Each returns one loss per row, so that weights and means are the caller's.

Shapes: logits float[n, A], mask bool[n, A] or None (all actions are legal), everything else [n].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ludus.core.errors import PolicyError
from ludus.policies.heads import HALF_LOG_TWO_PI, MOST, Gaussian, MultiCategorical, Point, Squashed, head_of


def masked_log_softmax(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return log-probabilities [n, A] over legal actions; -inf where illegal.

    Args:
        logits: float[n, A].
        mask: bool[n, A], legal actions; None: all are legal.
    """
    if mask is not None:
        logits = logits.masked_fill(~mask, -torch.inf)
    return torch.log_softmax(logits, dim=-1)


def log_prob(logits: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the log-probabilities [n] of actions.

    Args:
        logits: float[n, A].
        action: int[n].
        mask: bool[n, A], legal actions; None: all are legal.
    """
    return masked_log_softmax(logits, mask).gather(-1, action.long()[:, None])[:, 0]


def entropy(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the entropy -Σ p log p [n] in nats, over legal actions; 0 where only one is legal.

    Args:
        logits: float[n, A].
        mask: bool[n, A], legal actions; None: all are legal.
    """
    logp = masked_log_softmax(logits, mask)
    finite = logp.masked_fill(torch.isneginf(logp), 0.0)
    return -(logp.exp() * finite).sum(dim=-1)


def divergence(logp: Tensor, other: Tensor) -> Tensor:
    """Return KL(p ‖ q) [n] in nats.

    Args:
        logp: Log-probabilities [n, A] of p, -inf where illegal.
        other: Log-probabilities [n, A] of q, -inf where illegal.
    """
    p, q = (x.masked_fill(torch.isneginf(x), 0.0) for x in (logp, other))
    return (logp.exp() * (p - q)).sum(dim=-1)


def ppo_surrogate(logp: Tensor, old_logp: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Return PPO's clipped surrogate -min(r A, clip(r, 1 - ε, 1 + ε) A) [n] with r = π/π_old. (Schulman et al. 2017,
    equation 7, as a loss.)

    Args:
        logp: Log-probabilities [n] under the present policy, with gradients.
        old_logp: Log-probabilities [n] under the policy before the update.
        advantage: float[n], A.
        clip: ε.
    """
    ratio = (logp - old_logp).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)


def policy_gradient(logp: Tensor, advantage: Tensor) -> Tensor:
    """Return the policy-gradient loss -A log π [n], with the advantage held fixed. (Williams 1992.)

    Args:
        logp: Log-probabilities [n], with gradients.
        advantage: float[n], A; gradients do not flow through it.

    Raises:
        PolicyError: The two have different shapes.
    """
    _require_alike(logp, advantage, "log-probabilities", "advantages")
    return -logp * advantage.detach()


def value_loss(value: Tensor, target: Tensor, *, old_value: Tensor | None = None, clip: float | None = None) -> Tensor:
    """Return the squared value error ½ (V - G)² [n]; with `clip`, its maximum with that of V clipped to old_value ±
    clip (Engstrom et al. 2020, section 3).

    Args:
        value: float[n], V, with gradients.
        target: float[n], G.
        old_value: float[n], values before the update; needed for clipping.
        clip: Largest change of a value; None: not clipped.

    Raises:
        PolicyError: Values and targets have different shapes.
    """
    _require_alike(value, target, "values", "targets")
    loss = 0.5 * (value - target).square()
    if clip is None or old_value is None:
        return loss
    clipped = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum(loss, 0.5 * (clipped - target).square())


def huber(error: Tensor, *, delta: float = 1.0) -> Tensor:
    """Return Huber's loss [n]: ½ e² for |e| ≤ δ, and δ (|e| - ½ δ) beyond. (Huber 1964.)

    Args:
        error: float[n], e.
        delta: δ, where the loss becomes linear.
    """
    return torch.nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=delta)


def approximate_kl(logp: Tensor, old_logp: Tensor) -> Tensor:
    """Return the estimate (r - 1) - log r [n] of KL(π_old ‖ π) with r = π/π_old, which is never negative. (Schulman
    2020, estimator k3.)

    Args:
        logp: Log-probabilities [n] of the actions taken, under π.
        old_logp: The same under π_old, which took them.
    """
    log_ratio = logp - old_logp
    return log_ratio.exp() - 1.0 - log_ratio


def _require_alike(first: Tensor, second: Tensor, one: str, other: str) -> None:
    """Raise PolicyError for shapes that would be broadcast: a critic's [n, 1] minus [n] becomes [n, n] without a
    warning."""
    if first.shape != second.shape:
        raise PolicyError(
            f"{one} of shape {list(first.shape)} and {other} of shape {list(second.shape)} were given; expected one number "
            "a row of both. Of an output [n, 1] take [:, 0]."
        )


# --------------------------------------------------------------------------------------------------------------------
# Densities and entropies of what policies play, as pure torch functions of their networks' outputs. Acting has the
# same compiled (`ludus.policies.heads`, which says what each kind is). Shapes: out float[n, outputs], action [n, …]
# as the environment takes it, mask bool[n, A] or None; answers [n].

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(16)


class Distribution(Protocol):
    """Distribution of actions given a network's outputs. Shapes: out float[n, outputs], action [n, …] as the
    environment takes it, mask bool[n, A] or None."""

    def log_prob(self, out: Tensor, action: Tensor, mask: Tensor | None) -> Tensor:
        """Return the log-probabilities (densities) [n] of actions."""
        ...

    def entropy(self, out: Tensor, mask: Tensor | None) -> Tensor:
        """Return the entropies [n] in nats."""
        ...

    def divergence(self, out: Tensor, other: Tensor, mask: Tensor | None) -> Tensor:
        """Return KL(out ‖ other) [n] in nats of two networks' outputs. For boxes it is that of the normal variables
        before they are clipped to the bounds, an upper bound on that of the actions."""
        ...

    def sample(
        self, out: Tensor, mask: Tensor | None, generator: torch.Generator | None, *, greedy: bool = False
    ) -> Tensor:
        """Return actions, sampled on the outputs' device; greedy: the most probable ones."""
        ...


def sample_categorical(
    logits: Tensor, mask: Tensor | None, generator: torch.Generator | None, *, greedy: bool
) -> Tensor:
    """Return actions int64[n], legal ones of positive probability: the argmin of exponential times whose rates are the
    probabilities."""
    if greedy:
        return masked_log_softmax(logits, mask).argmax(dim=-1)
    time = torch.empty_like(logits).exponential_(generator=generator).clamp_(min=torch.finfo(logits.dtype).tiny)
    return (masked_log_softmax(logits, mask).exp() / time).argmax(dim=-1)


class CategoricalDistribution:
    """Softmax over legal actions."""

    def log_prob(self, out: Tensor, action: Tensor, mask: Tensor | None) -> Tensor:
        return log_prob(out, action, mask)

    def entropy(self, out: Tensor, mask: Tensor | None) -> Tensor:
        return entropy(out, mask)

    def divergence(self, out: Tensor, other: Tensor, mask: Tensor | None) -> Tensor:
        return divergence(masked_log_softmax(out, mask), masked_log_softmax(other, mask))

    def sample(
        self, out: Tensor, mask: Tensor | None, generator: torch.Generator | None, *, greedy: bool = False
    ) -> Tensor:
        return sample_categorical(out, mask, generator, greedy=greedy)


@dataclass(frozen=True, slots=True)
class MultiCategoricalDistribution:
    """Independent softmaxes over adjacent slices of the outputs; log-probabilities and entropies add up."""

    choices: tuple[int, ...]

    def log_prob(self, out: Tensor, action: Tensor, mask: Tensor | None) -> Tensor:
        total = out.new_zeros(len(out))
        for k, (logits, legal) in enumerate(self._parts(out, mask)):
            total = total + log_prob(logits, action[:, k], legal)
        return total

    def entropy(self, out: Tensor, mask: Tensor | None) -> Tensor:
        total = out.new_zeros(len(out))
        for logits, legal in self._parts(out, mask):
            total = total + entropy(logits, legal)
        return total

    def divergence(self, out: Tensor, other: Tensor, mask: Tensor | None) -> Tensor:
        total = out.new_zeros(len(out))
        for (logits, legal), (others, _) in zip(self._parts(out, mask), self._parts(other, mask), strict=True):
            total = total + divergence(masked_log_softmax(logits, legal), masked_log_softmax(others, legal))
        return total

    def sample(
        self, out: Tensor, mask: Tensor | None, generator: torch.Generator | None, *, greedy: bool = False
    ) -> Tensor:
        parts = self._parts(out, mask)
        return torch.stack(
            [sample_categorical(logits, legal, generator, greedy=greedy) for logits, legal in parts], dim=1
        )

    def _parts(self, out: Tensor, mask: Tensor | None) -> list[tuple[Tensor, Tensor | None]]:
        masks: Sequence[Tensor | None] = (
            [None] * len(self.choices) if mask is None else torch.split_with_sizes(mask, list(self.choices), 1)
        )
        return list(zip(torch.split_with_sizes(out, list(self.choices), 1), masks, strict=True))


class Normal(NamedTuple):
    """Independent normal variables [n, d]: mean, and logarithm of the standard deviation."""

    mean: Tensor
    log_std: Tensor

    def of_mean(self, new: Normal) -> Tensor:
        """Return KL(N(μ_old, σ_old) ‖ N(μ, σ_old)) [n, d], this one being the old: ½ ((μ - μ_old) / σ_old)²."""
        return 0.5 * ((new.mean - self.mean) / self.log_std.exp()).square()

    def of_std(self, new: Normal) -> Tensor:
        """Return KL(N(μ_old, σ_old) ‖ N(μ_old, σ)) [n, d]: log(σ / σ_old) + ½ (σ_old / σ)² - ½."""
        moved = new.log_std - self.log_std
        return moved + 0.5 * ((-2.0 * moved).exp() - 1.0)


class BoxDistribution:
    """Base of both distributions over a box: its bounds, as tensors [size] on the outputs' device."""

    def __init__(self, head: Gaussian | Squashed) -> None:
        box = head.bounds
        self._size, self._log_std, self._shape = box.size, head.log_std, box.shape
        self._box = torch.from_numpy(np.stack([box.low, box.high, box.middle, box.half]))

    def _bounds(self, out: Tensor) -> tuple[Tensor, ...]:
        """Return low, high, middle and half float64[size]."""
        if self._box.device != out.device:
            self._box = self._box.to(out.device)
        return self._box.unbind()

    def _split(self, out: Tensor) -> Normal:
        mean, log_std = out[:, : self._size], out[:, self._size : 2 * self._size]
        return Normal(mean, log_std.clamp(*self._log_std))

    def divergences(self, old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        """Return KL(old ‖ new) [n] by means only, and by standard deviations only."""
        before, now = self._split(old), self._split(new)
        return before.of_mean(now).sum(dim=1), before.of_std(now).sum(dim=1)

    def divergence(self, out: Tensor, other: Tensor, mask: Tensor | None) -> Tensor:
        """Return the sum of log σ'/σ + (σ² + (μ - μ')²) / 2 σ'² - ½ [n]; squashing does not change it."""
        (mean, log_std), (to, log_to) = self._split(out), self._split(other)
        apart = (2.0 * (log_std - log_to)).exp() + ((mean - to) / log_to.exp()).square()
        return (log_to - log_std + 0.5 * apart - 0.5).sum(dim=-1)

    def _scaled(self, action: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        """Return (flat actions, the same in the network's units), float64: where tanh saturates, float32 would round
        away its argument."""
        flat, (_, _, middle, half) = action.reshape(len(action), self._size).double(), self._bounds(out)
        return flat, (flat - middle) / half

    def _log_half(self, out: Tensor) -> Tensor:
        return self._bounds(out)[3].log().to(out.dtype)

    def sample(
        self, out: Tensor, mask: Tensor | None, generator: torch.Generator | None, *, greedy: bool = False
    ) -> Tensor:
        mean, log_std = self._split(out)
        normal = torch.zeros_like(mean) if greedy else torch.empty_like(mean).normal_(generator=generator)
        low, high, middle, half = self._bounds(out)
        action = middle + half * self._squash(mean + log_std.exp() * normal)
        return torch.minimum(torch.maximum(action, low), high).float().reshape(-1, *self._shape)

    def _squash(self, z: Tensor) -> Tensor:
        """Return normal samples in the network's units of actions."""
        return z


class GaussianDistribution(BoxDistribution):
    """Normal actions, clipped to the bounds. The entropy is that before clipping."""

    def log_prob(self, out: Tensor, action: Tensor, mask: Tensor | None) -> Tensor:
        mean, log_std = self._split(out)
        flat, scaled = self._scaled(action, out)
        low, high, *_ = self._bounds(out)
        z = (scaled.to(out.dtype) - mean) / log_std.exp()
        density = -0.5 * z.square() - log_std - HALF_LOG_TWO_PI - self._log_half(out)
        at_high = flat >= high
        bound = (flat <= low) | at_high
        if out.device.type == "cpu" and not bound.any():
            return density.sum(dim=1)
        tail = torch.where(at_high, -z, z)
        mass = torch.special.log_ndtr(
            torch.where(bound, tail, 0.0)
        )  # where not needed: a number with a finite gradient
        return torch.where(bound, mass, density).sum(dim=1)

    def entropy(self, out: Tensor, mask: Tensor | None) -> Tensor:
        return normal_entropy(self._split(out)[1]) + self._log_half(out).sum()


@lru_cache
def _quadrature(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return nodes and weights [16] of means under a standard normal; nothing else is moved to a device within a step."""
    nodes, weights = (torch.from_numpy(a).to(device, dtype) for a in (_NODES, _WEIGHTS / _WEIGHTS.sum()))
    return nodes, weights


class SquashedDistribution(BoxDistribution):
    """tanh of a normal variable. The entropy is that of the squashed variable: E log(1 - tanh²) by Gauss-Hermite
    quadrature with 16 nodes."""

    def _squash(self, z: Tensor) -> Tensor:
        return z.tanh()

    def log_prob(self, out: Tensor, action: Tensor, mask: Tensor | None) -> Tensor:
        mean, log_std = self._split(out)
        z = self._scaled(action, out)[1].clamp(-MOST, MOST).atanh().to(out.dtype)
        return (squashed_density(z, (z - mean) / log_std.exp(), log_std) - self._log_half(out)).sum(dim=1)

    def entropy(self, out: Tensor, mask: Tensor | None) -> Tensor:
        mean, log_std = self._split(out)
        nodes, weights = _quadrature(out.dtype, out.device)
        derivative = log_tanh_derivative(mean[..., None] + log_std.exp()[..., None] * nodes)
        return normal_entropy(log_std) + (derivative @ weights).sum(dim=1) + self._log_half(out).sum()

    def draw(self, out: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions float[n, size] in [-1, 1] and their log-densities [n], both with gradients. (Haarnoja et al.
        2018, appendix C, equation 21.)

        Args:
            out: Network outputs [n, 2 size]: means and log standard deviations.
            normal: Standard normal deviates [n, size].
        """
        mean, log_std = self._split(out)
        z = mean + log_std.exp() * normal
        return z.tanh(), squashed_density(z, normal, log_std).sum(dim=1)


def squashed_density(z: Tensor, deviate: Tensor, log_std: Tensor) -> Tensor:
    """Return the log-density of tanh z in [-1, 1], where z is `deviate` standard deviations from its mean."""
    return -0.5 * deviate.square() - log_std - HALF_LOG_TWO_PI - log_tanh_derivative(z)


def normal_entropy(log_std: Tensor) -> Tensor:
    """Return Σ (log σ + ½ log 2πe) over the last dimension."""
    return (log_std + HALF_LOG_TWO_PI + 0.5).sum(dim=-1)


def log_tanh_derivative(z: Tensor) -> Tensor:
    """Return log(1 - tanh² z), without cancellation: 2 (log 2 - z - softplus(-2 z))."""
    return 2.0 * (math.log(2.0) - z - torch.nn.functional.softplus(-2.0 * z))


def distribution_of(config: Mapping[str, Any]) -> Distribution:
    """Return the distribution of the `action` part of a policy's spec. Raise PolicyError for an invalid one, and for
    points, which have no density."""
    head = head_of(config)
    if isinstance(head, MultiCategorical):
        return MultiCategoricalDistribution(head.choices)
    if isinstance(head, Gaussian):
        return GaussianDistribution(head)
    if isinstance(head, Squashed):
        return SquashedDistribution(head)
    if isinstance(head, Point):
        raise PolicyError("a policy that plays points has no density to learn by; see DDPG, TD3 and MADDPG.")
    return CategoricalDistribution()
