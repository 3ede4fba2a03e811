"""Hosts that die, freeze or take long, in a runtime whose time is made up: who is noticed when, and who waits for whom."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ludus.core.errors import PartDied
from ludus.core.types import Mixture, PolicyRef
from ludus.rollout import manager
from ludus.rollout.base import RolloutRequest
from ludus.rollout.manager import HostMonitor, PendingReply, RolloutManager

REQUEST = RolloutRequest(PolicyRef(0, "me", 1), (0,), Mixture(()), "episodes", 9, seed=0)


class Timed:
    """A runtime of hosts 0, 1 …, whose clock goes on when somebody waits. plays: per host, how many seconds each next call takes, and what
    comes of it. frozen: hosts that never say how they are; the heartbeats of the others change. What a host owed is over with its life."""

    def __init__(self, plays: dict[int, list[tuple[float, Any]]], frozen: set[int] | None = None) -> None:
        self.now, self.plays, self.frozen = 0.0, plays, frozen or set()
        self.lives, self.made_again, self.calls = (
            dict.fromkeys(range(10), 0),
            list[tuple[float, int]](),
            list[tuple[float, int]](),
        )
        self._spawned = 0
        self._due: dict[int, tuple[float, Any]] = {}
        self._owner: dict[int, int] = {}

    def _ref(self, host: int, at: float, value: Any) -> int:
        ref = len(self._due)
        self._due[ref], self._owner[ref] = (at, value), host
        return ref

    def spawn(self, factory: Any, spec: Any, **options: Any) -> int:
        self._spawned += 1
        return self._spawned - 1

    def fetch(self, ref: int) -> Any:
        raise AssertionError

    def call(self, host: int, method: str, *args: Any) -> int:
        if method == "ready":
            return self._ref(host, self.now, None)
        self.calls.append((self.now, host))
        seconds, value = self.plays[host].pop(0)
        return self._ref(host, self.now + seconds, value)

    def heartbeat(self, host: int) -> int:
        return self._ref(host, math.inf if host in self.frozen else self.now, object())

    def wait(self, refs: Any, *, at_least: int = 1, timeout: float | None = None) -> tuple[list[int], list[int]]:
        assert len(refs) >= at_least
        enough = sorted(self._due[ref][0] for ref in refs)[at_least - 1] if at_least else self.now
        until = math.inf if timeout is None else self.now + timeout
        assert min(enough, until) < math.inf, "nobody would ever answer"
        self.now = max(self.now, min(enough, until))
        done = [ref for ref in refs if self._due[ref][0] <= self.now]
        return done, [ref for ref in refs if ref not in done]

    def get(self, ref: int, *, timeout: float | None = None) -> Any:
        at, value = self._due[ref]
        until = math.inf if timeout is None else self.now + timeout
        self.now = max(self.now, min(at, until))
        if at > self.now:
            raise TimeoutError
        if isinstance(value, PartDied):
            if self.lives[self._owner[ref]] == 0:  # it is noticed here
                self._over(self._owner[ref])
            raise value
        return value

    def incarnation(self, host: int) -> int:
        return self.lives[host]

    def restart(self, host: int, *, why: str) -> None:
        self._over(host)

    def _over(self, host: int) -> None:
        self.lives[host] += 1
        self.made_again.append((self.now, host))
        self.frozen.discard(host)
        for ref, (at, _) in self._due.items():
            if self._owner[ref] == host and at > self.now:
                self._due[ref] = self.now, PartDied("it was made again")


def died(host: int) -> PartDied:
    return PartDied(f"host {host} died")


def watched(runtime: Timed, monkeypatch: pytest.MonkeyPatch, *, hosts: int, deadline: float) -> HostMonitor:
    monkeypatch.setattr(manager, "monotonic", lambda: runtime.now)
    return HostMonitor(runtime, range(hosts), deadline=deadline)  # type: ignore[arg-type]


def asked(watch: HostMonitor, runtime: Timed, host: int) -> PendingReply:
    watch.expect_reply(host)
    return PendingReply(host, runtime.call(host, "play"))


def test_all_who_are_frozen_are_found_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at after 10 seconds; given 20 more to say how they are, all of them the same 20."""
    runtime = Timed({k: [(1e6, None)] for k in range(3)}, frozen={0, 1, 2})
    watch = watched(runtime, monkeypatch, hosts=3, deadline=10.0)
    owed = [asked(watch, runtime, host) for host in range(3)]
    assert watch.wait(owed, at_least=3) == [True] * 3
    assert runtime.made_again == [(30.0, 0), (30.0, 1), (30.0, 2)]


def test_one_that_says_how_it_is_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that takes as long as it likes, as long as there are steps."""
    runtime = Timed({0: [(95.0, "late")]})
    watch = watched(runtime, monkeypatch, hosts=1, deadline=10.0)
    assert watch.wait([asked(watch, runtime, 0)]) == [True]
    assert (runtime.now, runtime.made_again) == (95.0, [])


def test_nobody_waits_for_one_that_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other answers each second, and is heard each second, while it is found out."""
    runtime = Timed({0: [(1e6, None)], 1: [(1.0, k) for k in range(40)]}, frozen={0})
    watch = watched(runtime, monkeypatch, hosts=2, deadline=3.0)
    frozen, heard = asked(watch, runtime, 0), list[float]()
    while not runtime.made_again:
        other = asked(watch, runtime, 1)
        done = watch.wait([frozen, other])
        if done[1]:
            watch.answered(1)
            heard.append(runtime.now)
    assert runtime.made_again == [(23.0, 0)]
    assert heard == [float(k) for k in range(1, len(heard) + 1)]


@pytest.mark.parametrize("look", [False, True])
def test_one_that_dies_plays_again_while_the_others_go_on(look: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts 1 and 2 of three die after a second, host 0 takes ten: both are asked again at once, and all is over after twelve, not after
    thirty."""
    runtime = Timed({0: [(10.0, ["a"])], 1: [(1.0, died(1)), (11.0, ["b"])], 2: [(1.0, died(2)), (11.0, ["c"])]})
    monkeypatch.setattr(manager, "monotonic", lambda: runtime.now)
    hosts: Any = RolloutManager(runtime, None, spec=None, num_envs=3, shards=3, hosts=3, restarts=2, deadline=600.0)  # type: ignore[arg-type]
    looks = list[float]()
    pending = hosts.start(REQUEST, [])
    found = hosts._answers(pending, pending.partials, (lambda: looks.append(runtime.now)) if look else None)
    assert found == {0: ["a"], 1: ["b"], 2: ["c"]}
    assert runtime.calls == [(0.0, 0), (0.0, 1), (0.0, 2), (1.0, 1), (1.0, 2)]
    assert runtime.now == 12.0
    assert len(looks) == (21 if look else 0)
