"""Faults that are planted in the rules of the machines, one rule each, and what the explorer says of them."""
# ruff: noqa: ARG005  (a rule that is mutated has the arguments of the right one)

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.protocols_commits import Commits
from benchmarks.protocols_explorer import Machine
from benchmarks.protocols_pacing import Pacing
from benchmarks.protocols_rounds import Rounds


class Fault(NamedTuple):
    """flaw: how what is said of it begins."""

    machine: Machine[Any]
    flaw: str


def mutated(machine: Any, **rules: Callable[..., Any]) -> Machine[Any]:
    """Return the same machine with other rules, by the names of its methods."""
    kind: Any = type(f"Mutated{type(machine).__name__}", (type(machine),), rules)
    changed: Machine[Any] = kind(**vars(machine))
    return changed


ENDLESS = "it never ends, or stands still"
CONSERVED = "permits are not conserved"
NOT_THERE = "the database names a newest checkpoint that is not on the disk"

PACING = {
    "permits are released before weights are published": Fault(
        mutated(Pacing(), after_learning=lambda self: "release"), "a permit is free again before"
    ),
    "permits are not released": Fault(mutated(Pacing(), released=lambda self, task: task), ENDLESS),
    "a dead life's answer is accepted": Fault(
        mutated(Pacing(), accepts=lambda self, request, lives: True), "what a dead life of a worker sent was taken"
    ),
    "a worker that is made again counts as the same life": Fault(
        mutated(Pacing(), next_life=lambda self, world, host: world.lives), "what a dead life of a worker sent"
    ),
    "a death returns one permit, whatever was owed": Fault(
        mutated(Pacing(in_flight=2, total=2), returned=lambda self, lost: 1), CONSERVED
    ),
    "a death returns no permit": Fault(mutated(Pacing(), returned=lambda self, lost: 0), CONSERVED),
    "a death loses what the next life owes, too": Fault(
        mutated(
            Pacing(hosts=1, in_flight=2),
            lost_with=lambda self, request, task: [r for r in task.in_flight if r.host == request.host],
            returned=lambda self, lost: sum(r.answer == "lost" for r in lost),
        ),
        CONSERVED,
    ),
    "a request needs no permit": Fault(
        mutated(Pacing(), is_permitted=lambda self, task: True), "a permit was given that there was not"
    ),
    "nothing is too old": Fault(mutated(Pacing(), is_stale=lambda self, lag: False), "something was learned from that"),
    "as old as max_lag is too old": Fault(
        mutated(Pacing(max_lag=0), is_stale=lambda self, lag: lag >= self.max_lag), ENDLESS
    ),
    "what is dropped keeps its permit": Fault(mutated(Pacing(), dropped=lambda self, task: task), CONSERVED),
    "what was taken stays in flight": Fault(
        mutated(Pacing(), taken=lambda self, request, task: task.in_flight), CONSERVED
    ),
    "a barrier waits for no more than an iteration does": Fault(
        mutated(
            Pacing(in_flight=2, barrier=1, restarts=0),
            is_enough=lambda self, task: len(task.fresh) >= self.least or not task.in_flight,
        ),
        "a barrier leaves something in flight",
    ),
    "a barrier does not publish": Fault(
        mutated(Pacing(publish=2, total=4), publishes=lambda self, task: task.iterations % self.publish == 0),
        "a barrier leaves something in flight, not learned from, or not published",
    ),
    "nothing is asked for any more after a barrier": Fault(
        mutated(Pacing(), ended_episodes=lambda self, task: task._replace(phase="begin")), ENDLESS
    ),
    "a checkpoint has a later task's result before an earlier one's": Fault(
        mutated(
            Pacing(tasks=2, total=2, hosts=1, barrier=1, kills=1),
            saved=lambda self, saved, tasks: tuple(tasks),
        ),
        "a checkpoint has something else than states at barriers",
    ),
}
"""Of asynchronous collection."""
ROUNDS = {
    "a dead life's share is accepted": Fault(
        mutated(Rounds(), accepts=lambda self, share, life: True), "what a dead life of a worker sent was taken"
    ),
    "a life that is made again counts as the same": Fault(
        mutated(Rounds(), next_life=lambda self, life: life), "what a dead life of a worker sent was taken"
    ),
    "what is lost counts as done": Fault(
        mutated(Rounds(), is_done=lambda self, share: share.answer in ("played", "lost")), ENDLESS
    ),
    "a share is asked for again while it is played": Fault(
        mutated(Rounds(), is_lost=lambda self, share: share.answer in ("asked", "lost")), ENDLESS
    ),
    "nobody is asked again": Fault(mutated(Rounds(), is_lost=lambda self, share: False), ENDLESS),
    "trajectories that are gone are not missed": Fault(
        mutated(Rounds(), is_missing=lambda self, share: False), "a share is merged whose trajectories are lost"
    ),
}
"""Of synchronous requests."""


def _without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in Commits().order if name not in names)


def _moved(name: str, before: str) -> tuple[str, ...]:
    order = list(_without(name))
    order.insert(order.index(before), name)
    return tuple(order)


COMMITS = {
    "rows are committed before the checkpoint is renamed": Fault(Commits(order=_moved("commit", "rename")), NOT_THERE),
    "rows are committed before the checkpoint's name is durable": Fault(
        Commits(order=_moved("commit", "fsync")), NOT_THERE
    ),
    "the folder of checkpoints is not flushed": Fault(Commits(order=_without("fsync")), NOT_THERE),
    "a checkpoint's files are not flushed": Fault(Commits(order=_without("flush")), NOT_THERE),
    "policies are not flushed": Fault(Commits(order=_without("sync")), "the database names a policy that is not"),
    "policies are flushed after the commit": Fault(
        Commits(order=_moved("sync", "clean")), "the database names a policy that is not"
    ),
    "the old checkpoint is removed before the new one is committed": Fault(
        mutated(
            Commits(keep=1, order=_moved("clean", "write")),
            spared=lambda self, process: (*process.named, process.coming)[-self.keep :],
        ),
        "the database names a newest checkpoint",
    ),
    "the oldest checkpoints are kept": Fault(
        mutated(Commits(keep=1), spared=lambda self, process: process.named[: self.keep]), NOT_THERE
    ),
    "there is no lock": Fault(mutated(Commits(rivals=1), may_lock=lambda self, world: True), "two drivers write"),
    "what was read before the lock is not looked at again": Fault(
        mutated(Commits(rivals=1), is_unchanged=lambda self, process, disk: True), "something that was recorded is lost"
    ),
    "later rows are not dropped": Fault(
        mutated(Commits(total=3, damages=1), rewound=lambda self, process, disk: disk), "a driver goes on from"
    ),
    "one commit too many is dropped": Fault(
        mutated(Commits(), rewound=lambda self, process, disk: disk._replace(commits=disk.commits[:-1])),
        "something that was recorded is lost",
    ),
    "a damaged checkpoint is gone on from": Fault(
        mutated(
            Commits(damages=1),
            is_usable=lambda self, checkpoint, disk: any(f.checkpoint == checkpoint for f in disk.folders),
        ),
        "a driver goes on from a checkpoint that is not whole",
    ),
    "policies that no commit names are left": Fault(
        mutated(Commits(), is_leftover=lambda self, file, process: False), "a policy's file is left over"
    ),
    "a commit has the rows of the last one again": Fault(
        mutated(
            Commits(),
            written=lambda self, process: Commits.written(self, process)._replace(rows=process.members),
        ),
        "rows and the checkpoint that covers them differ",
    ),
    "a copy is not looked at": Fault(
        mutated(Commits(total=3, keep=1, copies=1, power=False), checked=lambda self, copy: True),
        "a copy that is called whole lacks something",
    ),
}
"""Of barriers, commits and resumes."""
