"""What discrete policies share: a subclass says its probabilities, or its logits; acting and tabulating follow from them and so agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.errors import PolicyError
from ludus.policies.sampling import checked_mask, draw, masked_softmax, one_hot_best, sample
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


class LogitPolicy(CategoricalPolicy):
    """Base of policies that play the softmax of their logits; greedy, the first best one. Subclasses implement `outputs`."""

    has_value: bool = False  # whether the column after the last action is a value, answered as the extra "value"

    def outputs(self, observation: Array) -> NDArray[np.float32]:
        """observation [n, …] -> float32[n, A], or float32[n, A + 1] with the value last."""
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
        """As `CategoricalPolicy.act`, without a table of probabilities in between."""
        check_mode(self, mode)
        return self.answer(self.outputs(observation), mask, noise, mode=mode)

    def answer(
        self, out: NDArray[np.float32], mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, mode: str
    ) -> Act:
        """The actions that outputs, mask and noise give."""
        action, logp = sample(out, mask, noise, actions=self.actions, greedy=mode == "greedy")
        return Act(action, logp, None, self.extras_of(out))

    def extras_of(self, out: NDArray[np.float32]) -> dict[str, Array]:
        """What is answered beside the action."""
        return {"value": out[:, -1]} if self.has_value else {}

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        out = self.outputs(observation)
        return (one_hot_best if mode == "greedy" else masked_softmax)(out, mask), self.extras_of(out)


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
    return np.ascontiguousarray(checked_mask(mask, rows, actions))
