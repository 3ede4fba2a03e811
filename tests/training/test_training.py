"""A training task, iteration by iteration, on Kuhn poker."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from ludus.algorithms.common.base import Algorithm
from ludus.algorithms.common.space_checks import discrete
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.ppo.config import PPO
from ludus.contrib.algorithms.tabular_q.config import TabularQ
from ludus.core.types import Mixture, PolicyRef, PolicySpec, TrainingTask
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.replay.episode_server import EpisodeServer
from ludus.rollout.async_limits import AsyncLimits
from ludus.rollout.base import Rollout
from ludus.rollout.host import LocalRollouts
from ludus.rollout.manager import RolloutManager
from ludus.runtime.inprocess import InProcess
from ludus.training.stopping import parse_stopper
from ludus.training.training import Training, TrainingParts

UNIFORM = PolicyRef(0, "uniform")


class SpyRollouts(LocalRollouts):
    """Keeps the requests and what came of them."""

    def finish(self, pending, **receive) -> Rollout:
        rollout = super().finish(pending, **receive)
        self.seen = [*getattr(self, "seen", []), (pending.request, rollout)]
        return rollout


class SpyHosts(RolloutManager):
    """The same of requests that single hosts play."""

    def take(self, pending, **receive) -> Rollout | None:
        rollout = super().take(pending, **receive)
        self.seen = [*getattr(self, "seen", []), (pending.request, rollout)]
        return rollout


def no_env(*, num_envs: int):
    raise AssertionError


def training_of(
    algorithm: Algorithm,
    *,
    env: str = "openspiel/kuhn_poker",
    tree: str = "auto",
    num_envs: int = 6,
    seats: tuple[int, ...] = (0,),
    together: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
    **stop,
) -> tuple[Training, SpyRollouts]:
    vector = make_env(env, num_envs=num_envs, tree=tree)
    rollouts = SpyRollouts(no_env, spec=vector.spec, num_envs=num_envs, ready=vector)
    uniform = build_policy(PolicySpec("random", {"actions": discrete(vector.spec, seats, algorithm="test")[1]}), {})
    parts = TrainingParts(rollouts, EpisodeServer(0), lambda ref: uniform, 0, clock=clock)
    mixture = Mixture.product({p: ([UNIFORM], [1.0]) for p in range(vector.spec.num_players)})
    task = TrainingTask("task", 1, 0, seats, "0-1", mixture, together=together)
    return Training(task, algorithm=algorithm, parts=parts, stop=parse_stopper(stop), start=None), rollouts


def decisions(worker: SpyRollouts) -> list[tuple[int, int, int]]:
    """(episode, agent, t) of every decision that the learner was given."""
    out = []
    for _, rollout in worker.seen:
        rows = rollout.trajectories
        lengths = np.diff(rows.start)
        out += zip(
            np.repeat(rows.episode, lengths).tolist(),
            np.repeat(rows.agent, lengths).tolist(),
            rows.t.tolist(),
            strict=True,
        )
    return out


@pytest.mark.parametrize("unit", ["episodes", "decisions"])
def test_episode_ids_are_unique_within_a_task(unit: str) -> None:
    training, worker = training_of(TabularQ(batch=10, batch_unit=unit), episodes=200, seats=(0, 1))
    while training.finished() is None:
        training.step()
        if training.iterations % 3 == 0:
            training.barrier()
    assert training.iterations > 6
    barriers = training.iterations // 3
    truncated = {"truncated_episodes": 6 * barriers} if unit == "decisions" else {}
    assert {k: v for k, v in training.metrics.items() if k == "truncated_episodes"} == truncated
    met = decisions(worker)
    assert len(set(met)) == len(met) > 200
    ended = np.concatenate([rollout.episodes.index for _, rollout in worker.seen])
    assert len(np.unique(ended)) == len(ended) >= 200
    assert [request.carry_on for request, _ in worker.seen[:5]] == (
        [False, True, True, False, True] if unit == "decisions" else [False] * 5
    )


def test_a_share_of_requests_is_played_in_every_seat() -> None:
    training, worker = training_of(TabularQ(batch=10), episodes=100, seats=(0, 1), together=0.75)
    while training.finished() is None:
        training.step()
    assert [request.together for request, _ in worker.seen] == [
        False,
        True,
        True,
        True,
        False,
        True,
        True,
        True,
        False,
        True,
    ]
    for request, rollout in worker.seen:
        both = {
            int(e): len(set(rollout.trajectories.seat[rollout.trajectories.episode == e].tolist()))
            for e in rollout.episodes.index
        }
        assert set(both.values()) == ({2} if request.together else {1}), "Kuhn poker asks both players in every episode"


def test_episode_ids_go_on_where_a_checkpoint_left_them() -> None:
    algorithm = TabularQ(batch=10, batch_unit="decisions")
    whole, worker = training_of(algorithm, decisions=200)
    for _ in range(4):
        whole.step()
    whole.barrier()
    state = whole.state_dict()
    resumed, other = training_of(algorithm, decisions=200)
    resumed.load_state_dict(state)
    whole.step()
    resumed.step()
    assert other.seen[0][0] == worker.seen[-1][0]
    assert other.seen[0][1].episodes.index.tolist() == worker.seen[-1][1].episodes.index.tolist()


def test_a_rollout_has_the_seconds_that_are_left_of_a_response() -> None:
    now = 100.0
    training, worker = training_of(TabularQ(batch=500), seconds=10, episodes=5000, clock=lambda: now)
    training.step()
    now = 107.5
    training.begin()
    now = 111.0
    training.complete()
    assert [request.seconds for request, _ in worker.seen] == [10.0, 2.5]
    assert [rollout.counters["episodes"] for _, rollout in worker.seen] == [500, 500], "it was not cut short"
    assert training.finished() == "11.0 of 10 seconds have passed"


def test_seconds_go_on_where_a_checkpoint_left_them() -> None:
    now = 10.0
    before, _ = training_of(TabularQ(batch=10), clock=lambda: now, episodes=200)
    now = 13.0
    state = before.state_dict()
    now = 100.0
    resumed, _ = training_of(TabularQ(batch=10), clock=lambda: now, episodes=200)
    resumed.load_state_dict(state)
    now = 101.0
    assert (before.progress.seconds, resumed.progress.seconds) == (91.0, 4.0)


@pytest.mark.parametrize(("num_envs", "batch"), [(1, 5), (3, 1), (3, 30)])
def test_every_seat_of_a_shared_population_is_trained_alike(num_envs: int, batch: int) -> None:
    training, worker = training_of(
        TabularQ(batch=batch), env="openspiel/matrix_rps", num_envs=num_envs, seats=(0, 1), episodes=10 * batch
    )
    while training.finished() is None:
        training.step()
    seat = np.concatenate([rollout.episodes.seat for _, rollout in worker.seen])
    assert np.bincount(seat).tolist() == [5 * batch, 5 * batch]


def test_open_episodes_keep_their_seats() -> None:
    training, worker = training_of(
        TabularQ(batch=5, batch_unit="decisions"), env="openspiel/matrix_rps", num_envs=3, seats=(0, 1), decisions=60
    )
    while training.finished() is None:
        training.step()
        if training.iterations == 5:
            training.barrier()
    seats = [request.seats for request, _ in worker.seen]
    assert seats == [(0, 1)] * 5 + [(1, 0)] * (len(seats) - 5)


SMALL = {"hidden": (16,)}


@pytest.mark.parametrize(
    ("seat", "algorithm"),
    [
        (0, PPO(batch=60, epochs=6, **SMALL)),
        (1, PPO(batch=60, epochs=3, minibatches=3, value_network="separate", clip_value=0.2, target_kl=1.0, **SMALL)),
        (0, PPO(batch=100, batch_unit="decisions", epochs=3, **SMALL)),
        (1, DQN(rollout=60, min_size=60, batch=64, updates_per_decision=0.2, target_period=3, **SMALL)),
        (0, DQN(rollout=60, rollout_unit="decisions", min_size=50, n_step=3, dueling=True, polyak=0.1, **SMALL)),
    ],
    ids=["ppo", "ppo-minibatches", "ppo-fragments", "dqn", "dqn-n-step"],
)
def test_a_compiled_game_and_the_same_game_stepped_teach_the_same(seat: int, algorithm: Algorithm) -> None:
    """Ids and compressed cells against tensors, masks and rows: the same episodes, and the same weights but for rounding."""
    both = [
        training_of(algorithm, env="openspiel/leduc_poker", tree=tree, num_envs=20, seats=(seat,), updates=1000)
        for tree in ("on", "off")
    ]
    for _ in range(3):
        for training, _ in both:
            training.step()
    (compiled, worker), (stepped, other) = both
    assert compiled.progress.updates == stepped.progress.updates > 0
    for (_, ours), (_, theirs) in zip(worker.seen, other.seen, strict=True):
        assert ours.episodes.returns.tolist() == theirs.episodes.returns.tolist()
        for name in ("start", "action", "reward", "t", "tail", "episode"):
            assert getattr(ours.trajectories, name).tolist() == getattr(theirs.trajectories, name).tolist()
    weights, same = compiled.result().weights, stepped.result().weights
    for name in weights:
        np.testing.assert_allclose(weights[name], same[name], atol=1e-4)


@pytest.mark.parametrize("unit", ["episodes", "decisions"])
def test_several_seats_of_workers_that_play_apart(unit: str) -> None:
    """Each host keeps its seats while episodes are open; ids are unique, and every seat has its turn."""
    make = partial(make_env, "openspiel/kuhn_poker")
    spec = make(num_envs=1).spec
    rollouts = SpyHosts(InProcess(), make, spec=spec, num_envs=6, shards=3, hosts=3)
    uniform = build_policy(PolicySpec("random", {"actions": discrete(spec, (0, 1), algorithm="test")[1]}), {})
    parts = TrainingParts(rollouts, EpisodeServer(0), lambda ref: uniform, 0)
    task = TrainingTask("task", 1, 0, (0, 1), "0-1", Mixture.product({p: ([UNIFORM], [1.0]) for p in (0, 1)}))
    training = Training(
        task,
        algorithm=TabularQ(batch=12, batch_unit=unit),
        parts=parts,
        stop=parse_stopper({"episodes": 240}),
        start=None,
        async_limits=AsyncLimits(),
    )
    while training.finished() is None:
        training.step()
        if training.iterations % 4 == 0 and training.finished() is None:
            training.barrier()
    found = decisions(rollouts)
    assert len(set(found)) == len(found) > 100
    assert {agent for _, agent, _ in found} == {0, 1}


def test_every_seat_has_its_turn_whenever_episodes_begin_anew() -> None:
    """After an even number of requests in between, too, and with one environment."""
    algorithm = TabularQ(batch=2, batch_unit="decisions")
    training, worker = training_of(algorithm, num_envs=1, seats=(0, 1), decisions=1000)
    for _ in range(4):
        for _ in range(4):
            training.step()
        training.barrier()
    begun = [request.seats for request, _ in worker.seen if not request.carry_on]
    assert begun == [(0, 1), (1, 0), (0, 1), (1, 0)]


def test_task_checkpoint_is_a_snapshot() -> None:
    """It is written by another task's barrier, later."""
    training, _ = training_of(TabularQ(batch=20), episodes=1000)
    training.step()
    training.barrier()
    state = training.state_dict()
    before = repr(state["counts"])
    training.step()
    assert repr(state["counts"]) == before
    again, _ = training_of(TabularQ(batch=20), episodes=1000)
    again.load_state_dict(state)
    again.step()
    assert repr(state["counts"]) == before
