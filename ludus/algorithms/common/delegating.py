"""Wrappers of algorithms and learners that train another one in a modified game: what they do not override is delegated
to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ludus.algorithms.common.base import Algorithm, Learner, Priorities, batch_sizes, notify_version, updated_priorities
from ludus.backend.device import Placement, placement_for_table
from ludus.core.types import Metrics, State
from ludus.replay.base import ItemUnit, Sample, Sizes, TableSpec


@dataclass(frozen=True, slots=True, eq=False)
class AlgorithmWrapper:
    """Base of an `Algorithm` that wraps another one."""

    algorithm: Algorithm

    @property
    def item(self) -> ItemUnit:
        return self.algorithm.item

    def tables(self) -> Sequence[TableSpec]:
        return self.algorithm.tables()

    def sizes(self) -> Mapping[str, Sizes]:
        return batch_sizes(self.algorithm)


class LearnerWrapper:
    """Base of a `Learner` that wraps another one. A subclass implements items and published weights."""

    def __init__(self, inner: Learner) -> None:
        self._inner = inner

    @property
    def placement(self) -> Placement:
        """Return the inner learner's placement, if it has one."""
        placement: Placement = self._inner.placement  # type: ignore[attr-defined]  # not of those that know the CPU only
        return placement

    def learns_at(self, table: str) -> Placement | None:
        return placement_for_table(self._inner, table)

    def batches(self) -> Sequence[tuple[str, int]]:
        return self._inner.batches()

    def update(self, batch: Sample) -> Metrics:
        return self._inner.update(batch)

    def priorities(self) -> Priorities:
        return updated_priorities(self._inner)

    def on_version_published(self, version: int) -> None:
        notify_version(self._inner, version)

    def state_dict(self) -> State:
        return self._inner.state_dict()

    def load_state_dict(self, state: State) -> None:
        self._inner.load_state_dict(state)
