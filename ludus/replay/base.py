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
    """The ratio that was meant: 0.29 is 29/100, and 1/3 a third; 0 where it is below half a billionth."""
    return Fraction(ratio).limit_denominator(10**9)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What an algorithm asks for.

    kind: a name of `ludus.replay.kinds.TABLES`, such as "queue" (each item once, in order; inserts wait for room) or "ring" (uniform
    replay, oldest evicted), or `module:Class`. capacity: most items. max_lag: items whose `version_lo` column is more than this many
    versions behind the newest announced are dropped and counted (None: never). limiter: the rate limiter's options, in items (see
    `rate_limiter`).

    sampler, remover: names of `ludus.replay.selectors.SELECTORS` (remover also "reservoir"); max_times_sampled: after so many samples an
    item leaves (0: never). None: what the kind stands for. priority_exponent: of the prioritised selectors.
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
    """Items of an insert and of a batch (0: everything): what deadlocks are looked for with. vary: they are the largest ones, and
    smaller ones come too."""

    insert: int
    batch: int
    vary: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """columns of the n sampled items: arrays, or, but for those of `ON_HOST`, tensors on a device; index int64[n], names to update
    priorities by that no other item of the table ever has; probability float64[n] that one draw gives the item, as the table was
    before (1 where there is an order)."""

    columns: Mapping[str, Any]
    index: NDArray[np.int64]
    probability: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Processed:
    """What a processing answers; None and empty: as it was.

    reward: float[N] in place of the rows' rewards. extras: arrays of N rows, by name, beside those that are there or in their place.
    more: segments to be learned from beside the given ones, of the same kinds of columns, with the extras that the given rows have then.
    """

    reward: Array | None = None
    extras: Mapping[str, Array] = field(default_factory=dict)
    more: Trajectories | None = None


class ProcessesTrajectories(Protocol):
    """What is done with trajectories where they are made; `ludus.replay.processing.Processing` is its base. adds: whether it answers rows
    beside the given ones. whole_episodes: whether it makes sense of whole episodes only."""

    @property
    def adds(self) -> bool: ...

    @property
    def whole_episodes(self) -> bool: ...

    def check(self, env: EnvSpec, seats: tuple[int, ...]) -> None:
        """Raises ScenarioError if it cannot process what the players `seats` do in this environment."""
        ...

    def process(self, rows: Trajectories, *, env: EnvSpec, rng: np.random.Generator) -> Processed:
        """rows: at least one segment, read-only. rng: of this request and shard alone."""
        ...


@runtime_checkable
class Table(Protocol):
    """Pure and lock-free: `try_` calls never wait. After `close` every call raises TableClosed."""

    spec: TableSpec

    def try_insert(self, items: ItemColumns, rng: np.random.Generator | None = None) -> bool:
        """All rows or none; False: the limiter or the bound does not allow it now. rng: for who makes room, where chance decides it."""
        ...

    def try_sample(self, count: int, rng: np.random.Generator) -> Sample | None:
        """`count` items (0: all, in insertion order); None: the limiter does not allow it now. Never an evicted item."""
        ...

    def update_priorities(self, index: NDArray[np.int64], priority: NDArray[np.float64]) -> None:
        """index: of sampled items; those that are gone since are passed over. Raises DataError where nothing goes by priorities."""
        ...

    def announce(self, version: int) -> None:
        """Newest version of the learner's weights: what `max_lag` counts from."""
        ...

    def __len__(self) -> int: ...

    def statistics(self) -> Mapping[str, Any]:
        """inserted, sampled, evicted, dropped (too old), refused inserts and samples: counts of items."""
        ...

    def state_dict(self) -> State:
        """Contents and counts, in arrays of its own."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Into a table of an equal spec. Raises DataError, and changes nothing, if the state does not fit."""
        ...

    def close(self) -> None:
        """Free the contents. Closing twice is harmless."""
        ...
