"""One synchronous request as a state machine: every worker plays its share, whoever dies plays it again, and all shares are merged.

    start: ask every worker -> wait -> receive what they left -> merge

It says what `RolloutManager.start` and `RolloutManager.finish` may do. Where trajectories stay with the worker that played them, they are
lost if its node dies before they are received, and are played again. A rule that is to be mutated is a method of its own, of one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.protocols_explorer import Label


class Share(NamedTuple):
    """answer: "" before it is asked for, "asked", "played", "lost" with its life, or "late": of a dead life, and taken nevertheless.
    there: whether its trajectories are."""

    life: int = 0
    answer: str = ""
    there: bool = False


class World(NamedTuple):
    """lives: of each worker. failed: one had no restart left, which ends the run."""

    phase: str
    shares: tuple[Share, ...]
    lives: tuple[int, ...]
    failed: bool = False


@dataclass(frozen=True)
class Rounds:
    """Attributes:
    hosts: Number of workers.
    restarts: Of each.
    leave: Whether trajectories stay with their worker until they are received.
    """

    hosts: int = 3
    restarts: int = 2
    leave: bool = True

    harms = frozenset({"dies", "late"})
    hidden = frozenset({"late", "receive"})

    def start(self) -> World:
        return World("start", (Share(),) * self.hosts, (0,) * self.hosts)

    # ------------------------------------------------------------------------------------------ rules

    def accepts(self, share: Share, life: int) -> bool:
        """What a dead life sends is refused."""
        return share.life == life

    def is_lost(self, share: Share) -> bool:
        """A share is asked for again once its worker has died, and not before."""
        return share.answer == "lost"

    def is_done(self, share: Share) -> bool:
        return share.answer in ("played", "late")

    def is_missing(self, share: Share) -> bool:
        """What was played is played again where its trajectories are gone."""
        return not share.there

    def next_life(self, life: int) -> int:
        return life + 1

    # ------------------------------------------------------------------------------------------ steps

    def steps(self, world: World) -> Iterator[tuple[Label, World]]:
        if self.is_over(world):
            return
        for host, (share, life) in enumerate(zip(world.shares, world.lives, strict=True)):
            yield from self._of_host(host, share, life, world)
        if world.phase == "start":
            host = next(host for host, share in enumerate(world.shares) if not share.answer)
            asked = _with(world, host, Share(world.lives[host], "asked"))
            yield ("ask", host), asked._replace(phase="start" if host + 1 < self.hosts else "wait")
        elif world.phase == "wait":
            for host, share in enumerate(world.shares):
                if self.is_lost(share):
                    yield ("ask again", host), _with(world, host, Share(world.lives[host], "asked"))
            if all(map(self.is_done, world.shares)):
                yield ("receive",), self._received(world)
        else:
            yield ("merge",), world._replace(phase="over")

    def _of_host(self, host: int, share: Share, life: int, world: World) -> Iterator[tuple[Label, World]]:
        if share.answer == "asked" and share.life == life:
            yield ("played", host), _with(world, host, Share(life, "played", there=True))
        if share.answer == "lost" and self.accepts(share, life):
            yield ("late", host), _with(world, host, Share(share.life, "late", there=True))
        if life >= self.restarts:
            yield ("dies", host), world._replace(failed=True)
            return
        lives = (*world.lives[:host], self.next_life(life), *world.lives[host + 1 :])
        owed = share.answer == "asked" and share.life == life
        yield ("dies", host), _with(world._replace(lives=lives), host, share._replace(answer="lost") if owed else share)
        if self.leave and share.answer == "played" and share.life == life and world.phase == "wait":
            yield ("dies", host), _with(world._replace(lives=lives), host, share._replace(there=False))

    def _received(self, world: World) -> World:
        lost = tuple(share._replace(answer="lost") if self.is_missing(share) else share for share in world.shares)
        return world._replace(shares=lost, phase="wait" if any(map(self.is_missing, world.shares)) else "merge")

    # ------------------------------------------------------------------------------------------ invariants

    def flaw(self, world: World) -> str:
        if any(share.answer == "late" for share in world.shares):
            return "what a dead life of a worker sent was taken"
        if world.phase in ("merge", "over") and not all(share.answer == "played" for share in world.shares):
            return "a share is merged that was not played"
        if world.phase in ("merge", "over") and not all(share.there for share in world.shares):
            return "a share is merged whose trajectories are lost"
        return ""

    def is_over(self, world: World) -> bool:
        return world.failed or world.phase == "over"


def _with(world: World, host: int, share: Share) -> World:
    return world._replace(shares=(*world.shares[:host], share, *world.shares[host + 1 :]))
