"""Items and weights on their way: Ludus's tables beside cpprb's and torchrl's replay buffers, over actors, the prefetcher, and a policy.

    python -m benchmarks.data_plane [--quick]

One process, one core: blocks of 64 items of 1 KB or 100 KB go into full stores of 200 MB, batches of 256 come out, drawn uniformly or by
priorities (`benchmarks.peers.replaying`); `numpy` is the bare limit, columns that are filled and indexed. Bars compare Ludus with the
faster of the peers, by medians over processes that take turns. torchrl's prioritised buffer is left out where its compiled extension
does not load.

On all cores: tables over 1, 2 and 4 shards (`benchmarks.data_plane_shards`), the prefetcher (`benchmarks.data_plane_prefetch`), and a
policy of 10 MB to 16 workers on two simulated nodes (`benchmarks.weights_worker`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.harness import Bar, Benchmark, Contestant, Medians, Missing

PEERS = {
    "cpprb": ("benchmarks.peers.cpprb_replay.run", "cpprb_replay"),
    "torchrl": ("benchmarks.peers.torchrl_rollout.replay", "torchrl_rollout"),
}
CASES = [f"{size}/{kind}" for size in ("1 KB", "100 KB") for kind in ("uniform", "prioritised")]
SEEDS = (0, 1, 2, 3, 4)


def _table(name: str, module: str, peer: str | None = None, *arguments: str) -> Contestant:
    quick = () if peer else (0,)
    return Contestant(name, module, arguments, peer, SEEDS, quick, ("--rounds", "60"))


def _on_all_cores(name: str, module: str, *quick: str) -> Contestant:
    return Contestant(name, module, seeds=(0, 1, 2), quick_arguments=quick, pinned=False)


def _times_the_best(figure: str) -> Callable[[Medians], float]:
    """How many times as fast as the faster peer."""

    def value(medians: Medians) -> float:
        rates = []
        for name in PEERS:
            try:
                rates.append(medians(name, figure))
            except Missing:
                continue
        if not rates:
            raise Missing(f"no {figure!r} of a peer")
        return medians("Ludus", figure) / max(rates)

    return value


def _overlap(medians: Medians) -> float:
    """Of the batches per second that the slower of sampling and learning would allow."""
    depth, ideal = (f"learner waits, {what}, batches per second" for what in ("depth 2", "ideal"))
    return medians("prefetcher", depth) / medians("prefetcher", ideal)


def _transfers(what: str) -> Callable[[Medians], float]:
    return lambda medians: medians("weights", f"{what}, transfers to the other node")


BENCHMARK = Benchmark(
    name="data_plane",
    contestants=(
        _table("Ludus", "benchmarks.data_plane_tables"),
        *(_table(name, module, peer) for name, (module, peer) in PEERS.items()),
        _table("numpy", "benchmarks.data_plane_tables", None, "--bare"),
        _on_all_cores("shards", "benchmarks.data_plane_shards", "--rounds", "10"),
        _on_all_cores("prefetcher", "benchmarks.data_plane_prefetch", "--batches", "30"),
        _on_all_cores("weights", "benchmarks.weights_worker", "--versions", "3"),
    ),
    bars=(
        *(
            Bar(f"{case}, {what}, times the best peer", ">= 1", _times_the_best(f"{case}, {what} per second"), unit="x")
            for case in CASES
            for what in ("inserts", "samples")
        ),
        Bar("prefetcher, of the ideal with a learner that waits", ">= 0.9", _overlap),
        Bar("transfers of a new version to a node of 8 workers", "<= 1.01", _transfers("new version")),
        Bar("transfers of a version that is there", "<= 0", _transfers("unchanged")),
    ),
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
