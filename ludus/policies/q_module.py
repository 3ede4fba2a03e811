"""Action-value networks that are torch modules, played epsilon-greedily: bodies of any kind, heads of any kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.core.errors import PolicyError
from ludus.core.seeding import mix, uniform
from ludus.core.types import Act, Array, Enumeration, PolicySpec, Weights
from ludus.policies.actor_critic import agents_of
from ludus.policies.bodies import make_body, orthogonal
from ludus.policies.categorical import CategoricalPolicy, check_mode, epsilon_mix, full_mask, one_hot_best
from ludus.policies.checks import choice, entry, fitted, integer
from ludus.policies.mlp import Layout
from ludus.policies.q_network import checked_epsilon, epsilon_greedy, initial_weights, q_layout
from ludus.policies.specs import QHeadSpec
from ludus.policies.torch_module import _SEEDING

# --------------------------------------------------------------------------------------------------------------------
# The network of a `q_network` policy as a torch module, for learners that need autograd.


class QPerceptron(nn.Module):
    """Observations float32[n, inputs] -> action values float32[n, A, 1], as `QModule` answers them. Parameters are named as the weights of
    `QPolicy`."""

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__()
        layout: Layout = q_layout(spec)
        self.shape, self.actions = layout.widths[:1], int(spec.config["actions"])
        self._relu = layout.activation == "relu"
        self.q = nn.ModuleList(nn.Linear(i, o) for i, o in zip(layout.widths, layout.widths[1:], strict=False))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """mask bool[n, A]: over whose legal actions the dueling mean goes (Wang et al. 2016, equation 9); None: all."""
        for k, layer in enumerate(self.q):
            x = layer(x)
            if k < len(self.q) - 1:
                x = torch.relu(x) if self._relu else torch.tanh(x)
        if x.shape[1] == self.actions:
            return x[..., None]
        advantage, value = x[:, :-1], x[:, -1:]
        legal = torch.ones_like(advantage) if mask is None else mask.to(advantage.dtype)
        mean = (advantage * legal).sum(dim=1, keepdim=True) / legal.sum(dim=1, keepdim=True).clamp(min=1.0)
        return (value + advantage - mean)[..., None]


def make_perceptron(spec: PolicySpec, rng: np.random.Generator) -> QPerceptron:
    """A fresh network, initialised as `initial_weights` of the policy."""
    module = QPerceptron(spec)
    arrays = {name: array for name, array in initial_weights(spec, rng).items() if name != "epsilon"}
    module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return module


# --------------------------------------------------------------------------------------------------------------------
# The last layers of action-value networks: plain or noisy, dueling or not, for means and for distributions of
# returns.

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


class QModule(nn.Module):
    """Observations float32[n, *shape] -> float32[n, A, K], as `QHead` says."""

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__()
        shape, body = entry(spec, "shape"), entry(spec, "body")
        self.shape, self.actions = tuple(shape), integer(spec, "actions")
        self.body, features = make_body(body, self.shape, scale=1 / 255 if spec.config.get("image") else 1.0)
        self.head = QHead(features, self.actions, head_of(spec))

    def forward(
        self, x: Tensor, mask: Tensor | None, noise: Tensor | None = None, levels: Tensor | None = None
    ) -> Tensor:
        """See `QHead.forward`."""
        out: Tensor = self.head(self.body(x), mask, noise, levels)
        return out


class QTeam(nn.Module):
    """A `QModule` for each agent of a team: rows go through that of the agent whose one-hot id they end in."""

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__()
        self.agents = integer(spec, "agents", least=2)
        self.members = nn.ModuleList(QModule(spec) for _ in range(self.agents))
        first = self.first
        self.shape, self.actions = first.shape, first.actions

    @property
    def first(self) -> QModule:
        """The first agent's."""
        member = self.members[0]
        assert isinstance(member, QModule)
        return member

    @property
    def head(self) -> QHead:
        """The first agent's: all are of one kind."""
        return self.first.head

    def forward(
        self, x: Tensor, mask: Tensor | None, noise: Tensor | None = None, levels: Tensor | None = None
    ) -> Tensor:
        """See `QHead.forward`. Rows without an id count as the first agent's."""
        agent = x[:, -self.agents :].argmax(dim=1)
        order = [(agent == k).nonzero()[:, 0] for k in range(self.agents)]

        def own(of: Tensor | None, rows: Tensor) -> Tensor | None:
            return of[rows] if of is not None and of.ndim == 2 else of

        parts = [
            member(x[rows], own(mask, rows), own(noise, rows), own(levels, rows))
            for member, rows in zip(self.members, order, strict=True)
        ]
        return torch.cat(parts)[torch.cat(order).argsort()]


def module_of(spec: PolicySpec) -> QModule | QTeam:
    """The network of a `q_module` spec, as torch initialises it."""
    return QTeam(spec) if "agents" in spec.config else QModule(spec)


def head_of(spec: PolicySpec) -> QHeadSpec:
    """Raises PolicyError for a head that is none."""
    given = entry(spec, "head")
    try:
        head = QHeadSpec(**given)
    except TypeError:
        raise PolicyError(f"policy spec {spec.kind!r}: head is {given!r}; expected the entries of a Head.") from None
    if head.distribution not in ("none", "c51", "quantile", "implicit"):
        raise PolicyError(f"policy spec {spec.kind!r}: there is no distribution {head.distribution!r}.")
    if head.distribution == "c51" and not (head.atoms >= 2 and head.low < head.high):
        raise PolicyError(
            f"policy spec {spec.kind!r}: c51 has {head.atoms} atoms from {head.low} to {head.high}; expected two or more, low < high."
        )
    return head


def make_module(spec: PolicySpec, *, seed: int = 0) -> QModule | QTeam:
    """A fresh network, initialised from `seed` alone: orthogonal of gain √2, but the last layer small (gain 0.1) or noisy."""
    with _SEEDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = module_of(spec)
        for part in module.modules():
            if isinstance(part, QModule):
                orthogonal(part.body)
                for layer in (part.head.advantage, part.head.value):
                    if isinstance(layer, nn.Linear):
                        orthogonal(layer, 0.1)
    return module.eval()


def loaded(module: nn.Module, spec: PolicySpec, weights: Weights) -> float:
    """Copy weights into the module; answers the epsilon that comes with them. Raises PolicyError if they do not fit."""
    shapes: dict[str, tuple[int, ...]] = {name: tuple(t.shape) for name, t in module.state_dict().items()}
    arrays = fitted(spec, weights, {**shapes, "epsilon": (1,)})
    epsilon = checked_epsilon(spec, arrays.pop("epsilon"))
    module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return epsilon


def arrays_of(module: nn.Module) -> dict[str, Array]:
    """Copies of the parameters by name."""
    return {name: tensor.detach().numpy().copy() for name, tensor in module.state_dict().items()}


def rows_of(observation: Array, shape: tuple[int, ...]) -> Tensor:
    """Observations [n, …] as float32[n, *shape]."""
    rows = np.ascontiguousarray(observation, np.float32).reshape(len(observation), *shape)
    return torch.from_numpy(rows if rows.flags.writeable else rows.copy())


class QModulePolicy(CategoricalPolicy):
    """Kind `q_module`; config as `q_module_spec` makes it. Weights are named as in the module's `state_dict()`, and `epsilon` float32[1]:
    "explore" plays a uniform legal action with that probability, and otherwise, like "greedy", the best one.

    A noisy head has noise of its own in every row and decision of "explore", made from a second uniform; so acting stays pure, and how
    large the noise is travels with the weights. Its logp is that of the action given this noise, and "explore" has no table.

    With `agents` in its config each agent of the team has a network of its own, `members.K.…`, and observations end in its one-hot id.
    """

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        with _SEEDING, torch.random.fork_rng(devices=[]):
            self._module = module_of(spec).eval().requires_grad_(False)
        self.actions, self._shape = self._module.actions, self._module.shape
        self.epsilon = loaded(self._module, spec, weights)
        head = self._module.head
        self._noise_size = head.noise_size
        self.noise_width = 2 if self._noise_size else 1
        self._levels: Tensor | None = None
        if head.head.distribution == "implicit":
            self._levels = (torch.arange(head.head.atoms, dtype=torch.float32) + 0.5) / head.head.atoms

    def values(self, observation: Array, mask: NDArray[np.bool_] | None, noise: Array | None = None) -> Array:
        """Action values float32[n, A]; noise float32[n]: the uniforms that a noisy head's are made from, None for none. Raises PolicyError
        where a team's agents cannot be told apart."""
        if isinstance(self._module, QTeam):
            agents_of(observation, self._module.agents)
        x = rows_of(observation, self._shape)
        legal = None if mask is None else torch.from_numpy(np.ascontiguousarray(mask))
        random = None
        if noise is not None and self._noise_size:
            random = torch.from_numpy(scaled_normals(np.ascontiguousarray(noise, np.float32), self._noise_size))
        levels = None if self._levels is None else self._levels.expand(len(x), -1)
        with torch.no_grad():
            values: Array = self._module.head.means(self._module(x, legal, random, levels)).numpy()
        return values

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> Act:
        """As `CategoricalPolicy.act`, without a table of probabilities in between."""
        check_mode(self, mode)
        if mask is not None:
            mask = full_mask(mask, len(observation), self.actions)
        random = noise[:, 1] if self._noise_size and mode == "explore" else None
        values = self.values(observation, mask, random)
        return epsilon_greedy(values, mask, noise, self.epsilon if mode == "explore" else 0.0)

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        probs = one_hot_best(self.values(observation, mask), mask)
        return (epsilon_mix(probs, mask, self.epsilon) if mode == "explore" else probs), {}

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """As `CategoricalPolicy.tabulate`; None of "explore" with a noisy head, whose choices are no product of a table."""
        if self._noise_size and mode == "explore":
            check_mode(self, mode)
            return None
        return super().tabulate(enumeration, player, mode=mode)

    def weights(self) -> Weights:
        return {**arrays_of(self._module), "epsilon": np.array([self.epsilon], np.float32)}


@njit(cache=True)
def scaled_normals(noise: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """f(z) = sign(z) √|z| of standard normals z, float32[n, size], which each row has from its own uniform (Fortunato et al. 2018, below
    equation 11; Box and Muller 1958)."""
    out = np.empty((len(noise), size), np.float32)
    for i in range(len(noise)):
        key = mix(np.uint64(np.float64(noise[i]) * 4294967296.0))
        for j in range(0, size, 2):
            radius = np.sqrt(-2.0 * np.log(1.0 - uniform(key, np.uint64(j))))
            angle = 2.0 * np.pi * uniform(key, np.uint64(j + 1))
            for k in range(min(2, size - j)):
                z = radius * (np.cos(angle) if k == 0 else np.sin(angle))
                out[i, j + k] = np.sqrt(abs(z)) * (1.0 if z > 0.0 else -1.0)
    return out


CORES = ("lstm", "gru")


class QRecurrent(nn.Module):
    """A body, one recurrent cell, and a head of means.

    Memory float32[n, memory_size]: the cell's state h, and behind it c of an LSTM; zeros at an episode's start. Cells are torch's
    (Hochreiter and Schmidhuber 1997; Cho et al. 2014).
    """

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__()
        self.shape, self.actions = tuple(entry(spec, "shape")), integer(spec, "actions")
        self.body, features = make_body(
            entry(spec, "body"), self.shape, scale=1 / 255 if spec.config.get("image") else 1.0
        )
        self.units, self.gru = integer(spec, "memory"), choice(spec, "core", CORES) == "gru"
        cell = nn.GRU if self.gru else nn.LSTM
        self.core = cell(features, self.units)
        self.head = QHead(self.units, self.actions, QHeadSpec(dueling=bool(spec.config.get("dueling", False))))
        self.memory_size = self.units * (1 if self.gru else 2)

    def step(self, features: Tensor, memory: Tensor) -> Tensor:
        """One step: features float32[n, F], memory float32[n, memory_size] -> the next memory."""
        weights = [p for p in self.core.parameters()]
        if self.gru:
            after: Tensor = torch.gru_cell(features, memory, *weights)
            return after
        h, c = torch.lstm_cell(features, torch.split(memory, self.units, dim=1), *weights)
        return torch.cat([h, c], dim=1)

    def unroll(self, features: Tensor, memory: Tensor) -> Tensor:
        """States h float32[T, n, units] after each of T steps: features float32[T, n, F], from memory float32[n, memory_size]."""
        out: Tensor
        if self.gru:
            out, _ = self.core(features, memory[None])
        else:
            h, c = torch.split(memory, self.units, dim=1)
            out, _ = self.core(features, (h[None].contiguous(), c[None].contiguous()))
        return out

    def values(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """Action values float32[n, A] of states h float32[n, units]."""
        out: Tensor = self.head(states, mask)
        return out[..., 0]


def make_recurrent(spec: PolicySpec, *, seed: int = 0) -> QRecurrent:
    """A fresh network, initialised from `seed` alone: orthogonal of gain √2 in the body and 0.1 in the head, the cell as torch has it, but
    with a bias of 1 for keeping what it remembers (Jozefowicz et al. 2015, "An empirical exploration of recurrent network")."""
    with _SEEDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = QRecurrent(spec)
        orthogonal(module.body)
        orthogonal(module.head, 0.1)
        bias = module.core.bias_ih_l0
        assert isinstance(bias, Tensor)
        nn.init.ones_(bias.data[module.units : 2 * module.units])  # the gate z of a GRU, f of an LSTM
    return module


class QRecurrentPolicy:
    """Kind `q_recurrent`; config as `q_recurrent_spec` makes it. Weights are named as in the module's `state_dict()`, and `epsilon`
    float32[1]: "explore" plays a uniform legal action with that probability, and otherwise, like "greedy", the best one."""

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")
    noise_width: int = 1
    takes_ids: bool = False

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        with _SEEDING, torch.random.fork_rng(devices=[]):
            self._module = QRecurrent(spec).requires_grad_(False)
        self.actions = self._module.actions
        self.memory_shape: tuple[int, ...] | None = (self._module.memory_size,)
        self.epsilon = loaded(self._module, spec, weights)

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> Act:
        """As `Policy.act`. Raises PolicyError for an unknown mode, and where memory is missing or of another shape."""
        if mode not in self.modes:
            raise PolicyError(f"a 'q_recurrent' policy has no mode {mode!r}; it has {', '.join(self.modes)}.")
        module, expected = self._module, (len(observation), self._module.memory_size)
        if memory is None or memory.shape != expected:
            given = "none" if memory is None else f"shape {memory.shape}"
            raise PolicyError(f"a 'q_recurrent' policy wants memory of shape {expected}; it was given {given}.")
        if mask is not None:
            mask = full_mask(mask, len(observation), self.actions)
        with torch.no_grad():
            features = module.body(rows_of(observation, module.shape))
            after = module.step(features, rows_of(memory, expected[1:]))
            legal = None if mask is None else torch.from_numpy(mask)
            values = module.values(after[:, : module.units], legal).numpy()
        act = epsilon_greedy(values, mask, noise, self.epsilon if mode == "explore" else 0.0)
        return act._replace(memory=after.numpy())

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """None: what it plays depends on what it remembers."""
        return None

    def weights(self) -> Weights:
        return {**arrays_of(self._module), "epsilon": np.array([self.epsilon], np.float32)}
