"""Policies that are multilayer perceptrons with a masked categorical output."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ludus.core.types import Act, Array, PolicySpec, Weights
from ludus.policies.categorical import LogitPolicy, check_mode
from ludus.policies.checks import choice, fitted, integer, one_spec, widths
from ludus.policies.mlp import ACTIVATIONS, Layout, flatten, split
from ludus.policies.perceptron import Perceptron, Perceptrons


def layouts(spec: PolicySpec) -> dict[str, Layout]:
    """The networks of an `mlp` spec: "policy" (its last output is the value where `value` is "shared"), and "value" if separate.

    Raises PolicyError for a spec that is wrong.
    """
    inputs, actions, hidden = integer(spec, "inputs"), integer(spec, "actions"), widths(spec, "hidden")
    activation = choice(spec, "activation", ACTIVATIONS)
    value = choice(spec, "value", ("shared", "separate", "none"))
    out = {"policy": Layout((inputs, *hidden, actions + (value == "shared")), activation).under("policy")}
    if value == "separate":
        out["value"] = Layout((inputs, *hidden, 1), activation).under("value")
    return out


def initial_weights(spec: PolicySpec, rng: np.random.Generator) -> Weights:
    """Fresh weights of an `mlp` spec: nearly uniform actions (gain 0.01), values of gain 1."""
    out: dict[str, Array] = {}
    for name, layout in layouts(spec).items():
        gain = [0.01] * integer(spec, "actions") + [1.0] * (layout.widths[-1] - integer(spec, "actions"))
        flat = layout.initial(rng, gain if name == "policy" else 1.0)
        out.update(split(flat, layout.shapes()))
    return out


class MLPPolicy(LogitPolicy):
    """Kind `mlp`; config as `mlp_spec` makes it. Observations are flattened to float32[n, inputs].

    Weights: `policy.K.weight` [out, in] and `policy.K.bias` per layer, and `value.K.…` of a separate value network, which `act`
    does not evaluate. With a shared one `act` answers the extra "value", float32[n].
    """

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        self.actions = integer(spec, "actions")
        parts = layouts(spec)
        shapes = {k: v for layout in parts.values() for k, v in layout.shapes().items()}
        self._weights = fitted(spec, weights, shapes)
        layout = parts["policy"]
        self.network = Perceptron(layout, flatten(self._weights, list(layout.shapes())))
        self.has_value = layout.widths[-1] > self.actions

    def outputs(self, observation: Array) -> NDArray[np.float32]:
        return self.network.outputs(observation)

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self._weights.items()}

    @staticmethod
    def stack(policies: Sequence[MLPPolicy]) -> StackedMLP:
        """Policies of one spec as one. Raises PolicyError if their specs differ."""
        return StackedMLP(policies)


class StackedMLP:
    """K policies of one architecture, evaluated in one call: facing them all costs about what facing one does.

    The answer equals K separate calls to rounding.
    """

    def __init__(self, policies: Sequence[MLPPolicy]) -> None:
        self._first = policies[0]
        one_spec(policies)
        self._networks = Perceptrons([policy.network for policy in policies])

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
        return self._first.answer(self._networks.outputs(observation, index), mask, noise, mode=mode)
