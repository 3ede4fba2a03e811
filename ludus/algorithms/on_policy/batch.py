"""The rows of one update, and parts of them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.on_policy.sequences import rows_in


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """n decisions as tensors: x float32[n, inputs] (or [n, *shape] for the family's networks), mask bool[n, A] (None there: all actions are
    legal), action int64[n] (or what the space has); logp of the behaviour, advantage, target (of the critic, in scaled rewards) and value
    (the critic's, when the targets were made), float32[n]. With a correction logp is that of the weights at the update's beginning, and
    the advantage is weighted by how far the behaviour was from them.

    Of networks that remember: start int64[S + 1] of sequences, and memory float32[S, M] before each. state float32[n, width]: what a
    central critic sees beside x.
    """

    x: Tensor
    mask: Tensor | None
    action: Tensor
    logp: Tensor
    advantage: Tensor
    target: Tensor
    value: Tensor
    start: NDArray[np.int64] | None = None
    memory: Tensor | None = None
    state: Tensor | None = None

    def __len__(self) -> int:
        return len(self.action)

    @property
    def units(self) -> int:
        """What it can be divided into: rows, or sequences."""
        return len(self) if self.start is None else len(self.start) - 1

    def part(self, which: NDArray[np.int64] | slice) -> Batch:
        """Some of its units, in the order given."""
        if self.start is None or self.memory is None:
            return self._rows(which if isinstance(which, slice) else torch.from_numpy(which))
        index = np.arange(self.units)[which]
        rows, start = rows_in(self.start, index)
        return replace(self._rows(torch.from_numpy(rows)), start=start, memory=self.memory[torch.from_numpy(index)])

    def _rows(self, rows: Tensor | slice) -> Batch:
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("start", "memory")}
        part: dict[str, Any] = {name: None if column is None else column[rows] for name, column in columns.items()}
        return Batch(**part)
