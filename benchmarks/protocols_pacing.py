"""Asynchronous collection as a state machine: permits, lives of workers, versions of weights, restarts, data that is too old, barriers.

    begin -> ask -> gather -> prefetch -> learn -> publish -> release -> next: begin | drain -> learn -> publish -> release -> begin | over

It says what `ludus.training.collecting.AsyncCollector`, `ludus.rollout.async_limits.InFlightLimiter` and the loop around them may do, and
permits more than they do: any order in which answers come, and as many more as have come. Several tasks share the workers and the one
driver. Between any two steps of the driver a worker may finish, die, or send what a dead life of it had played, and the driver may be
killed, after which the run goes on from its last checkpoint.

A rule that is to be mutated is a method of its own, of one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from benchmarks.protocols_explorer import Label

T = TypeVar("T")


class Request(NamedTuple):
    """answer: "" while the worker owes it, "played", "lost" with its life, or "late": of a dead life, and taken nevertheless."""

    number: int
    host: int
    life: int
    version: int
    answer: str = ""


class TaskState(NamedTuple):
    """free: permits. in_flight: what was asked for and not taken. fresh: what was taken and not learned from. held: numbers whose permits
    are neither free nor in flight. learned: numbers, and those of them that no published weights know yet. again: the host of what was
    dropped, which may be asked once more. draining: before a barrier. twice: whether something was learned from a second time. lag: of
    the oldest that was learned from. since: iterations since the last barrier began."""

    phase: str
    version: int
    free: int
    in_flight: tuple[Request, ...] = ()
    fresh: tuple[Request, ...] = ()
    held: frozenset[int] = frozenset()
    learned: frozenset[int] = frozenset()
    unpublished: frozenset[int] = frozenset()
    iterations: int = 0
    since: int = 0
    again: int = -1
    draining: bool = False
    twice: bool = False
    lag: int = 0


class World(NamedTuple):
    """turn: the task that the driver is at. lives: of each host. saved: of each task, what the last checkpoint has. failed: a host had no
    restart left, which ends the run."""

    tasks: tuple[TaskState, ...]
    turn: int
    lives: tuple[int, ...]
    saved: tuple[TaskState, ...]
    kills: int = 0
    failed: bool = False


@dataclass(frozen=True)
class Pacing:
    """Attributes:
    hosts: Number of workers.
    in_flight: Requests that each has at most.
    least: Partial results to learn from.
    max_lag: Versions that they may be behind; None: any number.
    total: Partial results until a task is over.
    tasks: That are in progress together.
    restarts: Of each worker.
    barrier: Iterations between two barriers.
    publish: Iterations between two publications.
    kills: Of the driver, at most.
    """

    hosts: int = 2
    in_flight: int = 1
    least: int = 1
    max_lag: int | None = 1
    total: int = 3
    tasks: int = 1
    restarts: int = 1
    barrier: int = 2
    publish: int = 1
    kills: int = 0

    harms = frozenset({"dies", "dies with answers", "late", "killed"})
    hidden = frozenset({"gather", "skip", "late", "learn nothing", "no barrier", "turn"})

    @property
    def limit(self) -> int:
        """Permits of a task."""
        return self.in_flight * self.hosts

    def start(self) -> World:
        fresh = (TaskState("begin", 0, self.limit),) * self.tasks
        return World(fresh, 0, (0,) * self.hosts, fresh)

    # ------------------------------------------------------------------------------------------ rules

    def is_permitted(self, task: TaskState) -> bool:
        """A request needs a permit."""
        return task.free > 0

    def may_prefetch(self, task: TaskState) -> bool:
        """Nothing is asked for while a barrier waits for what is owed."""
        return not task.draining

    def wants(self, task: TaskState) -> bool:
        """Nothing is asked for beyond the task's end; something is, where nothing is on its way."""
        return len(task.learned) + len(task.fresh) + len(task.in_flight) < self.total or not task.in_flight

    def accepts(self, request: Request, lives: Sequence[int]) -> bool:
        """What a dead life sends is refused."""
        return request.life == lives[request.host]

    def lost_with(self, request: Request, task: TaskState) -> list[Request]:
        """A death loses whatever that life owes, and nothing of another one."""
        return [r for r in task.in_flight if (r.host, r.life) == (request.host, request.life)]

    def returned(self, lost: Sequence[Request]) -> int:
        """The permits of what was lost are free again."""
        return len(lost)

    def is_stale(self, lag: int) -> bool:
        return self.max_lag is not None and lag > self.max_lag

    def dropped(self, task: TaskState) -> TaskState:
        """What is dropped gives its permit back at once: nothing will be learned from it."""
        return task._replace(free=task.free + 1)

    def taken(self, request: Request, task: TaskState) -> tuple[Request, ...]:
        """What was taken is not in flight any more."""
        return tuple(r for r in task.in_flight if r is not request)

    def is_enough(self, task: TaskState) -> bool:
        return (len(task.fresh) >= self.least and not task.draining) or not task.in_flight

    def after_learning(self) -> str:
        """Weights are published before the permits of what they learned from are free."""
        return "publish"

    def released(self, task: TaskState) -> TaskState:
        return task._replace(free=task.free + len(task.held), held=frozenset())

    def publishes(self, task: TaskState) -> bool:
        return task.draining or task.iterations % self.publish == 0

    def next_life(self, world: World, host: int) -> tuple[int, ...]:
        """A worker that is made again is another life."""
        return _put(world.lives, host, world.lives[host] + 1)

    def may_end(self, task: TaskState) -> bool:
        """A task is over once it has learned from enough."""
        return len(task.learned) >= self.total

    def must_end(self, task: TaskState) -> bool:
        return len(task.learned) >= self.total

    def ended_episodes(self, task: TaskState) -> TaskState:
        """At a barrier nothing is in flight; what comes after it begins anew."""
        return task._replace(phase="begin", draining=False)

    def recovered(self, saved: TaskState) -> TaskState:
        """A resumed driver has nothing in flight and all permits."""
        return saved._replace(phase="begin", free=self.limit, in_flight=(), fresh=(), held=frozenset(), draining=False)

    def saved(self, saved: Sequence[TaskState], tasks: Sequence[TaskState]) -> tuple[TaskState, ...]:
        """A checkpoint has the results of tasks in their order, and of every other task the state at its own last barrier."""
        over = [all(earlier.phase == "over" for earlier in tasks[: t + 1]) for t in range(len(tasks))]
        return tuple(task if done else last for task, last, done in zip(tasks, saved, over, strict=True))

    # ------------------------------------------------------------------------------------------ steps

    def steps(self, world: World) -> Iterator[tuple[Label, World]]:
        if world.failed or self.is_over(world):
            return
        yield from self._of_hosts(world)
        if world.kills < self.kills:
            saved = tuple(task if task.phase == "over" else self.recovered(task) for task in world.saved)
            yield (
                ("killed",),
                world._replace(
                    tasks=saved, turn=_next_turn(saved, -1), saved=saved, lives=(0,) * self.hosts, kills=world.kills + 1
                ),
            )
        t, task = world.turn, world.tasks[world.turn]
        for label, after in self._of_driver(t, task, world):
            tasks = _put(world.tasks, t, after)
            changed = world._replace(tasks=tasks)
            if label[0] == "checkpoint":
                changed = changed._replace(saved=self.saved(_put(world.saved, t, after), tasks))
            if label[0] in ("over", "turn"):
                changed = changed._replace(turn=_next_turn(tasks, t))
            yield label, changed

    def _of_hosts(self, world: World) -> Iterator[tuple[Label, World]]:
        for host in range(self.hosts):
            owed = [
                (t, r)
                for t, task in enumerate(world.tasks)
                for r in task.in_flight
                if r.host == host and r.life == world.lives[host] and not r.answer
            ]
            for at, (t, r) in enumerate(owed):  # a task's in their order
                if not any(earlier == t for earlier, _ in owed[:at]):
                    yield ("played", host), _answered(world, [(t, r)], "played")
            if any(task.phase != "over" for task in world.tasks):
                yield from self._deaths(world, host, owed)
            lost = [(t, r) for t, task in enumerate(world.tasks) for r in task.in_flight if r.answer == "lost"]
            for t, r in lost:
                if r.host == host and self.accepts(r, world.lives):
                    yield ("late", host), _answered(world, [(t, r)], "late")

    def _deaths(self, world: World, host: int, owed: Sequence[tuple[int, Request]]) -> Iterator[tuple[Label, World]]:
        if world.lives[host] >= self.restarts:
            yield ("dies", host), world._replace(failed=True)
            return
        alive = world._replace(lives=self.next_life(world, host))
        yield ("dies", host), _answered(alive, owed, "lost")
        there = [
            (t, r)
            for t, task in enumerate(world.tasks)
            for r in task.in_flight
            if r.host == host and r.life == world.lives[host] and r.answer == "played"
        ]
        if there:  # with the node that holds them
            yield ("dies with answers", host), _answered(alive, [*owed, *there], "lost")

    def _of_driver(self, t: int, task: TaskState, world: World) -> Iterator[tuple[Label, TaskState]]:
        if task.phase in ("begin", "ask", "prefetch"):
            yield from self._asking(t, task, world)
        elif task.phase in ("gather", "drain"):
            yield from self._gathering(t, task, world)
        elif task.phase == "learn":
            yield from self._learning(t, task)
        elif task.phase == "publish":
            if self.publishes(task):
                after = task._replace(version=task.version + 1, unpublished=frozenset())
                yield ("publish", t, after.version), self._published(after)
            else:
                yield ("skip",), self._published(task)
        elif task.phase == "release":
            yield ("release", t, len(task.held)), self._after_release(self.released(task))
        elif task.phase == "next":
            yield from self._going_on(t, task)

    def _published(self, task: TaskState) -> TaskState:
        done = self.after_learning() == "release"
        return self._next(task) if done else task._replace(phase="release")

    def _after_release(self, task: TaskState) -> TaskState:
        early = self.after_learning() == "release" and task.unpublished
        return task._replace(phase="publish") if early else self._next(task)

    def _next(self, task: TaskState) -> TaskState:
        return task._replace(phase="next")

    def _asks(self, t: int, task: TaskState, world: World, hosts: Sequence[int]) -> Iterator[tuple[Label, TaskState]]:
        if not (self.is_permitted(task) and self.may_prefetch(task) and self.wants(task)):
            return
        for host in hosts:
            if sum(r.host == host for r in task.in_flight) < self.in_flight:
                request = Request(_unused(task), host, world.lives[host], task.version)
                in_flight = (*task.in_flight, request)
                yield ("ask", t, host, task.version), task._replace(free=task.free - 1, in_flight=in_flight, again=-1)

    def _asking(self, t: int, task: TaskState, world: World) -> Iterator[tuple[Label, TaskState]]:
        asks = [*self._asks(t, task, world, range(self.hosts))]
        yield from asks
        if not asks or self.may_stop_asking(task):
            label, phase = {"begin": ("turn", "ask"), "ask": ("gather", "gather"), "prefetch": ("gather", "learn")}[
                task.phase
            ]
            yield (label,), task._replace(phase=phase)

    def may_stop_asking(self, task: TaskState) -> bool:
        """Whether a driver may ask for less than it could. It does not."""
        return False

    def _gathering(self, t: int, task: TaskState, world: World) -> Iterator[tuple[Label, TaskState]]:
        if task.again >= 0:
            asks = [*self._asks(t, task, world, [task.again])]
            yield from asks
            if not asks or self.may_stop_asking(task):
                yield ("skip",), task._replace(again=-1)
            return
        for r in task.in_flight:
            if r.answer == "lost":
                lost = self.lost_with(r, task)
                rest = tuple(other for other in task.in_flight if other not in lost)
                yield (
                    ("lost", t, r.host, len(lost)),
                    task._replace(in_flight=rest, free=task.free + self.returned(lost)),
                )
            elif r.answer:
                yield self._take(t, task, r)
        if self.is_enough(task):
            yield ("gather",), task._replace(phase="learn" if task.draining or not task.fresh else "prefetch")

    def _take(self, t: int, task: TaskState, r: Request) -> tuple[Label, TaskState]:
        rest = self.taken(r, task)
        if self.is_stale(task.version - r.version):
            return ("drop", t, r.host, r.version), self.dropped(task._replace(in_flight=rest, again=r.host))
        return ("take", t, r.host, r.version), task._replace(
            in_flight=rest, fresh=(*task.fresh, r), held=task.held | {r.number}
        )

    def _learning(self, t: int, task: TaskState) -> Iterator[tuple[Label, TaskState]]:
        if not task.fresh:
            yield (
                ("learn nothing",),
                task._replace(phase="publish" if task.draining and task.unpublished else "release"),
            )
            return
        numbers = frozenset(r.number for r in task.fresh)
        yield (
            ("learn", t, tuple(sorted(r.version for r in task.fresh))),
            task._replace(
                phase=self.after_learning(),
                fresh=(),
                learned=task.learned | numbers,
                unpublished=task.unpublished | numbers,
                iterations=task.iterations + 1,
                since=task.since + 1,
                twice=task.twice or bool(numbers & task.learned),
                lag=max(task.lag, *(task.version - r.version for r in task.fresh)),
            ),
        )

    def _going_on(self, t: int, task: TaskState) -> Iterator[tuple[Label, TaskState]]:
        if self.may_end(task):
            yield ("over", t), task._replace(phase="over", in_flight=(), free=self.limit, held=frozenset())
        if self.must_end(task):
            return
        if task.draining:
            yield ("checkpoint", t), self.ended_episodes(task)
            return
        if task.since >= self.barrier:
            yield ("barrier", t), task._replace(phase="drain", draining=True, since=0)
        if task.since < self.barrier or self.may_put_off(task):
            yield ("no barrier",), task._replace(phase="begin")

    def may_put_off(self, task: TaskState) -> bool:
        """Whether a barrier that is due may wait: until a horizon has passed. Here it does not."""
        return False

    # ------------------------------------------------------------------------------------------ invariants

    def flaw(self, world: World) -> str:
        for t, task in enumerate(world.saved):
            done = all(earlier.phase == "over" for earlier in world.saved[:t])
            if task.phase not in (("begin", "over") if done else ("begin",)) or task.in_flight or task.fresh:
                return "a checkpoint has something else than states at barriers, or results out of their order"
        return next((flaw for task in world.tasks for flaw in self._flaws(task, world)), "")

    def _flaws(self, task: TaskState, world: World) -> Iterator[str]:
        numbers = [r.number for r in (*task.in_flight, *task.fresh)]
        if task.free < 0:
            yield "a permit was given that there was not"
        if task.free + len(task.in_flight) + len(task.held) != self.limit:
            yield "permits are not conserved: free, in flight and held are not all"
        if len(set(numbers)) < len(numbers) or task.twice:
            yield "a partial result is there, or was learned from, twice"
        if any(r.answer == "late" for r in task.fresh):
            yield "what a dead life of a worker sent was taken"
        if self.max_lag is not None and task.lag > self.max_lag:
            yield "something was learned from that is older than max_lag"
        if not {r.number for r in task.fresh} <= task.held:
            yield "something is to be learned from that holds no permit"
        if self.publish == 1 and not task.unpublished <= task.held:
            yield "a permit is free again before the weights that learned from it are published"
        if any(r.life > world.lives[r.host] for r in task.in_flight):
            yield "a request belongs to a life that is not yet"
        if task.phase in ("next", "over") and task.draining and (task.in_flight or task.fresh or task.unpublished):
            yield "a barrier leaves something in flight, not learned from, or not published"

    def is_over(self, world: World) -> bool:
        return world.failed or all(task.phase == "over" for task in world.tasks)


def _unused(task: TaskState) -> int:
    """Return the least number that nothing of a task has, so that states do not count what was dropped and lost."""
    used = task.learned | {r.number for r in (*task.in_flight, *task.fresh)}
    return next(number for number in range(len(used) + 1) if number not in used)


def _put(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _next_turn(tasks: Sequence[TaskState], turn: int) -> int:
    """Return the task after this one that is not over; that one itself where all are."""
    others = [*range(turn + 1, len(tasks)), *range(turn + 1)]
    return next((t for t in others if tasks[t].phase != "over"), max(turn, 0))


def _answered(world: World, owed: Sequence[tuple[int, Request]], answer: str) -> World:
    tasks = list(world.tasks)
    for t, request in owed:
        in_flight = tuple(r._replace(answer=answer) if r == request else r for r in tasks[t].in_flight)
        tasks[t] = tasks[t]._replace(in_flight=in_flight)
    return world._replace(tasks=tuple(tasks))
