"""Tabulated policies of one player, stacked: an action is one table row and one uniform away."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.errors import PolicyError
from ludus.types import Enumeration

_TOLERANCE = 1e-5


class StackedTables:
    """cumulative float32[K, I_p, A] and logp float32[K, I_p, A] of up to K policies on the I_p information states of one player."""

    def __init__(self, enumeration: Enumeration, player: int) -> None:
        ids = enumeration.ids(player)
        self.player = player
        self.offset = ids.start
        self._legal = enumeration.mask[ids]
        self._cumulative = np.empty((0, *self._legal.shape), np.float32)
        self._logp = np.empty((0, *self._legal.shape), np.float32)

    def __len__(self) -> int:
        """I_p."""
        return len(self._legal)

    def set(self, row: int, probs: NDArray[np.float64], *, name: str) -> None:
        """Row `row` plays probs float[I_p, A]. Raises PolicyError unless these are distributions over legal actions."""
        if probs.shape != self._legal.shape:
            raise PolicyError(
                f"policy {name!r} tabulated as {probs.shape} for player {self.player}; expected {self._legal.shape}: every "
                "information state of the player, and every action."
            )
        if not (np.all(probs >= 0) and np.allclose(probs.sum(axis=1), 1, rtol=0, atol=_TOLERANCE)):
            raise PolicyError(
                f"policy {name!r} tabulated rows that are negative, NaN, or do not sum to 1; expected probabilities."
            )
        if np.any(probs[~self._legal] > 0):
            raise PolicyError(
                f"policy {name!r} tabulated probability on illegal actions of player {self.player}; expected 0 there."
            )
        if row >= len(self._cumulative):
            self._grow(row + 1)
        cumulative = np.cumsum(probs / probs.sum(axis=1, keepdims=True), axis=1)
        last = probs.shape[1] - 1 - np.argmax(probs[:, ::-1] > 0, axis=1)
        cumulative[np.arange(probs.shape[1]) >= last[:, None]] = (
            2.0  # rounding must not run past the last possible action
        )
        self._cumulative[row] = cumulative
        with np.errstate(divide="ignore"):
            self._logp[row] = np.log(probs)

    def sample(
        self,
        slot: NDArray[np.int32],
        ids: NDArray[np.int32],
        bound: NDArray[np.int32],
        noise: NDArray[np.float32],
        *,
        action: NDArray[np.int32],
        logp: NDArray[np.float32],
    ) -> None:
        """For each row, the table row bound[slot] at the state `ids` by inverse distribution of noise[:, 0], into action and logp."""
        _sample(slot, ids, bound, self._cumulative, self._logp, self.offset, noise, action, logp)

    def _grow(self, rows: int) -> None:
        for name in ("_cumulative", "_logp"):
            old = getattr(self, name)
            new = np.empty((max(rows, 2 * len(old), 8), *old.shape[1:]), np.float32)
            new[: len(old)] = old
            setattr(self, name, new)


@njit(cache=True)
def _sample(slot, ids, bound, cumulative, table, offset, noise, action, logp):  # type: ignore[no-untyped-def]
    for i in range(len(slot)):
        k = bound[slot[i]]
        s = ids[i] - offset
        u = noise[i, 0]
        a = 0
        while u >= cumulative[k, s, a]:
            a += 1
        action[i] = a
        logp[i] = table[k, s, a]
