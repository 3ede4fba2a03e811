"""Action-value networks played epsilon-greedily."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from ludus.errors import PolicyError
from ludus.policies.categorical import CategoricalPolicy
from ludus.policies.checks import choice, fitted, integer, widths
from ludus.policies.mlp import ACTIVATIONS, Layout, as_rows, flatten, forward, split
from ludus.policies.probabilities import epsilon_mix
from ludus.policies.sampling import one_hot_best
from ludus.types import Array, PolicySpec, Weights


def q_layout(spec: PolicySpec) -> Layout:
    """The network of a `q_network` spec: one output per action and, dueling, one more for the state's value, last."""
    inputs, actions = integer(spec, "inputs"), integer(spec, "actions")
    outputs = actions + bool(choice(spec, "dueling", (False, True)))
    return Layout((inputs, *widths(spec, "hidden"), outputs), choice(spec, "activation", ACTIVATIONS))


def initial_weights(spec: PolicySpec, rng: np.random.Generator, *, epsilon: float = 1.0) -> Weights:
    """Fresh weights of a `q_network` spec, exploring with `epsilon`."""
    layout = q_layout(spec)
    weights = split(layout.initial(rng, 0.1), layout.shapes("q"))
    return {**weights, "epsilon": np.array([epsilon], np.float32)}


@njit(cache=True)
def action_values(out: Array, mask: NDArray[np.bool_]) -> Array:
    """Q from network outputs: out float[n, A] as it is, or float[n, A + 1] dueling: V + advantage - mean legal advantage
    (Wang et al. 2016, equation 9, with the mean over legal actions). 0 where illegal."""
    n, actions = mask.shape
    q = np.zeros((n, actions), out.dtype)
    for i in range(n):
        base = out.dtype.type(0)
        if out.shape[1] > actions:
            legal = 0
            for a in range(actions):
                if mask[i, a]:
                    base -= out[i, a]
                    legal += 1
            base = base / out.dtype.type(max(legal, 1)) + out[i, actions]
        for a in range(actions):
            if mask[i, a]:
                q[i, a] = out[i, a] + base
    return q


class QPolicy(CategoricalPolicy):
    """Kind `q_network`; config as `q_spec` makes it. Observations are flattened to float32[n, inputs].

    Weights: `q.K.weight` [in, out], `q.K.bias`, and `epsilon` float32[1]: "explore" plays a uniform legal action with that
    probability, and otherwise, like "greedy", the best one. So exploration travels with the weights.
    """

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        self.actions = integer(spec, "actions")
        self._layout = q_layout(spec)
        shapes = self._layout.shapes("q")
        self._weights = fitted(spec, weights, {**shapes, "epsilon": (1,)})
        self.epsilon = float(self._weights["epsilon"][0])
        if not 0.0 <= self.epsilon <= 1.0:
            raise PolicyError(f"epsilon of a 'q_network' policy is {self.epsilon}; expected a probability.")
        self._layers = self._layout.layers(torch.from_numpy(flatten(self._weights, list(shapes))))

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        x = as_rows(observation, self._layout.widths[0])
        q = action_values(forward(self._layers, x, self._layout.activation).numpy(), mask)
        probs = one_hot_best(q, mask)
        return (epsilon_mix(probs, mask, self.epsilon) if mode == "explore" else probs), {}

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self._weights.items()}
