"""Tables: bounded collections of items with a sampler, a remover and a rate limiter; created and closed with their task.

Items live in blocks of columns (name -> array, one row per item), so nothing here loops over items in Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.types import Array, EnvSpec, State
from ludus.replay.trajectories import Trajectories

ItemUnit: TypeAlias = Literal["decision", "segment", "joint", "episode"]
ItemColumns: TypeAlias = Mapping[str, Array]
"""Equal leading lengths; one row per item."""

ON_HOST: Final = frozenset(
    {"agent", "anew", "before", "count", "ends_segment", "joint_step", "length", "present", "priority", "version_lo"}
)
"""Columns that stay in memory wherever the others are: small ones, by which tables and learners decide what is computed, and how long."""


@lru_cache
def exact(ratio: float) -> Fraction:
    """Return the ratio that was meant: 0.29 is 29/100, and 1/3 a third; 0 where it is below half a billionth."""
    return Fraction(ratio).limit_denominator(10**9)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """Description of a table that an algorithm needs.

    Attributes:
        name: Unique within the task.
        kind: A name of `ludus.replay.kinds.TABLES`, such as "queue" (each item once, in order; inserts wait for room) or "ring" (uniform
            replay, oldest evicted), or `module:Class`.
        capacity: Most items.
        max_lag: Items whose `version_lo` column is more than this many versions behind the newest announced are dropped and counted; None:
            never.
        limiter: Options of the rate limiter, in items (`ludus.replay.rate_limiter`).
        sampler: A name of `ludus.replay.selectors.SELECTORS`; None: the kind's own.
        remover: Likewise, or "reservoir".
        max_times_sampled: Number of samples after which an item leaves; 0: never; None: the kind's own.
        priority_exponent: Of the prioritised selectors.
    """

    name: str
    kind: str = "queue"
    capacity: int = 1_000_000
    max_lag: int | None = None
    limiter: Mapping[str, float] = field(default_factory=dict)
    sampler: str | None = None
    remover: str | None = None
    max_times_sampled: int | None = None
    priority_exponent: float = 1.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that deadlocks are looked for with.

    Attributes:
        insert: Items of an insert.
        batch: Items of a batch; 0: all.
        vary: Whether these are the largest sizes, and smaller ones occur too.
    """

    insert: int
    batch: int
    vary: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Items sampled from a table.

    Attributes:
        columns: n rows each: arrays, or tensors on a device, except those of `ON_HOST`.
        index: int64[n], names to update priorities by; no other item of the table ever has the same.
        probability: float64[n], probability that one draw gives the item, as the table was before (1 where there is an order).
    """

    columns: Mapping[str, Any]
    index: NDArray[np.int64]
    probability: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Processed:
    """Result of a processing; None and empty fields change nothing.

    Attributes:
        reward: float[N], replaces the rows' rewards.
        extras: Arrays of N rows by name; they are added, or replace those of the same name.
        more: Segments to learn from in addition, with the same kinds of columns and the extras that the given rows have then.
    """

    reward: Array | None = None
    extras: Mapping[str, Array] = field(default_factory=dict)
    more: Trajectories | None = None


class ProcessesTrajectories(Protocol):
    """Processing of trajectories where they are produced; `ludus.replay.processing.Processing` is its base.

    Attributes:
        adds: Whether it returns further rows.
        whole_episodes: Whether it needs whole episodes.
    """

    @property
    def adds(self) -> bool: ...

    @property
    def whole_episodes(self) -> bool: ...

    def check(self, env: EnvSpec, seats: tuple[int, ...]) -> None:
        """Raise ScenarioError if it cannot process the decisions of the players `seats` in this environment."""
        ...

    def process(self, rows: Trajectories, *, env: EnvSpec, rng: np.random.Generator) -> Processed:
        """Return what changes in some trajectories.

        Args:
            rows: At least one segment, read-only.
            env: The environment.
            rng: Random stream of this request and shard only.
        """
        ...


@runtime_checkable
class Table(Protocol):
    """Table of items. It is pure and lock-free: `try_` calls never wait. After `close` every call raises TableClosed."""

    spec: TableSpec

    def try_insert(self, items: ItemColumns, rng: np.random.Generator | None = None) -> bool:
        """Insert all rows or none.

        Args:
            items: Columns of n rows.
            rng: Decides which items make room, where that is random.

        Returns:
            False if the limiter or the capacity does not allow it now.
        """
        ...

    def try_sample(self, count: int, rng: np.random.Generator) -> Sample | None:
        """Return `count` items (0: all, in insertion order), never an evicted one; None if the limiter does not allow it now."""
        ...

    def update_priorities(self, index: NDArray[np.int64], priority: NDArray[np.float64]) -> None:
        """Set priorities of sampled items; those that are gone since are skipped.

        Args:
            index: int64[n], `Sample.index` of the items.
            priority: float64[n].

        Raises:
            DataError: If the table does not use priorities.
        """
        ...

    def announce(self, version: int) -> None:
        """Set the newest version of the learner's weights, from which `max_lag` counts."""
        ...

    def __len__(self) -> int: ...

    def statistics(self) -> Mapping[str, Any]:
        """Return counts of items: inserted, sampled, evicted, dropped (too old), refused inserts and samples."""
        ...

    def state_dict(self) -> State:
        """Return contents and counts, in arrays of its own."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Load the state of a table of an equal spec. Raises DataError, and changes nothing, if the state does not fit."""
        ...

    def close(self) -> None:
        """Free the contents. Closing twice is harmless."""
        ...
