"""All kinds of tables keep the shipped contract, and the check notices tables that do not."""

from dataclasses import replace

import numpy as np
import pytest

from ludus.core.errors import DataError
from ludus.replay.base import Sample, TableSpec
from ludus.replay.kinds import TABLES, Queue, build_table
from ludus.replay.kinds import Replay as Ring
from ludus.replay.selectors import SELECTORS
from ludus.testing.table import check_table


@pytest.mark.parametrize("kind", [*TABLES, "ludus.replay.kinds:Replay"])
def test_shipped_tables_satisfy_table_contract(kind):
    check_table(build_table, kind)


def choices():
    """Each sampler with each limit of use, and each remover among them; each pair of both with one limit among the slow tests."""
    removers = [*SELECTORS, "reservoir"]
    for i, sampler in enumerate(SELECTORS):
        for j, remover in enumerate(removers):
            for k, times in enumerate([0, 1, 3]):
                if (j - i - 3 * k) % len(removers) == 0:
                    yield pytest.param(sampler, remover, times)
                elif (i + j + k) % 3 == 0:
                    yield pytest.param(sampler, remover, times, marks=pytest.mark.slow)


@pytest.mark.parametrize(("sampler", "remover", "times"), list(choices()))
def test_every_selector_and_remover_satisfies_table_contract(sampler, remover, times):
    choice = {"sampler": sampler, "remover": remover, "max_times_sampled": times, "priority_exponent": 0.7}
    if remover == "reservoir" and times:
        with pytest.raises(DataError, match="a reservoir holds a uniform sample of all that came"):
            build_table(TableSpec("t", "ring", **choice))
        return
    check_table(lambda spec: build_table(replace(spec, **choice)), "ring")


class Unbounded(Queue):
    def _admits(self, count):
        return True


class Evicted(Ring):
    """Hands out an item after its place was given to another."""

    def _draw(self, count, rng):
        sample = super()._draw(count, rng)
        return Sample({**sample.columns, "number": sample.columns["number"] - 1}, sample.index, sample.probability)


class Aliased(Queue):
    def _store(self, columns, count, rng):
        super()._store(columns, count, rng)
        block = self._blocks.pop()
        self._blocks.append({**block, **columns})


class Stale(Ring):
    """Takes priorities for items that have left."""

    def __init__(self, spec):
        super().__init__(replace(spec, sampler="prioritised"))

    def update_priorities(self, index, priority):
        super().update_priorities(index + self.spec.capacity, priority)


class Renames(Ring):
    """Names items by their rows."""

    def _draw(self, count, rng):
        sample = super()._draw(count, rng)
        return Sample(sample.columns, sample.index % self.spec.capacity, sample.probability)


class ForgetsCounts(Ring):
    def load_state_dict(self, state):
        super().load_state_dict(state)
        self._counts.sampled = 0


class StaysOpen(Ring):
    def close(self):
        pass


class Unchecked(Ring):
    def try_insert(self, items, rng=None):
        if self._schema is not None and items.keys() != self._schema.keys():
            return True
        return super().try_insert(items, rng)


class WrongIndex(Ring):
    def _draw(self, count, rng):
        sample = super()._draw(count, rng)
        return Sample(sample.columns, sample.index.astype(np.int32), sample.probability)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (Unbounded, "its capacity is 20"),
        (Evicted, "never inserted|mixed up|held no such one"),
        (Aliased, "must not reach the table"),
        (ForgetsCounts, "differs from what was loaded"),
        (StaysOpen, "did not raise TableClosed"),
        (Unchecked, "did not raise DataError"),
        (WrongIndex, "index is int32"),
        (Stale, "items that are gone changed the table"),
        (Renames, "held no such one|names items"),
    ],
)
def test_the_check_notices(broken, words):
    with pytest.raises(AssertionError, match=words):
        check_table(broken)
