"""A simulated cluster for `benchmarks.faults`: several nodes on this machine, any of which can be lost."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.faults_processes import children_of, kill

_STORE = 10**8  # bytes of shared memory of a node


class Nodes:
    """Made in this process, which is not connected to it. The first node is the head, where the driver of a run will be."""

    def __init__(self, folder: Path, cpus: Sequence[int], *, large: bool = False) -> None:
        """folder: a short one, for Ray's files. cpus: logical, of each node. large: every answer is kept by the node that it comes from, as
        Ray does with those above 100 kB."""
        self._before = dict(os.environ)
        os.environ["RAY_TMPDIR"] = str(folder)  # what Ray's processes inherit, runs that join included
        os.environ["RAY_AUTH_MODE"] = "disabled"
        if large:
            os.environ |= {"RAY_max_direct_call_object_size": "0"}
        folder.mkdir(parents=True, exist_ok=True)
        from ray.cluster_utils import Cluster

        self._cpus = cpus
        self._cluster: Any = Cluster()
        for count in cpus:
            self._add(count)

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def victims(self) -> list[list[int]]:
        """Every process of each node that is not the head."""
        return [processes_of(node) for node in sorted(self._cluster.worker_nodes, key=lambda node: str(node.unique_id))]

    def replace(self) -> None:
        """Bring as many nodes as there were, after one was lost."""
        for node in list(self._cluster.worker_nodes):
            if not node.any_processes_alive() or node.dead_processes():
                with contextlib.suppress(Exception):  # what is left of it
                    self._cluster.remove_node(node, allow_graceful=False)
                self._add(self._cpus[-1])

    def close(self) -> None:
        """End all nodes."""
        everybody = [p for node in self._cluster.list_all_nodes() for p in processes_of(node)]
        with contextlib.suppress(Exception):
            self._cluster.shutdown()
        kill(everybody)
        os.environ.clear()
        os.environ.update(self._before)

    def _add(self, cpus: int) -> None:
        self._cluster.add_node(num_cpus=cpus, object_store_memory=_STORE, include_dashboard=False)

    def __enter__(self) -> Nodes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def processes_of(node: Any) -> list[int]:
    """A node's services, then what its raylet has started: workers and agents."""
    services = [info.process.pid for many in node.all_processes.values() for info in many]
    return [*services, *(child for service in services for child in children_of(service))]
