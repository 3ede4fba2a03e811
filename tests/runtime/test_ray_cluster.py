"""The Ray runtime on a cluster of two simulated nodes, which it joins and leaves alone."""

import contextlib
import os
import shutil
import tempfile
import time

import numpy as np
import pytest
import ray

from ludus.core.errors import PartDied, RunError
from ludus.testing.runtime import CounterActor

pytestmark = pytest.mark.slow


class Placed(CounterActor):
    """A part that tells where it is."""

    def here(self):
        return ray.get_runtime_context().get_node_id()

    def process(self):
        return os.getpid()

    def large(self):
        """8 MB, which stay on this node until somebody fetches them."""
        return np.full(10**6, float(self.total))


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes of 2 CPUs; the head has the resource `head`, the other `leaf`."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    folder = tempfile.mkdtemp(prefix="ludus-t-", dir="/tmp")
    monkeypatch.setenv("RAY_TMPDIR", folder)
    cluster = Cluster()
    for name in ("head", "leaf"):
        cluster.add_node(num_cpus=2, resources={name: 8}, object_store_memory=10**8, include_dashboard=False)
    yield cluster
    with contextlib.suppress(Exception):
        cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def insist(runtime, part, method, *args):
    """The answer. Ray may go on placing parts on a node that it has not noticed to be gone; these deaths cost no restart."""
    end = time.monotonic() + 60
    while True:
        try:
            return runtime.get(runtime.call(part, method, *args), timeout=60)
        except PartDied:
            if time.monotonic() > end:
                raise


def test_parts_on_two_nodes_one_of_which_is_lost(cluster):
    from ludus.contrib.ray.ray_runtime import RayRuntime

    runtime = RayRuntime(address=cluster.address)
    with pytest.raises(RunError, match=f"is connected to Ray at {cluster.address}, not at"):
        RayRuntime(address="127.0.0.1:9")
    near, far = (runtime.spawn(Placed, 0, resources={name: 1}) for name in ("head", "leaf"))
    bound = runtime.spawn(Placed, 0, resources={"leaf": 1}, restarts=1)
    free = [runtime.spawn(Placed, k, restarts=1) for k in range(2)]
    nodes = [runtime.get(runtime.call(part, "here")) for part in (near, far, *free)]
    assert nodes[0] != nodes[1]
    assert sorted(nodes[2:]) == sorted(nodes[:2]), "parts that may be anywhere are not spread over the nodes"
    assert [runtime.node(part) for part in (near, far, bound)] == [*nodes[:2], nodes[1]]
    beside = [runtime.spawn(Placed, 0, node=node, restarts=1) for node in nodes[:2] for _ in range(2)]
    assert [runtime.node(part) for part in beside] == [nodes[0], nodes[0], nodes[1], nodes[1]]
    assert runtime.get(runtime.call(near, "ask", runtime.peer(far), "add", 3)) == 3  # from node to node
    moved = free[nodes[2:].index(nodes[1])]

    once = runtime.call(far, "double", runtime.put(np.ones(10**5)))
    doubled = runtime.call(near, "double", once)  # from node to node
    assert runtime.get(doubled).tolist() == [4.0] * 10**5
    running = [runtime.call(part, "slow", 600) for part in (far, moved)]
    runtime.wait(running, timeout=0.5)
    cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
    for ref in running:
        with pytest.raises(PartDied):
            runtime.get(ref, timeout=30)
    assert insist(runtime, moved, "add", 1) == free.index(moved) + 1
    assert runtime.get(runtime.call(moved, "here")) == nodes[0]
    assert insist(runtime, beside[2], "here") == nodes[0], "a part whose node is lost does not move"
    told = runtime.get(runtime.call(near, "ask", runtime.peer(far), "add", 3), timeout=60)
    assert told.startswith("PartDied")
    with pytest.raises(PartDied, match="and it has no restarts"):
        runtime.get(runtime.call(far, "add", 1))
    with pytest.raises(
        RunError,
        match=r"got no process: for 10 seconds the nodes that are left had no room for it\. "
        r"It needs num_cpus 0\.1, leaf 1; the cluster has",
    ):
        insist(runtime, bound, "add", 1)

    process = runtime.get(runtime.call(near, "process"))
    runtime.close()
    assert not ray.is_initialized()
    end = time.monotonic() + 30
    while os.path.exists(f"/proc/{process}") and time.monotonic() < end:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{process}")
    again = RayRuntime(address=cluster.address)  # the cluster is still there
    assert again.get(again.call(again.spawn(CounterActor, 1), "add", 1)) == 2
    again.close()


def test_answers_that_are_lost_with_their_node(cluster, monkeypatch):
    """Large ones: small ones come with the word that a call is done. The first part on that node, which only it had room for, is never
    asked for again: the others are not given up for want of its room, however short they may wait for it."""
    from ludus.contrib.ray import ray_runtime
    from ludus.contrib.ray.ray_runtime import RayRuntime

    monkeypatch.setattr(ray_runtime, "ROOM", 0.0)
    monkeypatch.setattr(ray_runtime, "_LOOK", 0.05)
    runtime, told = RayRuntime(address=cluster.address), []
    runtime.tell = told.append
    near = runtime.spawn(Placed, 0, resources={"head": 1}, restarts=1)
    leaf = runtime.node(runtime.spawn(Placed, 0, resources={"leaf": 1}))
    far = [runtime.spawn(Placed, k, node=leaf, restarts=2, name=f"worker {k}") for k in (1, 2)]
    small = runtime.call(far[0], "add", 1)
    large = [runtime.call(part, "large") for part in far]
    runtime.wait([small, *large], at_least=3)
    cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
    lost = (
        r"worker 1 died with its node, and what it had answered is lost; it is made again \(1 of 2 restarts are left\)"
    )
    for _ in range(2):
        with pytest.raises(PartDied, match=lost):
            runtime.get(large[0], timeout=60)
    assert runtime.get(small) == 2
    assert [runtime.incarnation(part) for part in far] == [1, 0], "the other one was not asked for yet"
    with pytest.raises(PartDied):
        runtime.get(runtime.call(near, "double", large[1]), timeout=60)
    assert runtime.get(runtime.call(near, "add", 1)) == 1, "whoever was to be given it lives"
    assert runtime.incarnation(near) == 0
    assert insist(runtime, far[0], "large").tolist() == [1.0] * 10**6
    assert insist(runtime, far[1], "large").tolist() == [2.0] * 10**6
    assert [text[:13] for text in told] == ["worker 1 died", "worker 2 died"]
    runtime.close()


def test_no_cluster_at_an_address():
    from ludus.contrib.ray.ray_runtime import RayRuntime

    with pytest.raises(RunError, match=r"no Ray could be joined at '127\.0\.0\.1:9'.*refused"):
        RayRuntime(address="127.0.0.1:9")
