"""Rollout hosts that ask servers: the same rollouts, by however many hosts and servers; and a server that dies is replaced."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ludus.core.errors import PartDied, ScenarioError
from ludus.core.types import Mixture, PolicyRef, PolicySpec
from ludus.envs.registry import make_env
from ludus.policies.actor_critic import initial_weights
from ludus.policies.actor_critic_policy import ActorCriticPolicy
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import mlp_spec
from ludus.rollout.base import Rollout, RolloutRequest
from ludus.rollout.inference import server as inference_server
from ludus.rollout.inference.server import Servers, SharedInference
from ludus.rollout.manager import RolloutManager
from ludus.runtime.inprocess import InProcess

MAKE = partial(make_env, "openspiel/connect_four")
SPEC = mlp_spec(inputs=126, actions=7, hidden=[16])
OPPONENTS = [PolicyRef(1, f"o{k}") for k in range(3)]


def policy(seed: int) -> Policy:
    return build_policy(SPEC, initial_weights(SPEC, np.random.default_rng(seed)))


def policies(version: int) -> list[tuple[PolicyRef, Policy]]:
    return [(PolicyRef(0, "me", version), policy(version)), *((ref, policy(90 + k)) for k, ref in enumerate(OPPONENTS))]


def request(version: int, unit: str, amount: int, **rest) -> RolloutRequest:
    mixture = Mixture.product({1: (OPPONENTS, [0.5, 0.25, 0.25])})
    return RolloutRequest(PolicyRef(0, "me", version), (0,), mixture, unit, amount, seed=4, extras=("value",), **rest)  # type: ignore[arg-type]


def manager(runtime, *, hosts: int, inference: SharedInference | None, **options) -> RolloutManager:
    spec = MAKE(num_envs=1).spec
    return RolloutManager(runtime, MAKE, spec=spec, num_envs=8, shards=4, hosts=hosts, inference=inference, **options)


def assert_same(one: Rollout, other: Rollout) -> None:
    assert_array_equal(one.episodes.returns, other.episodes.returns)
    assert one.trajectories is not None
    assert other.trajectories is not None
    assert_array_equal(one.trajectories.observation, other.trajectories.observation)
    assert_array_equal(one.trajectories.action, other.trajectories.action)
    assert_allclose(one.trajectories.logp, other.trajectories.logp, atol=1e-5)


def played(made: RolloutManager) -> list[Rollout]:
    """Whole episodes, then fragments that carry on."""
    out = [
        made.run(request(1, "episodes", 12), policies(1)),
        made.run(request(1, "decisions", 80), policies(1)),
        made.run(request(2, "decisions", 80, carry_on=True), policies(2)),
    ]
    made.close()
    return out


@pytest.mark.parametrize("servers", [None, 3])
def test_the_same_rollouts_within_a_process(servers: int | None) -> None:
    expected = played(manager(InProcess(), hosts=2, inference=None))
    got = played(manager(InProcess(), hosts=3, inference=SharedInference(servers=servers, max_wait=0.0)))
    for one, other in zip(got, expected, strict=True):
        assert_same(one, other)
        assert one.counters == other.counters


def test_task_slots_are_apart() -> None:
    made = manager(InProcess(), hosts=2, inference=SharedInference(max_wait=0.0))
    first = made.start(request(1, "decisions", 80), policies(1), task_slot=0)
    other = made.start(request(2, "decisions", 80), policies(2), task_slot=1)
    assert_same(
        made.finish(first), manager(InProcess(), hosts=1, inference=None).run(request(1, "decisions", 80), policies(1))
    )
    assert_same(
        made.finish(other), manager(InProcess(), hosts=1, inference=None).run(request(2, "decisions", 80), policies(2))
    )


class Dies(InProcess):
    """Servers, which are made with concurrency, are given up in the middle of some order."""

    def __init__(self, after: list[int]) -> None:
        super().__init__()
        self.after, self.servers = after, []

    def spawn(self, factory, spec, *, concurrency=1, **options):
        part = super().spawn(factory, spec, concurrency=concurrency, **options)
        if concurrency > 1:
            self.servers.append(part)
        return part

    def peer(self, handle):
        peer = super().peer(handle)
        runtime = self

        class Mortal(type(peer)):
            def send(self, method, *args):
                if method == "act" and runtime.after:
                    runtime.after[0] -= 1
                    if runtime.after[0] == 0:
                        runtime.after.pop(0)
                        runtime.restart(handle)
                return super().send(method, *args)

        return Mortal(handle)


def test_a_server_that_dies_is_replaced() -> None:
    runtime = Dies(after=[30, 5])
    made = manager(runtime, hosts=2, inference=SharedInference(max_wait=0.0, servers=1, restarts=3))
    expected = manager(InProcess(), hosts=1, inference=None)
    got = made.run(request(1, "episodes", 12), policies(1))
    assert_same(got, expected.run(request(1, "episodes", 12), policies(1)))
    assert got.counters["server_restarts"] == 2
    assert "worker_restarts" not in got.counters
    assert [made.life(host) for host in (0, 1)] == ["0.2", "0.2"], "both hosts' first, with the third server"
    for asked in (request(1, "decisions", 80), request(2, "decisions", 80, carry_on=True)):
        assert_same(
            made.run(asked, policies(asked.learner.version)), expected.run(asked, policies(asked.learner.version))
        )
    runtime.after = [7]
    again = made.run(request(3, "decisions", 80, carry_on=True, first_episode=1000), policies(3))
    assert again.counters["server_restarts"] == 1
    assert again.counters["learner_decisions"] >= 80
    assert again.trajectories is not None
    assert (again.trajectories.episode >= 1000).any(), "new episodes began where open ones were lost"
    runtime.after = [7]
    with pytest.raises(PartDied):
        made.run(request(4, "episodes", 12), policies(4))


@pytest.mark.parametrize(("name", "value"), [("servers", 0), ("max_wait", -0.1), ("max_batch", 0)])
def test_settings_that_make_no_sense(name: str, value: float) -> None:
    with pytest.raises(ScenarioError, match=f"{name}={value}; expected"):
        SharedInference(**{name: value})


class Nodes(InProcess):
    """Parts live where they are told to."""

    def node(self, handle):
        return handle.spec if isinstance(handle.spec, str) else super().node(handle)

    def spawn(self, factory, spec, *, node="", **options):
        part = super().spawn(factory, spec, **options)
        if node:
            self.placed = [*getattr(self, "placed", []), (node, spec.callers)]
        return part


@pytest.mark.parametrize(
    ("servers", "placed", "of"),
    [
        (None, [("a", 3), ("b", 2)], [0, 1, 0, 1, 0]),
        (1, [("a", 5)], [0, 0, 0, 0, 0]),
        (3, [("a", 2), ("a", 2), ("b", 1)], [0, 1, 0, 2, 1]),
        (9, [("a", 1), ("a", 1), ("a", 1), ("b", 1), ("b", 1)], [0, 3, 1, 4, 2]),
    ],
)
def test_a_server_is_beside_those_that_it_serves(servers: int | None, placed: list, of: list[int]) -> None:
    runtime = Nodes()
    hosts = [runtime.spawn(lambda spec: spec, where) for where in "ababa"]
    made = Servers(runtime, SharedInference(servers=servers), hosts)
    assert [made.serving(host).server for host in range(5)] == of
    assert runtime.placed == placed


class Hangs(ActorCriticPolicy):
    """Evaluates nothing until it is killed, if it finds the marker, which it removes."""

    def act(self, observation, mask, memory, noise, *, mode="explore"):
        marker = Path(self.spec.config["marker"])
        if marker.exists():
            marker.unlink()
            time.sleep(1e6)
        return super().act(observation, mask, memory, noise, mode=mode)

    stack = None


def process_of(runtime: Any, handle: Any) -> int:
    """Of a part that is there, by its id."""
    runtime.node(handle)
    if not handle.life.process:
        handle.life.look()  # of Ray
    return int(handle.life.process)


@pytest.mark.slow
@pytest.mark.parametrize("apart", ["processes"], indirect=True)
def test_a_server_that_is_stuck_is_replaced_and_not_the_workers(
    runtime_apart: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That Ray's parts can be given up, whatever they do, test_parts_apart shows."""
    monkeypatch.setattr(inference_server, "_PATIENCE", 10.0)
    spec = PolicySpec(f"{__name__}:Hangs", {**SPEC.config, "marker": str(tmp_path / "marker")})
    me = PolicyRef(0, "me", 1), Hangs(spec, initial_weights(SPEC, np.random.default_rng(1)))
    given = [me, *policies(1)[1:]]
    asked = request(1, "episodes", 12)
    expected = manager(InProcess(), hosts=1, inference=None).run(asked, policies(1))
    made = manager(runtime_apart, hosts=2, inference=SharedInference(restarts=2), deadline=10.0)
    assert_same(made.run(asked, given), expected)
    (tmp_path / "marker").touch()
    got = made.run(asked, given)
    assert_same(got, expected)
    assert got.counters["server_restarts"] == 1
    assert made._servers is not None
    (server,) = made._servers._servers
    os.kill(process_of(runtime_apart, server), signal.SIGSTOP)
    got = made.run(asked, given)
    assert_same(got, expected)
    assert got.counters["server_restarts"] == 1
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("apart", ["processes", pytest.param("ray", marks=pytest.mark.long)], indirect=True)
def test_servers_and_workers_are_killed(runtime_apart: Any) -> None:
    made = manager(runtime_apart, hosts=2, inference=SharedInference(restarts=5), restarts=5)
    expected = manager(InProcess(), hosts=1, inference=None)
    assert_same(
        made.run(request(1, "episodes", 12), policies(1)), expected.run(request(1, "episodes", 12), policies(1))
    )
    assert made._servers is not None
    (server,) = made._servers._servers
    for handle in (server, made._hosts[1]):
        killer = threading.Timer(0.3, os.kill, (process_of(runtime_apart, handle), signal.SIGKILL))
        killer.start()
        got = made.run(request(2, "episodes", 150), policies(2))
        killer.join()
        assert_same(got, expected.run(request(2, "episodes", 150), policies(2)))
        name = "server_restarts" if handle is server else "worker_restarts"
        assert got.counters[name] == 1
    made.close()
