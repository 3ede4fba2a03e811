"""One of the two sets of buffers that a `Publisher` fills in turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from ludus.types import Array, Due, Ended, EnvSpec, Finished


class Side:
    """Dense arrays by slot, and compact ones for the rows that are due or closed; see `Publisher` for what is in them."""

    def __init__(self, spec: EnvSpec, num_envs: int, masked: Sequence[bool]) -> None:
        players = range(spec.num_players)
        slots = [num_envs * len(spec.agents_of(p)) for p in players]
        spaces = [spec.agents_of(p)[0].observation for p in players]
        actions = [spec.agents_of(p)[0].action for p in players]
        self.observation: list[Array] = [
            np.zeros((n, *(space.shape or ())), space.dtype) for n, space in zip(slots, spaces, strict=True)
        ]
        self.final: list[Array] = [np.zeros_like(dense) for dense in self.observation]
        self.mask: list[NDArray[np.bool_] | None] = [
            np.ones((n, int(action.n)), np.bool_) if use and isinstance(action, Discrete) else None
            for n, action, use in zip(slots, actions, masked, strict=True)
        ]
        self.final_mask = [None if mask is None else mask.copy() for mask in self.mask]
        self.slot = [np.zeros(n, np.int32) for n in slots]
        self.reward = [np.zeros(n, np.float32) for n in slots]
        self.first = [np.zeros(n, np.bool_) for n in slots]
        self.end_slot = [np.zeros(n, np.int32) for n in slots]
        self.end_reward = [np.zeros(n, np.float32) for n in slots]
        self.end_terminated = [np.zeros(n, np.bool_) for n in slots]
        self._rows: list[Array | None] = [None for _ in slots]  # compact observations, made when first wanted
        self._row_masks = [None if mask is None else mask.copy() for mask in self.mask]
        self._nothing = [self._no_rows(p) for p in players]
        state = spec.state
        self.state = None if state is None else np.zeros((num_envs, *(state.shape or ())), state.dtype)
        self.final_state = None if self.state is None else self.state.copy()
        self.over_environment = np.zeros(num_envs, np.int32)
        self.over_returns = np.zeros((num_envs, len(slots)))
        self.over_terminated = np.zeros(num_envs, np.bool_)
        self.over_length = np.zeros(num_envs, np.int32)
        self._nobody = self._first(0)

    def due(self, player: int, n: int) -> Due:
        """The first n due rows; dense arrays as they are where every slot is due."""
        observation, mask, slot = self.observation[player], self.mask[player], self.slot[player]
        if n == len(slot):
            return Due(slot, observation, mask, self.reward[player], self.first[player])
        slot = slot[:n]
        rows, row_mask = self._rows[player], self._row_masks[player]
        if rows is None:
            rows = self._rows[player] = np.empty_like(observation)
        rows = observation.take(slot, axis=0, out=rows[:n], mode="clip")
        if mask is not None and row_mask is not None:
            mask = mask.take(slot, axis=0, out=row_mask[:n], mode="clip")
        return Due(slot, rows, mask, self.reward[player][:n], self.first[player][:n])

    def ended(self, player: int, n: int) -> Ended:
        """The first n closed rows, copied out of the dense arrays."""
        if not n:
            return self._nothing[player]
        slot, mask = self.end_slot[player][:n], self.final_mask[player]
        return Ended(
            slot,
            self.end_reward[player][:n],
            self.end_terminated[player][:n],
            self.final[player][slot],
            None if mask is None else mask[slot],
        )

    def finished(self, n: int) -> Finished:
        """The first n finished episodes."""
        return self._first(n) if n else self._nobody

    def _first(self, n: int) -> Finished:
        return Finished(
            self.over_environment[:n], self.over_returns[:n], self.over_terminated[:n], self.over_length[:n]
        )

    def _no_rows(self, player: int) -> Ended:
        mask = self.final_mask[player]
        return Ended(
            self.end_slot[player][:0],
            self.end_reward[player][:0],
            self.end_terminated[player][:0],
            self.final[player][:0],
            None if mask is None else mask[:0],
        )
