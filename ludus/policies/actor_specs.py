"""Specs of the policies in `ludus.policies.actors`. Kept apart from them, so that a scenario can be read without loading torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ludus.types import Array, PolicySpec

ActorKind = Literal["deterministic", "squashed_gaussian"]


def actor_spec(
    kind: ActorKind, *, inputs: int, low: Array, high: Array, hidden: Sequence[int], activation: str = "relu"
) -> PolicySpec:
    """The spec of a `DeterministicActor` or a `SquashedGaussianActor`. inputs: entries of one observation; low, high: an action's bounds,
    both of its shape."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    config = {
        "inputs": int(inputs),
        "shape": [int(n) for n in low.shape],
        "low": low.ravel().tolist(),
        "high": high.ravel().tolist(),
        "hidden": [int(n) for n in hidden],
        "activation": activation,
    }
    return PolicySpec(kind, config)
