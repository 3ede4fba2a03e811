"""Networks of action values: any body, an optional GRU or LSTM, and a head for means or for distributions of returns;
for one agent, or for each agent of a team. (`action_value_policy` plays them.)"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from ludus.backend.mlp import Layout
from ludus.core.errors import PolicyError
from ludus.core.types import Array, PolicySpec, Weights
from ludus.policies.actor_critic import CORES, arrays_of, core_step, load_arrays, shapes_of, unrolled
from ludus.policies.base import choice, entry, integer, integers, validate_weights
from ludus.policies.bodies import linear, make_body, orthogonal, own_stream, perceptron_body
from ludus.policies.specs import QHeadSpec

# --------------------------------------------------------------------------------------------------------------------
# The last layers: plain or noisy, dueling or not, for means and for distributions of returns.

COSINES = 64  # by which levels of quantiles are known (Dabney et al. 2018, "Implicit quantile networks", equation 4)


class NoisyLinear(nn.Module):
    """y = W x + b + (V (x ε_in) + c) ε_out: a linear layer whose weights have factorised Gaussian noise of learned size
    (Fortunato et al. "Noisy networks for exploration", equations 9 to 11). Without ε it is the layer of the means."""

    def __init__(self, inputs: int, outputs: int, scale: float) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_noise = nn.Parameter(torch.full((outputs, inputs), scale * bound))
        self.bias_noise = nn.Parameter(torch.full((outputs,), scale * bound))

    def forward(self, x: Tensor, before: Tensor | None, after: Tensor | None) -> Tensor:
        """Evaluate the layer: x float[n, …, inputs]; before and after: ε_in and ε_out, which broadcast to inputs and
        outputs."""
        out = linear(x, self.weight, self.bias)
        if before is None or after is None:
            return out
        return out + linear(x * before, self.weight_noise, self.bias_noise) * after


class Linear(nn.Linear):
    """A linear layer that ignores noise."""

    def forward(self, x: Tensor, before: Tensor | None = None, after: Tensor | None = None) -> Tensor:
        """Return W x + b."""
        return linear(x, self.weight, self.bias)


def midpoints(count: int, device: torch.device | None = None) -> Tensor:
    """Return the levels (k + ½) / count, float32[count], of QR-DQN's quantiles (Dabney et al. 2018, lemma 2)."""
    return (torch.arange(count, dtype=torch.float32, device=device) + 0.5) / count


def rescale(x: Tensor, *, epsilon: float = 1e-3) -> Tensor:
    """Return h(x) = sign(x) (√(|x| + 1) - 1) + ε x. (Pohlen et al. 2018, proposition A.2; R2D2: Kapturowski et al.
    2019, section 2.3.)"""
    return torch.sign(x) * ((x.abs() + 1.0).sqrt() - 1.0) + epsilon * x


def unscale(x: Tensor, *, epsilon: float = 1e-3) -> Tensor:
    """Return the inverse of `rescale`: sign(x) (((√(1 + 4 ε (|x| + 1 + ε)) - 1) / 2 ε)² - 1), in a form that does not
    cancel in float32: with y = |x| + 1 + ε the root is 2 y / (√(1 + 4 ε y) + 1)."""
    y = x.abs() + 1.0 + epsilon
    root = 2.0 * y / ((1.0 + 4.0 * epsilon * y).sqrt() + 1.0)
    return torch.sign(x) * (root.square() - 1.0)


class QHead(nn.Module):
    """Head of action values: features float32[n, F] -> float32[n, A, K]; K is 1, the number of atoms, or of sampled
    levels."""

    support: Tensor  # the values float32[K] of c51
    levels: Tensor  # at which `implicit` is asked, float32[K], where nothing else is said

    def __init__(self, features: int, actions: int, head: QHeadSpec) -> None:
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
        self.register_buffer("levels", midpoints(head.atoms), persistent=False)

    def forward(
        self, features: Tensor, mask: Tensor | None, noise: Tensor | None = None, levels: Tensor | None = None
    ) -> Tensor:
        """Return the outputs.

        Args:
            features: float32[n, F].
            mask: bool[n, A], actions of the dueling mean (Wang et al. 2016, equation 9); None: all.
            noise: ε float32[noise_size], or one per row; None: none.
            levels: float32[n, K] in (0, 1), of "implicit"; None: the midpoints of equal shares.
        """
        if self.cosine is not None:
            at = self.levels.expand(features.shape[0], -1) if levels is None else levels
            steps = torch.arange(COSINES, dtype=features.dtype, device=features.device) * math.pi
            features = features[:, None] * torch.relu(self.cosine(torch.cos(at[..., None] * steps)))
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
        """Return outputs per action: [n, actions × K] -> [n, actions, K]; implicit: [n, K, actions] -> the same."""
        return out.transpose(1, 2) if self.cosine is not None else out.view(out.shape[0], actions, self._wide)

    def means(self, out: Tensor) -> Tensor:
        """Return the action values float32[n, A] of `forward`'s result."""
        if self.head.distribution == "none":
            return out[..., 0]
        if self.head.distribution == "c51":
            return torch.softmax(out, dim=-1) @ self.support
        return out.mean(dim=-1)

    @property
    def linear(self) -> list[nn.Linear]:
        """Return the layers of a plain head of means."""
        return [layer for layer in (self.advantage, self.value) if isinstance(layer, nn.Linear)]


def head_of(spec: PolicySpec) -> QHeadSpec:
    """Return the head's spec. Raise PolicyError for an invalid one."""
    options = entry(spec, "head")
    try:
        head = QHeadSpec(**options)
    except TypeError:
        raise PolicyError(
            f"policy spec {spec.kind!r}: head is {options!r}; expected the entries of a QHeadSpec."
        ) from None
    if head.distribution not in ("none", "c51", "quantile", "implicit"):
        raise PolicyError(f"policy spec {spec.kind!r}: there is no distribution {head.distribution!r}.")
    if head.distribution == "c51" and not (head.atoms >= 2 and head.low < head.high):
        raise PolicyError(
            f"policy spec {spec.kind!r}: c51 has {head.atoms} atoms from {head.low} to {head.high}; expected two or more, low < high."
        )
    return head


# --------------------------------------------------------------------------------------------------------------------
# The networks that specs declare: as torch modules, and, of plain perceptrons, as layers.


class Nameless(nn.Module):
    """A body that does not see the one-hot id at the end of observations, and appends it to its features."""

    def __init__(self, body: nn.Module, agents: int) -> None:
        super().__init__()
        self.body, self.agents = body, agents

    def forward(self, x: Tensor) -> Tensor:
        """Return features: float32[n, S + agents] -> float32[n, F + agents]."""
        return torch.cat([self.body(x[:, : -self.agents]), x[:, -self.agents :]], dim=1)


class ActionValues(nn.Module):
    """The network of an `action_values` spec, of one agent: observations float32[n, *shape] -> float32[n, A, K], as
    `QHead` returns them.

    memory: floats of recurrent state per slot; 0: none. Memory float32[n, memory] is the cell's state h, followed by an
    LSTM's c; zeros at an episode's start. Cells are torch's (Hochreiter and Schmidhuber 1997; Cho et al. 2014).

    individual: agents that add values of their own (`own`) to those of the head, by the id at the end of observations;
    0: none do. The id is then the end of the body's features, and of states h. (Li et al. 2021, "Celebrating diversity
    in shared multi-agent reinforcement learning".)
    """

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__()
        self.shape, self.actions = integers(spec, "shape"), integer(spec, "actions")
        self.individual = integer(spec, "individual", least=2) if "individual" in spec.config else 0
        shape = (math.prod(self.shape) - self.individual,) if self.individual else self.shape
        self.body, features = make_body(entry(spec, "body"), shape, scale=float(spec.config.get("scale", 1.0)))
        core = choice(spec, "core", tuple(CORES))
        kind, self._units = CORES[core], integer(spec, "width") if core != "none" else 0
        self.core = kind(features, self._units) if kind is not None else None
        self.width = self._units + self.individual if self._units else 0
        self.memory = self.width + (self._units if core == "lstm" else 0)
        self.head = QHead(self._units or features, self.actions, head_of(spec))
        self.own = None
        if self.individual:
            self.own = nn.Linear(self._units or features, self.individual * self.actions)
            self.body = Nameless(self.body, self.individual)

    def forward(
        self, x: Tensor, mask: Tensor | None, noise: Tensor | None = None, levels: Tensor | None = None
    ) -> Tensor:
        """Evaluate a network without memory; see `QHead.forward`."""
        features = self.body(x)
        if self.own is not None:
            return self.values(features, mask, noise)[..., None]
        out: Tensor = self.head(features, mask, noise, levels)
        return out

    @property
    def plain(self) -> bool:
        """Return whether the body consists of linear layers with one activation, and the head gives means, without
        noise."""
        known = isinstance(self.body, nn.Sequential) and self.own is None
        layers = all(isinstance(part, nn.Flatten | nn.Linear | nn.Tanh | nn.ReLU) for part in self.body.children())
        return known and layers and bool(self.head.linear) and self.head.head.distribution == "none"

    def step(self, features: Tensor, memory: Tensor) -> Tensor:
        """Run one step of the cell: the body's features float32[n, F], memory float32[n, memory] -> the next memory."""
        assert self.core is not None
        if self.own is None:
            return core_step(self.core, features, memory)[1]
        body_features, who = self._split(features)
        after = core_step(self.core, body_features, self._remembered(memory))[1]
        return torch.cat([after[:, : self._units], who, after[:, self._units :]], dim=1)

    def unroll(self, features: Tensor, memory: Tensor) -> Tensor:
        """Return states h float32[T, n, width] after each of T steps: features float32[T, n, F], from memory float32[n,
        memory]."""
        assert self.core is not None
        body_features, who = (features, None) if self.own is None else self._split(features)
        inner = memory if self.own is None else self._remembered(memory)
        state = tuple(part[None].contiguous() for part in torch.split(inner, self._units, dim=1))
        out: Tensor = unrolled(self.core, body_features, state[0] if len(state) == 1 else state)[0]
        return out if who is None else torch.cat([out, who], dim=2)

    def values(self, features: Tensor, mask: Tensor | None, noise: Tensor | None = None) -> Tensor:
        """Return action values float32[n, A] of the body's features, or of states h where there is a cell."""
        if self.own is None:
            return self.head.means(self.head(features, mask, noise))
        body_features, who = self._split(features)
        shared = self.head.means(self.head(body_features, mask, noise))
        return shared + (self._each(body_features) * who[:, :, None]).sum(dim=1)

    def own_values(self, features: Tensor) -> Tensor:
        """Return the values that each row's agent adds, float32[n, A]."""
        body_features, who = self._split(features)
        return (self._each(body_features) * who[:, :, None]).sum(dim=1)

    def values_of_all(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Return the values float32[n, agents, A] that each agent would have in each row's place."""
        body_features, _ = self._split(features)
        return self.head.means(self.head(body_features, mask))[:, None] + self._each(body_features)

    def _each(self, features: Tensor) -> Tensor:
        assert self.own is not None
        out: Tensor = self.own(features)
        return out.view(features.shape[0], self.individual, self.actions)

    def _split(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the body's features, or h, and the ids behind them."""
        return features[..., : -self.individual], features[..., -self.individual :]

    def _remembered(self, memory: Tensor) -> Tensor:
        """Return h and c, without the id between them."""
        return torch.cat([memory[:, : self._units], memory[:, self.width :]], dim=1)


class TeamValues(nn.Module):
    """`ActionValues` for each agent of a team: each row goes through that of its one-hot id."""

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__()
        self.agents = integer(spec, "agents", least=2)
        self.members = nn.ModuleList(ActionValues(spec) for _ in range(self.agents))
        first = cast(ActionValues, self.members[0])
        self.shape, self.actions, self.memory = first.shape, first.actions, first.memory

    @property
    def head(self) -> QHead:
        """Return the first agent's head: all are of one kind."""
        return cast(ActionValues, self.members[0]).head

    def forward(
        self, x: Tensor, mask: Tensor | None, noise: Tensor | None = None, levels: Tensor | None = None
    ) -> Tensor:
        """Evaluate the networks; see `QHead.forward`. Rows without an id count as the first agent's. Off a CPU each
        network evaluates all rows: sorting them would require reading numbers."""
        agent = x[:, -self.agents :].argmax(dim=1)
        if x.device.type != "cpu":
            every = torch.stack([member(x, mask, noise, levels) for member in self.members])
            return every[agent, torch.arange(len(x), device=x.device)]
        order = [(agent == k).nonzero()[:, 0] for k in range(self.agents)]

        def own(of: Tensor | None, rows: Tensor) -> Tensor | None:
            return of[rows] if of is not None and of.ndim == 2 else of

        parts = [
            member(x[rows], own(mask, rows), own(noise, rows), own(levels, rows))
            for member, rows in zip(self.members, order, strict=True)
        ]
        return torch.cat(parts)[torch.cat(order).argsort()]


def layout_of(spec: PolicySpec) -> Layout | None:
    """Return the layout of a plain perceptron that gives means for observations as they are; None for other networks."""
    config, head = spec.config, head_of(spec)
    if head.noisy or head.distribution != "none" or config.get("scale", 1.0) != 1.0 or "individual" in config:
        return None
    body = entry(spec, "body")
    if choice(spec, "core", tuple(CORES)) != "none" or body.get("kind") != "mlp":
        return None
    (hidden, activation), actions = perceptron_body(body), integer(spec, "actions")
    last = (("head.advantage", actions), ("head.value", 1)) if head.dueling else (("head.advantage", actions),)
    names = tuple(((f"body.{2 * k + 1}", width),) for k, width in enumerate(hidden))
    return Layout((math.prod(integers(spec, "shape")), *hidden, actions + head.dueling), activation, (*names, last))


def network_of(spec: PolicySpec) -> ActionValues | TeamValues:
    """Return the network of a spec, as torch initialises it."""
    return TeamValues(spec) if "agents" in spec.config else ActionValues(spec)


def make_network(spec: PolicySpec, *, seed: int = 0) -> ActionValues | TeamValues:
    """Return a fresh network, initialised from `seed` alone: orthogonal of gain √2, except the last layer, which is
    small (gain 0.1) or noisy, and the cell, which is torch's with a bias of 1 of the gate that keeps the memory
    (Jozefowicz et al. 2015, "An empirical exploration of recurrent network architectures")."""
    with own_stream(seed):
        network = network_of(spec)
        for part in network.modules():
            if isinstance(part, ActionValues):
                orthogonal(part.body)
                for layer in [*part.head.linear, *([] if part.own is None else [part.own])]:
                    orthogonal(layer, 0.1)
                if part.core is not None:
                    bias, units = cast(Tensor, part.core.bias_ih_l0), part.core.hidden_size
                    nn.init.ones_(bias.data[units : 2 * units])  # the gate z of a GRU, f of an LSTM
    return network


def uniform_network(spec: PolicySpec, *, seed: int) -> ActionValues | TeamValues:
    """Return a fresh network, initialised from `seed` alone, whose layers are uniform within ±1/√(their inputs), biases
    too: torch's default, that of Stable-Baselines3's and CleanRL's DQN. (LeCun et al. 1998, "Efficient BackProp",
    section 4.6.)"""
    with own_stream(seed):
        return network_of(spec)


def initial_weights(spec: PolicySpec, rng: np.random.Generator, *, epsilon: float = 1.0) -> Weights:
    """Return weights of `make_network`, exploring with `epsilon`."""
    network = make_network(spec, seed=int(rng.integers(2**63)))
    return {**arrays_of(network), "epsilon": np.array([epsilon], np.float32)}


def load_weights(network: nn.Module, spec: PolicySpec, weights: Weights) -> None:
    """Copy a policy's weights into the network. Raise PolicyError if they do not fit."""
    arrays = validate_weights(spec, weights, {**shapes_of(network), "epsilon": (1,)})
    load_arrays(network, {name: array for name, array in arrays.items() if name != "epsilon"})


def rows_of(observation: Array, shape: tuple[int, ...]) -> Tensor:
    """Return observations [n, …] as float32[n, *shape]."""
    rows = np.ascontiguousarray(observation, np.float32).reshape(len(observation), *shape)
    return torch.from_numpy(rows if rows.flags.writeable else rows.copy())
