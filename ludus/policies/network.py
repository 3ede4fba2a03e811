"""Policies that are multilayer perceptrons with a masked categorical output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.errors import PolicyError
from ludus.policies.categorical import CategoricalPolicy, check_mode, full_mask
from ludus.policies.checks import choice, fitted, integer, widths
from ludus.policies.mlp import ACTIVATIONS, Layer, Layout, as_rows, flatten, forward, split
from ludus.policies.sampling import draw, masked_softmax, one_hot_best
from ludus.types import Act, Array, PolicySpec, Weights


def layouts(spec: PolicySpec) -> dict[str, Layout]:
    """The networks of an `mlp` spec: "policy" (its last output is the value where `value` is "shared"), and "value" if separate.

    Raises PolicyError for a spec that is wrong.
    """
    inputs, actions, hidden = integer(spec, "inputs"), integer(spec, "actions"), widths(spec, "hidden")
    activation = choice(spec, "activation", ACTIVATIONS)
    value = choice(spec, "value", ("shared", "separate", "none"))
    out = {"policy": Layout((inputs, *hidden, actions + (value == "shared")), activation)}
    if value == "separate":
        out["value"] = Layout((inputs, *hidden, 1), activation)
    return out


def initial_weights(spec: PolicySpec, rng: np.random.Generator) -> Weights:
    """Fresh weights of an `mlp` spec: nearly uniform actions (gain 0.01), values of gain 1."""
    out: dict[str, Array] = {}
    for name, layout in layouts(spec).items():
        gain = [0.01] * integer(spec, "actions") + [1.0] * (layout.widths[-1] - integer(spec, "actions"))
        flat = layout.initial(rng, gain if name == "policy" else 1.0)
        out.update(split(flat, layout.shapes(name)))
    return out


class MLPPolicy(CategoricalPolicy):
    """Kind `mlp`; config as `mlp_spec` makes it. Observations are flattened to float32[n, inputs].

    Weights: `policy.K.weight` [in, out] and `policy.K.bias` per layer, and `value.K.…` of a separate value network, which `act`
    does not evaluate. With a shared one `act` answers the extra "value", float32[n].
    """

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        self.actions = integer(spec, "actions")
        parts = layouts(spec)
        self._shapes = {k: v for name, layout in parts.items() for k, v in layout.shapes(name).items()}
        self._weights = fitted(spec, weights, self._shapes)
        self._layout = parts["policy"]
        names = list(self._layout.shapes("policy"))
        self._flat = torch.from_numpy(flatten(self._weights, names))
        self._layers = self._layout.layers(self._flat)
        self._has_value = self._layout.widths[-1] > self.actions

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        x = as_rows(observation, self._layout.widths[0])
        return self._distribution(forward(self._layers, x, self._layout.activation).numpy(), mask, mode)

    def _distribution(
        self, out: NDArray[np.float32], mask: NDArray[np.bool_], mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        probs = one_hot_best(out, mask) if mode == "greedy" else masked_softmax(out, mask)
        return probs, {"value": out[:, -1].copy()} if self._has_value else {}

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self._weights.items()}

    @staticmethod
    def stack(policies: Sequence[MLPPolicy]) -> StackedMLP:
        """Policies of one spec as one. Raises PolicyError if their specs differ."""
        return StackedMLP(policies)


class StackedMLP:
    """K policies of one architecture behind one batched product: facing them all costs about what facing one does.

    Rows are laid out as [K, most rows of one policy, inputs]; the answer equals K separate calls to rounding.
    """

    def __init__(self, policies: Sequence[MLPPolicy]) -> None:
        first = policies[0]
        if any(dict(p.spec.config) != dict(first.spec.config) for p in policies):
            raise PolicyError("only policies of one spec can be stacked; group them by spec first.")
        self._first = first
        self._count = len(policies)
        self._layers: list[Layer] = [
            (
                torch.stack([p._layers[k][0] for p in policies]),
                torch.stack([p._layers[k][1] for p in policies])[:, None],
            )
            for k in range(len(first._layers))
        ]

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
        n, layout = len(index), self._first._layout
        if n and not 0 <= int(index.min()) <= int(index.max()) < self._count:
            raise PolicyError(f"index names policies {index.min()} to {index.max()}; {self._count} are stacked.")
        index = np.asarray(index, np.int64)
        counts = np.bincount(index, minlength=self._count)
        order = np.argsort(index, kind="stable")
        place = np.empty(n, np.int64)
        place[order] = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
        x = torch.zeros(self._count, int(counts.max(initial=0)), layout.widths[0])
        x[index, place] = as_rows(observation, layout.widths[0])
        with torch.no_grad():
            for k, (weight, bias) in enumerate(self._layers):
                x = torch.baddbmm(bias, x, weight)
                if k < len(self._layers) - 1:
                    x = x.tanh_() if layout.activation == "tanh" else x.relu_()
        out = np.ascontiguousarray(x.numpy()[index, place])
        probs, extras = self._first._distribution(out, full_mask(mask, n, self._first.actions), mode)
        action, logp = draw(probs, noise)
        return Act(action=action, logp=logp, extras=extras)
