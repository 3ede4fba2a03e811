"""What travels between nodes: weights once per node and version, however many workers live there; trajectories once they are taken."""

import contextlib
import shutil
import tempfile
from functools import partial

import pytest
from numpy.testing import assert_array_equal
from weights_heavy import MEGABYTE, Short, heavy

from ludus.core.types import Mixture, OpponentFactor, PolicyRef
from ludus.envs.registry import make_env
from ludus.replay.trajectories import join
from ludus.rollout.base import RolloutRequest, split_envs
from ludus.rollout.host import HostSpec, PolicyMessage, RolloutHost
from ludus.rollout.manager import RolloutManager
from ludus.runtime.inprocess import InProcess

MAKE = partial(make_env, f"{Short.__module__}:Short")
WORKERS = 16


def request(learner, opponent, episodes=WORKERS):
    mixture = Mixture((OpponentFactor((1,), ((opponent,),), (1.0,)),))
    return RolloutRequest(learner, (0,), mixture, "episodes", episodes, seed=1)


# ---------------------------------------------------------------------------------------------- on a worker


class CountingFetch:
    """Stands for the object store: a reference is the policy message itself."""

    def __init__(self):
        self.fetched = []

    def __call__(self, message):
        self.fetched.append(message)
        return message


def test_a_worker_fetches_what_it_has_not_and_forgets_what_it_used_least():
    fetch = CountingFetch()
    (shard,) = split_envs(WORKERS, 1)
    host = RolloutHost(HostSpec(MAKE, (shard,), fetch, cache_bytes=35 * MEGABYTE))
    learner = PolicyMessage(heavy(10))
    league = [PolicyMessage(heavy(10)) for _ in range(4)]
    me = PolicyRef(0, "me", 1)

    def play(k):
        before = len(fetch.fetched)
        rival = PolicyRef(1, f"rival-{k}", 1)
        host.play(0, request(me, rival), [(me, learner), (rival, league[k])])
        return fetch.fetched[before:]

    assert play(0) == [learner, league[0]]
    assert play(0) == [], "what has not changed is fetched again"
    assert play(1) == [league[1]]
    assert play(2) == [league[2]]  # 40 MB: the first rival goes
    assert play(1) == []
    assert play(0) == [league[0]]
    for k in (3, 2, 1, 0, 3, 2):
        play(k)
        assert host._policies.size <= 35 * MEGABYTE
        assert len(host._policies) == 3
    host.close()


# ---------------------------------------------------------------------------------------------- over two nodes


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes on this machine, each with an object store of its own. They ask for a token, as the cluster page has it."""
    from ray.cluster_utils import Cluster

    from ludus.contrib.ray import ray_session

    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a1" * 32)
    ray_session.read_token()  # tests before this one had none, or another
    folder = tempfile.mkdtemp(prefix="ludus-w-", dir="/tmp")
    monkeypatch.setenv("RAY_TMPDIR", folder)
    made = Cluster()
    for name in ("head", "leaf"):
        made.add_node(num_cpus=8, resources={name: 8}, object_store_memory=2 * 10**8, include_dashboard=False)
    yield made
    with contextlib.suppress(Exception):
        made.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


class Stores:
    """What nodes' object stores have taken in: what is put there, and what arrives from other nodes."""

    def __init__(self):
        self.last = self._totals()

    def since(self):
        """Megabytes by node since it was last asked, head first."""
        now = self._totals()
        grown = {name: round((now[name] - self.last[name]) / MEGABYTE, 1) for name in now}
        self.last = now
        return grown

    @staticmethod
    def _totals():
        import ray
        from ray._private.internal_api import node_stats

        totals = {}
        for node in ray.nodes():
            name = "head" if "head" in node["Resources"] else "leaf"
            stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False)
            totals[name] = stats.store_stats.cumulative_created_bytes
        return totals


@pytest.mark.long  # sixteen processes
def test_weights_reach_each_node_once_a_version(cluster):
    from ludus.contrib.ray.ray_runtime import RayRuntime

    runtime = RayRuntime(address=cluster.address)
    spec = MAKE(num_envs=1).spec
    manager = RolloutManager(
        runtime, MAKE, spec=spec, num_envs=WORKERS, shards=WORKERS, hosts=WORKERS, resources={"num_cpus": 0.5}
    )
    nodes = [runtime.node(host) for host in manager._hosts]
    assert sorted(nodes.count(node) for node in set(nodes)) == [8, 8], "eight workers on each node"
    frozen = PolicyRef(1, "rival", 1), heavy(10)
    first, second = ((PolicyRef(0, "me", version), heavy(10)) for version in (1, 2))
    stores = Stores()

    def play(learner, opponent):
        rollout = manager.run(request(learner[0], opponent[0]), [learner, opponent])
        assert rollout.counters["episodes"] == WORKERS
        return stores.since()

    assert play(first, frozen) == {"head": 20.0, "leaf": 20.0}, "two policies of 10 MB, once on each node"
    assert play(first, frozen) == {"head": 0.0, "leaf": 0.0}, "nothing has changed"
    assert play(second, frozen) == {"head": 10.0, "leaf": 10.0}, "a new version, and not its frozen opponent"
    assert play(second, frozen) == {"head": 0.0, "leaf": 0.0}
    manager.close()
    runtime.close()


class Sink:
    """Stands for a trainer: takes what workers leave."""

    def __init__(self, _):
        pass

    def receive(self, *parts):
        return join([some for part in parts for some in part])


@pytest.mark.long
def test_trajectories_that_are_lost_with_a_node_are_played_again(cluster):
    """Workers have answered that they are done, and nobody has taken what they left: too much to come with the answer."""
    from ludus.contrib.ray.ray_runtime import RayRuntime

    learner, rival = (PolicyRef(0, "me", 1), heavy(0)), (PolicyRef(1, "rival", 1), heavy(0))
    order = request(learner[0], rival[0], 20_000)
    spec = MAKE(num_envs=1).spec
    options = {"spec": spec, "num_envs": 8, "shards": 4}
    expected = RolloutManager(InProcess(), MAKE, **options).run(order, [learner, rival])

    runtime, told, lost = RayRuntime(address=cluster.address), [], []
    runtime.tell = told.append
    manager = RolloutManager(runtime, MAKE, **options, hosts=4, leave=True, resources={"num_cpus": 0.5}, restarts=2)
    sink = runtime.spawn(Sink, None, resources={"head": 1})
    assert len({runtime.node(host) for host in manager._hosts}) == 2, "two workers on each node"

    def receive(left):
        if not lost:
            lost.append(cluster.worker_nodes.copy().pop())
            cluster.remove_node(lost[0], allow_graceful=False)
        return [runtime.get(runtime.call(sink, "receive", *left), timeout=60)]

    got = manager.finish(manager.start(order, [learner, rival]), receive=receive)
    assert got.counters == {**expected.counters, "worker_restarts": 2}
    assert len(told) == 2
    (taken,) = got.left
    for name in ("observation", "action", "reward", "episode", "start"):
        assert_array_equal(getattr(taken, name), getattr(expected.trajectories, name))
    manager.close()
    runtime.close()
