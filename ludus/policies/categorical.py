"""What discrete policies share: a subclass says its probabilities; acting and tabulating follow from them and so agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.errors import PolicyError
from ludus.policies.sampling import draw
from ludus.types import Act, Array, Enumeration, PolicySpec, Weights


class CategoricalPolicy:
    """Base of policies without memory over A actions that use one uniform per row. Subclasses implement `probabilities`."""

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")
    noise_width: int = 1
    memory_shape: tuple[int, ...] | None = None
    takes_ids: bool = False

    spec: PolicySpec
    actions: int

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        """observation [n, …], mask bool[n, A] -> (float64[n, A] with zeros where illegal, extras of n rows each)."""
        raise NotImplementedError

    def weights(self) -> Weights:
        raise NotImplementedError

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> Act:
        """As `Policy.act`; actions int32[n]. Raises PolicyError for an unknown mode, or a row that has no legal action."""
        check_mode(self, mode)
        probs, extras = self.probabilities(observation, full_mask(mask, len(observation), self.actions), mode=mode)
        action, logp = draw(probs, noise)
        return Act(action=action, logp=logp, extras=extras)

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """As `Policy.tabulate`. Raises PolicyError if the enumeration has another number of actions."""
        check_mode(self, mode)
        if enumeration.mask.shape[1] != self.actions:
            raise PolicyError(
                f"policy of kind {self.spec.kind!r} has {self.actions} actions, the enumeration has {enumeration.mask.shape[1]}; "
                "they must come from the same game."
            )
        ids = enumeration.ids(player)
        observation: Array = np.arange(ids.start, ids.stop, dtype=np.int32)
        if not self.takes_ids:
            observation = enumeration.observation[ids]
        return self.probabilities(observation, np.ascontiguousarray(enumeration.mask[ids]), mode=mode)[0]


def check_mode(policy: CategoricalPolicy, mode: str) -> None:
    """Raises PolicyError if the policy does not publish `mode`."""
    if mode not in policy.modes:
        raise PolicyError(
            f"policy of kind {policy.spec.kind!r} has no mode {mode!r}; it has {', '.join(policy.modes)}."
        )


def full_mask(mask: NDArray[np.bool_] | None, rows: int, actions: int) -> NDArray[np.bool_]:
    """The mask, or all-legal bool[rows, actions] for None. Raises PolicyError if its shape is another."""
    if mask is None:
        return np.ones((rows, actions), np.bool_)
    if mask.shape != (rows, actions):
        raise PolicyError(
            f"mask of shape {mask.shape} for {rows} rows and {actions} actions; expected {(rows, actions)}."
        )
    return np.ascontiguousarray(mask)
