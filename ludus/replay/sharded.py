"""A table whose items are spread over shards, which are parts of a runtime. To its user it is a table like any other.

owner --a block of rows--> one shard                insert: the fewest items, so blocks go round
      <--its share of a batch-- every shard         sample: merged as one table would have given it

One owner does all the counting, so the rate limiter, the bound and the order are those of one table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import DataError, PartDied, RunError
from ludus.core.parts import resolve_name
from ludus.core.types import Array, State
from ludus.replay.base import ItemColumns, Sample, TableSpec
from ludus.replay.kinds import TABLES, Queue, Replay, build_table
from ludus.replay.selectors import RESERVOIR, SELECTORS, Fifo, Ordered, Prioritised, UniformSelector
from ludus.replay.table import BoundedTable, QueueRules, ReplayRules, Schema, check_schema, num_rows, rows_of, schema_of
from ludus.runtime.base import Peer, Ref, Reply, Runtime

# --------------------------------------------------------------------------------------------------------------------
# Where items go and come from when a table is spread over shards: pure functions of counts.

Counts = NDArray[np.int64]


def capacities(capacity: int, shards: int) -> Counts:
    """Return equal pieces; the rest goes to the first ones."""
    return np.full(shards, capacity // shards) + (np.arange(shards) < capacity % shards)


def pieces(count: int, *, room: Counts, inserted: Counts, capacity: Counts) -> Counts:
    """Return how many rows of an insert go to each shard; as few as can be. inserted: items that each has received so far.

    - Where a shard has room for all, the one with the most room gets them; of equal ones the one that received least, then the first.
    - Where all shards together have, those with the most room are filled.
    - Otherwise what room there is is filled, so that no item has to go too early, and the rest goes to the one that received least.

    So blocks of one size go round the shards in turn. `count` must be at most the sum of the capacities.
    """
    shards = len(room)
    out = np.zeros(shards, np.int64)
    by_room = np.lexsort((np.arange(shards), inserted, -room))
    if count <= room[by_room[0]]:
        out[by_room[0]] = count
        return out
    out = _fill(count, by_room, room)
    rest = count - int(out.sum())
    if rest:
        by_inserted = np.lexsort((np.arange(shards), inserted))
        out += _fill(rest, by_inserted, capacity - room)
    return out


def _fill(count: int, order: Counts, limit: Counts) -> Counts:
    """Fill up to the limit of each in this order, until `count` are placed."""
    ends = np.minimum(np.cumsum(limit[order]), count)
    out = np.zeros(len(limit), np.int64)
    out[order] = np.diff(ends, prepend=0)
    return out


def owners(count: int, weights: NDArray[np.float64], rng: np.random.Generator) -> Counts:
    """Return, for each of `count` independent draws, the shard that it falls to, in proportion to the weights (at least one above 0)."""
    ends = np.cumsum(weights)
    shard = np.searchsorted(ends, rng.random(count) * ends[-1], side="right")
    last = int(np.flatnonzero(weights)[-1])  # rounding may take a draw to the very end
    out: Counts = np.minimum(shard, last).astype(np.int64)
    return out


def different_owners(count: int, sizes: Counts, rng: np.random.Generator) -> Counts:
    """Return shards as `owners` does, for draws of different items, all alike."""
    shares = rng.multivariate_hypergeometric(sizes, count)
    shards: Counts = rng.permutation(np.repeat(np.arange(len(sizes)), shares))
    return shards


# --------------------------------------------------------------------------------------------------------------------
# A shard: what one process holds of tables that are spread over several. A passive store; the tables' owner decides
# everything.

Key: TypeAlias = tuple[str, str]
"""(task, table)."""

NUMBER = "\0item"
"""A column of our own: the items' numbers in the order of insertion over all shards."""


class TableReport(NamedTuple):
    """How a table is after a call. size: items. mass: of their chances. top: the largest priority so far."""

    size: int
    mass: float
    top: float


class InsertPart(NamedTuple):
    """Rows first … last − 1 of an insert of `rows` go to this shard; the first of them is item `number`. top: the largest priority
    anywhere. seed: of what chance decides; None: there is none."""

    first: int
    last: int
    rows: int
    number: int
    top: float
    seed: int | None


class TableShard:
    """A part; see `spawn_shards`. spec: its number, for messages. It imports no torch."""

    def __init__(self, spec: int) -> None:
        self._number = spec
        self._tables: dict[Key, Queue | Replay] = {}
        self._staged: dict[Key, Queue | Replay] = {}

    def ready(self, key: Key | None = None) -> None:
        """Answer while it lives."""

    def open(self, key: Key, spec: TableSpec) -> TableReport:
        """Make its piece of a table. Raises DataError if there is one of that name."""
        if key in self._tables:
            raise DataError(
                f"shard {self._number} holds a table {key[1]!r} of task {key[0]!r} already; close that first."
            )
        self._tables[key] = _make(spec)
        return self._report(key)

    def reset(self, key: Key) -> TableReport:
        """Make it anew, without items."""
        self._tables[key] = _make(self._table(key).spec)
        return self._report(key)

    def insert(self, key: Key, items: ItemColumns, block: InsertPart) -> TableReport:
        """Store rows that the owner has checked: all of `items`."""
        self._store(key, items, block)
        return self._report(key)

    def insert_remote(
        self, key: Key, items: ItemColumns, block: InsertPart, schema: Schema | None
    ) -> tuple[int, Schema, TableReport]:
        """Check an insert that came from elsewhere as a whole, and store the block's rows of it: (how many were not too old, their schema).
        Raises DataError, and changes nothing, if they do not fit."""
        table = self._table(key)
        count = num_rows(items)
        if count != block.rows:
            raise DataError(f"table {key[1]!r}: an insert was announced with {block.rows} items and has {count}.")
        if schema is not None:
            check_schema(items, schema)
        if isinstance(table, Replay):
            table.choice.given_priorities(key[1], items)
        before = table.statistics()["dropped"]
        self._store(key, rows_of(items, slice(block.first, block.last)), block)
        dropped = table.statistics()["dropped"] - before
        return block.last - block.first - dropped, schema_of(items), self._report(key)

    def draw(self, key: Key, count: int, seed: int) -> tuple[Sample, TableReport]:
        """`count` items, as the table's sampler gives them; 0: everything. They are there."""
        sample = self._table(key).try_sample(count, np.random.Generator(np.random.PCG64(seed)))
        assert sample is not None
        return sample, self._report(key)

    def ahead(self, key: Key, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return, of the next `count` items, or all that there are, what they are ordered by, and by what equal ones are."""
        table = self._table(key)
        return table.ahead(min(count, len(table)), NUMBER)

    def update_priorities(self, key: Key, index: NDArray[np.int64], priority: NDArray[np.float64]) -> TableReport:
        """See `Table`."""
        self._table(key).update_priorities(index, priority)
        return self._report(key)

    def announce(self, key: Key, version: int) -> tuple[int, TableReport]:
        """See `Table`; and how many items were dropped."""
        table = self._table(key)
        before = table.statistics()["dropped"]
        table.announce(version)
        return table.statistics()["dropped"] - before, self._report(key)

    def state(self, key: Key) -> State:
        """See `Table.state_dict`."""
        return self._table(key).state_dict()

    def stage(self, key: Key, state: State) -> None:
        """Make a table of this state, to be taken by `commit`. Raises DataError if it does not fit."""
        table = _make(self._table(key).spec)
        table.load_state_dict(state)
        self._staged[key] = table

    def commit(self, key: Key) -> TableReport:
        """Replace the table by the staged one."""
        self._tables[key] = self._staged.pop(key)
        return self._report(key)

    def drop(self, key: Key) -> None:
        """Close a table; harmless if there is none."""
        for tables in (self._staged, self._tables):
            table = tables.pop(key, None)
            if table is not None:
                table.close()

    def tables(self) -> Sequence[Key]:
        """Return the tables that it holds."""
        return list(self._tables)

    def _table(self, key: Key) -> Queue | Replay:
        table = self._tables.get(key)
        if table is None:
            raise DataError(
                f"shard {self._number} holds no table {key[1]!r} of task {key[0]!r}; its owner has closed it."
            )
        return table

    def _store(self, key: Key, items: ItemColumns, block: InsertPart) -> None:
        table = self._table(key)
        if isinstance(table, Replay):
            table.top = max(table.top, block.top)
        rng = None if block.seed is None else np.random.Generator(np.random.PCG64(block.seed))
        numbers = np.arange(block.number, block.number + block.last - block.first)
        accepted = table.try_insert({**items, NUMBER: numbers}, rng)
        assert accepted, "the owner sends what there is room for"

    def _report(self, key: Key) -> TableReport:
        table: Any = self._tables[key]
        return TableReport(len(table), getattr(table, "mass", 0.0), getattr(table, "top", 0.0))


def spawn_shards(runtime: Runtime, number: int, *, resources: Mapping[str, float] | None = None) -> list[Peer]:
    """Return shards for an `EpisodeServer`, which live as long as the runtime. Waits until they exist.

    Args:
        runtime: Where they live.
        number: Of shards.
        resources: Of each, as `Runtime.spawn` takes them.

    Raises:
        LudusError: As `Runtime.get` does.
    """
    parts = [runtime.spawn(TableShard, k, resources=resources, name=f"table shard {k}") for k in range(number)]
    for part in parts:
        runtime.get(runtime.call(part, "ready"))
    return [runtime.peer(part) for part in parts]


def _make(spec: TableSpec) -> Queue | Replay:
    table = build_table(spec)
    assert isinstance(table, Queue | Replay)
    return table


# --------------------------------------------------------------------------------------------------------------------
# The owner's side of one table's shards: asks them, and knows how full they are.

_ANSWER = 300.0  # seconds that a shard may take to answer
_AHEAD = 4  # calls that a shard may have before it and nobody waits for


class ShardClient:
    """sizes int64[k], mass float64[k], top: how the shards are once they have done what was sent. A shard runs calls in the order in which
    they were sent, so nothing needs to wait but for numbers that cannot be foretold.

    Once one shard is dead, or they have come apart, everything raises PartDied.
    """

    def __init__(self, peers: Sequence[Peer], key: Key) -> None:
        self._peers, self._key = tuple(peers), key
        self._sent: list[deque[Reply]] = [deque() for _ in peers]
        self._uncertain = False
        self._dead = ""
        self.sizes = np.zeros(len(peers), np.int64)
        self.mass = np.zeros(len(peers))
        self.top = 1.0

    def __len__(self) -> int:
        return len(self._peers)

    def require_alive(self) -> None:
        """Raise PartDied if they are not."""
        if self._dead:
            raise PartDied(self._dead)

    def send(self, shard: int, method: str, *args: Any, foretold: bool) -> None:
        """A call that is answered by a Report, which is not waited for. foretold: whether the caller sets `sizes` and `top` himself."""
        sent = self._sent[shard]
        if len(sent) == _AHEAD:
            self._done(sent.popleft())
        sent.append(self._peers[shard].send(method, self._key, *args))
        self._uncertain |= not foretold

    def settle(self, *, only_uncertain: bool = False) -> None:
        """Wait for what was sent. only_uncertain: unless everything was foretold."""
        if only_uncertain and not self._uncertain:
            return
        for shard, sent in enumerate(self._sent):
            while sent:
                report = self._done(sent.popleft())
                if not sent:  # earlier ones tell how it was before what came after them
                    self.learn(shard, report)
        self._uncertain = False

    def learn(self, shard: int, report: TableReport) -> None:
        """Record the state of a shard."""
        self.sizes[shard], self.mass[shard] = report.size, report.mass
        self.top = max(self.top, report.top)

    def ask(self, method: str, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Ask shards at the same time: (shard, arguments …) each. Raises the first of their errors, once all have answered."""
        self.settle()
        replies = [(shard, self._peers[shard].send(method, self._key, *args)) for shard, *args in calls]
        results, errors = [], []
        for shard, reply in replies:
            try:
                results.append(self._answer(shard, reply) if method == "insert_remote" else self._result(reply))
            except Exception as error:  # noqa: BLE001  (raised below)
                errors.append(error)
        if not errors:
            return results
        if results and method in _CHANGES:
            self._dead = (
                f"shards of table {self._key[1]!r} have come apart, since one of them failed in {method!r}: {errors[0]}"
            )
        raise errors[0]

    def ask_all(self, method: str, *args: Any) -> list[Any]:
        """Ask every shard the same."""
        return self.ask(method, [(shard, *args) for shard in range(len(self))])

    def ping(self) -> None:
        """Raise PartDied if one is dead."""
        self.ask_all("ready")

    def forget(self) -> None:
        """Drop the table, where a shard still exists."""
        for peer in self._peers:
            with suppress(Exception):
                peer.send("drop", self._key)
        self._sent = [deque() for _ in self._peers]

    def _done(self, reply: Reply) -> Any:
        """What was sent had been checked, so whatever goes wrong with it leaves shards that are not as they are believed to be."""
        try:
            return self._result(reply)
        except PartDied:
            raise
        except Exception as error:
            self._dead = (
                f"a shard of table {self._key[1]!r} could not do what it had to: {type(error).__name__}: {error}"
            )
            raise PartDied(self._dead) from error

    def _answer(self, shard: int, reply: Reply) -> Any:
        """To a call with a reference. Who was to make its value may be dead, and the shard live on."""
        try:
            return reply.result(_ANSWER)
        except PartDied:
            self._result(self._peers[shard].send("ready"))
            raise

    def _result(self, reply: Reply) -> Any:
        try:
            return reply.result(_ANSWER)
        except PartDied as error:
            self._dead = self._dead or (
                f"a shard of table {self._key[1]!r} is dead, and its items with it; resume from the last checkpoint. {error}"
            )
            raise PartDied(self._dead) from error
        except TimeoutError as error:
            self._dead = f"a shard of table {self._key[1]!r} has not answered for {_ANSWER:g} seconds."
            raise PartDied(self._dead) from error
        except RunError as error:
            self._dead = f"the shards of table {self._key[1]!r} cannot be reached any more: {error}"
            raise PartDied(self._dead) from error


_CHANGES = ("announce", "commit", "draw", "insert_remote", "reset")


@dataclass(frozen=True, slots=True, eq=False)
class RemoteItemColumns:
    """Items that are stored elsewhere.

    Attributes:
        ref: Reference to columns, which shards fetch themselves.
        rows: Number of rows.
    """

    ref: Ref
    rows: int


class ShardedTable(BoundedTable):
    """Belongs to one process, which inserts and samples. It waits for answers of shards, and for nothing else.

    - A block goes to the shard with the most room; where all are full, to the one that was given least (`pieces`).
    - Samplers at random: each draw falls to a shard in proportion to its items, or to the mass of their priorities. A reservoir's falls to
      it in proportion to what came to it, so that a draw is uniform over all that ever came.
    - Samplers in an order: every shard tells what is ahead, and the first of all are taken, as from one table.
    - Remover `fifo`: each shard lets its own oldest go. With blocks of one size that divides a shard's capacity these are the oldest of
      all; otherwise an item may stay for some blocks more or less. Other removers but `reservoir` are refused.
    - Once a shard is dead every call but `close` raises PartDied.
    """

    def __init__(self, spec: TableSpec, shards: Sequence[Peer], key: Key) -> None:
        """key: what the shards know it by. Raises DataError for what cannot be spread, with the reason."""
        kind = resolve_name("kind of table", spec.kind, TABLES, expected=())
        rules = QueueRules(spec) if kind is Queue else ReplayRules(spec)
        super().__init__(spec, rules)
        self._choice = rules.choice if isinstance(rules, ReplayRules) else None
        self._sampler = (
            Fifo
            if self._choice is None
            else resolve_name("sampler", self._choice.sampler, SELECTORS, expected=(("draw",), ("pick",)))
        )
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

    def try_insert(self, items: ItemColumns | RemoteItemColumns, rng: np.random.Generator | None = None) -> bool:
        """See `Table`. What is `RemoteItemColumns` goes from where it is to the shards."""
        if not isinstance(items, RemoteItemColumns):
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
            in_shard = names % len(self._shards) == j
            if in_shard.any():
                name = names[in_shard] // len(self._shards)
                self._shards.send(j, "update_priorities", name, priority[in_shard], foretold=False)

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
        """Raise PartDied if a shard is dead: nobody would learn of it who only waits for room."""
        self._require_open()
        self._shards.ping()

    # ------------------------------------------------------------------ what `BoundedTable` asks for

    def _require_open(self) -> None:
        super()._require_open()
        self._shards.require_alive()

    def _size(self) -> int:
        return int(self._shards.sizes.sum())

    def _store(self, columns: ItemColumns, count: int, rng: np.random.Generator | None) -> None:
        priorities = None if self._choice is None else self._choice.given_priorities(self.spec.name, columns)
        self._shards.settle(only_uncertain=True)
        for j, block in self._blocks(count, rng):
            whole = block.last - block.first == count
            part = columns if whole else rows_of(columns, slice(block.first, block.last))
            self._shards.send(j, "insert", part, block, foretold=True)
            self._took(j, block.last - block.first)
        if priorities is not None:
            self._shards.top = max(self._shards.top, float(priorities.max()))
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

    def _restore(self, book: Mapping[str, Any], columns: ItemColumns, count: int) -> None:
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
        """Raise DataError for what would not be the same over several shards."""
        name, choice = self.spec.name, self._choice
        why = ""
        if kind not in (Queue, Replay):
            why = f"{self.spec.kind!r} is a kind of your own, and only that knows what its order means"
        elif self.spec.capacity < shards:
            why = f"its capacity of {self.spec.capacity} is less than one item for each"
        elif choice is not None and choice.remover not in ("fifo", RESERVOIR):
            why = f"the remover {choice.remover!r} chooses among all items, and a shard that makes room knows only its own"
        elif not (self._sampler in (UniformSelector, Prioritised) or issubclass(self._sampler, Ordered)):
            why = f"{self.spec.sampler!r} is a sampler of your own, and only that knows which share each shard has of a batch"
        elif choice is not None and choice.times and self._sampler is Prioritised:
            why = "prioritised draws of different items depend on each other, and shards draw on their own"
        if why:
            raise DataError(
                f"table {name!r} cannot be spread over {shards} shards: {why}. Keep it in one place, or choose another."
            )

    def _blocks(self, count: int, rng: np.random.Generator | None) -> list[tuple[int, InsertPart]]:
        """Return which rows of an insert go to which shard."""
        room = self._capacity - self._shards.sizes
        if self._chance and rng is None and count > room.sum():
            raise DataError(
                f"table {self.spec.name!r} is full, and chance decides who makes room; give try_insert a random stream."
            )
        parts = pieces(count, room=room, inserted=self._given, capacity=self._capacity)
        blocks, first = [], 0
        for j in np.flatnonzero(parts).tolist():
            last = first + int(parts[j])
            seed = _seed(rng) if self._chance and rng is not None else None
            blocks.append((j, InsertPart(first, last, count, self._next + first, self._shards.top, seed)))
            first = last
        return blocks

    def _took(self, shard: int, count: int) -> None:
        """Record that rows have gone to a shard."""
        held = int(self._shards.sizes[shard]) + count
        self._shards.sizes[shard] = min(held, int(self._capacity[shard]))
        self._counts.evicted += held - int(self._shards.sizes[shard])
        self._given[shard] += count

    def _store_remote(self, items: RemoteItemColumns, rng: np.random.Generator | None) -> None:
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
        """Return the weights by which draws fall to shards."""
        if self._chance:
            return self._given.astype(np.float64)
        return self._shards.mass if self._sampler is Prioritised else self._shards.sizes.astype(np.float64)

    def _first(self, count: int) -> NDArray[np.int64]:
        """Return the shards of the first `count` items of all, in their order."""
        held = np.flatnonzero(self._shards.sizes)
        heads = self._shards.ask("ahead", [(int(j), count) for j in held])
        shard = np.repeat(held, [len(key) for key, _ in heads])
        key, tie = (np.concatenate([head[part] for head in heads]) for part in (0, 1))
        return shard[np.lexsort((tie, key))[:count]]

    def _gather(
        self, owner: NDArray[np.int64], rng: np.random.Generator, *, everything: bool = False
    ) -> tuple[Sample, NDArray[np.int64]]:
        """Return a batch whose row i comes from shard owner[i], those of one shard in the order in which it gives them; and the items'
        numbers."""
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
        """Replace the shards' contents."""
        reports = self._shards.ask_all(method)
        self._shards.top = 1.0
        for j, report in enumerate(reports):
            self._shards.learn(j, report)


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**63))
