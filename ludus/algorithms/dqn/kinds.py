"""What is learned of the return: its mean, chances of fixed values (C51), or quantiles. Each kind makes targets and compares.

A target is made from C candidates per row, of weights w float[n, C] that sum to 1: the chosen action alone, or all actions under a soft
policy, each with a penalty float[n, C] that is taken off its value. values float[n, C, K] as the network answers them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ludus.algorithms.dqn.targets import cross_entropy, kl_divergence, midpoints, project, quantile_huber
from ludus.algorithms.losses import huber


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What may come next: values float[n, C, K], weight float[n, C], penalty float[n, C]."""

    values: Tensor
    weight: Tensor
    penalty: Tensor


class Kind(Protocol):
    """One kind of answer of a network."""

    def target(self, reward: Tensor, discount: Tensor, after: Candidates) -> Tensor:
        """reward + discount × the mixture of candidates: float[n, M]."""
        ...

    def compare(self, out: Tensor, target: Tensor, levels: Tensor | None) -> tuple[Tensor, Tensor]:
        """(loss float[n], size of the error float[n]) of out float[n, K], at `levels` float[n, K] where they were asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Mean:
    """K = 1: Huber's loss of the difference."""

    delta: float

    def target(self, reward: Tensor, discount: Tensor, after: Candidates) -> Tensor:
        """See `Kind`: float[n, 1]."""
        value = (after.weight * (after.values[..., 0] - after.penalty)).sum(dim=1)
        return (reward + discount * value)[:, None]

    def compare(self, out: Tensor, target: Tensor, levels: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `Kind`; the error is |Q - target|."""
        error = (out - target)[:, 0]
        return huber(error, delta=self.delta), error.detach().abs()


@dataclass(frozen=True, slots=True, eq=False)
class Categorical:
    """Logits of `support` float[K]: cross entropy with the target, moved onto the support."""

    support: Tensor

    def target(self, reward: Tensor, discount: Tensor, after: Candidates) -> Tensor:
        """See `Kind`: chances float[n, K]."""
        probability = after.weight[..., None] * after.values.softmax(dim=-1)
        values = reward[:, None, None] + discount[:, None, None] * (self.support - after.penalty[..., None])
        return project(values.flatten(1), probability.flatten(1), self.support)

    def compare(self, out: Tensor, target: Tensor, levels: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `Kind`; the error is the Kullback-Leibler divergence from the target."""
        return cross_entropy(out, target), kl_divergence(out.detach(), target).clamp(min=0.0)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles at given levels, or the middles of equal shares: quantile regression."""

    delta: float

    def target(self, reward: Tensor, discount: Tensor, after: Candidates) -> Tensor:
        """See `Kind`: quantiles float[n, K]; those of a mixture are taken to be the mixture of the quantiles, as in Munchausen-IQN."""
        values = (after.weight[..., None] * (after.values - after.penalty[..., None])).sum(dim=1)
        return reward[:, None] + discount[:, None] * values

    def compare(self, out: Tensor, target: Tensor, levels: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `Kind`; the error is the difference of the means."""
        at = midpoints(out.shape[1]) if levels is None else levels
        error = (out.detach().mean(dim=1) - target.mean(dim=1)).abs()
        return quantile_huber(out, at, target, delta=self.delta), error
