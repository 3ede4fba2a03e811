"""Explores a state machine exhaustively, breadth first, and replays a trace of a real run against it.

A machine is a set of rules. Its states are frozen values; a step is a label, a tuple whose first item is its name, and the state after it.
Labels whose name is in `harms` are what the world may do and need not: deaths, kills, power cuts, a second driver. All others are owed.

Safety: no state that can be reached breaks an invariant. Liveness: from every state, every path on which no further harm comes reaches a
state in which all is over. So nothing stands still, and nothing goes round for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)
Label = tuple[Any, ...]


class Machine(Protocol[S]):
    """The rules of a protocol.

    Attributes:
        harms: Names of steps that nobody owes.
        hidden: Names of steps that a trace of a real run does not show.
    """

    harms: frozenset[str]
    hidden: frozenset[str]

    def start(self) -> S:
        """Return the first state."""
        ...

    def steps(self, state: S) -> Iterable[tuple[Label, S]]:
        """Yield every step that is permitted."""
        ...

    def flaw(self, state: S) -> str:
        """Return the invariant that a state breaks; "" for none."""
        ...

    def is_over(self, state: S) -> bool:
        """Return whether nothing is owed any more."""
        ...


@dataclass(frozen=True, slots=True)
class Exploration:
    """states, steps: numbers of different ones. depth: steps of the longest shortest path. flaw: what was broken, "" if nothing was; path:
    labels of a shortest way there."""

    states: int
    steps: int
    depth: int
    flaw: str = ""
    path: tuple[Label, ...] = ()


@dataclass(slots=True)
class _Graph(Generic[S]):
    """The states that were reached, in the order in which they were, and what leads where. origin: a step that led to each first."""

    number: dict[S, int]
    origin: list[tuple[int, Label]]
    depth: list[int]
    before: list[list[int]]  # by harmless steps
    owed: list[int]  # harmless steps that lead away
    steps: int = 0

    def path(self, at: int) -> tuple[Label, ...]:
        labels = []
        while at:
            at, label = self.origin[at]
            labels.append(label)
        return tuple(reversed(labels))

    def result(self, flaw: str = "", at: int = 0) -> Exploration:
        return Exploration(len(self.number), self.steps, max(self.depth), flaw, self.path(at))


def explore(machine: Machine[S], *, most: int = 5_000_000) -> Exploration:
    """Visit every state that can be reached, and check it.

    Args:
        machine: The rules.
        most: Number of states after which it is given up.

    Returns:
        The first flaw in the order of depth; a path without an end is looked for once no state is flawed.

    Raises:
        MemoryError: For a machine with more states.
    """
    first = machine.start()
    graph = _Graph({first: 0}, [(0, ())], [0], [[]], [0])
    if flaw := machine.flaw(first):
        return graph.result(flaw)
    queue = deque([first])
    over = []
    while queue:
        state = queue.popleft()
        here = graph.number[state]
        if machine.is_over(state):
            over.append(here)
        for label, after in machine.steps(state):
            graph.steps += 1
            there = graph.number.get(after)
            if there is None:
                there = graph.number[after] = len(graph.number)
                graph.origin.append((here, label))
                graph.depth.append(graph.depth[here] + 1)
                graph.before.append([])
                graph.owed.append(0)
                if flaw := machine.flaw(after):
                    return graph.result(flaw, there)
                if there >= most:
                    raise MemoryError(f"the machine has more than {most} states; make its bounds smaller.")
                queue.append(after)
            if label[0] not in machine.harms:
                graph.before[there].append(here)
                graph.owed[here] += 1
    endless = _endless(graph, over)
    return graph.result() if endless is None else graph.result("it never ends, or stands still", endless)


def _endless(graph: _Graph[S], over: Sequence[int]) -> int | None:
    """Return the nearest state from which a path without harm does not come to an end; None if there is none."""
    left, ends = list(graph.owed), [False] * len(graph.owed)
    queue = deque(over)
    for at in over:
        ends[at] = True
    while queue:
        for at in graph.before[queue.popleft()]:
            left[at] -= 1
            if not left[at] and not ends[at]:
                ends[at] = True
                queue.append(at)
    return next((at for at, does_end in enumerate(ends) if not does_end), None)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first event of a trace that no path permits. permitted: what was permitted there instead, hidden steps left out."""

    at: int
    event: Label
    permitted: tuple[Label, ...]

    def __str__(self) -> str:
        return f"event {self.at}, {self.event}, is not permitted; these are: {sorted(map(str, self.permitted))}"


class Replay(Generic[S]):
    """Follows a trace: holds every state that a machine may be in after it."""

    def __init__(self, machine: Machine[S]) -> None:
        self.machine, self.count = machine, 0
        self.states = self._closed([machine.start()])
        self.refusal: Refusal | None = None

    def follow(self, trace: Iterable[Label]) -> Refusal | None:
        """Take the events of a trace in turn, and return the first refusal."""
        for event in trace:
            if self.refusal is None:
                self._take(event)
        return self.refusal

    def _take(self, event: Label) -> None:
        visible = list(self._visible())
        after = {state: self.machine.flaw(state) for label, state in visible if label == event}
        sound = [state for state, flaw in after.items() if not flaw]
        if not sound:
            permitted = {label for label, _ in visible if label != event}
            broken = {(f"this breaks: {flaw}",) for flaw in after.values()}
            self.refusal = Refusal(self.count, event, (*permitted, *broken))
            return
        self.count += 1
        self.states = self._closed(sound)

    def _visible(self) -> Iterator[tuple[Label, S]]:
        for state in self.states:
            for label, after in self.machine.steps(state):
                if label[0] not in self.machine.hidden:
                    yield label, after

    def _closed(self, states: Iterable[S]) -> set[S]:
        """Return these states and all that hidden steps lead to."""
        closed = set(states)
        queue = list(closed)
        while queue:
            for label, after in self.machine.steps(queue.pop()):
                if label[0] in self.machine.hidden and after not in closed:
                    closed.add(after)
                    queue.append(after)
        return closed
