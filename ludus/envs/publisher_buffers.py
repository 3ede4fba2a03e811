"""One of the two sets of buffers that a `Publisher` fills in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.envs.choices import Choices
from ludus.types import Array, Due, Ended, EnvSpec, Finished, Timestep

_KEPT = 4096  # records of so many lengths are kept


class Side:
    """Dense arrays by slot, and compact ones for the rows that are due or closed; see `Publisher` for what is in them."""

    def __init__(self, spec: EnvSpec, num_envs: int, masked: Sequence[bool]) -> None:
        players = range(spec.num_players)
        slots = [num_envs * len(spec.agents_of(p)) for p in players]
        spaces = [spec.agents_of(p)[0].observation for p in players]
        choices = [Choices.of(spec.agents_of(p)[0].action) for p in players]
        self.observation: list[Array] = [
            np.zeros((n, *(space.shape or ())), space.dtype) for n, space in zip(slots, spaces, strict=True)
        ]
        self.final: list[Array] = [np.zeros_like(dense) for dense in self.observation]
        self.mask: list[NDArray[np.bool_] | None] = [
            np.ones((n, some.width), np.bool_) if use and some is not None else None
            for n, some, use in zip(slots, choices, masked, strict=True)
        ]
        self.final_mask = [None if mask is None else mask.copy() for mask in self.mask]
        self.slot = [np.zeros(n, np.int32) for n in slots]
        self.reward = [np.zeros(n, np.float32) for n in slots]
        self.first = [np.zeros(n, np.bool_) for n in slots]
        self.end_slot = [np.zeros(n, np.int32) for n in slots]
        self.end_reward = [np.zeros(n, np.float32) for n in slots]
        self.end_terminated = [np.zeros(n, np.bool_) for n in slots]
        self.columns = [
            (self.slot[p], self.reward[p], self.first[p], self.end_slot[p], self.end_reward[p], self.end_terminated[p])
            for p in players
        ]
        self._rows: list[Array | None] = [None for _ in slots]  # compact observations, made when first wanted
        self._row_masks = [None if mask is None else mask.copy() for mask in self.mask]
        self._end_rows: list[Array | None] = [None for _ in slots]
        self._end_masks = [None if mask is None else mask.copy() for mask in self.mask]
        state = spec.state
        self.state = None if state is None else np.zeros((num_envs, *(state.shape or ())), state.dtype)
        self.final_state = None if self.state is None else self.state.copy()
        self.over = (
            np.zeros(num_envs, np.int32),
            np.zeros((num_envs, len(slots))),
            np.zeros(num_envs, np.bool_),
            np.zeros(num_envs, np.int32),
        )  # environment, returns, terminated, length of what is finished
        self._all_due = [
            Due(self.slot[p], self.observation[p], self.mask[p], self.reward[p], self.first[p]) for p in players
        ]
        self._due: list[dict[int, Due]] = [{} for _ in slots]
        self._ended: list[dict[int, Ended]] = [{} for _ in slots]
        self._finished: dict[int, Finished] = {}
        self._timesteps: dict[tuple[int, int], Timestep] = {}

    def due(self, player: int, n: int) -> Due:
        """The first n due rows; dense arrays as they are where every slot is due."""
        observation, mask, slot = self.observation[player], self.mask[player], self.slot[player]
        if n == len(slot):
            whole = self._all_due[player]
            if whole.observation is not observation or whole.mask is not mask:
                whole = self._all_due[player] = Due(slot, observation, mask, self.reward[player], self.first[player])
            return whole
        record = self._due[player].get(n)
        if record is None:
            record = self._due_record(player, n)
        observation.take(record.slot, axis=0, out=record.observation, mode="clip")
        if mask is not None:
            mask.take(record.slot, axis=0, out=record.mask, mode="clip")
        return record

    def ended(self, player: int, n: int) -> Ended:
        """The first n closed rows, copied out of the dense arrays."""
        record = self._ended[player].get(n)
        if record is None:
            record = self._ended_record(player, n)
        if n:
            self.final[player].take(record.slot, axis=0, out=record.observation, mode="clip")
            mask = self.final_mask[player]
            if mask is not None:
                mask.take(record.slot, axis=0, out=record.mask, mode="clip")
        return record

    def finished(self, n: int) -> Finished:
        """The first n finished episodes."""
        record = self._finished.get(n)
        if record is None:
            environment, returns, terminated, length = self.over
            record = Finished(environment[:n], returns[:n], terminated[:n], length[:n])
            _keep(self._finished, n, record)
        return record

    def gathered(self, player: int) -> tuple[Array, Array]:
        """Where rows that are due are gathered, and closed ones."""
        return self._rows_of(player), self._end_rows_of(player)

    def timestep_of_one(self, due: int, ended: int) -> Timestep:
        """The timestep of a vector with one agent and so many rows, all of them gathered. Made once: it is views of the same buffers."""
        record = self._timesteps.get((due, ended))
        if record is None:
            now = self._due[0].get(due) or self._due_record(0, due)
            closed = self._ended[0].get(ended) or self._ended_record(0, ended)
            record = Timestep((now,), (closed,), self.finished(ended))
            _keep(self._timesteps, (due, ended), record)
        return record

    def _rows_of(self, player: int) -> Array:
        rows = self._rows[player]
        if rows is None:
            rows = self._rows[player] = np.empty_like(self.observation[player], order="C")
        return rows

    def _end_rows_of(self, player: int) -> Array:
        rows = self._end_rows[player]
        if rows is None:
            rows = self._end_rows[player] = np.empty_like(self.final[player], order="C")
        return rows

    def _due_record(self, player: int, n: int) -> Due:
        rows, mask = self._rows_of(player), self._row_masks[player]
        record = Due(
            self.slot[player][:n],
            rows[:n],
            None if mask is None else mask[:n],
            self.reward[player][:n],
            self.first[player][:n],
        )
        _keep(self._due[player], n, record)
        return record

    def _ended_record(self, player: int, n: int) -> Ended:
        rows, mask = self._end_rows_of(player), self._end_masks[player]
        record = Ended(
            self.end_slot[player][:n],
            self.end_reward[player][:n],
            self.end_terminated[player][:n],
            rows[:n],
            None if mask is None else mask[:n],
        )
        _keep(self._ended[player], n, record)
        return record


def _keep(records: dict[Any, Any], n: Any, record: object) -> None:
    """Records of the same length are views of the same buffers: they are made once."""
    if len(records) < _KEPT:
        records[n] = record
