"""Tables over shards keep the contract of a table, whatever the kind and the number of shards."""

from dataclasses import replace
from itertools import count

import pytest

from ludus.replay.kinds import TABLES
from ludus.replay.selectors import SELECTORS
from ludus.replay.sharded import ShardedTable, TableShard
from ludus.runtime.inprocess import InProcess
from ludus.testing.table import check_table

KEYS = count()


def maker(shards, **choice):
    """Makes tables over the same shards."""
    runtime = InProcess()
    peers = [runtime.peer(runtime.spawn(TableShard, j)) for j in range(shards)]
    return lambda spec: ShardedTable(replace(spec, **choice), peers, ("t", str(next(KEYS))))


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("kind", TABLES)
def test_contract(kind, shards):
    check_table(maker(shards), kind)


def choices():
    for sampler in SELECTORS:
        for times in (0, 1, 3):
            if not (sampler == "prioritised" and times):
                yield sampler, times


@pytest.mark.parametrize(("sampler", "times"), list(choices()))
def test_contract_of_every_sampler(sampler, times):
    check_table(maker(2, sampler=sampler, max_times_sampled=times), "ring")
