"""Uniform over the legal actions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ludus.policies.categorical import CategoricalPolicy
from ludus.policies.checks import integer
from ludus.types import Array, PolicySpec, Weights


class RandomPolicy(CategoricalPolicy):
    """Kind `random`; config `actions`. Both modes are uniform: it has no best action."""

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        del weights  # it has none
        self.spec = spec
        self.actions = integer(spec, "actions")

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        probs = mask.astype(np.float64)
        return probs / np.maximum(probs.sum(axis=1, keepdims=True), 1.0), {}

    def weights(self) -> Weights:
        return {}
