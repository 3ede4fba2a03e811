"""Shards: what each plays, and that results do not depend on who carries them."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ludus.core import machine
from ludus.core.errors import EnvError, PartDied, RunError, ScenarioError
from ludus.core.types import Mixture, PolicyRef
from ludus.envs.base import VectorEnv
from ludus.envs.registry import make_env
from ludus.policies.actor_critic import initial_weights
from ludus.policies.registry import build_policy
from ludus.policies.specs import mlp_spec
from ludus.replay.trajectories import Trajectories, join
from ludus.rollout.base import RecentCache, Rollout, RolloutRequest, Shard, check_shares, split_envs, whole
from ludus.rollout.manager import RolloutManager
from ludus.runtime.inprocess import Answer, InProcess

ME, YOU, OTHER = PolicyRef(0, "me", 1), PolicyRef(1, "you"), PolicyRef(1, "other")
MIXTURE = Mixture.product({1: ([YOU, OTHER], [0.5, 0.5])})


def test_environments_are_cut_into_blocks() -> None:
    assert split_envs(10, 3) == (Shard(0, 3, 0, 3, 10), Shard(1, 3, 3, 3, 10), Shard(2, 3, 6, 4, 10))
    assert whole(4) == Shard(0, 1, 0, 4, 4)
    for count in (0, 11):
        with pytest.raises(ScenarioError, match=f"10 environments cannot be cut into {count} shards"):
            split_envs(10, count)


def test_shards_have_noise_of_their_own() -> None:
    draws = [float(shard.noise(5).random()) for shard in (*split_envs(6, 3), whole(6))]
    assert len(set(draws)) == 4
    assert [float(shard.noise(5).random()) for shard in split_envs(12, 3)] == draws[:3]


def test_shares() -> None:
    first, second, third = split_envs(10, 3)
    assert [s.quota(23).tolist() for s in (first, second, third)] == [[3, 3, 3], [2, 2, 2], [2, 2, 2, 2]]
    assert [s.decisions(11) for s in (first, second, third)] == [4, 4, 3]
    assert_array_equal(
        np.concatenate([s.keys(7, "environment") for s in (first, second, third)]), whole(10).keys(7, "environment")
    )
    check_shares(request("decisions", 3), 3)
    check_shares(request("episodes", 1), 3)
    with pytest.raises(ScenarioError, match="2 decisions cannot be collected by 3 shards"):
        check_shares(request("decisions", 2), 3)


def request(unit: str, amount: int, *, carry_on: bool = False, seed: int = 5) -> RolloutRequest:
    return RolloutRequest(ME, (0,), MIXTURE, unit, amount, seed=seed, carry_on=carry_on)  # type: ignore[arg-type]


def policies():
    spec = mlp_spec(inputs=11, actions=2, hidden=[8])
    return [
        (r, build_policy(spec, initial_weights(spec, np.random.default_rng(k)))) for k, r in enumerate((ME, YOU, OTHER))
    ]


def rollouts(*, shards: int, hosts: int, num_envs: int = 7) -> list[Rollout]:
    """Two requests in decisions, the second of which carries on, and one in episodes."""
    make = partial(make_env, "openspiel/kuhn_poker", tree="off")
    manager = RolloutManager(
        InProcess(), make, spec=make(num_envs=1).spec, num_envs=num_envs, shards=shards, hosts=hosts
    )
    requests = [request("decisions", 40), request("decisions", 40, carry_on=True, seed=6), request("episodes", 25)]
    out = [manager.run(each, policies()) for each in requests]
    manager.close()
    return out


def assert_equal(one: Rollout, other: Rollout) -> None:
    assert one.counters == other.counters
    for ours, theirs in ((one.episodes, other.episodes), (one.trajectories, other.trajectories)):
        for name in type(ours).__slots__:
            a, b = getattr(ours, name), getattr(theirs, name)
            if isinstance(a, np.ndarray):
                assert_array_equal(a, b, err_msg=name)
            else:
                assert a == b, name


@pytest.mark.parametrize("hosts", [2, 3])
def test_who_carries_the_shards_makes_no_difference(hosts: int) -> None:
    for one, other in zip(rollouts(shards=3, hosts=1), rollouts(shards=3, hosts=hosts), strict=True):
        assert_equal(one, other)


def test_partial_results_are_merged_into_what_was_requested() -> None:
    first, second, episodes = rollouts(shards=3, hosts=1)
    for rollout in (first, second):
        rows = rollout.trajectories
        assert rows is not None
        assert rows.num_rows >= 40
        assert len(rows.reward) == rows.num_rows
        assert (np.diff(rows.start) > 0).all()
        assert (np.diff(rollout.episodes.index) > 0).all()
    assert episodes.episodes.index.tolist() == list(range(25))
    assert episodes.counters["episodes"] == 25


def test_each_shard_of_a_host_has_a_share_of_the_time() -> None:
    make = partial(make_env, "openspiel/kuhn_poker", tree="off")
    manager = RolloutManager(InProcess(), make, spec=make(num_envs=1).spec, num_envs=7, shards=3, hosts=1)
    got = manager.run(replace(request("episodes", 10**6), seconds=0.15), policies())
    assert set(range(7)) <= set(got.episodes.index.tolist()), "each environment has played at least one"
    assert len(got.episodes.index) < 10**6
    assert got.trajectories is not None
    assert set(got.trajectories.episode.tolist()) == set(got.episodes.index.tolist())


def test_draws_of_opponents_do_not_depend_on_the_cut() -> None:
    """Each is a function of environment and episode; 25 episodes are preassigned to 7 environments."""
    drawn = [rollouts(shards=shards, hosts=1)[2].episodes.entry for shards in (1, 2, 7)]
    assert_array_equal(drawn[0], drawn[1])
    assert_array_equal(drawn[0], drawn[2])
    assert set(drawn[0][:, 0].tolist()) == {0, 1}


def test_more_shards_than_environments_or_decisions() -> None:
    with pytest.raises(ScenarioError, match="2 environments cannot be cut into 3 shards"):
        rollouts(shards=3, hosts=1, num_envs=2)
    make = partial(make_env, "openspiel/kuhn_poker")
    manager = RolloutManager(InProcess(), make, spec=make(num_envs=1).spec, num_envs=4, shards=4)
    with pytest.raises(ScenarioError, match="3 decisions cannot be collected by 4 shards"):
        manager.run(request("decisions", 3), policies())


class Deaf(InProcess):
    """Says of the next `deaf` waits that nothing is done, as if hosts were stuck."""

    deaf = 0

    def wait(self, refs, *, at_least=1, timeout=None):
        if at_least and self.deaf:
            self.deaf -= 1
            time.sleep(timeout or 0.0)
            return [], list(refs)
        return super().wait(refs, at_least=at_least, timeout=timeout)


def deaf(*, restarts: int, shards: int = 2) -> tuple[Deaf, RolloutManager]:
    make, runtime = partial(make_env, "openspiel/kuhn_poker", tree="off"), Deaf()
    return runtime, RolloutManager(
        runtime,
        make,
        spec=make(num_envs=1).spec,
        num_envs=7,
        shards=shards,
        hosts=shards,
        restarts=restarts,
        deadline=0.01,
    )


def test_a_host_that_says_nothing_for_too_long_is_made_again() -> None:
    runtime, manager = deaf(restarts=1, shards=1)
    expected = manager.run(request("episodes", 25), policies())
    runtime.deaf = 2  # the first time it is looked at, anything is a sign of life
    again = manager.run(request("episodes", 25), policies())
    assert again.counters == {**expected.counters, "worker_restarts": 1}
    assert_array_equal(again.episodes.returns, expected.episodes.returns)
    assert "worker_restarts" not in manager.run(request("episodes", 25), policies()).counters


def test_a_host_that_is_stuck_too_often_ends_it() -> None:
    runtime, manager = deaf(restarts=0, shards=1)
    runtime.deaf = 2
    with pytest.raises(PartDied, match=r"rollout worker 0 has made no step for 0.01 seconds.*raise runtime.deadline"):
        manager.run(request("episodes", 25), policies())


class Stuck(InProcess):
    """While `stuck`, plays nothing that it is asked to. `frozen`: no process says how it is, either."""

    stuck = frozen = False

    def __init__(self) -> None:
        super().__init__()
        self.owed: list[Answer] = []
        self.patience: list[float] = []  # how long answers were waited for that did not come

    def call(self, handle, method, *args):
        if not self.stuck or method not in ("play", "close"):
            return super().call(handle, method, *args)
        self.owed.append(Answer(self))
        return self.owed[-1]

    def wait(self, refs, *, at_least=1, timeout=None):
        assert timeout is not None or all(ref not in self.owed for ref in refs), "this would hang"
        if timeout and any(ref in self.owed for ref in refs):
            self.patience.append(timeout)
        return [ref for ref in refs if ref not in self.owed], [ref for ref in refs if ref in self.owed]

    def get(self, ref, *, timeout=None):
        if self.frozen and isinstance(ref.value, list):
            raise TimeoutError
        return super().get(ref, timeout=timeout)

    def restart(self, handle, *, why=""):
        for answer in self.owed:
            answer.error = PartDied("it was given up")
        self.owed, self.stuck = [], False
        super().restart(handle, why=why)


def one_stuck(told: list[str]) -> tuple[Stuck, RolloutManager]:
    make, runtime = partial(make_env, "openspiel/kuhn_poker", tree="off"), Stuck()
    return runtime, RolloutManager(
        runtime, make, spec=make(num_envs=1).spec, num_envs=2, restarts=1, deadline=10.0, tell=told.append
    )


@pytest.mark.parametrize("frozen", [False, True])
def test_a_stuck_host_is_noticed_by_who_only_looks_in(frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As background evaluation and matches that are played early do, between updates."""
    now = [0.0]
    monkeypatch.setattr("ludus.rollout.manager.monotonic", lambda: now[0])
    runtime, manager = one_stuck([])
    runtime.stuck, runtime.frozen = True, frozen
    pending = manager.start(request("episodes", 4), policies())
    found = []
    for now[0] in (9.0, 25.0, 50.0, 50.0):  # at 25 its heartbeat is a sign of life, or has 20 seconds to come
        done = bool(manager.done([pending], at_least=0, timeout=0.0))
        found.append((done, runtime.incarnation(manager._hosts[0])))
    assert found == [(False, 0), (False, 0), (False, 1), (True, 1)]
    runtime.frozen = False
    assert manager.finish(pending).counters["worker_restarts"] == 1


def test_who_waits_hears_how_many_episodes_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the heartbeats of hosts; one that is in a long step is asked once, and what it said before stands. Episodes of training, which
    hosts may still be playing for nobody, do not count."""
    monkeypatch.setattr("ludus.rollout.rollouts.REPORT_SECONDS", 0.0)
    runtime, manager = one_stuck([])
    players = Mixture.product({0: ([ME], [1.0]), 1: ([YOU], [1.0])})
    manager.run(RolloutRequest.evaluation(players, 4, seed=1), policies())
    host = manager._hosts[0].value
    (worker,) = host._playing
    assert host.heartbeat()[0] == worker.episodes == 4
    manager.run(request("episodes", 6), policies())
    assert worker.steps > 0
    assert host.heartbeat()[0] == 0
    manager.run(RolloutRequest.evaluation(players, 4, seed=1), policies())
    (worker,) = host._playing
    runtime.stuck, told, warned = True, list[int](), list[str]()
    manager._endless._warn = warned.append

    def on_progress(episodes: int) -> None:
        told.append(episodes)
        worker.episodes += 1
        worker.unended = 1000 * len(told)
        runtime.frozen = len(told) == 3
        if len(told) == 5:
            raise StopIteration

    pending = manager.start(RolloutRequest.evaluation(players, 90, seed=1), policies(), on_progress=on_progress)
    with pytest.raises(StopIteration):
        manager.finish(pending, on_progress=on_progress)
    assert told == [4, 5, 6, 6, 7]
    (warning,) = warned  # once, whatever it says later
    assert " has ended in 1,000 steps of each of " in warning
    assert manager._open == []  # nobody wants it any more
    manager.cancel(pending)  # which says nothing new
    assert manager._watch._owed == [0]


@pytest.mark.parametrize("unwanted", ["nothing", "played", "playing"])
def test_closing_waits_no_longer_than_the_deadline(unwanted: str) -> None:
    """Nor that long for a host that still plays what nobody wants; one that has played it is like any other."""
    told: list[str] = []
    runtime, manager = one_stuck(told)
    manager.run(request("episodes", 4), policies())
    if unwanted == "playing":
        runtime.stuck = True
    if unwanted != "nothing":
        manager.cancel(manager.start(request("episodes", 4), policies()))
    runtime.stuck = True
    manager.close()
    sentence = (
        "the environments of rollout worker 0 were not closed within 10 seconds; their processes are ended now. If closing may take so "
        "long, raise runtime.deadline."
    )
    assert told == ([] if unwanted == "playing" else [sentence])
    assert runtime.patience == ([5.0] if unwanted == "playing" else [5.0, 5.0])
    with pytest.raises(RunError, match="was stopped"):
        runtime.get(runtime.call(manager._hosts[0], "ready"))


def test_task_slots_have_episodes_of_their_own() -> None:
    """Two tasks take turns on the same hosts, each in the middle of its episodes."""
    make = partial(make_env, "openspiel/kuhn_poker", tree="off")
    manager = RolloutManager(InProcess(), make, spec=make(num_envs=1).spec, num_envs=7, shards=2, hosts=2)
    requests = [request("decisions", 40), request("decisions", 40, carry_on=True, seed=6)]
    alone = [manager.run(each, policies()) for each in requests]
    others = [request("decisions", 30, seed=9), request("decisions", 50, carry_on=True, seed=10)]
    pending = []
    for mine, theirs in zip(requests, others, strict=True):
        pending.append(manager.start(mine, policies(), task_slot=1))
        pending.append(manager.start(theirs, policies(), task_slot=2))
    found = [manager.finish(each) for each in reversed(pending)][::-1]
    for one, other in zip(alone, found[::2], strict=True):
        assert_equal(one, other)
    assert found[1].counters["learner_decisions"] >= 30


def test_environments_that_could_not_be_made_are_made_by_the_next_request() -> None:
    """All shards of a task slot, or none."""
    made = partial(make_env, "openspiel/kuhn_poker", tree="off")
    calls = []

    def make(**options: int) -> VectorEnv:
        calls.append(options)
        if len(calls) == 4:  # of the other task slot's second shard
            raise EnvError("the port is taken")
        return made(**options)

    manager = RolloutManager(InProcess(), make, spec=made(num_envs=1).spec, num_envs=7, shards=2, hosts=1)
    with pytest.raises(EnvError, match="the port is taken"):
        manager.finish(manager.start(request("episodes", 25), policies(), task_slot=1))
    found = manager.finish(manager.start(request("episodes", 25), policies(), task_slot=1))
    assert_equal(found, rollouts(shards=2, hosts=1)[2])


def test_episodes_lost_with_a_host_are_replayed() -> None:
    """The host had answered; nobody had taken its trajectories yet."""
    make, runtime = partial(make_env, "openspiel/kuhn_poker", tree="off"), InProcess()
    manager = RolloutManager(
        runtime, make, spec=make(num_envs=1).spec, num_envs=7, shards=2, hosts=2, restarts=1, leave=True
    )
    died = [manager._hosts[1]]

    def receive(left):
        if died:
            runtime.restart(died.pop())
            raise PartDied("an argument was lost")
        return [join(runtime.fetch(some)) for some in left]

    expected = rollouts(shards=2, hosts=1)[2]
    got = manager.finish(manager.start(request("episodes", 25), policies()), receive=receive)
    assert got.counters == {**expected.counters, "worker_restarts": 1}
    assert_equal(replace(got, counters=expected.counters, trajectories=join(got.left)), expected)
    died.append(manager._hosts[0])
    assert manager.take(manager.start(request("episodes", 25), policies(), hosts=(0,)), receive=receive) is None
    died.append(runtime.spawn(lambda spec: spec, 0, restarts=1))
    with pytest.raises(PartDied, match="an argument was lost"):  # of somebody else
        manager.finish(manager.start(request("episodes", 25), policies()), receive=receive)


def test_hosts_without_a_share_are_known() -> None:
    """Shards begin at environments 0, 2 and 4; of four episodes, environments 0 to 3 play one each."""
    make = partial(make_env, "openspiel/kuhn_poker")
    manager = RolloutManager(InProcess(), make, spec=make(num_envs=1).spec, num_envs=7, shards=3, hosts=3)
    assert manager.playing("episodes", 4) == [0, 1]
    assert manager.playing("episodes", 5) == [0, 1, 2]
    assert manager.playing("episodes", 1) == [0]
    assert manager.playing("decisions", 1) == [0, 1, 2]


def pieces() -> list[Trajectories]:
    def piece(rows: int, starts: list[int], first: int) -> Trajectories:
        segments = len(starts) - 1
        return Trajectories(
            start=np.array(starts, np.int64),
            observation=np.arange(first, first + rows, dtype=np.int32),
            action=np.zeros(rows, np.int32),
            logp=np.zeros(rows, np.float32),
            reward=np.ones(rows, np.float32),
            mask=None,
            t=np.arange(rows, dtype=np.int32),
            tail=np.zeros(segments, np.int8),
            bootstrap_observation=np.full(segments, -1, np.int32),
            bootstrap_mask=None,
            agent=np.zeros(segments, np.int16),
            seat=np.zeros(segments, np.int8),
            episode=np.arange(segments, dtype=np.int64),
            version_lo=np.ones(segments, np.int32),
            version_hi=np.ones(segments, np.int32),
            policy="me",
            extras={"value": np.full(rows, float(first), np.float32)},
        )

    return [piece(3, [0, 2, 3], 0), piece(0, [0], 9), piece(4, [0, 4], 10)]


def test_trajectories_are_joined() -> None:
    joined = join(pieces())
    assert joined.start.tolist() == [0, 2, 3, 7]
    assert joined.observation.tolist() == [0, 1, 2, 10, 11, 12, 13]
    assert joined.t.tolist() == [0, 1, 2, 0, 1, 2, 3]
    assert joined.extras["value"].tolist() == [0, 0, 0, 10, 10, 10, 10]
    assert joined.mask is None
    assert joined.episode.dtype == np.int64
    assert joined.num_segments == 3
    only = pieces()[0]
    assert join([only]) is only


def test_of_a_learner_the_last_versions_are_kept() -> None:
    recent: RecentCache[int] = RecentCache(10_000)
    recent.keep("member", -1, 5, series="member")
    for version in range(30):
        recent.keep(("learner", version), version, 5, series="learner")
    assert (len(recent), recent.size) == (9, 45)
    assert [recent.find(("learner", version)) for version in (21, 22, 29)] == [None, 22, 29]
    assert recent.find("member") == -1
    recent.keep(("learner", 22), 22, 7, series="learner")  # again: it is the newest now
    recent.keep(("learner", 30), 30, 5, series="learner")
    assert [recent.find(("learner", version)) for version in (22, 23, 24)] == [22, None, 24]
    assert recent.size == 47


def test_recent_forgets_what_was_not_used_for_longest() -> None:
    recent: RecentCache[str] = RecentCache(10)
    for key in "abc":
        recent.keep(key, key.upper(), 4)
    assert recent.find("a") == "A"
    recent.trim(needed=1)
    assert (recent.find("b"), len(recent), recent.size) == (None, 2, 8)
    recent.keep("a", "AA", 9)
    recent.trim(needed=2)
    assert (len(recent), recent.size) == (2, 13), "a request's own policies stay, whatever their size"
    recent.trim(needed=0)
    assert (recent.find("c"), recent.find("a")) == (None, "AA")


def test_recent_keeps_no_more_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of policies on their way, each of which may hold a file: an eighth of what a process may have open."""
    make, runtime = partial(make_env, "openspiel/kuhn_poker"), InProcess()
    monkeypatch.setattr(machine, "files_allowed", lambda: 32)
    manager = RolloutManager(runtime, make, spec=make(num_envs=1).spec, num_envs=4)
    recent: RecentCache[Any] = manager._sent
    for key in range(9):
        recent.keep(key, key, 1)
        recent.trim(needed=1)
    assert [recent.find(key) for key in range(9)] == [None] * 5 + [5, 6, 7, 8]
    for key in range(20, 26):
        recent.keep(key, key, 1)
    recent.trim(needed=6)
    assert len(recent) == 6, "a request's own policies stay, however many"
