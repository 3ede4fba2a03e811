"""What algorithms and learners have in common that have another one learn in a game which it sees differently: all that they do not
change goes through to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ludus.algorithms.common.base import Algorithm, Learner, Priorities, priorities_of, sizes_of, tell_version
from ludus.backend.device import Placement, placement_for_table
from ludus.core.types import Metrics, State
from ludus.replay.base import ItemUnit, Sample, Sizes, TableSpec


@dataclass(frozen=True, slots=True, eq=False)
class AroundAlgorithm:
    """Base of an `Algorithm` around another one."""

    algorithm: Algorithm

    @property
    def item(self) -> ItemUnit:
        return self.algorithm.item

    def tables(self) -> Sequence[TableSpec]:
        return self.algorithm.tables()

    def sizes(self) -> Mapping[str, Sizes]:
        """See `Sized`."""
        return sizes_of(self.algorithm)


class AroundLearner:
    """Base of a `Learner` around another one. A subclass says which items are made, and what weights are published."""

    def __init__(self, inner: Learner) -> None:
        self._inner = inner

    @property
    def placement(self) -> Placement:
        """Where it computes, if it says so."""
        placement: Placement = self._inner.placement  # type: ignore[attr-defined]  # not of those that know the CPU only
        return placement

    def learns_at(self, table: str) -> Placement | None:
        """See `ludus.backend.device.placement_for_table`."""
        return placement_for_table(self._inner, table)

    def batches(self) -> Sequence[tuple[str, int]]:
        return self._inner.batches()

    def update(self, batch: Sample) -> Metrics:
        """See `Learner.update`."""
        return self._inner.update(batch)

    def priorities(self) -> Priorities:
        """See `Prioritises`."""
        return priorities_of(self._inner)

    def published(self, version: int) -> None:
        """See `HearsVersions`."""
        tell_version(self._inner, version)

    def state_dict(self) -> State:
        return self._inner.state_dict()

    def load_state_dict(self, state: State) -> None:
        self._inner.load_state_dict(state)
