"""torchrl's replay buffers: `TensorDictReplayBuffer` and `TensorDictPrioritizedReplayBuffer` over a `LazyTensorStorage`.

    python -m benchmarks.peers.torchrl_rollout.replay [--rounds N]

Prefetching is off, as everywhere here: one core. The prioritised one needs torchrl's compiled extension, which torchrl 0.14.1 was not
built for torch 2.13 (an undefined symbol); where it does not load, only the other one is measured.
"""

from __future__ import annotations

import contextlib
import sys
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer, TensorDictReplayBuffer

from benchmarks.peers.replaying import BATCH, EXPONENT, INSERT, Columns, work


class Buffer:
    """Either of them."""

    def __init__(self, prioritised: bool, capacity: int, length: int) -> None:
        storage = LazyTensorStorage(capacity)
        if prioritised:
            self._buffer = TensorDictPrioritizedReplayBuffer(
                alpha=EXPONENT, beta=0.4, storage=storage, batch_size=BATCH
            )
        else:
            self._buffer = TensorDictReplayBuffer(storage=storage, batch_size=BATCH)

    def insert(self, items: Columns) -> None:
        tensors = {name: torch.from_numpy(column) for name, column in items.items()}
        self._buffer.extend(TensorDict(tensors, batch_size=[INSERT]))

    def sample(self) -> TensorDict:
        return self._buffer.sample()

    def update(self, batch: TensorDict, priority: NDArray[np.float64]) -> None:
        self._buffer.update_priority(batch["index"], torch.from_numpy(priority))


if __name__ == "__main__":
    torch.set_num_threads(1)
    kinds = {"uniform": partial(Buffer, False)}
    with contextlib.suppress(ImportError):
        import torchrl._torchrl  # noqa: F401

        kinds["prioritised"] = partial(Buffer, True)
    sys.exit(work(kinds, ("torchrl", "tensordict", "torch", "numpy")))
