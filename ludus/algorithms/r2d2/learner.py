"""R2D2's learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.losses import huber
from ludus.algorithms.common.returns import n_step
from ludus.algorithms.dqn.learner import QLearner, QLossResult, init_network
from ludus.algorithms.dqn.losses import gather_actions, greedy, mixed_priority
from ludus.backend.device import UpdateCost, resolve_placement, to_device, to_numpy
from ludus.backend.network import multiplications
from ludus.core.types import Array, SegmentEnd, Weights
from ludus.policies.action_values import ActionValues, rescale, unscale
from ludus.replay.base import ItemColumns
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.algorithms.r2d2.config import R2D2

# --------------------------------------------------------------------------------------------------------------------
# Cutting trajectories into sequences of one length, with the decisions before them and the observation after them.
# A sequence of at most `length` decisions lies in slots: `burn_in` slots for the decisions before it, of which the
# last `before` are used; `length` for its own, of which the first `count` are used; and one more. What follows the
# last of its decisions, be it the next row or the segment's bootstrap observation, is in the slot after it.

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SequenceWindows:
    """M sequences of trajectories.

    Attributes:
        segment: int64[M], the segment that each comes from.
        first: int64[M], its first row, counted from the segment's start.
        count: int64[M], its rows.
        before: int64[M], rows before it that refresh the memory.
        closes: bool[M], whether it ends where the segment does.
    """

    segment: Indices
    first: Indices
    count: Indices
    before: Indices
    closes: NDArray[np.bool_]

    @property
    def warm(self) -> Indices:
        """Return the row, counted from the segment's start, before which the memory is needed."""
        return self.first - self.before


def windows(start: Indices, *, length: int, period: int, burn_in: int) -> SequenceWindows:
    """Return sequences that begin every `period` rows of a segment, until one reaches its end: every row is in at least
    one."""
    rows = np.diff(start)
    pieces = 1 + np.maximum(0, -(-(rows - length) // period))
    segment = np.repeat(np.arange(len(rows)), pieces)
    first = (np.arange(len(segment)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * period
    count = np.minimum(length, rows[segment] - first)
    return SequenceWindows(segment, first, count, np.minimum(burn_in, first), first + count == rows[segment])


@dataclass(frozen=True, slots=True, eq=False)
class SequenceSlots:
    """Slots of the rows of M sequences: row int64[M, slots], the row of the trajectories in each slot; used bool[M,
    slots]; last int64[M], the slot of what follows a sequence."""

    row: Indices
    used: NDArray[np.bool_]
    last: Indices
    burn_in: int

    @staticmethod
    def of(sequences: SequenceWindows, start: Indices, *, length: int, burn_in: int) -> SequenceSlots:
        slot = np.arange(burn_in + length + 1)
        row = (start[sequences.segment] + sequences.first - burn_in)[:, None] + slot
        used = (slot >= burn_in - sequences.before[:, None]) & (slot < burn_in + sequences.count[:, None])
        return SequenceSlots(row, used, burn_in + sequences.count, burn_in)

    def rows(self, column: Array, fill: float | bool = 0) -> Array:
        """Return [N, …] -> [M, length, …] of the sequences' own decisions; `fill` where a slot is not used."""
        return self._spread(column, slice(self.burn_in, -1), fill)

    def observations(
        self, rows: Array, after: Array, sequences: SequenceWindows, *, first: int, fill: float | bool = 0
    ) -> Array:
        """Return [N, …] of rows and [S, …] of bootstrap observations -> [M, slots - first, …], from slot `first` on,
        with what follows each sequence."""
        out = self._spread(rows, slice(first, None), fill)
        closed, opened = np.flatnonzero(sequences.closes), np.flatnonzero(~sequences.closes)
        out[closed, self.last[closed] - first] = after[sequences.segment[closed]]
        out[opened, self.last[opened] - first] = rows[self.row[opened, self.last[opened]]]
        return out

    def _spread(self, column: Array, slots: slice, fill: float | bool) -> Array:
        used = self.used[:, slots]
        out = np.full((*used.shape, *column.shape[1:]), fill, column.dtype)
        out[used] = column[self.row[:, slots][used]]
        return out


class RewardedRows(Protocol):
    """Rows with a reward each, in segments that end: `Trajectories`, or the joint steps of a team."""

    @property
    def reward(self) -> Array:
        """Return rewards float[N]."""
        ...

    @property
    def tail(self) -> NDArray[np.int8]:
        """Return `SegmentEnd` int8[S]."""
        ...


def bootstraps(
    sequences: SequenceWindows, slots: SequenceSlots, rows: RewardedRows, *, gamma: float, steps: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int16]]:
    """Return (sum of rewards, discount, place to bootstrap from) of each decision, [M, length]: n-step targets that end
    with the sequence. Places count from the sequence's first decision. (Sutton and Barto 2018, equation 7.1.)"""
    used = slots.used[:, slots.burn_in : -1]
    start = np.concatenate([[0], np.cumsum(sequences.count)])
    reward = rows.reward[slots.row[:, slots.burn_in : -1][used]]
    tail = np.where(sequences.closes, rows.tail[sequences.segment], SegmentEnd.CUT).astype(np.int8)
    total, discount, next_index = n_step(start, reward, tail, gamma, steps)
    sequence = np.repeat(np.arange(len(sequences.count)), sequences.count)
    place = np.where(next_index < 0, sequences.count[sequence], next_index - start[:-1][sequence])
    sums, factors, places = np.zeros(used.shape), np.zeros(used.shape), np.zeros(used.shape, np.int16)
    sums[used], factors[used], places[used] = total, discount, place
    return sums, factors, places


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """n sequences as tensors, T slots for decisions and one more, B before them: x float32[n, B + T + 1, *shape], legal
    bool[n, T + 1, A], before int64[n], the largest of which is `refreshed`, memory float32[n, M]; action and place
    int64[n, T], reward and discount float32[n, T], present bool[n, T], weight float32[n]."""

    x: Tensor
    legal: Tensor
    before: Tensor
    refreshed: int
    memory: Tensor
    action: Tensor
    place: Tensor
    reward: Tensor
    discount: Tensor
    present: Tensor
    weight: Tensor


class R2D2Learner(QLearner):
    """Learns from sequences with the memory that the worker had at their start."""

    config: R2D2

    def __init__(self, config: R2D2, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        network, rows = init_network(spec, context, start), config.batch * (config.burn_in + config.length + 1)
        work = UpdateCost(multiplications(network), rows, has_cpu_kernel=False, no_kernel_reason="it remembers")
        super().__init__(config, context, spec, network=network, placement=resolve_placement(context.device, work))
        self._online, self._target = (
            cast(ActionValues, flat.module) for flat in (self.networks.online, self.networks.target)
        )

    # ------------------------------------------------------------------------------------------ data

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return sequences, in scaled rewards; see `windows`."""
        rows, config = self.rewarded(trajectories), self.config
        sequences = windows(rows.start, length=config.length, period=config.period, burn_in=config.burn_in)
        slots = SequenceSlots.of(sequences, rows.start, length=config.length, burn_in=config.burn_in)
        reward, discount, place = bootstraps(sequences, slots, rows, gamma=config.gamma, steps=config.n_step)
        nothing = -1 if self._states is not None else 0
        columns: dict[str, Array] = {
            "observation": slots.observations(
                rows.observation, rows.bootstrap_observation, sequences, first=0, fill=nothing
            ),
            "action": slots.rows(rows.action),
            "reward": (reward * self._scale).astype(np.float32),
            "discount": discount.astype(np.float32),
            "place": place,
            "before": sequences.before.astype(np.int16),
            "count": sequences.count.astype(np.int16),
            "memory": self._memory(rows, sequences),
            "version_lo": rows.version_lo[sequences.segment],
        }
        if self._states is not None:
            self._forget_unseen(columns)
        elif rows.mask is not None:
            after = rows.bootstrap_mask
            after = np.ones((len(rows.tail), self._actions), np.bool_) if after is None else after
            columns["mask"] = slots.observations(rows.mask, after, sequences, first=config.burn_in, fill=True)
        self.count(rows)
        return [self.table_items(columns)]

    def _forget_unseen(self, columns: dict[str, Array]) -> None:
        """Mark rows whose next observation is unknown (id -1) as ends."""
        after = np.take_along_axis(columns["observation"], self.config.burn_in + columns["place"].astype(np.int64), 1)
        unseen = (after < 0) & (columns["discount"] > 0.0)
        self._unknown_bootstraps += int(np.count_nonzero(unseen))
        columns["discount"] = np.where(unseen, np.float32(0.0), columns["discount"])

    @torch.no_grad()
    def _memory(self, rows: Trajectories, sequences: SequenceWindows) -> NDArray[np.float32]:
        """Return the network's memory before each sequence's first used slot, float32[M, memory]: that of the segment's
        start, unrolled through the rows in between by the present weights, which are those that acted unless workers
        are behind."""
        segments, module = rows.num_segments, self._online
        memory0 = np.zeros((segments, module.memory), np.float32) if rows.memory0 is None else rows.memory0
        begun, warm, longest = memory0[sequences.segment], sequences.warm, int(sequences.warm.max(initial=0))
        if not longest:
            return begun
        reach = np.zeros(segments, np.int64)
        np.maximum.at(reach, sequences.segment, warm)
        alive = np.flatnonzero(reach)
        memory, out = (to_device(of.astype(np.float32), self.device) for of in (memory0, begun))
        for t in range(longest):
            alive = alive[reach[alive] > t]
            x, place = (
                self._network_inputs(rows.observation[rows.start[alive] + t], module.shape),
                to_device(alive, self.device),
            )
            memory[place] = module.step(module.body(x), memory[place])
            there = np.flatnonzero(warm == t + 1)
            out[to_device(there, self.device)] = memory[to_device(sequences.segment[there], self.device)]
        return to_numpy(out)

    # ------------------------------------------------------------------------------------------ learning

    def _gradient(self, columns: Mapping[str, Any], rows: int, weight: NDArray[np.float64] | None) -> QLossResult:
        batch = self._batch(columns, rows, weight)
        self.networks.online.zero()
        decisions = max(1, int(columns["count"].sum()))
        result = self._backward(batch, decisions) if len(batch.action) else QLossResult.nothing(self.device)
        return self._joint(result, rows)

    def _backward(self, batch: _Batch, decisions: int) -> QLossResult:
        """Add to the gradient. decisions: of all ranks, by which sums are divided."""
        q = self._values(self._online, batch)
        target = self._targets(batch, q.detach())
        error = (gather_actions(q[:, :-1].flatten(0, 1), batch.action.flatten()) - target.flatten()).view_as(target)
        loss = (huber(error, delta=self.config.huber_delta) * batch.present * batch.weight[:, None]).sum() / decisions
        torch.autograd.backward(loss)
        error = error.detach()
        sizes = mixed_priority(error, batch.present, mix=self.config.priority_mix)
        value = ((error + target) * batch.present).sum() / decisions
        wrong = (error.abs() * batch.present).sum() / decisions
        return QLossResult(loss.detach(), value, wrong, sizes, (target.isfinite() | ~batch.present).all())

    @torch.no_grad()
    def _targets(self, batch: _Batch, q: Tensor) -> Tensor:
        """Return h(R + discount h⁻¹(Q_target(s', argmax Q(s', ·)))), float32[n, T]. (R2D2, equation in section 2.3.)"""
        target_values = self._values(self._target, batch)
        n, steps = batch.place.shape
        at = torch.arange(n, device=self.device)[:, None], batch.place
        online_values = q if self.config.double else target_values
        best = greedy(online_values[at].flatten(0, 1), batch.legal[at].flatten(0, 1))
        value = gather_actions(target_values[at].flatten(0, 1), best).view(n, steps)
        if not self.config.rescale:
            return batch.reward + batch.discount * value
        epsilon = self.config.rescale_epsilon
        return rescale(batch.reward + batch.discount * unscale(value, epsilon=epsilon), epsilon=epsilon)

    def _values(self, module: ActionValues, batch: _Batch) -> Tensor:
        """Return action values float32[n, T + 1, A], after the slots before them have refreshed the memory, without
        gradients."""
        before, steps = self.config.burn_in, batch.legal.shape[1]
        with self.placement.products():
            memory = self._refreshed(module, batch)
            now = batch.x[:, before:].transpose(0, 1)
            features = module.body(now.flatten(0, 1)).view(steps, len(batch.x), -1)
            states = module.unroll(features, memory).transpose(0, 1)
            q = module.values(states.flatten(0, 1), batch.legal.flatten(0, 1))
        return q.float().view(len(batch.x), steps, -1)

    @torch.no_grad()
    def _refreshed(self, module: ActionValues, batch: _Batch) -> Tensor:
        slots, memory = self.config.burn_in, batch.memory
        begin = slots - batch.refreshed
        if begin == slots:
            return memory
        before = batch.x[:, begin:slots].transpose(0, 1)
        features = module.body(before.flatten(0, 1)).view(slots - begin, len(batch.x), -1)
        for k in range(slots - begin):
            used = (begin + k >= slots - batch.before)[:, None]
            memory = torch.where(used, module.step(features[k], memory), memory)
        return memory

    def _batch(self, columns: Mapping[str, Any], rows: int, weight: NDArray[np.float64] | None) -> _Batch:
        local_columns, config = self.local_columns(columns, rows), self.config
        observation = local_columns["observation"]
        if self._states is not None:
            legal = self._legal[self._ids(observation[:, config.burn_in :])]
        elif "mask" in local_columns:
            legal = local_columns["mask"]
        else:
            shape = (len(observation), config.length + 1, self._actions)
            legal = torch.ones(shape, dtype=torch.bool, device=self.device)
        return _Batch(
            x=self._network_inputs(observation.flatten(0, 1), self._online.shape).view(
                *observation.shape[:2], *self._online.shape
            ),
            legal=legal,
            before=to_device(local_columns["before"], self.device).long(),
            refreshed=int(local_columns["before"].max(initial=0)),
            present=to_device(np.arange(config.length) < local_columns["count"][:, None], self.device),
            weight=self._weights(weight, rows),
            **{name: local_columns[name].long() for name in ("action", "place")},
            **{name: local_columns[name] for name in ("memory", "reward", "discount")},
        )
