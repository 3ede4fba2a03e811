"""CPU kernels of on-policy learning: perceptrons with discrete actions, over the distinct states of a batch. At their
size the bookkeeping of autograd takes as long as the arithmetic, or longer.

Rows are compressed without loss. With r = π(a|s) / π_old(a|s), the clipped surrogate of a row with advantage A is A
min(r, 1 + ε) if A > 0, else A max(r, 1 - ε). Rows with equal (s, a, log π_old) share r, so their sum is U min(r, 1 + ε)
+ D max(r, 1 - ε), where U and D are the sums of their positive and negative advantages. The squared value error of rows
with equal s is n V² - 2 V ΣG + ΣG². Losses and gradients are those of the rows, up to rounding, and an epoch costs one
pass over the distinct states, however many rows there are. In games without an enumeration every row is a state and a
compressed row of its own, and the same code runs on rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.information_states import unique_ids
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.model import Model, state_table
from ludus.backend.device import Placement, UpdateCost, multiplications, resolve_placement
from ludus.backend.network import Adam, ForwardBackwardBuffers, TrainedNetwork
from ludus.backend.ranks import RankGroup, broadcast_from_rank0
from ludus.core.arrays import inner, kernel
from ludus.core.types import Array, PolicySpec, State, Weights
from ludus.policies.actor_critic import layouts
from ludus.policies.specs import information_state_ids

if TYPE_CHECKING:
    from ludus.algorithms.mmd.config import MMD
    from ludus.algorithms.ppo.config import PPO

KernelOptions: TypeAlias = "PPO | MMD"
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class CompressedRows:
    """n rows over m states, compressed to c rows. `rows` (n, or those of all ranks together) is the denominator of
    means.

    Per compressed row: state int32[c], action int32[c], logp float64[c] of the behaviour, up and down float64[c] (sums
    of positive and of negative advantages), weight float64[c] (number of rows). Per state: count, total, square
    float64[m] of the value targets.
    """

    rows: int
    state: NDArray[np.int32]
    action: NDArray[np.int32]
    logp: Floats
    up: Floats
    down: Floats
    weight: Floats
    count: Floats
    total: Floats
    square: Floats

    @property
    def columns(self) -> tuple[Array, ...]:
        """Return the arguments of the policy's loss kernels: the columns of compressed rows, and the count of each
        state."""
        return self.state, self.action, self.logp, self.up, self.down, self.weight, self.count


def compress(
    state: NDArray[np.int32],
    action: Array,
    logp: Array,
    advantage: Array,
    target: Array,
    *,
    states: int,
    actions: int,
    rows: int | None = None,
) -> CompressedRows:
    """Sum n rows into compressed ones. Rows that share (state, action) but were chosen with other probabilities (by
    other weights) stay separate. rows: those of all ranks; None: n."""
    action = np.ascontiguousarray(action, np.int32)
    count, total, square = np.zeros((3, states))
    _sums(state, target, count, total, square)
    size, place = min(len(state), states * actions), np.full((states, actions), -1, np.int32)
    (where, what), (old, up, down, weight) = np.empty((2, size), np.int32), np.zeros((4, size))
    used = _merge(state, action, logp, advantage, place, where, what, old, up, down, weight)
    if used < 0:
        up, down = np.maximum(advantage, 0.0).astype(np.float64), np.minimum(advantage, 0.0).astype(np.float64)
        where, what, old, weight, used = state, action, logp.astype(np.float64), np.ones(len(state)), len(state)
    return CompressedRows(
        rows=len(state) if rows is None else rows,
        state=where[:used],
        action=what[:used],
        logp=old[:used],
        up=up[:used],
        down=down[:used],
        weight=weight[:used],
        count=count,
        total=total,
        square=square,
    )


def compress_distinct(action: Array, logp: Array, advantage: Array, target: Array) -> tuple[Array, ...]:
    """Return the columns of `CompressedRows`, from `action` on, of n rows whose states all differ."""
    columns = np.empty((7, len(action)))
    _distinct(np.ascontiguousarray(logp), np.ascontiguousarray(advantage), np.ascontiguousarray(target), columns)
    return np.ascontiguousarray(action, np.int32), *columns


@kernel
def _distinct(logp, advantage, target, columns):  # type: ignore[no-untyped-def]
    """Write the seven columns of float64 that compressed rows have, in their order."""
    for k in range(len(logp)):
        a, g = float(advantage[k]), np.float64(target[k])  # `float` keeps float32 here, whose squares cancel
        columns[0, k] = logp[k]
        columns[1, k], columns[2, k] = (a, 0.0) if a > 0.0 else (0.0, a)  # a NaN stays
        columns[3, k] = columns[4, k] = 1.0
        columns[5, k], columns[6, k] = g, g * g


@kernel
def _sums(state, target, count, total, square):  # type: ignore[no-untyped-def]
    for k in range(len(state)):
        s, g = state[k], np.float64(target[k])
        count[s] += 1.0
        total[s] += g
        square[s] += g * g


@kernel
def _merge(state, action, logp, advantage, place, where, what, old, up, down, weight):  # type: ignore[no-untyped-def]
    """Write one compressed row per (state, action) that occurs, in the order of first occurrence, into the zeros of the
    last six arguments. Return their number, or -1 if some rows differ in logp. place int32[states, actions]: -1 so far."""
    used = 0
    for k in range(len(state)):
        c = place[state[k], action[k]]
        if c < 0:
            c = used
            used += 1
            place[state[k], action[k]] = c
            where[c], what[c], old[c] = state[k], action[k], float(logp[k])
        elif old[c] != logp[k]:
            return -1
        a = float(advantage[k])
        if a > 0.0:
            up[c] += a
        else:
            down[c] += a
        weight[c] += 1.0
    return used


@inner
def log_softmax(out, mask, logp, prob):  # type: ignore[no-untyped-def]
    """Compute one state's log-probabilities and probabilities over legal actions, in place. Return its entropy."""
    top = -np.inf
    for a in range(len(mask)):
        if mask[a] and not (out[a] <= top):
            top = float(out[a])
    total = 0.0
    for a in range(len(mask)):
        logp[a] = 0.0
        if mask[a]:
            logp[a] = out[a] - top
            prob[a] = math.exp(logp[a])
            total += prob[a]
    shift, h = math.log(total) if total > 0.0 else np.nan, 0.0
    for a in range(len(mask)):
        if mask[a]:
            logp[a] -= shift
            prob[a] /= total
            h -= prob[a] * logp[a] if prob[a] > 0.0 else 0.0
    return h


@inner
def clipped_surrogate(logp, prob, state, action, old, up, down, weight, rows, clip, gradient):  # type: ignore[no-untyped-def]
    """Return (the clipped surrogate, a loss; KL estimate (old ‖ new); share of rows outside the clip range) of
    compressed rows, as means over `rows`, given log-probabilities and probabilities [m, A] of the states. The gradient
    of the first is added to gradient[:, :A]."""
    surrogate, kl, clipped = 0.0, 0.0, 0.0
    for c in range(len(state)):
        s, action_index = state[c], action[c]
        log_ratio = logp[s, action_index] - old[c]
        ratio = math.exp(log_ratio)
        kl += weight[c] * (ratio - 1.0 - log_ratio)
        logp_grad = 0.0
        if ratio >= 1.0 + clip:  # a NaN takes the other branch, and shows in the loss
            surrogate -= up[c] * (1.0 + clip)
        else:
            logp_grad += up[c]
            surrogate -= up[c] * ratio
        if ratio <= 1.0 - clip:
            surrogate -= down[c] * (1.0 - clip)
        else:
            logp_grad += down[c]
            surrogate -= down[c] * ratio
        if abs(ratio - 1.0) > clip:
            clipped += weight[c]
        logp_grad *= ratio / rows
        for a in range(logp.shape[1]):
            gradient[s, a] += logp_grad * prob[s, a]
        gradient[s, action_index] -= logp_grad
    return surrogate / rows, kl / rows, clipped / rows


@kernel
def log_probs(out: Array, mask: NDArray[np.bool_], state: NDArray[np.int32], action: NDArray[np.int32]) -> Floats:
    """Return the log-probability of each row's action, float64[n], of network outputs float[m, >= A] of the states."""
    logp, prob = np.empty(mask.shape), np.zeros(mask.shape)
    for s in range(len(mask)):
        log_softmax(out[s], mask[s], logp[s], prob[s])
    logp_action = np.empty(len(state))
    for k in range(len(state)):
        logp_action[k] = logp[state[k], action[k]]
    return logp_action


def squared_value_loss(out: Array, compressed: CompressedRows, *, scale: float, gradient: Array) -> float:
    """Return the mean of ½ (V - G)² over rows, V being out[:, -1]. Its gradient times `scale` is written to gradient[:,
    -1]."""
    return float(
        _value(out, compressed.count, compressed.total, compressed.square, float(compressed.rows), scale, gradient)
    )


@kernel
def _value(out, count, total, square, rows, scale, gradient):  # type: ignore[no-untyped-def]
    loss, column = 0.0, out.shape[1] - 1
    for s in range(len(count)):
        v = np.float64(out[s, column])
        error = v * (count[s] * v - 2.0 * total[s]) + square[s]
        loss += 0.0 if error < 0.0 else 0.5 * error  # a NaN stays; less than 0 is rounding
        gradient[s, column] = scale * (count[s] * v - total[s]) / rows
    return loss / rows


def clipped_value_loss(
    out: Array,
    state: NDArray[np.int32],
    target: Array,
    old: Array,
    *,
    clip: float,
    scale: float,
    gradient: Array,
    rows: int | None = None,
) -> float:
    """Return the value loss with `losses.value_loss`'s clipping, whose maximum must be taken row by row. Its gradient
    times `scale` is written to gradient[:, -1].

    Args:
        out: Network outputs float[m, >= 1]; the last column is the value.
        state: int32[n], the state of each row.
        target: float[n].
        old: float[n], values before the update.
        clip: Largest change of a value.
        scale: Factor of the gradient.
        gradient: float[m, >= 1], written to.
        rows: Denominator of the mean; None: n.
    """
    return float(
        _clipped_value(out, state, target, old, float(len(state) if rows is None else rows), clip, scale, gradient)
    )


@kernel
def _clipped_value(out, state, target, old, rows, clip, scale, gradient):  # type: ignore[no-untyped-def]
    loss, column = 0.0, out.shape[1] - 1
    gradient[:, column] = 0
    for k in range(len(state)):
        # in double precision (compiled, float() of a float32 is a float32): equal losses must compare as equal
        v, g, before = np.float64(out[state[k], column]), np.float64(target[k]), np.float64(old[k])
        moved = v - before
        near = v if abs(moved) <= clip else before + (clip if moved > 0.0 else -clip)
        free, held = 0.5 * (v - g) ** 2, 0.5 * (near - g) ** 2
        loss += max(free, held)
        if free >= held:
            gradient[state[k], column] += scale * (v - g) / rows
    return loss / rows


# --------------------------------------------------------------------------------------------------------------------
# What is trained so.


@dataclass(slots=True, eq=False)
class KernelStep:
    """Rows of one gradient step in NumPy: n rows over m states, x float32[m, inputs] and mask bool[m, A]; state int32[n]
    of each row, and its other columns [n].

    Attributes:
        rows: Rows of all ranks, the denominator of means.
        distinct: Whether every row is a state of its own.
        held: Log-probabilities float64[m, A] each that the policy of a state is kept close to.
        compressed: The rows, compressed.
        passes: Buffers of the forward and backward passes of the states.
    """

    x: Array
    mask: NDArray[np.bool_]
    state: NDArray[np.int32]
    action: Array
    logp: Array
    advantage: Array
    target: Array
    value: Array
    rows: int
    distinct: bool
    held: tuple[Floats, ...] = ()
    compressed: CompressedRows = field(init=False)
    passes: ForwardBackwardBuffers = field(init=False)

    @staticmethod
    def of(batch: Batch, *held: Floats, distinct: bool) -> KernelStep:
        """Return all rows of a batch."""
        assert batch.mask is not None
        assert batch.state_index is not None
        columns = (batch.action.int(), batch.logp, batch.advantage, batch.target, batch.value)
        action, logp, advantage, target, value = (column.numpy() for column in columns)
        rows = batch.state_index, action, logp, advantage, target, value
        return KernelStep(batch.x.numpy(), batch.mask.numpy(), *rows, len(batch), distinct, held)

    def part(self, index: NDArray[np.int64], ranks: RankGroup) -> KernelStep:
        """Return some of the rows, those of this rank: the rows of its share of their distinct states."""
        rows = len(index)
        states, state = unique_ids(self.state[index], len(self.mask))
        if ranks.size > 1:
            share = ranks.share(len(states))
            local = (state >= share.start) & (state < share.stop)
            index, state, states = index[local], state[local] - np.int32(share.start), states[share]
        columns = (self.action[index], self.logp[index], self.advantage[index], self.target[index], self.value[index])
        held = tuple(held[states] for held in self.held)
        return KernelStep(self.x[states], self.mask[states], state, *columns, rows, self.distinct, held)

    def parts(self, which: Sequence[NDArray[np.int64]], ranks: RankGroup) -> Iterator[KernelStep]:
        """Yield lots of rows, those of this rank: its share of them. For rows whose states all differ: they are put in
        order and compressed once, and lots are slices."""
        order = np.concatenate(which)
        state = np.arange(len(order), dtype=np.int32)
        columns = [c[order] for c in (self.action, self.logp, self.advantage, self.target, self.value)]
        x, mask, held = self.x[order], self.mask[order], [held[order] for held in self.held]
        sums = compress_distinct(*columns[:4])
        begin = 0
        for index in which:
            rows = len(index)
            share = ranks.share(rows)
            lot, size = slice(begin + share.start, begin + share.stop), share.stop - share.start
            begin += rows
            action, logp, advantage, target, value = (column[lot] for column in columns)
            own = tuple(one[lot] for one in held)
            step = KernelStep(x[lot], mask[lot], state[:size], action, logp, advantage, target, value, rows, True, own)
            step.compressed = CompressedRows(rows, state[:size], *(column[lot] for column in sums))
            yield step


def kernel_placement(config: KernelOptions, spec: PolicySpec, context: LearnerContext) -> Placement:
    """Return the placement of a network that CPU kernels can train."""
    size = multiplications(shape for layout in layouts(spec).values() for shape in layout.shapes().values())
    game, rows = context.env.enumeration, config.step_rows
    if game is not None:  # kernels compute each state once, however many rows are in it
        states = information_state_ids(game, context.seats)
        rows = min(rows, int(states.stop - states.start))
    work = UpdateCost(size, rows, has_cpu_kernel=True, kind="graph" if context.ranks.size == 1 else "step")
    return resolve_placement(context.device, work)


class KernelModel(Model):
    """Base of models that CPU kernels train, on the same weights as autograd. Subclasses implement the policy's loss
    (`policy_losses`)."""

    uses_state_table = mean_reducible = True
    config: KernelOptions

    def __init__(
        self, config: KernelOptions, spec: PolicySpec, context: LearnerContext, weights: Weights, placement: Placement
    ) -> None:
        """spec: Of the network that is trained, one that has `layouts`."""
        self.spec, self.table, self._ranks, self.placement = spec, state_table(context), context.ranks, placement
        self.config, parts = config, layouts(spec)
        self.parameters = TrainedNetwork(parts, weights, sums=1 + len(self.names))
        self.adam = Adam(len(self.parameters.flat))
        self._passes = ForwardBackwardBuffers(self.parameters)
        if self._ranks.size > 1:
            broadcast_from_rank0(self._ranks, self.parameters.flat)
        self._begin()
        self._value_part = "value" if "value" in parts else "policy"
        self.shape: tuple[int, ...] = (math.prod(spec.config["shape"]),)
        self.actions = int(spec.config["action"]["actions"])

    def policy_losses(self, step: KernelStep, progress: float) -> tuple[float, tuple[float, ...]]:
        """Return (the policy's loss, and the scalars of `names` except the second, the value loss), as this rank's
        share of joint means; the gradient is written to the passes."""
        raise NotImplementedError

    def values(
        self, x: Tensor, memory: Tensor | None, start: NDArray[np.int64] | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        return torch.from_numpy(self.parameters.evaluate(self._value_part, x.numpy())[:, -1]), None

    def log_prob(self, batch: Batch) -> Tensor:
        assert batch.mask is not None
        assert batch.state_index is not None
        out, action = self.parameters.evaluate("policy", batch.x.numpy()), batch.action.numpy().astype(np.int32)
        return torch.from_numpy(log_probs(out, batch.mask.numpy(), batch.state_index, action))

    def snapshot(self) -> Any:
        return self.parameters.flat.copy(), self.adam.state_dict()

    def restore(self, snapshot: Any) -> None:
        self.parameters.flat[:] = snapshot[0]
        self.adam.load_state_dict(snapshot[1])

    @contextmanager
    def learning(self, batch: Batch, seed: int) -> Iterator[KernelStep]:
        self._begin()
        yield KernelStep.of(batch, *self.held(batch), distinct=self.table is None)

    def held(self, batch: Batch) -> tuple[Floats, ...]:
        """Return the log-probabilities float64[m, A] that the loss keeps the policy close to, if it does."""
        return ()

    def prepare(self, rows: KernelStep, which: Sequence[NDArray[np.int64]] | None) -> Iterator[KernelStep]:
        """Select all rows first, while they are in the processor's caches."""
        if which is None and self._ranks.size == 1:
            return iter([self._prepared(rows)])
        lots = [np.arange(rows.rows)] if which is None else which
        if rows.distinct:
            return rows.parts(lots, self._ranks)
        return map(self._prepared, [rows.part(index, self._ranks) for index in lots])

    def _prepared(self, step: KernelStep) -> KernelStep:
        columns = step.action, step.logp, step.advantage, step.target
        if step.distinct:
            step.compressed = CompressedRows(step.rows, step.state, *compress_distinct(*columns))
        else:
            states = len(step.mask)
            step.compressed = compress(step.state, *columns, states=states, actions=self.actions, rows=step.rows)
        return step

    @property
    def flat(self) -> Array:
        return self.parameters.flat

    def move(self, rate: float) -> float:
        network = self.parameters
        return self.adam.step(network.flat, network.gradient, rate=rate, max_norm=self.config.max_gradient_norm)

    def compute_gradient(self, part: KernelStep, progress: float) -> list[float]:
        part.passes = self._passes
        part.passes.forward(part.x)
        policy, (first, *others) = self.policy_losses(part, progress)
        value = self._value_loss(part)
        part.passes.backward(part.x)
        scalars = [policy + self.config.value_coefficient * value, first, value, *others]
        if self._ranks.size == 1:
            return scalars
        self.parameters.sums[:] = scalars
        self._ranks.sum(self.parameters.joint)
        return [float(x) for x in self.parameters.sums]

    def _value_loss(self, step: KernelStep) -> float:
        config, passes = self.config, step.passes
        out, gradient = passes.outputs[self._value_part], passes.gradients[self._value_part]
        if config.clip_value is None:
            return squared_value_loss(out, step.compressed, scale=config.value_coefficient, gradient=gradient)
        return clipped_value_loss(
            out,
            step.state,
            step.target,
            step.value,
            clip=config.clip_value,
            scale=config.value_coefficient,
            gradient=gradient,
            rows=step.rows,
        )

    def weights(self) -> Weights:
        return self.parameters.weights()

    def state_dict(self) -> State:
        return {"weights": self.parameters.weights(), "adam": self.adam.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.parameters.load(state["weights"])
        self.adam.load_state_dict(state["adam"])
