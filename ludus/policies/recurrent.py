"""A recurrent policy: one gated recurrent cell, written out."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.errors import PolicyError
from ludus.policies.categorical import full_mask
from ludus.policies.checks import fitted, integer
from ludus.policies.mlp import as_rows
from ludus.policies.sampling import draw, masked_softmax, one_hot_best
from ludus.types import Act, Array, Enumeration, PolicySpec, Weights


def shapes(spec: PolicySpec) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights; the three gates (reset, update, candidate) lie side by side."""
    inputs, actions, hidden = integer(spec, "inputs"), integer(spec, "actions"), integer(spec, "hidden")
    return {
        "input.weight": (inputs, 3 * hidden),
        "input.bias": (3 * hidden,),
        "memory.weight": (hidden, 3 * hidden),
        "memory.bias": (3 * hidden,),
        "policy.weight": (hidden, actions),
        "policy.bias": (actions,),
    }


def initial_weights(spec: PolicySpec, rng: np.random.Generator) -> Weights:
    """Fresh weights: uniform in ±1/√hidden, as torch's GRU has them."""
    bound = 1.0 / np.sqrt(integer(spec, "hidden"))
    return {name: rng.uniform(-bound, bound, shape).astype(np.float32) for name, shape in shapes(spec).items()}


class GRUPolicy:
    """Kind `gru`; config as `gru_spec` makes it. Memory float32[n, hidden] is the cell's state, zeros at episode starts.

    Cell (Cho et al. 2014, as in torch.nn.GRU): r = σ(x_r + h_r), z = σ(x_z + h_z), c = tanh(x_c + r h_c), h' = (1 - z) c + z h.
    """

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")
    noise_width = 1
    takes_ids = False
    memory_shape: tuple[int, ...] | None

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        self.actions = integer(spec, "actions")
        self._inputs = integer(spec, "inputs")
        self.memory_shape = (integer(spec, "hidden"),)
        self._weights = fitted(spec, weights, shapes(spec))
        self._tensors = {name: torch.from_numpy(array) for name, array in self._weights.items()}

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
            raise PolicyError(f"policy of kind 'gru' has no mode {mode!r}; it has {', '.join(self.modes)}.")
        expected = (len(observation), *(self.memory_shape or ()))
        if memory is None or memory.shape != expected:
            given = "none" if memory is None else f"shape {memory.shape}"
            raise PolicyError(f"a 'gru' policy wants memory of shape {expected}; it was given {given}.")
        logits, after = self._step(as_rows(observation, self._inputs), torch.from_numpy(np.asarray(memory, np.float32)))
        legal = full_mask(mask, len(observation), self.actions)
        probs = one_hot_best(logits, legal) if mode == "greedy" else masked_softmax(logits, legal)
        action, logp = draw(probs, noise)
        return Act(action=action, logp=logp, memory=after)

    def _step(self, x: torch.Tensor, h: torch.Tensor) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        w = self._tensors
        with torch.no_grad():
            x_r, x_z, x_c = torch.addmm(w["input.bias"], x, w["input.weight"]).chunk(3, dim=1)
            h_r, h_z, h_c = torch.addmm(w["memory.bias"], h, w["memory.weight"]).chunk(3, dim=1)
            z = torch.sigmoid(x_z + h_z)
            candidate = torch.tanh(x_c + torch.sigmoid(x_r + h_r) * h_c)
            after = (1.0 - z) * candidate + z * h
            return torch.addmm(w["policy.bias"], after, w["policy.weight"]).numpy(), after.numpy()

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """None: what it plays depends on what it remembers."""
        return None

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self._weights.items()}
