"""What replay stores are measured with, Ludus's tables and those of peers alike: the items, the sizes, the command line and the clock.

A case is `size/kind`: items of 1 KB or 100 KB in columns observation float32, action int64, reward and logp float32; drawn uniformly, or by
priorities (exponent 0.6). A store is filled to its capacity first, 200 MB. Then, turn by turn, a block of 64 items goes in, a batch of
256 comes out, and with priorities those of the batch are set anew. Figures per case are items per second of each of these, by the wall
clock; medians over the rounds. Standard library and NumPy only.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.lines import Lines

INSERT, BATCH, EXPONENT = 64, 256, 0.6
SIZES = {"1 KB": 1024, "100 KB": 102_400}
TOTAL = 204_800_000  # bytes
WARM = 5

Columns = dict[str, NDArray[Any]]


class Store(Protocol):
    """A full-featured one: priorities are only set where the case has them."""

    def insert(self, items: Columns) -> None:
        """All rows."""
        ...

    def sample(self) -> Any:
        """A batch; what it returns goes back into `update`."""
        ...

    def update(self, batch: Any, priority: NDArray[np.float64]) -> None:
        """New priorities of a batch's items."""
        ...


Make = Callable[[int, int], Store]
"""(capacity, length of an observation) -> an empty store."""


def _items(rng: np.random.Generator, length: int) -> Columns:
    return {
        "observation": rng.random((INSERT, length), np.float32),
        "action": np.arange(INSERT),
        "reward": rng.random(INSERT, np.float32),
        "logp": rng.random(INSERT, np.float32),
    }


def _measure(store: Store, items: Columns, *, rounds: int, prioritised: bool, rng: np.random.Generator) -> list[float]:
    """Medians of the seconds of an insert, a sample and an update."""
    seconds: list[list[float]] = [[], [], []]
    for _ in range(rounds):
        priority = rng.random(BATCH)
        times = [perf_counter()]
        store.insert(items)
        times.append(perf_counter())
        batch = store.sample()
        times.append(perf_counter())
        if prioritised:
            store.update(batch, priority)
        times.append(perf_counter())
        del batch
        for found, begun, ended in zip(seconds, times, times[1:], strict=False):
            found.append(ended - begun)
    return [median(found) for found in seconds]


def work(kinds: Mapping[str, Make], packages: Iterable[str], argv: Sequence[str] | None = None) -> int:
    """A worker's command: every size with every kind ("prioritised" among them has priorities)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    lines = Lines(packages)
    for size, length in SIZES.items():
        rng = np.random.default_rng(args.seed)
        items = _items(rng, (length - 16) // 4)
        for kind, make in kinds.items():
            capacity, prioritised = TOTAL // length, kind == "prioritised"
            store = make(capacity, (length - 16) // 4)
            for _ in range(-(-capacity // INSERT)):
                store.insert(items)
            rounds = max(WARM, args.rounds * SIZES["1 KB"] // length if length > 10_000 else args.rounds)
            _measure(store, items, rounds=WARM, prioritised=prioritised, rng=rng)
            insert, sample, update = _measure(store, items, rounds=max(rounds, 20), prioritised=prioritised, rng=rng)
            case = f"{size}/{kind}"
            figures = {f"{case}, inserts per second": INSERT / insert, f"{case}, samples per second": BATCH / sample}
            if prioritised:
                figures[f"{case}, updates per second"] = BATCH / update
            lines.figures(figures)
            del store
    return 0
