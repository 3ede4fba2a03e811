"""Workers that play apart, against a manager whose hosts finish when the test says so."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from ludus.core.errors import ScenarioError
from ludus.core.types import Mixture, PolicyRef
from ludus.rollout.async_limits import AsyncLimits
from ludus.rollout.base import EpisodeResults, Rollout, RolloutRequest
from ludus.rollout.manager import HostsPending
from ludus.training.collecting import AsyncCollector

NO_EPISODES = EpisodeResults(
    returns=np.zeros((0, 1)),
    length=np.zeros(0, np.int32),
    terminated=np.zeros(0, bool),
    seat=np.zeros(0, np.int8),
    entry=np.zeros((0, 0), np.int32),
    index=np.zeros(0, np.int64),
)


@dataclass
class FakeManager:
    """Hosts that play at set speeds: a request takes `pace[host]` ticks, one request of a host after the other; waiting passes ticks."""

    pace: list[int]
    dies: set[int] = field(default_factory=set)  # hosts that die with their next answer
    clock: int = 0
    free: list[int] = field(default_factory=list)
    started: list[tuple[int, int, bool]] = field(default_factory=list)  # (host, version, carries on)
    forgotten: int = 0

    def __post_init__(self) -> None:
        self.hosts = len(self.pace)
        self.free = [0] * self.hosts
        self.due: dict[int, int] = {}
        self.lives = [0] * self.hosts
        self.given: dict[int, int] = {}  # by order: the life that it was given to

    def life(self, host: int) -> str:
        return str(self.lives[host])

    def start(self, order: RolloutRequest, policies: object, *, task_slot: int, hosts: tuple[int, ...]) -> HostsPending:
        (host,) = hosts
        pending = HostsPending(order, task_slot, 0.0, [], [host])  # type: ignore[list-item]
        self.free[host] = max(self.free[host], self.clock) + self.pace[host]
        self.due[id(pending)] = self.free[host]
        self.given[id(pending)] = self.lives[host]
        assert order.learner is not None
        self.started.append((host, order.learner.version or 0, order.carry_on))
        return pending

    def done(self, pending: list[HostsPending], *, at_least: int, timeout: float | None = None) -> list[HostsPending]:
        times = sorted(self.due[id(p)] for p in pending)
        self.clock = max(self.clock, times[at_least - 1] if timeout is None else self.clock + int(timeout))
        return [p for p in pending if self.due[id(p)] <= self.clock]

    def take(self, pending: HostsPending, **receive: object) -> Rollout | None:
        host: int = pending.partials[0]  # type: ignore[assignment]
        if host in self.dies:
            self.dies.remove(host)
            self.free[host] = self.clock
            self.lives[host] += 1
        if self.given[id(pending)] < self.lives[host]:
            return None
        return Rollout(None, NO_EPISODES, {"learner_decisions": 10, "host": host, "born": self.clock})

    def cancel(self, pending: HostsPending) -> None:
        self.forgotten += 1


class Task:
    """What a training is to its collector."""

    def __init__(
        self,
        manager: FakeManager,
        async_limits: AsyncLimits,
        *,
        carries_on: bool = True,
        requests: float = 1e9,
        task_slot: int = 0,
    ) -> None:
        self.version, self.left, self.manager = 1, requests, manager
        self.collector = AsyncCollector(
            manager,  # type: ignore[arg-type]
            self.request,
            task_slot=task_slot,
            carries_on=carries_on,
            async_limits=async_limits,
            version=lambda: self.version,
            wants=lambda playing: playing < self.left,
            hosts=range(manager.hosts),
        )

    def request(self, *, carry_on: bool, host: int) -> tuple[RolloutRequest, list[object]]:
        ref = PolicyRef(0, "me", self.version)
        return RolloutRequest(ref, (0,), Mixture(()), "decisions", 40, seed=1, carry_on=carry_on), []

    def iteration(self) -> list[int]:
        """Collect and learn; the hosts whose partial results came."""
        collected = self.collector.take()
        self.left -= len(collected.rollouts) / self.manager.hosts
        self.collector.prefetch_requests()
        self.version += 1
        self.collector.on_published()
        return [rollout.counters["host"] for rollout in collected.rollouts]


def test_every_host_has_two_requests_and_the_rest_waits_for_what_is_learned() -> None:
    manager = FakeManager([1, 1])
    task = Task(manager, AsyncLimits())
    task.collector.begin()
    assert manager.started == [(0, 1, False), (1, 1, False), (0, 1, True), (1, 1, True)]
    assert task.iteration() == [0, 1]
    assert len(manager.started) == 4, "credits of partial results that came are held until they are learned from"
    assert task.iteration() == [0, 1]
    assert manager.started[4:] == [(0, 2, True), (1, 2, True)], "with the newest weights"


def test_nobody_waits_for_the_slowest() -> None:
    manager = FakeManager([1, 1, 1, 10])
    task = Task(manager, AsyncLimits())
    came = [host for _ in range(6) for host in task.iteration()]
    assert len(came) >= 24, "four partial results an iteration, or more where several come at once"
    assert came.count(3) <= 3
    assert manager.clock <= 20, "together, six iterations would take sixty"
    assert min(came.count(host) for host in (0, 1, 2)) >= 6


def test_all_that_comes_within_the_window_is_taken() -> None:
    assert Task(FakeManager([1, 3, 9]), AsyncLimits(in_flight=1, min_completed=1)).iteration() == [0]
    assert Task(FakeManager([1, 3, 9]), AsyncLimits(in_flight=1, min_completed=1, gather_window=2.0)).iteration() == [
        0,
        1,
    ]


def test_stale_rollouts_are_dropped_and_counted() -> None:
    manager = FakeManager([1, 7])
    task = Task(manager, AsyncLimits(in_flight=1, min_completed=1, max_lag=2))
    stale = 0
    for _ in range(8):
        collected = task.collector.take()
        stale += collected.stale
        assert all(rollout.counters["host"] == 0 for rollout in collected.rollouts)
        task.version += 1
        task.collector.on_published()
    assert stale == 10, "the slow host's partial result, made with version 1 when version 7 was there"


@pytest.mark.parametrize(("version", "stale"), [(3, 0), (4, 10)])
def test_the_largest_lag_is_still_learned_from(version: int, stale: int) -> None:
    manager = FakeManager([1])
    task = Task(manager, AsyncLimits(in_flight=1, min_completed=1, max_lag=2))
    task.collector.begin()  # with version 1
    task.version = version
    collected = task.collector.take()
    assert (collected.stale, len(collected.rollouts)) == (stale, 1)
    assert [made_with for _, made_with, _ in manager.started] == ([1, 4] if stale else [1]), "asked for again"


def test_stale_rollouts_do_not_count_as_completed() -> None:
    manager = FakeManager([1, 2])
    task = Task(manager, AsyncLimits(in_flight=1, min_completed=2, max_lag=0))
    task.collector.begin()
    task.version = 2
    assert task.iteration() == [0, 1], "both were thrown away, and play again with the newest weights"
    assert manager.started == [(0, 1, False), (1, 1, False), (0, 2, True), (1, 2, True)]
    task.collector.begin()
    task.version = 4
    owed = task.collector.drain()
    assert (owed.stale, len(owed.rollouts)) == (20, 0), "a barrier asks for nothing"
    assert len(manager.started) == 6


def test_a_host_that_died_is_asked_anew_and_its_credits_return() -> None:
    manager = FakeManager([1, 2], dies={0})
    task = Task(manager, AsyncLimits())
    assert task.iteration() == [1, 1]
    first = manager.started[:4]
    assert first == [(0, 1, False), (1, 1, False), (0, 1, True), (1, 1, True)]
    assert manager.started[4:6] == [(0, 1, False), (1, 1, True)], (
        "both are lost; new episodes begin, with the credits that returned"
    )
    assert manager.forgotten == 1
    for _ in range(5):
        task.iteration()
    assert [host for host, _, carries_on in manager.started if not carries_on] == [0, 1, 0]


def test_requests_to_a_restarted_host_stay_pending() -> None:
    """Two tasks in their task_slots: the host dies, the first one learns of it, and the second one has asked the next life by then."""
    manager = FakeManager([1])
    first, second = (Task(manager, AsyncLimits(in_flight=2), task_slot=task_slot) for task_slot in (0, 1))
    first.collector.begin()
    second.left = 1e-9  # wants one request for now
    second.collector.begin()
    assert len(manager.started) == 3
    manager.dies = {0}
    assert first.iteration() == [], "both are lost"
    second.left = 1e9
    second.collector.begin()
    asked, forgotten = len(manager.started), manager.forgotten
    assert second.iteration() == [0], "the order of the last life is lost, and the one of the next life is not"
    assert manager.forgotten == forgotten
    task_slot = manager.started[asked:]
    assert [carries_on for _, _, carries_on in task_slot] == [True] * len(task_slot), (
        "the next life's episodes stay open"
    )
    assert manager.started[asked - 1][2], "asked to go on, by a task that did not know: the host began anew by itself"


def test_a_barrier_takes_what_is_owed_and_ends_open_episodes() -> None:
    manager = FakeManager([1, 2])
    task = Task(manager, AsyncLimits())
    came = len(task.iteration())
    owed = task.collector.drain()
    assert came + len(owed.rollouts) == len(manager.started)
    task.collector.on_published()
    before = len(manager.started)
    task.collector.begin()
    assert [(host, carries) for host, _, carries in manager.started[before:]] == [
        (0, False),
        (1, False),
        (0, True),
        (1, True),
    ]


def test_no_more_is_asked_for_than_the_task_wants() -> None:
    manager = FakeManager([1, 1])
    task = Task(manager, AsyncLimits(), requests=1.0)  # two partial results are one request
    assert task.iteration() == [0, 1]
    assert task.iteration() == []
    assert len(manager.started) == 2


def test_the_end_forgets_what_is_owed() -> None:
    manager = FakeManager([1, 1])
    task = Task(manager, AsyncLimits())
    task.collector.begin()
    task.collector.close()
    assert manager.forgotten == 4


def test_more_partial_results_than_can_be_there_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"min_completed=5.*2 workers with 2 requests each make 4 at most"):
        Task(FakeManager([1, 1]), AsyncLimits(min_completed=5))
