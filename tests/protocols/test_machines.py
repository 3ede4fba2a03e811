"""The machines of `benchmarks.protocols`: without a flaw within small bounds, and with one for each planted fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks.protocols import LARGE, SMALL, judge
from benchmarks.protocols_explorer import Label, Replay, explore
from benchmarks.protocols_faults import COMMITS, ENDLESS, PACING, ROUNDS, mutated
from benchmarks.protocols_pacing import Pacing

FAULTS = {**PACING, **ROUNDS, **COMMITS}


@pytest.mark.parametrize("name", SMALL)
def test_no_state_is_flawed_and_every_path_ends(name: str) -> None:
    result = explore(SMALL[name])
    assert (result.flaw, result.path) == ("", ())
    assert result.states > 500


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    result, is_seen = judge(FAULTS[name])
    assert is_seen, result


def test_bounds_and_faults_are_many() -> None:
    assert min(len(PACING), len(COMMITS)) >= 10
    assert {type(machine) for machine in LARGE.values()} == {type(machine) for machine in SMALL.values()}


def test_permits_alone_do_not_bound_the_age_of_what_is_learned_from() -> None:
    """While one worker plays, the other one brings more than there are permits; so `max_lag` is needed."""

    def flaw(self: Pacing, world: Any) -> str:
        return "older than there are permits" if max(task.lag for task in world.tasks) > self.limit else ""

    machine = mutated(Pacing(max_lag=None, total=4, barrier=9, restarts=0), flaw=flaw)
    result = explore(machine)
    assert result.flaw == "older than there are permits"
    assert [label[2] for label in result.path if label[0] == "learn"] == [(0,), (1,), (2,), (0,)]


def test_permits_held_until_a_rare_publication_would_stop_everything() -> None:
    """So they are free again after each iteration, also where weights are published every second one."""
    machine = mutated(
        Pacing(publish=2, least=2),
        released=lambda self, task: task if task.unpublished else Pacing.released(self, task),
    )
    assert explore(machine).flaw == ENDLESS


# ---------------------------------------------------------------------------------------------- the explorer


@dataclass(frozen=True)
class Counter:
    """Counts up to `top` by one, or by two; harm sets it back. stuck: a number from which nothing leads away. loop: whether it may go down.
    worst: the least number that is a flaw."""

    top: int
    stuck: int = -1
    loop: bool = False
    worst: int = 99

    harms = frozenset({"set back"})
    hidden = frozenset({"by two"})

    def start(self) -> int:
        return 0

    def steps(self, state: int) -> Iterator[tuple[Label, int]]:
        if state not in (self.stuck, self.top):
            yield ("by one",), state + 1
            if state + 2 <= self.top:
                yield ("by two",), state + 2
            yield ("set back",), 0
            if self.loop and state:
                yield ("down",), state - 1

    def flaw(self, state: int) -> str:
        return "too large" if state >= self.worst else ""

    def is_over(self, state: int) -> bool:
        return state == self.top


def test_all_states_are_counted_with_the_shortest_path_to_each() -> None:
    result = explore(Counter(6))
    assert (result.states, result.steps, result.depth, result.flaw) == (7, 17, 3, "")


def test_the_shortest_path_to_a_flaw_is_told() -> None:
    result = explore(Counter(6, worst=5))
    assert result.flaw == "too large"
    assert len(result.path) == 3
    assert explore(Counter(6, worst=0)).path == ()


@pytest.mark.parametrize("machine", [Counter(6, stuck=4), Counter(6, loop=True)])
def test_what_stands_still_or_goes_round_has_no_end(machine: Counter) -> None:
    assert explore(machine).flaw == ENDLESS


def test_too_many_states_are_refused() -> None:
    with pytest.raises(MemoryError, match="more than 10 states"):
        explore(Counter(99), most=10)


def test_a_trace_is_followed_through_hidden_steps() -> None:
    replay = Replay(Counter(6))
    assert replay.follow([("by one",), ("by one",)]) is None
    assert replay.states == {2, 4, 6}
    refusal = replay.follow([("set back",), ("down",)])
    assert refusal is not None
    assert (refusal.at, refusal.event) == (3, ("down",))
    assert "('by one',)" in str(refusal)
    assert Replay(Counter(6, worst=1)).follow([("by one",)]) is not None, "what is flawed is not permitted either"
