"""What a run's database gives back, typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.population.base import PolicyRecord
from ludus.types import Match


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """file: path of its weights, relative to the run directory; sha256: of that file. created: seconds since the epoch."""

    record: PolicyRecord
    file: str
    sha256: str
    created: float


@dataclass(frozen=True, slots=True)
class StoredMatch:
    match: Match
    generation: int
    created: float


@dataclass(frozen=True, slots=True, eq=False)
class PayoffCells:
    """Exact cells that became known together: profiles int32[k, P], mean float64[k, P]."""

    generation: int
    profiles: NDArray[np.int32]
    mean: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StoredTask:
    """kind: "train" or "evaluate". state: "started", "done" or "failed"."""

    id: str
    kind: str
    generation: int
    population: int | None
    policy: str | None
    state: str
    metrics: Mapping[str, float]
    counters: Mapping[str, int]
    failure: str | None


@dataclass(frozen=True, slots=True)
class Rating:
    generation: int
    population: int
    policy: str
    kind: str
    rating: float


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One metric over one counter: step int64[n] rising, value float64[n] (NaN where the value was not finite)."""

    name: str
    counter: str
    step: NDArray[np.int64]
    value: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Event:
    """time: seconds since the epoch. level: "info", "warning" or "error"."""

    time: float
    level: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    barrier: int
    id: str
    created: float
