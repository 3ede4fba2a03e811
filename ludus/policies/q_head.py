"""The last layers of action-value networks: plain or noisy, dueling or not, for means and for distributions of returns."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ludus.policies.q_specs import Head

COSINES = 64  # by which levels of quantiles are known (Dabney et al. 2018, "Implicit quantile networks", equation 4)


class NoisyLinear(nn.Module):
    """y = W x + b + (V (x ε_in) + c) ε_out: a linear layer whose weights have factorised Gaussian noise of learned size (Fortunato et al.
    "Noisy networks for exploration", equations 9 to 11). Without ε it is the layer of the means."""

    def __init__(self, inputs: int, outputs: int, scale: float) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_noise = nn.Parameter(torch.full((outputs, inputs), scale * bound))
        self.bias_noise = nn.Parameter(torch.full((outputs,), scale * bound))

    def forward(self, x: Tensor, before: Tensor | None, after: Tensor | None) -> Tensor:
        """x float[n, …, inputs]; before and after: ε_in and ε_out, which broadcast to inputs and outputs."""
        out = nn.functional.linear(x, self.weight, self.bias)
        if before is None or after is None:
            return out
        return out + nn.functional.linear(x * before, self.weight_noise, self.bias_noise) * after


class Linear(nn.Linear):
    """A layer that ignores noise."""

    def forward(self, x: Tensor, before: Tensor | None = None, after: Tensor | None = None) -> Tensor:
        """W x + b."""
        return nn.functional.linear(x, self.weight, self.bias)


class QHead(nn.Module):
    """features float[n, F] -> float[n, A, K]: K is 1, the atoms, or the levels that are asked for."""

    def __init__(self, features: int, actions: int, head: Head) -> None:
        super().__init__()
        self.actions, self.head = actions, head
        self._wide = head.atoms if head.distribution in ("c51", "quantile") else 1

        def layer(outputs: int) -> nn.Module:
            return NoisyLinear(features, outputs, head.noise_scale) if head.noisy else Linear(features, outputs)

        self.advantage = layer(actions * self._wide)
        self.value = layer(self._wide) if head.dueling else None
        self.cosine = nn.Linear(COSINES, features) if head.distribution == "implicit" else None
        outputs = actions * self._wide
        self._splits = [features, outputs, *([features, self._wide] if head.dueling else [])]
        self.noise_size = sum(self._splits) if head.noisy else 0
        low, high = (head.low, head.high) if head.distribution == "c51" else (0.0, 0.0)
        self.register_buffer("support", torch.linspace(low, high, self._wide), persistent=False)

    def forward(
        self, features: Tensor, mask: Tensor | None, noise: Tensor | None = None, levels: Tensor | None = None
    ) -> Tensor:
        """mask bool[n, A]: over whose legal actions the dueling mean goes; None: all. noise: ε float[noise_size], or one a row. levels
        float[n, K] in (0, 1) of "implicit"."""
        if self.cosine is not None:
            assert levels is not None
            steps = torch.arange(COSINES, dtype=features.dtype) * math.pi
            features = features[:, None] * torch.relu(self.cosine(torch.cos(levels[..., None] * steps)))
        parts: list[Tensor | None] = [None] * 4
        if noise is not None:
            noise = noise[:, None] if noise.ndim == 2 and features.ndim == 3 else noise
            parts[: len(self._splits)] = torch.split(noise, self._splits, dim=-1)
        advantage = self._spread(self.advantage(features, parts[0], parts[1]), self.actions)
        if self.value is None:
            return advantage
        value = self._spread(self.value(features, parts[2], parts[3]), 1)
        if mask is None:
            return value + advantage - advantage.mean(dim=1, keepdim=True)
        legal = mask[..., None].to(advantage.dtype)
        mean = (advantage * legal).sum(dim=1, keepdim=True) / legal.sum(dim=1, keepdim=True).clamp(min=1.0)
        return value + advantage - mean

    def _spread(self, out: Tensor, actions: int) -> Tensor:
        """[n, actions × K] -> [n, actions, K]; implicit: [n, K, actions] -> the same."""
        return out.transpose(1, 2) if self.cosine is not None else out.view(len(out), actions, self._wide)

    def means(self, out: Tensor) -> Tensor:
        """The action values float[n, A] of `forward`'s answer."""
        if self.head.distribution == "none":
            return out[..., 0]
        if self.head.distribution == "c51":
            support = self.support
            assert isinstance(support, Tensor)
            return torch.softmax(out, dim=-1) @ support
        return out.mean(dim=-1)
