"""Worker: batches per second with and without a prefetcher, on all cores.

    python -m benchmarks.data_plane_prefetch [--batches N] [--seed S]

Batches of 256 items of 28 KB, four frames of 84 x 84 bytes, from a table in this process. A learner that waits stands for a device: it is
busy half as long again as a batch takes to sample. A learner that computes multiplies matrices for about as long, on one thread, and
shares the machine's memory with the sampler. Depths take turns. `ideal`: batches per second if the slower of the two were all that
counts; sampling is timed with the last three batches alive, since memory that was just freed is faster than fresh memory.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable
from itertools import repeat
from statistics import median

import numpy as np
import torch

from benchmarks.lines import Lines
from benchmarks.peers.replaying import BATCH, INSERT, Columns
from ludus.replay.base import Sample, TableSpec
from ludus.replay.kinds import build_table
from ludus.replay.prefetcher import identity, prefetch
from ludus.replay.waiting import WaitingTable

DEPTHS = (0, 1, 2, 4)
TURNS = 7
SHAPE = (4, 84, 84)
BLOCKS = 100


def filled(seed: int) -> WaitingTable:
    """180 MB."""
    rng = np.random.default_rng(seed)
    table = build_table(TableSpec("t", "ring", capacity=BLOCKS * INSERT))
    block: Columns = {"observation": rng.integers(0, 256, (INSERT, *SHAPE), np.uint8), "action": np.arange(INSERT)}
    for _ in range(BLOCKS):
        table.try_insert(block, rng)
    return WaitingTable(table, rng)


def seconds(act: Callable[[], object], times: int) -> float:
    """Median seconds of a call."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        act()
        found.append(time.perf_counter() - begun)
    return median(found)


def computing(until: float) -> Callable[[], None]:
    """Something that computes for about so many seconds."""
    matrix = torch.rand(256, 256)
    once = seconds(lambda: matrix @ matrix, 50)
    times = max(1, round(until / once))

    def compute() -> None:
        for _ in range(times):
            matrix @ matrix

    return compute


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    table = filled(args.seed)

    alive: deque[Sample] = deque(maxlen=3)

    def draw() -> None:
        alive.append(table.sample(BATCH)[0])

    seconds(draw, 5)
    sampling = seconds(draw, 20)
    learners: dict[str, Callable[[], None]] = {
        "waits": lambda: time.sleep(1.5 * sampling),
        "computes": computing(1.5 * sampling),
    }
    lines = Lines(("ludus", "numpy", "torch"))
    for name, learn in learners.items():
        found: dict[int, list[float]] = {depth: [] for depth in DEPTHS}
        alone: list[float] = []
        for _ in range(TURNS):
            alone.append(max(seconds(learn, 10), seconds(draw, 10)))
            alive.clear()
            for depth in DEPTHS:
                prefetcher = prefetch(table, identity, depth=depth)
                begun = time.perf_counter()
                for _batch in prefetcher.batches(repeat(BATCH, args.batches)):
                    learn()
                found[depth].append(args.batches / (time.perf_counter() - begun))
        figures = {f"learner {name}, depth {depth}, batches per second": median(r) for depth, r in found.items()}
        lines.figures({**figures, f"learner {name}, ideal, batches per second": 1 / median(alone)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
