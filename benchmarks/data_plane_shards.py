"""Worker: items per second into and out of tables over shards that are Ray actors, on all cores.

    python -m benchmarks.data_plane_shards [--rounds N] [--seed S]

Items as in `benchmarks.peers.replaying`; tables are filled to 200 MB first. Blocks of 64 go in until all shards have stored them, then
batches of 256 come out one by one. `by reference`: the blocks lie in the object store, and shards fetch them; `rows` pass this process.
Shards take turns: a round measures one shard, then two, then four.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np

from benchmarks.lines import Lines
from benchmarks.peers.replaying import BATCH, EXPONENT, INSERT, SIZES, TOTAL, Columns
from ludus.contrib.ray.ray_runtime import RayRuntime
from ludus.replay.base import TableSpec
from ludus.replay.sharded import RemoteItemColumns, ShardedTable, spawn_shards

SHARDS = (1, 2, 4)
KINDS = ("ring", "prioritised")
TURNS = 3
FILL = 25_000_000  # bytes of a block with which tables are filled


def items(rng: np.random.Generator, length: int, rows: int = INSERT) -> Columns:
    """A block."""
    observation = rng.random((rows, (length - 16) // 4), np.float32)
    reward = rng.random(rows, np.float32)
    return {"observation": observation, "action": np.arange(rows), "reward": reward, "logp": reward}


def per_second(act: Callable[[], object], *, times: int, done: Callable[[], object], number: int) -> float:
    """Items per second of calls that move `number` items each."""
    begun = perf_counter()
    for _ in range(times):
        act()
    done()
    return times * number / (perf_counter() - begun)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    runtime = RayRuntime(object_store=2 * 10**9)
    peers = spawn_shards(runtime, max(SHARDS))
    lines = Lines(("ludus", "ray", "numpy"))
    rng = np.random.default_rng(args.seed)
    for size, length in SIZES.items():
        block = items(rng, length)
        far = RemoteItemColumns(runtime.put(block), INSERT)
        large = RemoteItemColumns(runtime.put(items(rng, length, FILL // length)), FILL // length)
        rounds = args.rounds if length < 10_000 else max(5, args.rounds // 10)
        for kind in KINDS:
            found: dict[str, list[float]] = {}
            for turn in range(TURNS):
                for shards in SHARDS:
                    spec = TableSpec("t", kind, capacity=TOTAL // length, priority_exponent=EXPONENT)
                    table = ShardedTable(spec, peers[:shards], (f"{size} {kind} {turn}", str(shards)))
                    for _ in range(-(-spec.capacity // large.rows)):
                        table.try_insert(large)
                    own, drawn = lambda: table.try_insert(block), lambda: table.try_sample(BATCH, rng)  # noqa: B023
                    rates = {
                        "inserts": per_second(own, times=rounds, done=table.check_alive, number=INSERT),
                        "samples": per_second(drawn, times=rounds, done=table.check_alive, number=BATCH),
                        "inserts by reference": per_second(
                            lambda: table.try_insert(far),  # noqa: B023
                            times=rounds,
                            done=table.check_alive,
                            number=INSERT,
                        ),
                    }
                    for what, rate in rates.items():
                        found.setdefault(
                            f"{shards} {'shard' if shards == 1 else 'shards'}, {size}/{kind}, {what} per second", []
                        ).append(rate)
                    table.close()
                    table = None  # type: ignore[assignment]
            lines.figures({name: median(rates) for name, rates in found.items()})
    runtime.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
