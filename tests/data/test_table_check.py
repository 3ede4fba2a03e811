"""Both kinds of tables keep the shipped contract, and the check notices tables that do not."""

import numpy as np
import pytest

from ludus.data.base import Sample
from ludus.data.queue import Queue
from ludus.data.replay import Replay as Ring
from ludus.data.table import build_table
from ludus.testing.table import check_table


@pytest.mark.parametrize("kind", ["queue", "ring", "ludus.data.replay:Replay"])
def test_contract(kind):
    check_table(build_table, kind)


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


class ForgetsCounts(Ring):
    def load_state_dict(self, state):
        super().load_state_dict(state)
        self._counts.sampled = 0


class StaysOpen(Ring):
    def close(self):
        pass


class Unchecked(Ring):
    def try_insert(self, items):
        if self._schema is not None and items.keys() != self._schema.keys():
            return True
        return super().try_insert(items)


class WrongIndex(Ring):
    def _draw(self, count, rng):
        sample = super()._draw(count, rng)
        return Sample(sample.columns, sample.index.astype(np.int32), sample.probability)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (Unbounded, "its capacity is 20"),
        (Evicted, "never inserted|mixed up"),
        (Aliased, "must not reach the table"),
        (ForgetsCounts, "differs from what was loaded"),
        (StaysOpen, "did not raise TableClosed"),
        (Unchecked, "did not raise DataError"),
        (WrongIndex, "index is int32"),
    ],
)
def test_the_check_notices(broken, words):
    with pytest.raises(AssertionError, match=words):
        check_table(broken)
