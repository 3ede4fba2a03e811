"""Running statistics of observations and returns: exact merges, in float64, in the order in which rows come."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.returns import reverse_linear_scan
from ludus.backend.device import to_numpy
from ludus.core.arrays import kernel
from ludus.core.types import Array, SegmentEnd, State
from ludus.replay.blocks import Block, BlockRows
from ludus.replay.trajectories import Trajectories

Floats = NDArray[np.float64]

_OPEN = 1 << 16  # episodes that are remembered at the most in addition to those that the rows at hand leave open


class RunningMoments:
    """Mean and population variance float64[*shape] of all rows so far. (Chan, Golub and LeVeque 1979, equation 2.1.)"""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.count = 0.0
        self.mean, self._m2 = np.zeros(shape), np.zeros(shape)

    @property
    def var(self) -> Floats:
        """Return the variance; 1 before there are rows."""
        return self._m2 / self.count if self.count > 0 else np.ones_like(self._m2)

    def add(self, rows: Array) -> None:
        """Add rows [n, *shape]."""
        if len(rows):
            mean = rows.mean(axis=0, dtype=np.float64)
            self._merge(len(rows), mean, np.square(rows - mean).sum(axis=0))

    def add_rows(self, rows: Tensor) -> None:
        """Add rows [n, *shape] on any device, from which only two sums are read."""
        if rows.device.type == "cpu":
            self.add(rows.numpy())
        elif len(rows):
            mean = rows.double().mean(dim=0)
            self._merge(len(rows), *to_numpy(torch.stack([mean, (rows - mean).square().sum(dim=0)])))

    def _merge(self, n: int, mean: Array, m2: Array) -> None:
        total, gap = self.count + n, mean - self.mean
        self.mean = self.mean + gap * (n / total)
        self._m2 = self._m2 + m2 + gap**2 * (self.count * n / total)
        self.count = total

    def start(self, *, count: float, mean: Array, var: Array) -> None:
        """Restore published statistics."""
        self.count = float(count)
        self.mean, self._m2 = np.array(mean, np.float64), np.array(var, np.float64) * self.count

    def state_dict(self) -> State:
        return {"count": self.count, "mean": np.array(self.mean), "m2": np.array(self._m2)}

    def load_state_dict(self, state: State) -> None:
        self.count = float(state["count"])
        self.mean, self._m2 = np.array(state["mean"]), np.array(state["m2"])


class DiscountedReturns:
    """Variance of R_t = γ R_{t-1} + r_t within episodes, whose root divides rewards (Engstrom et al. 2020,
    "Implementation matters in deep policy gradients", section 3). Episodes that a fragment cuts continue in a later
    one, whatever rows come in between; of many that never continue the oldest are forgotten."""

    def __init__(self, gamma: float) -> None:
        self.moments = RunningMoments()
        self._gamma = gamma
        self._open, self._so_far = np.empty(0, np.int64), np.empty(0)  # the newest last
        self._in_slots: Tensor | None = None  # of a block's slots, on its device

    @property
    def scale(self) -> float:
        """Return the factor of rewards."""
        return float(1.0 / np.sqrt(self.moments.var + 1e-8)) if self.moments.count > 1 else 1.0

    def begins(self, rows: Trajectories) -> NDArray[np.bool_]:
        """Return bool[S]: which segments of a rollout, before they are added, begin an episode of their agent."""
        key = _keys(rows)
        return ~np.isin(key, self._open) & (_earlier(key, rows.tail) < 0)

    def add(self, rows: Trajectories, reward: Floats) -> None:
        """Add the rows of a rollout with their rewards float64[N]."""
        key = _keys(rows)
        before = np.zeros(len(key))
        if len(self._open):
            order = np.argsort(self._open)
            place = order[np.minimum(np.searchsorted(self._open, key, sorter=order), len(order) - 1)]
            before = np.where(self._open[place] == key, self._so_far[place], 0.0)
        earlier = _earlier(key, rows.tail)
        returns, after = _accumulate(rows.start, reward, before, earlier, self._gamma)
        self.moments.add(returns)
        still_open = np.flatnonzero(~np.isin(self._open, key))[-_OPEN:]
        cut = rows.tail == SegmentEnd.CUT
        cut[earlier[earlier >= 0]] = False  # they continue in this rollout
        self._open = np.concatenate([self._open[still_open], key[cut]])
        self._so_far = np.concatenate([self._so_far[still_open], after[cut]])

    def add_block(self, block: Block, rows: BlockRows, reward: Tensor) -> None:
        """Add the rows of a block with their rewards float64[n], on their device, from which only two sums are read. At
        a barrier, where a checkpoint is written, no episode is open."""
        slot, yes = rows.slot, torch.ones_like(rows.ended[:1])
        first = torch.cat([yes, slot[1:] != slot[:-1]])
        if block.fresh or self._in_slots is None:
            self._in_slots = reward.new_zeros(block.row.shape[1] + 1)
        before = torch.where(first, self._in_slots[slot], 0.0)
        follows = ~(first | torch.cat([yes, rows.ended[:-1]]))
        add, factor = reward + self._gamma * before, self._gamma * follows.double()
        returns = reverse_linear_scan(add.flip(0), factor.flip(0), longest=len(block.row)).flip(0)
        self.moments.add_rows(returns)
        place = torch.where(torch.cat([first[1:], yes]), slot, len(self._in_slots) - 1)
        self._in_slots = self._in_slots.scatter(0, place, torch.where(rows.ended, 0.0, returns))

    def state_dict(self) -> State:
        return {"moments": self.moments.state_dict(), "open": self._open.copy(), "so_far": self._so_far.copy()}

    def load_state_dict(self, state: State) -> None:
        self.moments.load_state_dict(state["moments"])
        self._open, self._so_far = np.array(state["open"]), np.array(state["so_far"])


def _keys(rows: Trajectories) -> NDArray[np.int64]:
    """Return int64[S]: a key of each segment's episode and agent."""
    return rows.episode * (1 << 16) + rows.agent


def _earlier(key: NDArray[np.int64], tail: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return int64[S]: the segment that was cut where each of them continues; -1: there is none. (Fragments of one
    episode may come together.)"""
    order = np.argsort(key, kind="stable")
    before, then = order[:-1], order[1:]
    goes_on = (key[then] == key[before]) & (tail[before] == SegmentEnd.CUT)
    out = np.full(len(key), -1, np.int64)
    out[then[goes_on]] = before[goes_on]
    return out


@kernel
def _accumulate(start, reward, before, earlier, gamma):  # type: ignore[no-untyped-def]
    returns, after = np.empty(len(reward)), np.empty(len(before))
    for s in range(len(before)):
        running = before[s] if earlier[s] < 0 else after[earlier[s]]
        for t in range(start[s], start[s + 1]):
            running = gamma * running + reward[t]
            returns[t] = running
        after[s] = running
    return returns, after
