"""From rollouts to items: values, advantages and targets, and memory at the beginning of sequences."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.base import LearnerContext
from ludus.algorithms.correction import trace_columns
from ludus.algorithms.diversity import Divergence
from ludus.algorithms.on_policy.config import Gradient
from ludus.algorithms.on_policy.models import Floats, Model
from ludus.algorithms.on_policy.sequences import MEMORY, Pieces, padded, walk
from ludus.algorithms.on_policy.teams import critic_states, team_rewards
from ludus.algorithms.returns import gae, tail_values
from ludus.algorithms.spaces import reward_scale
from ludus.algorithms.states import StateTable
from ludus.data.base import Columns
from ludus.data.trajectories import Trajectories
from ludus.errors import PolicyError, ScenarioError
from ludus.types import Array, Metrics, Tail


class Items:
    """Makes the items of a learner's table. blind: tails so far that should have been bootstrapped and have no observation."""

    def __init__(self, config: Gradient, model: Model, context: LearnerContext) -> None:
        self._config, self._model = config, model
        enumeration = context.env.enumeration
        self._states = StateTable.of(enumeration, context.seats) if enumeration is not None else None
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)
        self._others = None
        if context.others is not None:
            if model.spec.config.get("action", {"kind": "categorical"})["kind"] != "categorical":
                raise ScenarioError(
                    "behavioural diversity compares probabilities of discrete actions; this policy plays vectors of them. Leave it out."
                )
            self._others = Divergence(context.others, context.env, context.seats)
        self._seats = context.seats
        self.blind = 0

    @property
    def metrics(self) -> Metrics:
        """What there is to say about rollouts so far."""
        out = {"tails_without_value": float(self.blind)} if self._model.names else {}
        return out if self._others is None else {**out, "distance": self._others.nats}

    def of(self, rows: Trajectories) -> Columns:
        """Rows with advantage and target, or sequences of them."""
        config = self._config
        if self._states is not None:
            self.blind += int(np.count_nonzero((rows.tail_observation < 0) & (rows.tail != Tail.TERMINATED)))
        state, tail_state = critic_states(rows, self._seats) if self._model.state else (None, None)
        pieces = before = last = None
        if self._model.memory:
            pieces = Pieces.of(rows.start, self._model.sequence)
            value, before, last = self._walk(rows, pieces, state)
        else:
            value = self.values(rows.observation, self.x(rows.observation), state=_tensor(state))
        tail = rows.tail_observation
        tail_value = tail_values(rows.tail, self.values(tail, self.x(tail), _tensor(last), state=_tensor(tail_state)))
        received = team_rewards(rows) if config.team_rewards else rows.reward.astype(np.float64)
        reward = self._model.scaled(rows, received * self._scale)
        if self._others is not None:
            reward = reward + self._others.reward(rows.observation, rows.mask, rows.action, rows.logp)
        advantage, target = gae(rows.start, reward, value, tail_value, config.gamma, config.gae_lambda)
        columns = {
            "observation": rows.observation,
            "action": rows.action,
            "logp": rows.logp,
            "advantage": advantage.astype(np.float32),
            "target": target.astype(np.float32),
            "value": value.astype(np.float32),
        }
        if state is not None:
            columns["state"] = state
        if config.correction == "vtrace":
            columns |= trace_columns(rows.start, reward, value, tail_value)
        if rows.mask is not None and self._model.actions:
            columns["mask"] = rows.mask
        if pieces is None or before is None:
            return {**columns, "version_lo": np.repeat(rows.version_lo, np.diff(rows.start))}
        items = padded(columns, pieces, self._model.sequence)
        return {**items, MEMORY: before, "version_lo": rows.version_lo[pieces.segment]}

    def _walk(
        self, rows: Trajectories, pieces: Pieces, state: NDArray[np.float32] | None
    ) -> tuple[Floats, NDArray[np.float32], NDArray[np.float32]]:
        if rows.memory0 is None:
            raise PolicyError(
                "a network with memory learns from trajectories without `memory0`; its policy must have one."
            )

        def look(
            which: NDArray[np.int64], memory: NDArray[np.float32], start: NDArray[np.int64]
        ) -> tuple[Array, NDArray[np.float32]]:
            x, seen = self.x(rows.observation[which]), None if state is None else state[which]
            with torch.no_grad():
                out, after = self._model.values(x, torch.from_numpy(memory), start, _tensor(seen))
            assert after is not None
            return out.numpy(), after.numpy()

        return walk(pieces, rows.memory0, look)

    def values(
        self,
        observation: Array,
        x: Tensor,
        memory: Tensor | None = None,
        start: NDArray[np.int64] | None = None,
        state: Tensor | None = None,
    ) -> Floats:
        """Values float64[n]; 0 for ids of -1, of which nothing is known."""
        with torch.no_grad():
            out = self._model.values(x, memory, start, state)[0].numpy().astype(np.float64)
        return np.where(observation >= 0, out, 0.0) if self._states is not None else out

    def x(self, observation: Array) -> Tensor:
        """Observations as the model takes them: float32, or uint8 as they are, [n, *shape]."""
        shape = (len(observation), *self._model.shape)
        if self._states is None:
            dtype = np.uint8 if observation.dtype == np.uint8 and len(shape) > 2 else np.float32
            return torch.from_numpy(np.ascontiguousarray(observation, dtype).reshape(shape))
        ids = np.maximum(observation - self._states.base, 0).astype(np.int64)
        return self._states.x[torch.from_numpy(ids)].reshape(shape)

    def tensors(self, columns: Columns) -> tuple[Tensor, Tensor | None, Tensor]:
        """(x, mask, action) of columns of rows."""
        observation, action, model = columns["observation"], columns["action"], self._model
        mask = None
        if self._states is not None:
            mask = self._states.mask[observation - self._states.base]
        elif "mask" in columns:
            mask = columns["mask"]
        elif not model.trusted:  # losses of one's own are written for masks
            mask = np.ones((len(observation), model.actions), np.bool_)
        whole = action.astype(np.int64) if model.actions else action
        return self.x(observation), None if mask is None else torch.from_numpy(mask), torch.from_numpy(whole)


def _tensor(array: Array | None) -> Tensor | None:
    return None if array is None else torch.from_numpy(array)
