"""cpprb's replay buffers: `ReplayBuffer` and `PrioritizedReplayBuffer` (whose samples compute importance weights, too).

python -m benchmarks.peers.cpprb_replay.run [--rounds N]
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
from cpprb import PrioritizedReplayBuffer, ReplayBuffer
from numpy.typing import NDArray

from benchmarks.peers.replaying import BATCH, EXPONENT, Columns, work


class Buffer:
    """Either of them."""

    def __init__(self, prioritised: bool, capacity: int, length: int) -> None:
        columns = {
            "observation": {"shape": length, "dtype": np.float32},
            "action": {"dtype": np.int64},
            "reward": {"dtype": np.float32},
            "logp": {"dtype": np.float32},
        }
        if prioritised:
            self._buffer = PrioritizedReplayBuffer(capacity, columns, alpha=EXPONENT)
        else:
            self._buffer = ReplayBuffer(capacity, columns)

    def insert(self, items: Columns) -> None:
        self._buffer.add(**items)

    def sample(self) -> dict[str, NDArray[Any]]:
        return self._buffer.sample(BATCH)

    def update(self, batch: dict[str, NDArray[Any]], priority: NDArray[np.float64]) -> None:
        self._buffer.update_priorities(batch["indexes"], priority)


if __name__ == "__main__":
    sys.exit(work({"uniform": partial(Buffer, False), "prioritised": partial(Buffer, True)}, ("cpprb", "numpy")))
