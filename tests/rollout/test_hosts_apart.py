"""Hosts in processes of their own: what is sent, and what happens when one dies. On Ray: test_shared_inference_hosts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from mortal_env import Mortal
from numpy.testing import assert_array_equal

from ludus.core.errors import PartDied
from ludus.core.types import Mixture, PolicyRef
from ludus.envs.registry import make_env
from ludus.policies.actor_critic import initial_weights
from ludus.policies.registry import build_policy
from ludus.policies.specs import mlp_spec
from ludus.rollout.base import RolloutRequest
from ludus.rollout.manager import RolloutManager
from ludus.runtime.inprocess import InProcess

ME = PolicyRef(0, "me", 1)
SPEC = mlp_spec(inputs=2, actions=2, hidden=[8])
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("apart", ["processes"], indirect=True)]


def request(unit: str, amount: int, *, carry_on: bool = False, first_episode: int = 0) -> RolloutRequest:
    return RolloutRequest(
        ME, (0,), Mixture(()), unit, amount, seed=5, carry_on=carry_on, first_episode=first_episode  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.fixture
def runtime(runtime_apart):
    return runtime_apart


def manager(runtime, marker: Path, *, restarts: int, hosts: int = 2, deadline: float | None = None) -> RolloutManager:
    make = partial(make_env, f"{Mortal.__module__}:Mortal", marker=str(marker))
    spec = make(num_envs=1).spec
    return RolloutManager(
        runtime, make, spec=spec, num_envs=4, shards=2, hosts=hosts, restarts=restarts, deadline=deadline
    )


def test_a_worker_that_dies_is_replaced(runtime, tmp_path: Path) -> None:
    policies = [(ME, build_policy(SPEC, initial_weights(SPEC, np.random.default_rng(0))))]
    undisturbed = manager(InProcess(), tmp_path / "never", restarts=0, hosts=1)
    expected = undisturbed.run(request("episodes", 10), policies)
    marker = tmp_path / "marker"
    marker.touch()
    mortal = manager(runtime, marker, restarts=2)
    got = mortal.run(request("episodes", 10), policies)
    assert not marker.exists(), "somebody died"
    assert got.counters == {**expected.counters, "worker_restarts": 1}
    assert_array_equal(got.episodes.returns, expected.episodes.returns)
    assert got.trajectories is not None
    assert expected.trajectories is not None
    assert_array_equal(got.trajectories.observation, expected.trajectories.observation)
    mortal.run(request("decisions", 20, first_episode=10), policies)
    marker.touch()
    again = mortal.run(request("decisions", 20, carry_on=True, first_episode=100), policies)
    assert again.counters["worker_restarts"] == 1
    assert again.trajectories is not None
    known = again.trajectories.episode
    assert (known < 100).any(), "the other worker's episodes went on"
    assert (known >= 100).any(), "new ones began where they were lost"
    mortal.close()


def test_a_worker_that_dies_too_often_ends_it(runtime, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    marker.touch()
    mortal = manager(runtime, marker, restarts=0)
    policies = [(ME, build_policy(SPEC, initial_weights(SPEC, np.random.default_rng(0))))]
    with pytest.raises(PartDied, match=r"it has no restarts\. A run goes on from its last checkpoint"):
        mortal.run(request("episodes", 10), policies)


def test_a_worker_that_is_stuck_is_replaced(runtime, tmp_path: Path) -> None:
    policies = [(ME, build_policy(SPEC, initial_weights(SPEC, np.random.default_rng(0))))]
    expected = manager(InProcess(), tmp_path / "never", restarts=0, hosts=1).run(request("episodes", 10), policies)
    marker = tmp_path / "marker"
    marker.write_text("hang")
    stuck = manager(runtime, marker, restarts=1, deadline=10.0)
    got = stuck.run(request("episodes", 10), policies)
    assert got.counters == {**expected.counters, "worker_restarts": 1}
    assert_array_equal(got.episodes.returns, expected.episodes.returns)
    stuck.close()
