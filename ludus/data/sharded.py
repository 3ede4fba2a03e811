r"""A table whose items are spread over shards, which are parts of a runtime. To its user it is a table like any other.

owner --a block of rows--> one shard                insert: the fewest items, so blocks go round
      <--its share of a batch-- every shard         sample: merged as one table would have given it

One owner does all the counting, so the rate limiter, the bound and the order are those of one table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data.base import Columns, Sample, TableSpec
from ludus.data.columns import rows_of
from ludus.data.queue import Queue
from ludus.data.replay import Replay
from ludus.data.rules import QueueRules, ReplayRules
from ludus.data.selectors import RESERVOIR, SELECTORS, Fifo, Ordered, Prioritised, Uniform
from ludus.data.shard import NUMBER, Block, Key
from ludus.data.shard_client import ShardClient
from ludus.data.spread import capacities, different_owners, owners, pieces
from ludus.data.table import TABLES, BoundedTable
from ludus.errors import DataError
from ludus.registry import load
from ludus.runtime.base import Peer, Ref
from ludus.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Remote:
    """Items that lie elsewhere. ref: a reference to `rows` rows of columns, which shards fetch themselves."""

    ref: Ref
    rows: int


class ShardedTable(BoundedTable):
    """Belongs to one process, which inserts and samples. It waits for answers of shards, and for nothing else.

    - A block goes to the shard with the most room; where all are full, to the one that was given least (`spread.pieces`).
    - Samplers at random: each draw falls to a shard in proportion to its items, or to the mass of their priorities. A reservoir's falls to
      it in proportion to what came to it, so that a draw is uniform over all that ever came.
    - Samplers in an order: every shard tells what is ahead, and the first of all are taken, as from one table.
    - Remover `fifo`: each shard lets its own oldest go. With blocks of one size that divides a shard's capacity these are the oldest of
      all; otherwise an item may stay for some blocks more or less. Other removers but `reservoir` are refused.
    - Once a shard is dead every call but `close` raises PartDied.
    """

    def __init__(self, spec: TableSpec, shards: Sequence[Peer], key: Key) -> None:
        """key: what the shards know it by. Raises DataError for what cannot be spread, with the reason."""
        kind = load("kind of table", spec.kind, TABLES)
        rules = QueueRules(spec) if kind is Queue else ReplayRules(spec)
        super().__init__(spec, rules)
        self._choice = rules.choice if isinstance(rules, ReplayRules) else None
        self._sampler = Fifo if self._choice is None else load("sampler", self._choice.sampler, SELECTORS)
        self._refuse(kind, len(shards))
        self._chance = self._choice is not None and self._choice.remover == RESERVOIR
        self._capacity = capacities(spec.capacity, len(shards))
        if self._choice is None:
            self._capacity[:] = spec.capacity  # a queue's shards take what comes; together they are bounded
        self._shards = ShardClient(shards, key)
        self._given = np.zeros(len(shards), np.int64)  # items that each was given so far
        self._next = 0  # number of the next item
        specs = [replace(spec, capacity=int(capacity), limiter={}) for capacity in self._capacity]
        self._shards.ask("open", [(j, one) for j, one in enumerate(specs)])

    # ------------------------------------------------------------------ the Table protocol, where it differs

    def try_insert(self, items: Columns | Remote, rng: np.random.Generator | None = None) -> bool:
        """See `Table`. What is `Remote` goes from where it is to the shards."""
        if not isinstance(items, Remote):
            return super().try_insert(items, rng)
        self._require_open()
        if items.rows < 0:
            raise DataError(f"table {self.spec.name!r}: an insert cannot have {items.rows} items.")
        if items.rows and not self._admits(items.rows):
            self._counts.refused_inserts += items.rows
            return False
        if items.rows:
            self._store_remote(items, rng)
        return True

    def update_priorities(self, index: NDArray[np.int64], priority: NDArray[np.float64]) -> None:
        """See `Table`. Shards are not waited for; what is drawn afterwards knows the new ones."""
        if self._choice is None or not self._choice.by_priority:
            super().update_priorities(index, priority)
            return
        self._require_open()
        names, priority = self._choice.check_update(self.spec.name, index, priority)
        for j in range(len(self._shards)):
            mine = names % len(self._shards) == j
            if mine.any():
                name = names[mine] // len(self._shards)
                self._shards.send(j, "update_priorities", name, priority[mine], foretold=False)

    def announce(self, version: int) -> None:
        """See `Table`."""
        super().announce(version)
        if self.spec.max_lag is None:
            return
        for j, (dropped, report) in enumerate(self._shards.ask_all("announce", version)):
            self._shards.learn(j, report)
            self._counts.dropped += dropped
            self._counts.outdated += dropped

    def statistics(self) -> Mapping[str, Any]:
        """`Counts`, `size`, and `shards`: the items that each holds."""
        return {**super().statistics(), "shards": self._shards.sizes.tolist()}

    def check_alive(self) -> None:
        """Raises PartDied if a shard is dead: nobody would learn of it who only waits for room."""
        self._require_open()
        self._shards.ping()

    # ------------------------------------------------------------------ what `BoundedTable` asks for

    def _require_open(self) -> None:
        super()._require_open()
        self._shards.require_alive()

    def _size(self) -> int:
        return int(self._shards.sizes.sum())

    def _store(self, columns: Columns, count: int, rng: np.random.Generator | None) -> None:
        given = None if self._choice is None else self._choice.given_priorities(self.spec.name, columns)
        self._shards.settle(only_uncertain=True)
        for j, block in self._blocks(count, rng):
            whole = block.last - block.first == count
            part = columns if whole else rows_of(columns, slice(block.first, block.last))
            self._shards.send(j, "insert", part, block, foretold=True)
            self._took(j, block.last - block.first)
        if given is not None:
            self._shards.top = max(self._shards.top, float(given.max()))
        self._next += count

    def _draw(self, count: int, rng: np.random.Generator) -> Sample:
        self._shards.settle()
        sizes = self._shards.sizes
        if not count:
            batch, numbers = self._gather(np.repeat(np.arange(len(sizes)), sizes), rng, everything=True)
            order = np.argsort(numbers)
            return Sample(rows_of(batch.columns, order), batch.index[order], np.ones(len(order)))
        if issubclass(self._sampler, Ordered):
            batch, _ = self._gather(self._first(count), rng)
            return replace(batch, probability=np.ones(count))
        assert self._choice is not None
        weights = self._weights()
        owner = different_owners(count, sizes, rng) if self._choice.times else owners(count, weights, rng)
        batch, _ = self._gather(owner, rng)
        return replace(batch, probability=batch.probability * (weights / weights.sum())[owner])

    def _contents(self) -> tuple[dict[str, Any], dict[str, Array]]:
        assert self._schema is not None
        empty = {name: np.empty((0, *shape), dtype) for name, (dtype, shape) in self._schema.items()}
        shards = {str(j): state for j, state in enumerate(self._shards.ask_all("state"))}
        return {"given": self._given.copy(), "next": self._next, "top": self._shards.top, "shards": shards}, empty

    def _restore(self, book: Mapping[str, Any], columns: Columns, count: int) -> None:
        if book.keys() != {"given", "next", "top", "shards"} or len(book["shards"]) != len(self._shards):
            raise DataError(
                f"table {self.spec.name!r}: the state is not one of {len(self._shards)} shards; load it into as many as it was saved from."
            )
        self._shards.ask("stage", [(j, book["shards"][str(j)]) for j in range(len(self._shards))])
        self._again("commit")
        self._given, self._next = np.array(book["given"]), int(book["next"])
        self._shards.top = float(book["top"])

    def _empty(self) -> None:
        self._again("reset")
        self._given[:] = 0
        self._next = 0

    def _forget(self) -> None:
        self._shards.forget()

    # ------------------------------------------------------------------ helpers

    def _refuse(self, kind: Any, shards: int) -> None:
        """Raises DataError for what would not be the same over several shards."""
        name, choice = self.spec.name, self._choice
        why = ""
        if kind not in (Queue, Replay):
            why = f"{self.spec.kind!r} is a kind of your own, and only that knows what its order means"
        elif self.spec.capacity < shards:
            why = f"its capacity of {self.spec.capacity} is less than one item for each"
        elif choice is not None and choice.remover not in ("fifo", RESERVOIR):
            why = f"the remover {choice.remover!r} chooses among all items, and a shard that makes room knows only its own"
        elif not (self._sampler in (Uniform, Prioritised) or issubclass(self._sampler, Ordered)):
            why = f"{self.spec.sampler!r} is a sampler of your own, and only that knows which share each shard has of a batch"
        elif choice is not None and choice.times and self._sampler is Prioritised:
            why = "prioritised draws of different items depend on each other, and shards draw on their own"
        if why:
            raise DataError(
                f"table {name!r} cannot be spread over {shards} shards: {why}. Keep it in one place, or choose another."
            )

    def _blocks(self, count: int, rng: np.random.Generator | None) -> list[tuple[int, Block]]:
        """Which rows of an insert go to which shard."""
        room = self._capacity - self._shards.sizes
        if self._chance and rng is None and count > room.sum():
            raise DataError(
                f"table {self.spec.name!r} is full, and chance decides who makes room; give try_insert a random stream."
            )
        parts = pieces(count, room=room, given=self._given, capacity=self._capacity)
        blocks, first = [], 0
        for j in np.flatnonzero(parts).tolist():
            last = first + int(parts[j])
            seed = _seed(rng) if self._chance and rng is not None else None
            blocks.append((j, Block(first, last, count, self._next + first, self._shards.top, seed)))
            first = last
        return blocks

    def _took(self, shard: int, count: int) -> None:
        """Rows have gone to a shard."""
        held = int(self._shards.sizes[shard]) + count
        self._shards.sizes[shard] = min(held, int(self._capacity[shard]))
        self._counts.evicted += held - int(self._shards.sizes[shard])
        self._given[shard] += count

    def _store_remote(self, items: Remote, rng: np.random.Generator | None) -> None:
        self._shards.settle()
        blocks = self._blocks(items.rows, rng)
        answers = self._shards.ask("insert_remote", [(j, items.ref, block, self._schema) for j, block in blocks])
        for (j, block), (fresh, schema, report) in zip(blocks, answers, strict=True):
            self._took(j, fresh)
            self._shards.learn(j, report)
            self._counts.inserted += fresh
            self._counts.dropped += block.last - block.first - fresh
            self._schema = schema
        self._next += items.rows

    def _weights(self) -> NDArray[np.float64]:
        """By which draws fall to shards."""
        if self._chance:
            return self._given.astype(np.float64)
        return self._shards.mass if self._sampler is Prioritised else self._shards.sizes.astype(np.float64)

    def _first(self, count: int) -> NDArray[np.int64]:
        """The shards of the first `count` items of all, in their order."""
        held = np.flatnonzero(self._shards.sizes)
        heads = self._shards.ask("ahead", [(int(j), count) for j in held])
        shard = np.repeat(held, [len(key) for key, _ in heads])
        key, tie = (np.concatenate([head[part] for head in heads]) for part in (0, 1))
        return shard[np.lexsort((tie, key))[:count]]

    def _gather(
        self, owner: NDArray[np.int64], rng: np.random.Generator, *, everything: bool = False
    ) -> tuple[Sample, NDArray[np.int64]]:
        """A batch whose row i comes from shard owner[i], those of one shard in the order in which it gives them; and the items' numbers."""
        places = {int(j): np.flatnonzero(owner == j) for j in np.unique(owner)}
        calls = [(j, 0 if everything else len(rows), _seed(rng)) for j, rows in places.items()]
        columns: dict[str, Array] = {}
        index, probability = np.empty(len(owner), np.int64), np.empty(len(owner))
        for (j, rows), (sample, report) in zip(places.items(), self._shards.ask("draw", calls), strict=True):
            self._shards.learn(j, report)
            for name, column in sample.columns.items():
                if name not in columns:
                    columns[name] = np.empty((len(owner), *column.shape[1:]), column.dtype)
                columns[name][rows] = column
            index[rows] = sample.index * len(self._shards) + j
            probability[rows] = sample.probability
        numbers = columns.pop(NUMBER)
        return Sample(columns, index, probability), numbers

    def _again(self, method: str) -> None:
        """Have the shards' contents replaced."""
        reports = self._shards.ask_all(method)
        self._shards.top = 1.0
        for j, report in enumerate(reports):
            self._shards.learn(j, report)


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**63))
