"""Action-value networks played epsilon-greedily."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.core.errors import PolicyError
from ludus.core.types import Act, Array, PolicySpec, Weights
from ludus.policies.categorical import (
    CategoricalPolicy,
    answers,
    best_legal,
    check_mode,
    checked_mask,
    draw_row,
    epsilon_mix,
    full_mask,
    one_hot_best,
    refuse_row,
)
from ludus.policies.checks import choice, fitted, integer, one_spec, widths
from ludus.policies.mlp import ACTIVATIONS, Layout, flatten, split
from ludus.policies.perceptron import Perceptron, Perceptrons


def q_layout(spec: PolicySpec) -> Layout:
    """The network of a `q_network` spec: one output per action and, dueling, one more for the state's value, last."""
    inputs, actions = integer(spec, "inputs"), integer(spec, "actions")
    outputs = actions + bool(choice(spec, "dueling", (False, True)))
    return Layout((inputs, *widths(spec, "hidden"), outputs), choice(spec, "activation", ACTIVATIONS)).under("q")


def initial_weights(spec: PolicySpec, rng: np.random.Generator, *, epsilon: float = 1.0) -> Weights:
    """Fresh weights of a `q_network` spec, exploring with `epsilon`."""
    layout = q_layout(spec)
    weights = split(layout.initial(rng, 0.1), layout.shapes())
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


def checked_epsilon(spec: PolicySpec, given: Array) -> float:
    """The epsilon of weights, float32[1]. Raises PolicyError if it is no probability."""
    epsilon = float(given[0])
    if not 0.0 <= epsilon <= 1.0:
        raise PolicyError(f"epsilon of a {spec.kind!r} policy is {epsilon}; expected a probability.")
    return epsilon


def epsilon_greedy(
    q: Array, mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], epsilon: float | NDArray[np.float64]
) -> Act:
    """With probability epsilon (float64[n], or one for all) a uniform legal action, else the first best legal one: q float[n, A], noise
    float32[n, >= 1]. Raises PolicyError for a mask of another shape, or a row that has no legal action or a NaN."""
    legal, action, logp = checked_mask(mask, *q.shape), *answers(len(q))
    chance = np.full(len(q), epsilon) if isinstance(epsilon, float) else epsilon
    refuse_row(_epsilon_greedy(q, legal, noise[:, 0], chance, action, logp), q)
    return Act(action, logp)


class QPolicy(CategoricalPolicy):
    """Kind `q_network`; config as `q_spec` makes it. Observations are flattened to float32[n, inputs].

    Weights: `q.K.weight` [out, in], `q.K.bias`, and `epsilon` float32[1]: "explore" plays a uniform legal action with that
    probability, and otherwise, like "greedy", the best one. So exploration travels with the weights.
    """

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        self.actions = integer(spec, "actions")
        layout = q_layout(spec)
        shapes = layout.shapes()
        self._weights = fitted(spec, weights, {**shapes, "epsilon": (1,)})
        self.epsilon = checked_epsilon(spec, self._weights["epsilon"])
        self.network = Perceptron(layout, flatten(self._weights, list(shapes)))

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
        out = self.network.outputs(observation)
        return self.answer(out, mask, noise, np.full(len(out), self.epsilon), mode=mode)

    def answer(
        self,
        out: NDArray[np.float32],
        mask: NDArray[np.bool_] | None,
        noise: NDArray[np.float32],
        epsilon: NDArray[np.float64],
        *,
        mode: str,
    ) -> Act:
        """The actions that outputs, mask and noise give; epsilon float64[n] of "explore"."""
        if out.shape[1] > self.actions:
            out = action_values(out, full_mask(mask, len(out), self.actions))
        return epsilon_greedy(out, mask, noise, np.zeros(len(out)) if mode == "greedy" else epsilon)

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        probs = one_hot_best(action_values(self.network.outputs(observation), mask), mask)
        return (epsilon_mix(probs, mask, self.epsilon) if mode == "explore" else probs), {}

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self._weights.items()}

    @staticmethod
    def stack(policies: Sequence[QPolicy]) -> StackedQ:
        """Policies of one spec as one. Raises PolicyError if their specs differ."""
        return StackedQ(policies)


class StackedQ:
    """K policies of one architecture, each with an epsilon of its own, evaluated in one call."""

    def __init__(self, policies: Sequence[QPolicy]) -> None:
        self._first = policies[0]
        one_spec(policies)
        self._networks = Perceptrons([policy.network for policy in policies])
        self._epsilon = np.array([policy.epsilon for policy in policies])

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        index: NDArray[np.int32],
        mode: str = "explore",
    ) -> Act:
        """As `Policy.act`, where row i is played by policy index[i], int[n] in 0 … K - 1."""
        check_mode(self._first, mode)
        out = self._networks.outputs(observation, index)
        return self._first.answer(out, mask, noise, self._epsilon[index], mode=mode)


@njit(cache=True)
def _epsilon_greedy(q, mask, noise, epsilon, action, logp):  # type: ignore[no-untyped-def]
    """Fills action and logp; returns the first row that has no legal action or a NaN, or -1."""
    actions, masked = q.shape[1], mask.size > 0
    weight = np.empty(actions)
    for i in range(len(q)):
        legal = mask[i if masked else 0]
        best = best_legal(q[i], legal)
        if best < 0:
            return i
        count = legal.sum() if masked else actions
        for a in range(actions):
            weight[a] = epsilon[i] / count if not masked or legal[a] else 0.0
        weight[best] += 1.0 - epsilon[i]
        action[i], logp[i] = draw_row(weight, weight.sum(), noise[i])
    return -1
