"""Waits for hosts, and makes those again that are stuck."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NamedTuple

from ludus.errors import PartDied
from ludus.runtime.base import Handle, Ref, Runtime

_STARTING = 300.0  # seconds that making a host may take before its deadline counts
_PULSE = 20.0  # seconds that a host's process may take to say how it is


class Owed(NamedTuple):
    """An answer that a host owes."""

    host: int
    answer: Ref


class _Made(NamedTuple):
    """A host's life, an answer as soon as it is made, and the time until which it may take for that."""

    life: int
    answer: Ref
    until: float


class Watch:
    """A host that owes an answer is stuck when `deadline` seconds pass in which it gives none and makes no step (it is looked at that
    often, so it is noticed within twice that time)."""

    def __init__(
        self,
        runtime: Runtime,
        hosts: Sequence[Handle],
        *,
        deadline: float | None,
        excused: Callable[[int], bool] | None = None,
    ) -> None:
        """hosts: parts that have a pulse, which changes with every step. deadline: None: nobody is ever stuck. excused: whether what a host
        waits for was stuck instead, and has been seen to."""
        self._runtime, self._hosts, self._deadline, self._excused = runtime, hosts, deadline, excused
        self._owed = [0] * len(hosts)
        self._heard = [0.0] * len(hosts)  # when it gave a sign of life last, or was first asked since then
        self._pulse: list[Any] = [None] * len(hosts)
        self._made: list[_Made | None] = [None] * len(hosts)  # in their present lives

    def asked(self, host: int) -> None:
        """A host is about to be asked for an answer."""
        handle = self._hosts[host]
        life, made = self._runtime.incarnation(handle), self._made[host]
        if made is None or made.life != life:
            self._made[host] = _Made(life, self._runtime.call(handle, "ready"), monotonic() + _STARTING)
            self._pulse[host] = None
        if not self._owed[host]:
            self._heard[host] = monotonic()
        self._owed[host] += 1

    def answered(self, host: int) -> None:
        """An answer was taken, or is not wanted any more."""
        self._owed[host] -= 1

    def wait(self, owed: Sequence[Owed], *, at_least: int = 1, timeout: float | None = None) -> list[bool]:
        """Which of these are done, once `at_least` are or `timeout` seconds have passed. Hosts that are stuck are made again meanwhile,
        which makes what they owe done. Raises PartDied if one of them has no restart left."""
        end = None if timeout is None else monotonic() + timeout
        while True:
            limits = [*([] if end is None else [end]), *(self._limit(each.host) for each in owed if self._deadline)]
            left = max(0.0, min(limits) - monotonic()) if limits else None
            answers, _ = self._runtime.wait([each.answer for each in owed], at_least=at_least, timeout=left)
            found = {id(answer) for answer in answers}
            done = [id(each.answer) in found for each in owed]
            now = monotonic()
            for each, is_done in zip(owed, done, strict=True):
                if is_done:
                    self._heard[each.host] = now
            if sum(done) >= at_least or (end is not None and now >= end):
                return done
            for host in sorted({each.host for each, is_done in zip(owed, done, strict=True) if not is_done}):
                if self._deadline is not None and now >= self._limit(host) and not self._lives(host):
                    self._again(host)

    def _limit(self, host: int) -> float:
        """When to look at a host, if it says nothing until then. Time in which it is being made does not count, within reason."""
        assert self._deadline is not None
        made, now = self._made[host], monotonic()
        if made is not None and now < made.until and not self._runtime.wait([made.answer], at_least=0, timeout=0.0)[0]:
            self._heard[host] = now
        return self._heard[host] + self._deadline

    def _lives(self, host: int) -> bool:
        """Whether it has made a step since it was looked at last."""
        before = self._pulse[host]
        try:
            self._pulse[host] = self._runtime.get(
                self._runtime.pulse(self._hosts[host]), timeout=max(_PULSE, self._deadline or 0.0)
            )
        except TimeoutError:
            return False  # its process does not run
        except PartDied:
            return True  # it is over, and made again where its answer is looked at
        if self._pulse[host] == before:
            return False
        self._heard[host] = monotonic()
        return True

    def _again(self, host: int) -> None:
        """Make a host again that is stuck, unless it is excused."""
        if self._excused is not None and self._excused(host):
            self._heard[host] = monotonic()
            return
        handle = self._hosts[host]
        life = self._runtime.incarnation(handle)
        self._runtime.restart(handle)
        self._heard[host] = monotonic()
        if self._runtime.incarnation(handle) == life:
            raise PartDied(
                f"rollout worker {host} has made no step for {self._deadline:g} seconds, and its restarts are used up. If a step may "
                "take so long, raise runtime.deadline; otherwise look at what its environments are doing."
            )
