"""Replay tables with every sampler and remover, by hypothesis against plain lists."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ludus.core.errors import DataError, Deadlock
from ludus.replay.base import TableSpec
from ludus.replay.kinds import build_table
from ludus.replay.selectors import RESERVOIR, SELECTORS

EXPONENT = 0.5
KEYS = {
    "fifo": lambda item: item["number"],
    "lifo": lambda item: -item["number"],
    "min_heap": lambda item: (item["priority"], item["number"]),
    "max_heap": lambda item: (-item["priority"], item["number"]),
    "less_used_newest": lambda item: (item["times"], -item["number"]),
    "less_used_oldest": lambda item: (item["times"], item["number"]),
    "most_used": lambda item: (-item["times"], item["number"]),
}


class ReplayMachine(RuleBasedStateMachine):
    """A replay table beside a list of dictionaries, which is sorted anew each time; what chance decided is read from the table."""

    @initialize(
        sampler=st.sampled_from(sorted(SELECTORS)),
        remover=st.sampled_from([*sorted(SELECTORS), RESERVOIR]),
        times=st.integers(0, 3),
        capacity=st.integers(1, 9),
        given=st.booleans(),
    )
    def begin(self, sampler, remover, times, capacity, given):
        self.sampler, self.remover, self.times, self.capacity = sampler, remover, 0, capacity
        self.times = 0 if remover == RESERVOIR else times
        self.spec = TableSpec(
            "t", "ring", capacity, sampler=sampler, remover=remover, max_times_sampled=self.times,
            priority_exponent=EXPONENT,
        )  # fmt: skip
        self.table, self.rng, self.given = build_table(self.spec), np.random.default_rng(0), given
        self.items: list[dict] = []
        self.names: dict[int, int] = {}  # number -> index, of all that were seen
        self.next, self.top = 0, 1.0
        self.by_priority = {sampler, remover} & {"prioritised", "min_heap", "max_heap"}

    @rule(priorities=st.lists(st.sampled_from([0.0, 0.25, 1.0, 1.0, 4.0]), min_size=1, max_size=9))
    def insert(self, priorities):
        priorities = priorities[: self.capacity]
        numbers = list(range(self.next, self.next + len(priorities)))
        columns = {"number": np.array(numbers), "pair": np.array([[n, -n] for n in numbers], np.float32)}
        if self.given:
            columns["priority"] = np.array(priorities)
            self.top = max(self.top, *priorities)
        assert self.table.try_insert(columns, self.rng)
        missing = max(0, len(self.items) + len(numbers) - self.capacity)
        if missing and self.remover in KEYS:
            leaving = sorted(self.items, key=KEYS[self.remover])[:missing]
            self.items = [item for item in self.items if item not in leaving]
        self.items += [
            {"number": n, "times": 0, "priority": p if self.given else self.top}
            for n, p in zip(numbers, priorities, strict=True)
        ]
        self.next += len(numbers)
        held = self.held()
        if missing and self.remover not in KEYS:
            if self.remover != RESERVOIR:
                assert set(numbers) <= held  # newcomers stay
            self.items = [item for item in self.items if item["number"] in held]

    @rule(count=st.integers(0, 9))
    def sample(self, count):
        random = self.sampler not in KEYS and not self.times
        before = list(self.items)
        if count > self.capacity and not random:
            with pytest.raises(Deadlock):
                self.table.try_sample(count, self.rng)
            return
        sample = self.table.try_sample(count, self.rng)
        if not before or (count > len(before) and not random):
            assert sample is None
            return
        numbers = sample.columns["number"].tolist()
        assert sample.columns["pair"].tolist() == [[n, -n] for n in numbers]
        if count == 0:
            assert numbers == [item["number"] for item in before]
        elif self.sampler in KEYS:
            assert numbers == [item["number"] for item in sorted(before, key=KEYS[self.sampler])[:count]]
        else:
            assert len(numbers) == count
            assert random or len(set(numbers)) == count
        self.account(sample, numbers, everything=count == 0)

    def account(self, sample, numbers, everything):
        items = {item["number"]: item for item in self.items}
        weights = {n: 1.0 for n in items}
        if self.sampler == "prioritised":
            weights = {n: max(item["priority"] ** EXPONENT, 1e-100) for n, item in items.items()}
        total = 1.0 if everything or self.sampler in KEYS else sum(weights.values())
        expected = [1.0 if everything or self.sampler in KEYS else weights[n] / total for n in numbers]
        np.testing.assert_allclose(sample.probability, expected)
        for number, name in zip(numbers, sample.index.tolist(), strict=True):
            assert self.names.setdefault(number, name) == name
            items[number]["times"] += 1
        assert len(set(self.names.values())) == len(self.names)
        self.items = [item for item in self.items if not self.times or item["times"] < self.times]

    @rule(data=st.data())
    def update(self, data):
        if not self.names:
            return
        numbers = data.draw(st.lists(st.sampled_from(sorted(self.names)), max_size=4))
        priorities = data.draw(
            st.lists(st.sampled_from([0.0, 0.5, 2.0, 9.0]), min_size=len(numbers), max_size=len(numbers))
        )
        index = np.array([self.names[n] for n in numbers], np.int64)
        if not self.by_priority:
            with pytest.raises(DataError):
                self.table.update_priorities(index, np.array(priorities))
            return
        self.table.update_priorities(index, np.array(priorities))
        items = {item["number"]: item for item in self.items}
        for number, priority in zip(numbers, priorities, strict=True):
            if number in items:  # what is gone is passed over
                items[number]["priority"] = priority
                self.top = max(self.top, priority)

    @rule()
    def reload(self):
        state = self.table.state_dict()
        self.table.close()
        self.table = build_table(self.spec)
        self.table.load_state_dict(state)

    def held(self) -> set[int]:
        copy = build_table(self.spec)
        copy.load_state_dict(self.table.state_dict())
        everything = copy.try_sample(0, np.random.default_rng(0))
        return set() if everything is None else set(everything.columns["number"].tolist())

    @invariant()
    def holds_the_same(self):
        if hasattr(self, "table"):
            assert len(self.table) == len(self.items) <= self.capacity
            assert self.held() == {item["number"] for item in self.items}


TestReplayMachine = ReplayMachine.TestCase
TestReplayMachine.settings = settings(max_examples=50, stateful_step_count=25)
