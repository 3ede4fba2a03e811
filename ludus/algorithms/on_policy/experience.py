"""From a rollout to the rows of an update: `Trajectories` become items with values, advantages and targets (and with a
memory, sequences of them), which wait in the learner's table; items become a `Batch`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.behavioral_diversity import Divergence
from ludus.algorithms.common.information_states import unique_ids, visited_states
from ludus.algorithms.common.returns import bootstrap_values, learned_columns, trace_columns
from ludus.algorithms.common.space_checks import reward_scale
from ludus.algorithms.on_policy.batch import MEMORY, Batch, SegmentPieces, padded, unpadded, unroll_segments
from ludus.algorithms.on_policy.model import Floats, Model, OnPolicyConfig
from ludus.algorithms.on_policy.multi_agent import critic_states, team_rewards
from ludus.algorithms.rewards.base import LearnedRows
from ludus.backend.device import to_device, to_numpy
from ludus.core.errors import PolicyError, ScenarioError
from ludus.core.types import Array, Metrics, SegmentEnd
from ludus.replay.base import ItemColumns
from ludus.replay.trajectories import Trajectories

_FLOATS = ("logp", "advantage", "target", "value")  # columns that a loss looks at
_TRACED = ("reward", "ends", "after", "weight", "other")  # and that V-trace does


class Inputs:
    """Converts observations, or ids of an enumerated game, to a model's inputs on its device. For such a game it holds
    states float32[I, …] and legal bool[I, A] there."""

    def __init__(self, model: Model) -> None:
        self._shape, self._device, self._table = model.shape, model.placement.torch, model.table
        self._masked, self._actions = not model.mean_reducible, model.actions
        if self._table is not None:
            self.states, self.legal = self._table.x.to(self._device), to_device(self._table.mask, self._device)

    @staticmethod
    def of(model: Model) -> Inputs:
        """Return the inputs of a model, which live as long as it: CUDA graphs of its updates read their memory, and the next learner has
        the same graphs."""
        if model.inputs is None:
            model.inputs = Inputs(model)
        inputs: Inputs = model.inputs
        return inputs

    def __call__(self, observation: Array | Tensor) -> Tensor:
        """Return inputs [n, *shape]: float32, or uint8 images unchanged; for unknown ids (-1) those of some state."""
        shape = (len(observation), *self._shape)
        if self._table is not None:
            return self.states[self.index(observation)].reshape(shape)
        if isinstance(observation, np.ndarray):  # here NumPy is faster
            dtype = np.uint8 if observation.dtype == np.uint8 and len(shape) > 2 else np.float32
            return to_device(np.ascontiguousarray(observation, dtype).reshape(shape), self._device)
        there = observation.reshape(shape)
        return there if there.dtype == torch.uint8 and len(shape) > 2 else there.float()

    def mask(self, observation: Array | Tensor, mask: Array | Tensor | None) -> Tensor | None:
        """Return masks bool[n, A] of observations; None: everything is legal."""
        if self._table is not None:
            return self.legal[self.index(observation)]
        if mask is None and self._masked:  # losses of one's own are written for masks
            return torch.ones(len(observation), self._actions, dtype=torch.bool, device=self._device)
        return None if mask is None else to_device(mask, self._device)

    def index(self, ids: Array | Tensor) -> Tensor:
        """Return the rows int64[n] of the state table; 0 for unknown ids."""
        assert self._table is not None
        return (to_device(ids, self._device).long() - self._table.base).clamp(min=0)


class ValueEstimates(NamedTuple):
    """Values of a rollout's rows float64[N], and of its bootstrap observations float64[S]. With a memory: its pieces,
    and the memory float32[Q, M] before each."""

    value: Floats
    after: Floats
    pieces: SegmentPieces | None = None
    before: NDArray[np.float32] | None = None


class ExperienceBuilder:
    """Builds the items of a learner's table: values, advantages and targets. unknown_bootstrap_count: segments so far
    whose bootstrap observation is unknown."""

    def __init__(self, config: OnPolicyConfig, model: Model, context: LearnerContext) -> None:
        self._config, self._model, self._device = config, model, model.placement.torch
        self.inputs = Inputs.of(model)
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)
        self._divergence = None
        if context.diversity is not None:
            if model.spec.config.get("action", {"kind": "categorical"})["kind"] != "categorical":
                raise ScenarioError(
                    "behavioural diversity compares probabilities of discrete actions; this policy plays vectors of them. Leave it out."
                )
            self._divergence = Divergence(context.diversity, context.env, context.seats)
        self._seats = context.seats
        self.unknown_bootstrap_count = 0
        learned = config.learned_reward
        self.learned_reward = (
            None if learned is None else learned.build(context, model.placement, replayed=False, gamma=config.gamma)
        )

    @property
    def metrics(self) -> Metrics:
        """Return metrics of the rollouts so far."""
        out = {"tails_without_value": float(self.unknown_bootstrap_count)} if self._model.names else {}
        out |= {} if self.learned_reward is None else self.learned_reward.metrics
        return out if self._divergence is None else {**out, "distance": self._divergence.nats}

    def build(self, rows: Trajectories, progress: float) -> ItemColumns:
        """Return items with advantage and target: rows, or with a memory sequences of them. progress: of the budget."""
        config, model = self._config, self._model
        if model.table is not None:
            self.unknown_bootstrap_count += int(
                np.count_nonzero((rows.bootstrap_observation < 0) & (rows.tail != SegmentEnd.TERMINATED))
            )
        state, bootstrap_state = critic_states(rows, self._seats) if model.state else (None, None)
        estimates = self.estimate_values(rows, state, bootstrap_state)
        value, after = estimates.value, estimates.after
        gamma = config.gamma if config.discount == "step" else 1.0
        team_reward = team_rewards(rows, gamma) if config.team_rewards else rows.reward.astype(np.float64)
        learned = LearnedRows(team_reward * self._scale)
        if self.learned_reward is not None:
            learned = self.learned_reward.of(rows, learned.reward, self._log_prob)
        reward = model.rewards(rows, learned.reward, progress)
        if self._divergence is not None:
            reward = reward + self._divergence.reward(rows.observation, rows.mask, rows.action, rows.logp)
        columns = learned_columns(
            rows,
            reward=reward,
            value=value,
            after=after,
            gamma=config.gamma,
            lam=config.gae_lambda,
            in_time=config.discount == "step",
        )
        if state is not None:
            columns["state"] = state
        if config.correction == "vtrace":
            columns |= trace_columns(rows.start, reward, value, bootstrap_values(rows.tail, after))
        if learned.advantage is not None:
            columns |= self._second_stream(columns["advantage"], learned)
        if model.table is None and rows.mask is not None and model.actions:
            columns["mask"] = rows.mask
        columns |= self.extra_columns(rows)
        return self.items(rows, columns, estimates)

    def estimate_values(
        self, rows: Trajectories, state: NDArray[np.float32] | None, bootstrap_state: NDArray[np.float32] | None
    ) -> ValueEstimates:
        """Return the values of a rollout's observations. state, bootstrap_state: inputs of a central critic."""
        pieces = before = last = None
        if self._model.memory:
            pieces = SegmentPieces.of(rows.start, self._model.sequence)
            value, before, last = self._walk(rows, pieces, state)
        else:
            value = self._values(rows.observation, None, state)
        return ValueEstimates(value, self._values(rows.bootstrap_observation, last, bootstrap_state), pieces, before)

    def items(self, rows: Trajectories, columns: dict[str, Array], estimates: ValueEstimates) -> ItemColumns:
        """Return columns of rows as columns of items, with the oldest weights that acted in each."""
        pieces, before = estimates.pieces, estimates.before
        if pieces is None or before is None:
            return {**columns, "version_lo": np.repeat(rows.version_lo, np.diff(rows.start))}
        items = padded(columns, pieces, self._model.sequence)
        return {**items, MEMORY: before, "version_lo": rows.version_lo[pieces.segment]}

    def extra_columns(self, rows: Trajectories) -> ItemColumns:
        """Return further columns of the rows that a subclass stores."""
        return {}

    def _second_stream(self, own: Array, learned: LearnedRows) -> dict[str, Array]:
        """Return the sum of both streams' advantages; for V-trace, which estimates the first again, also the second
        stream's and the weight of the first."""
        assert learned.advantage is not None
        both = (learned.weight * own + learned.advantage).astype(np.float32)
        if self._config.correction != "vtrace":
            return {"advantage": both}
        weight = np.full(len(both), learned.weight, np.float32)
        return {"advantage": both, "weight": weight, "other": learned.advantage.astype(np.float32)}

    def _log_prob(self, observation: Array, action: Array, mask: NDArray[np.bool_] | None) -> Floats:
        """Return log-probabilities as `ludus.algorithms.rewards.base.LogProb` does, of a network without memory."""
        columns = {
            "observation": observation,
            "action": action,
            **dict.fromkeys(_FLOATS, np.zeros(len(action), np.float32)),
        }
        columns |= {} if mask is None else {"mask": mask}
        if self._model.state:  # the critic's input, which is not used
            columns["state"] = np.zeros((len(action), self._model.state), np.float32)
        with torch.no_grad():
            return to_numpy(self._model.log_prob(self.batch(columns)[0])).astype(np.float64)

    def unpacked(self, items: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """Return (columns of rows, further fields of the `Batch`) of items that `items` built."""
        if not self._model.memory:
            return items, {}
        columns, start = unpadded(items)
        return columns, {"start": start, "memory": to_device(items[MEMORY], self._device)}

    def _walk(
        self, rows: Trajectories, pieces: SegmentPieces, state: NDArray[np.float32] | None
    ) -> tuple[Floats, NDArray[np.float32], NDArray[np.float32]]:
        if rows.memory0 is None:
            raise PolicyError(
                "a network with memory learns from trajectories without `memory0`; its policy must have one."
            )

        def segment_values(
            which: NDArray[np.int64], memory: NDArray[np.float32], start: NDArray[np.int64]
        ) -> tuple[Array, NDArray[np.float32]]:
            x, state_rows = self.inputs(rows.observation[which]), None if state is None else state[which]
            with torch.no_grad():
                out, after = self._model.values(x, self._tensor(memory), start, self._tensor(state_rows))
            assert after is not None
            return to_numpy(out), to_numpy(after)

        return unroll_segments(pieces, rows.memory0, segment_values)

    def _values(self, observation: Array, memory: Array | None, state: NDArray[np.float32] | None) -> Floats:
        """Return values float64[n]; 0 for unknown ids (-1). A state that occurs several times is evaluated once."""
        table, index = self._model.table, None
        if table is not None and memory is None and state is None:
            visited_states, index = unique_ids(np.where(observation >= 0, observation - table.base, -1), len(table))
            if not len(visited_states):
                return np.zeros(len(observation))
            x = self.inputs(visited_states + table.base)
        else:
            x = self.inputs(observation)
        with torch.no_grad():
            out = to_numpy(self._model.values(x, self._tensor(memory), None, self._tensor(state))[0]).astype(np.float64)
        if table is None:
            return out
        return np.where(observation >= 0, out if index is None else out[index], 0.0)

    def batch(self, items: Mapping[str, Any]) -> tuple[Batch, dict[str, Tensor]]:
        """Return (the batch, with advantages as they were estimated; the columns that V-trace needs)."""
        model = self._model
        columns, more = self.unpacked(items)
        observation, action, table = columns["observation"], columns["action"], model.table
        mask = columns.get("mask")
        if model.uses_state_table:
            x, mask, more["state_index"] = visited_states(
                table, observation, mask, inputs=math.prod(model.shape), actions=model.actions
            )
        else:
            x, mask = self.inputs(observation), self.inputs.mask(observation, mask)
        more["state"] = self._tensor(columns["state"]) if model.state else None
        more |= {name: to_device(columns[name], self._device) for name in _FLOATS}
        there = to_device(action, self._device)
        whole = there.long() if model.actions else there
        traced = {name: to_device(columns[name], self._device) for name in _TRACED if name in columns}
        return Batch(x, self._tensor(mask), whole, **more), traced

    def _tensor(self, array: Array | Tensor | None) -> Tensor | None:
        return None if array is None else to_device(array, self._device)
