"""Recurrent action-value networks, played epsilon-greedily."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.errors import PolicyError
from ludus.policies.bodies import make_body, orthogonal
from ludus.policies.categorical import full_mask
from ludus.policies.checks import choice, entry, integer
from ludus.policies.q_head import QHead
from ludus.policies.q_module import arrays_of, loaded, rows_of
from ludus.policies.q_network import epsilon_greedy
from ludus.policies.q_specs import Head
from ludus.policies.torch_module import _SEEDING
from ludus.types import Act, Array, Enumeration, PolicySpec, Weights

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
        self.head = QHead(self.units, self.actions, Head(dueling=bool(spec.config.get("dueling", False))))
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
