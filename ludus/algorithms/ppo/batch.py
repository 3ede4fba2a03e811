"""The rows of one PPO update, and the parts of them that a step learns from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.algorithms.ranks import Ranks
from ludus.algorithms.states import compact
from ludus.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """n rows over m states: x float32[m, inputs], mask bool[m, A], state int32[n]; the other columns [n]. joint: the rows of all ranks,
    which means are taken over."""

    x: torch.Tensor
    mask: NDArray[np.bool_]
    state: NDArray[np.int32]
    action: Array
    logp: Array
    advantage: Array
    target: Array
    value: Array
    joint: int

    def part(self, index: NDArray[np.int64], ranks: Ranks) -> Batch:
        """Of some of the rows, those of this rank: whose states are its share of the m that occur in them. Without an enumeration every
        row is a state, so that these are a share of the rows."""
        joint = len(index)
        states, state = compact(self.state[index], len(self.mask))
        if ranks.size > 1:
            share = ranks.share(len(states))
            mine = (state >= share.start) & (state < share.stop)
            index, state, states = index[mine], state[mine] - np.int32(share.start), states[share]
        rows = (self.action[index], self.logp[index], self.advantage[index], self.target[index], self.value[index])
        return Batch(self.x[torch.from_numpy(states)], self.mask[states], state, *rows, joint)
