"""A recurrent policy: one gated recurrent cell, written out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.errors import PolicyError
from ludus.policies.categorical import LogitPolicy, check_mode
from ludus.policies.checks import fitted, integer, one_spec
from ludus.policies.mlp import flatten
from ludus.policies.perceptron import by_policy, dense_from, float_rows, tanh
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


class GRUPolicy(LogitPolicy):
    """Kind `gru`; config as `gru_spec` makes it. Memory float32[n, hidden] is the cell's state, zeros at episode starts.

    Cell (Cho et al. 2014, as in torch.nn.GRU): r = σ(x_r + h_r), z = σ(x_z + h_z), c = tanh(x_c + r h_c), h' = (1 - z) c + z h.
    """

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        self.actions = integer(spec, "actions")
        self.memory_shape: tuple[int, ...] | None = (integer(spec, "hidden"),)
        self._weights = fitted(spec, weights, shapes(spec))
        self.flat = flatten(self._weights, list(shapes(spec)))
        self._alone = StackedGRU([self])

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
        return self._alone.act(observation, mask, memory, noise, np.zeros(len(observation), np.int32), mode)

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """None: what it plays depends on what it remembers."""
        return None

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self._weights.items()}

    @staticmethod
    def stack(policies: Sequence[GRUPolicy]) -> StackedGRU:
        """Policies of one spec as one. Raises PolicyError if their specs differ."""
        return StackedGRU(policies)


class StackedGRU:
    """K cells of one architecture, evaluated in one call."""

    def __init__(self, policies: Sequence[GRUPolicy]) -> None:
        self._first = policies[0]
        one_spec(policies)
        self._flats = np.stack([policy.flat for policy in policies])
        self._inputs, self._hidden = (integer(self._first.spec, name) for name in ("inputs", "hidden"))

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        index: NDArray[np.int32],
        mode: str = "explore",
    ) -> Act:
        """As `GRUPolicy.act`, where row i is played by policy index[i], int[n] in 0 … K - 1."""
        first = self._first
        check_mode(first, mode)
        expected = len(observation), self._hidden
        if memory is None or memory.shape != expected:
            given = "none" if memory is None else f"shape {memory.shape}"
            raise PolicyError(f"a 'gru' policy wants memory of shape {expected}; it was given {given}.")
        order, start = by_policy(index, len(self._flats))
        rows, before = float_rows(observation, self._inputs), float_rows(memory, self._hidden)
        logits, after = _cells(self._flats, rows, before, first.actions, order, start)
        return first.answer(logits, mask, noise, mode=mode)._replace(memory=after)


@njit(cache=True)
def _cells(flats, x, h, actions, order, start):  # type: ignore[no-untyped-def]
    """Row order[i] of x [n, inputs] and h [n, hidden] goes through the cell whose rows hold i: (logits [n, A], next h)."""
    n, hidden = h.shape
    logits, after = np.empty((n, actions), np.float32), np.empty((n, hidden), np.float32)
    for k in range(len(flats)):
        rows = order[start[k] : start[k + 1]]
        if len(rows):
            out, state = _cell(flats[k], x[rows], h[rows], actions)
            for r in range(len(rows)):
                logits[rows[r]] = out[r]
                after[rows[r]] = state[r]
    return logits, after


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _cell(flat, x, h, actions):  # type: ignore[no-untyped-def]
    n, hidden = h.shape
    given, kept = np.empty((n, 3 * hidden), np.float32), np.empty((n, 3 * hidden), np.float32)
    at = dense_from(flat, 0, x, -1, given)
    at = dense_from(flat, at, h, -1, kept)
    after, half, one = np.empty((n, hidden), np.float32), np.float32(0.5), np.float32(1.0)
    for i in range(n):
        for j in range(hidden):  # σ(v) = (1 + tanh(v / 2)) / 2
            r = half + half * tanh(half * (given[i, j] + kept[i, j]))
            z = half + half * tanh(half * (given[i, hidden + j] + kept[i, hidden + j]))
            c = tanh(given[i, 2 * hidden + j] + r * kept[i, 2 * hidden + j])
            after[i, j] = (one - z) * c + z * h[i, j]
    out = np.empty((n, actions), np.float32)
    dense_from(flat, at, after, -1, out)
    return out, after
