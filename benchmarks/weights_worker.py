"""Worker: a policy of 10 MB to 16 workers on two simulated nodes of this machine: seconds, and how much travels between the nodes.

    python -m benchmarks.weights_worker [--versions N] [--seed S]

Each simulated node has an object store of its own, so between them weights go through sockets as between machines, but never faster than
these cores copy. A version is there once every worker has fetched it and has a copy of its own. Beside it: the same weights sent to
every worker by itself, in messages of its own; and a version that the workers have already. Workers import NumPy and no torch.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.lines import Lines
from ludus.rollout.base import RecentCache
from ludus.runtime.base import Ref

WORKERS, MEGABYTES, NODES = 16, 10, ("head", "leaf")


class Holder:
    """Keeps policies as a rollout host does: what it has already is not fetched again. `spec`: fetches."""

    def __init__(self, spec: Callable[[Ref], Any]) -> None:
        self._fetch = spec
        self._kept: RecentCache[np.ndarray[Any, Any]] = RecentCache(64 << 20)

    def load(self, inside: Sequence[Ref]) -> int:
        """By reference."""
        (ref,) = inside
        if self._kept.find(ref) is None:
            self._kept.keep(ref, np.array(self._fetch(ref)), MEGABYTES << 20)
            self._kept.trim(1)
        return len(self._kept)

    def take(self, weights: np.ndarray[Any, Any]) -> int:
        """By value."""
        return len(np.array(weights))


def arrived() -> dict[str, int]:
    """Bytes that each node's object store has taken in so far, whether put there or from another node."""
    import ray
    from ray._private.internal_api import node_stats

    found = {}
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        name = next(name for name in NODES if name in node["Resources"])
        stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False)  # type: ignore[no-untyped-call]
        found[name] = stats.store_stats.cumulative_created_bytes
    return found


def measure(address: str, *, versions: int, seed: int) -> None:
    """On a cluster that is there."""
    from ludus.contrib.ray.ray_runtime import RayRuntime

    runtime = RayRuntime(address=address)
    begun = perf_counter()
    holders = [
        runtime.spawn(Holder, runtime.fetch, resources={"num_cpus": 0.1, NODES[k % 2]: 0.1}) for k in range(WORKERS)
    ]
    for holder in holders:
        runtime.node(holder)
    lines = Lines(("ludus", "ray", "numpy"))
    started = perf_counter() - begun
    rng = np.random.default_rng(seed)

    def all_answer(method: str, argument: Callable[[], Any]) -> float:
        begun = perf_counter()
        for answer in [runtime.call(holder, method, argument()) for holder in holders]:
            runtime.get(answer)
        return perf_counter() - begun

    all_answer("take", lambda: np.zeros(1))
    seconds: dict[str, list[float]] = {"new version": [], "unchanged": [], "to each by itself": []}
    travelled: dict[str, list[float]] = {name: [] for name in seconds}
    for _ in range(versions):
        weights = rng.random(MEGABYTES << 17)
        begun, before = perf_counter(), arrived()
        ref = runtime.put(weights)
        put = perf_counter() - begun
        for name, method, argument, more in (
            ("new version", "load", lambda: [ref], put),  # noqa: B023
            ("unchanged", "load", lambda: [ref], 0.0),  # noqa: B023
            ("to each by itself", "take", lambda: weights, 0.0),  # noqa: B023
        ):
            seconds[name].append(all_answer(method, argument) + more)
            after = arrived()
            travelled[name].append((after["leaf"] - before["leaf"]) / (MEGABYTES << 20))
            before = after
    figures = {f"{name}, seconds": median(found) for name, found in seconds.items()}
    figures |= {f"{name}, transfers to the other node": round(max(found), 2) for name, found in travelled.items()}
    lines.figures({**figures, "seconds to start the workers": started})
    runtime.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--versions", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="ludus-w-", dir="/tmp")  # Ray's sockets need a short path
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        for name in NODES:
            cluster.add_node(num_cpus=8, resources={name: 8}, object_store_memory=5 * 10**8, include_dashboard=False)
        measure(cluster.address, versions=args.versions, seed=args.seed)
    finally:
        cluster.shutdown()  # type: ignore[no-untyped-call]
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
