"""What discrete policies share: a subclass says its probabilities; acting and tabulating follow from them and so agree. And a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import inner, kernel
from ludus.core.errors import PolicyError
from ludus.core.types import Array, Enumeration, PolicyOutput, PolicySpec, Weights
from ludus.policies.base import check_mode, finite, integer

# --------------------------------------------------------------------------------------------------------------------
# Transformations of action probabilities.


def epsilon_mix(probs: NDArray[np.float64], mask: NDArray[np.bool_], epsilon: float) -> NDArray[np.float64]:
    """Return (1 - epsilon) probs + epsilon uniform over legal actions: float64[n, A]."""
    uniform = mask / np.maximum(mask.sum(axis=1, keepdims=True), 1)
    mixed: NDArray[np.float64] = (1.0 - epsilon) * probs + epsilon * uniform
    return mixed


# --------------------------------------------------------------------------------------------------------------------
# From logits to actions: pure kernels that every categorical policy uses, so that the same uniforms give the same
# actions wherever the policy runs.

_ALL_LEGAL = np.empty((1, 0), np.bool_)


@kernel
def masked_softmax(logits: Array, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the softmax over the legal actions: logits float[n, >= A], mask bool[n, A] -> float64[n, A], exactly 0
    where illegal."""
    n, actions = mask.shape
    out = np.empty((n, actions))
    for i in range(n):
        top = -np.inf
        for a in range(actions):
            if mask[i, a] and not (logits[i, a] <= top):  # a NaN is taken, so that it cannot hide
                top = float(logits[i, a])
        total = 0.0
        for a in range(actions):
            out[i, a] = 0.0
            if mask[i, a]:
                out[i, a] = math.exp(float(logits[i, a]) - top)
                total += out[i, a]
        for a in range(actions):
            out[i, a] /= total if total != 0.0 else 1.0
    return out


@kernel
def one_hot_best(scores: Array, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return probability 1 on the first best legal action: scores float[n, >= A], mask bool[n, A] -> float64[n, A]."""
    n, actions = mask.shape
    out = np.empty((n, actions))
    for i in range(n):
        best = -1
        for a in range(actions):
            out[i, a] = 0.0
            if mask[i, a] and (best < 0 or scores[i, a] > scores[i, best]):
                best = a
        if best >= 0:
            out[i, best] = 1.0
    return out


@kernel
def inverse_cdf(
    probs: NDArray[np.float64], noise: NDArray[np.float32]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Sample by inverting the cumulative distribution: probs float64[n, A], noise float32[n] in [0, 1) -> (action,
    log-probability).

    The action is the first whose cumulative probability exceeds the noise; it always has positive probability. -1: the
    row has none.
    """
    n, actions = probs.shape
    action, logp = np.empty(n, np.int32), np.empty(n, np.float32)
    for i in range(n):
        total = 0.0
        for a in range(actions):
            total += probs[i, a]
        action[i], logp[i] = draw_row(probs[i], total, noise[i])
    return action, logp


def sample(
    logits: Array, mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, actions: int, greedy: bool
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Sample from `masked_softmax` (greedy: take `one_hot_best`) by `inverse_cdf`, to rounding, in one pass.

    Args:
        logits: float[n, >= A].
        mask: bool[n, A]; None: all are legal.
        noise: float32[n, 1].
        actions: A.
        greedy: Whether the best action is taken.

    Returns:
        (action int32[n], logp float32[n]).

    Raises:
        PolicyError: The mask has another shape, or a row has no action of positive probability.
    """
    legal, action, logp = checked_mask(mask, len(logits), actions), *answers(len(logits))
    refuse_row(_sample(logits, legal, noise[:, 0], actions, greedy, action, logp), logits)
    return action, logp


def answers(n: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return uninitialised actions and log-probabilities of n rows."""
    return np.empty(n, np.int32), np.empty(n, np.float32)


def checked_mask(mask: NDArray[np.bool_] | None, rows: int, actions: int) -> NDArray[np.bool_]:
    """Return the mask; bool[1, 0], which kernels take for all-legal, for None. Raise PolicyError if its shape is
    another."""
    if mask is None:
        return _ALL_LEGAL
    if mask.shape != (rows, actions):
        raise PolicyError(
            f"mask of shape {mask.shape} for {rows} rows and {actions} actions; expected {(rows, actions)}."
        )
    return mask


@inner
def best_legal(scores, mask):  # type: ignore[no-untyped-def]
    """Return the first best legal action of one row, scores float[>= A] and mask bool[A], or bool[0] if all A =
    len(scores) are legal; -1 if there is none, or a NaN among them."""
    best = -1
    for a in range(len(mask) if len(mask) else len(scores)):
        if len(mask) and not mask[a]:
            continue
        if math.isnan(scores[a]):
            return -1
        if best < 0 or scores[a] > scores[best]:
            best = a
    return best


@kernel
def _sample(logits, mask, noise, actions, greedy, action, logp):  # type: ignore[no-untyped-def]
    """Fill action and logp. Return the first row that has no action of positive probability, or -1."""
    weight, masked = np.empty(actions), mask.size > 0
    for i in range(len(logits)):
        row, legal = logits[i, :actions], mask[i if masked else 0]
        best = best_legal(row, legal)
        if best < 0 or math.isinf(row[best]):
            return i
        action[i], logp[i] = best, 0.0
        if greedy:
            continue
        top, total = float(row[best]), 0.0
        for a in range(actions):
            weight[a] = math.exp(float(row[a]) - top) if not len(legal) or legal[a] else 0.0
            total += weight[a]
        action[i], logp[i] = draw_row(weight, total, noise[i])
    return -1


@inner
def draw_row(weight, total, noise):  # type: ignore[no-untyped-def]
    """Return the first action whose cumulative share of `total` exceeds the noise, among those of positive weight, and
    the log of its share; -1 if there is none."""
    threshold, below, chosen = float(noise) * total, 0.0, -1
    for a in range(len(weight)):
        if weight[a] > 0.0:
            chosen = a
            below += weight[a]
            if below > threshold:
                break
    return chosen, math.log(weight[chosen] / total) if chosen >= 0 else 0.0


def draw(probs: NDArray[np.float64], noise: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Sample by `inverse_cdf`, with noise float32[n, 1]. Raise PolicyError if a row has no action of positive
    probability."""
    action, logp = inverse_cdf(probs, np.ascontiguousarray(noise[:, 0]))
    if len(action) and action.min() < 0:
        refuse_row(int(np.argmin(action)), probs)
    return action, logp


def refuse_row(row: int, numbers: Array) -> None:
    """Raise PolicyError for row `row` of numbers [n, …]: no action can be sampled from it. Do nothing for -1."""
    if row >= 0:
        raise PolicyError(
            f"row {row} of {len(numbers)} has no action of positive probability (the policy's numbers are {numbers[row].tolist()}): "
            "its mask is empty or the policy's output is not a number; check the environment's masks and the weights."
        )


class CategoricalPolicy:
    """Base of policies without memory over A actions that use one uniform per row. Subclasses implement `probabilities`
    and `weights`."""

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")
    noise_width: int = 1
    memory_shape: tuple[int, ...] | None = None
    takes_ids: bool = False

    spec: PolicySpec
    actions: int

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        """Return (action probabilities float64[n, A], zeros where illegal; extras of n rows each).

        Args:
            observation: [n, …].
            mask: bool[n, A], legal actions.
            mode: A published mode.
        """
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
    ) -> PolicyOutput:
        """Implement `Policy.act`; actions int32[n]. Raise PolicyError for an unknown mode, or a row that has no legal
        action."""
        check_mode(self, mode)
        probs, extras = self.probabilities(observation, full_mask(mask, len(observation), self.actions), mode=mode)
        action, logp = draw(probs, noise)
        return PolicyOutput(action=action, logp=logp, extras=extras)

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Implement `Policy.tabulate`. Raise PolicyError if the enumeration has another number of actions."""
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


def full_mask(mask: NDArray[np.bool_] | None, rows: int, actions: int) -> NDArray[np.bool_]:
    """Return the mask, or all-legal bool[rows, actions] for None. Raise PolicyError if its shape is another."""
    if mask is None:
        return np.ones((rows, actions), np.bool_)
    return np.ascontiguousarray(checked_mask(mask, rows, actions))


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
