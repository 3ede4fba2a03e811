"""A table of action probabilities over information states."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import PolicyError
from ludus.core.types import Array, Enumeration, PolicySpec, Weights
from ludus.policies.base import finite, integer
from ludus.policies.categorical import CategoricalPolicy, one_hot_best


class TabularPolicy(CategoricalPolicy):
    """Kind `tabular`; config `offset` (first id it covers) and `actions`; weights {"probs": float64[ids covered, A]}.

    Rows of probs sum to 1, with zeros where illegal. Observations are int32 ids of the game's enumeration.
    """

    takes_ids = True

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        self.offset = integer(spec, "offset", least=0)
        if set(weights) != {"probs"}:
            raise PolicyError(f"a 'tabular' policy has the weights ['probs']; given {sorted(weights)}.")
        probs = np.asarray(weights["probs"])
        self.actions = integer(spec, "actions")
        rows = probs.shape[0] if probs.ndim else 0
        self.probs = finite(spec, "probs", probs, (rows, self.actions), np.float64)
        if rows and (self.probs.min() < 0.0 or np.abs(self.probs.sum(axis=1) - 1.0).max() > 1e-6):
            raise PolicyError("a 'tabular' policy's rows must be probabilities: none negative, each row summing to 1.")

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        index = np.asarray(observation) - self.offset
        if len(index) and (index.min() < 0 or index.max() >= len(self.probs)):
            raise PolicyError(
                f"a 'tabular' policy covers ids {self.offset} to {self.offset + len(self.probs) - 1}; "
                f"it was asked about {int(observation.min())} to {int(observation.max())}, which another player's policy plays."
            )
        probs = self.probs[index]
        return (one_hot_best(probs, mask) if mode == "greedy" else probs), {}

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        ids = enumeration.ids(player)
        probs = self.probs[max(ids.start - self.offset, 0) : ids.stop - self.offset]
        if mode == "explore" and ids.start >= self.offset and len(probs) == ids.stop - ids.start:
            return probs.copy()
        return super().tabulate(enumeration, player, mode=mode)

    def weights(self) -> Weights:
        return {"probs": self.probs.copy()}
