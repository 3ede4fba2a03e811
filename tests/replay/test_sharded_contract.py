"""Tables over shards keep the contract of a table, whatever the kind and the number of shards."""

from dataclasses import replace
from itertools import count

import pytest

from ludus.replay.kinds import TABLES
from ludus.replay.sharded import ShardedTable, TableShard
from ludus.runtime.inprocess import InProcess
from ludus.testing.table import check_table

KEYS = count()


def maker(shards, **choice):
    """Makes tables over the same shards."""
    runtime = InProcess()
    peers = [runtime.peer(runtime.spawn(TableShard, j)) for j in range(shards)]
    return lambda spec: ShardedTable(replace(spec, **choice), peers, ("t", str(next(KEYS))))


@pytest.mark.parametrize(("kind", "shards"), [("queue", 1), *((kind, 3) for kind in TABLES)])
def test_sharded_tables_satisfy_table_contract(kind, shards):
    check_table(maker(shards), kind)


@pytest.mark.parametrize(
    ("sampler", "times"),
    [("uniform", 1), ("uniform", 3), ("prioritised", 0), ("max_heap", 3), ("less_used_oldest", 0), ("lifo", 1)],
)
def test_sharded_samplers_satisfy_table_contract(sampler, times):
    """What each of them draws is what a table in one place draws (test_sharded.py)."""
    check_table(maker(2, sampler=sampler, max_times_sampled=times), "ring")
