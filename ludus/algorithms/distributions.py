"""Densities and entropies of what policies play, as pure torch functions of their networks' outputs. Acting has the same in NumPy
(`ludus.policies.heads`, which says what each kind is).

Shapes: out float[n, outputs], action [n, …] as the environment takes it, mask bool[n, A] or None; answers [n].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ludus.algorithms.losses import entropy, log_prob
from ludus.policies.heads import LEAST_LOG_STD, MOST, MOST_LOG_STD, Bounds, MultiCategorical, head_of

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(16)


class Distribution(Protocol):
    """log_prob: of the actions taken. entropy: in nats."""

    def log_prob(self, out: Tensor, action: Tensor, mask: Tensor | None) -> Tensor: ...
    def entropy(self, out: Tensor, mask: Tensor | None) -> Tensor: ...


class Categorical:
    """Softmax over legal actions."""

    def log_prob(self, out: Tensor, action: Tensor, mask: Tensor | None) -> Tensor:
        return log_prob(out, action, mask)

    def entropy(self, out: Tensor, mask: Tensor | None) -> Tensor:
        return entropy(out, mask)


@dataclass(frozen=True, slots=True)
class Multi:
    """Independent softmaxes side by side; log-probabilities and entropies add up."""

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

    def _parts(self, out: Tensor, mask: Tensor | None) -> list[tuple[Tensor, Tensor | None]]:
        masks: Sequence[Tensor | None] = (
            [None] * len(self.choices) if mask is None else torch.split_with_sizes(mask, list(self.choices), 1)
        )
        return list(zip(torch.split_with_sizes(out, list(self.choices), 1), masks, strict=True))


class Box:
    """What both Gaussians share: bounds as tensors [size]."""

    def __init__(self, bounds: Bounds) -> None:
        self._size = bounds.size
        self._low, self._high = torch.from_numpy(bounds.low), torch.from_numpy(bounds.high)
        self._middle, self._half = torch.from_numpy(bounds.middle), torch.from_numpy(bounds.half)

    def _split(self, out: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = out[:, : self._size], out[:, self._size :]
        return mean, log_std.clamp(LEAST_LOG_STD, MOST_LOG_STD)

    def _scaled(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """(flat actions, the same in the network's numbers), float64: where tanh saturates float32 would round away what it was of."""
        flat = action.reshape(len(action), self._size).double()
        return flat, (flat - self._middle) / self._half

    def _log_half(self, out: Tensor) -> Tensor:
        return self._half.log().sum().to(out.dtype)


class Gaussian(Box):
    """Clipped to the bounds. The entropy is that before clipping."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._least, self._most = (
            self._low.float().double(),
            self._high.float().double(),
        )  # as float32 actions reach them

    def log_prob(self, out: Tensor, action: Tensor, mask: Tensor | None) -> Tensor:
        mean, log_std = self._split(out)
        flat, scaled = self._scaled(action)
        z = (scaled.to(out.dtype) - mean) / log_std.exp()
        density = -0.5 * z.square() - log_std - _HALF_LOG_TWO_PI - self._half.log().to(out.dtype)
        at_low, at_high = flat <= self._least, flat >= self._most
        bound = at_low | at_high
        if not bound.any():
            return density.sum(dim=1)
        tail = torch.where(at_high, -z, z)
        mass = torch.special.log_ndtr(torch.where(bound, tail, 0.0))  # where not needed: a number whose slope is finite
        return torch.where(bound, mass, density).sum(dim=1)

    def entropy(self, out: Tensor, mask: Tensor | None) -> Tensor:
        return normal_entropy(self._split(out)[1]) + self._log_half(out)


class Squashed(Box):
    """tanh of a normal. The entropy is that of the squashed variable: E log(1 - tanh²) by Gauss–Hermite quadrature with 16 nodes."""

    def log_prob(self, out: Tensor, action: Tensor, mask: Tensor | None) -> Tensor:
        mean, log_std = self._split(out)
        z = self._scaled(action)[1].clamp(-MOST, MOST).atanh().to(out.dtype)
        standard = (z - mean) / log_std.exp()
        density = -0.5 * standard.square() - log_std - _HALF_LOG_TWO_PI
        return (density - log_slope(z)).sum(dim=1) - self._log_half(out)

    def entropy(self, out: Tensor, mask: Tensor | None) -> Tensor:
        mean, log_std = self._split(out)
        nodes, weights = (torch.from_numpy(a).to(out.dtype) for a in (_NODES, _WEIGHTS / _WEIGHTS.sum()))
        slopes = log_slope(mean[..., None] + log_std.exp()[..., None] * nodes)
        return normal_entropy(log_std) + (slopes @ weights).sum(dim=1) + self._log_half(out)


def normal_entropy(log_std: Tensor) -> Tensor:
    """Σ (log σ + ½ log 2πe) over the last dimension."""
    return (log_std + _HALF_LOG_TWO_PI + 0.5).sum(dim=-1)


def log_slope(z: Tensor) -> Tensor:
    """log(1 - tanh² z), without cancellation: 2 (log 2 - z - softplus(-2 z))."""
    return 2.0 * (math.log(2.0) - z - torch.nn.functional.softplus(-2.0 * z))


def distribution_of(config: Mapping[str, Any]) -> Distribution:
    """What the `action` part of a policy's spec plays. Raises PolicyError for one that is wrong."""
    head, kind = head_of(config), config["kind"]
    if isinstance(head, MultiCategorical):
        return Multi(head.choices)
    if kind == "categorical":
        return Categorical()
    return Gaussian(Bounds.of(config)) if kind == "gaussian" else Squashed(Bounds.of(config))
