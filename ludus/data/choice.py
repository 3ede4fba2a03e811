"""Who of a table's items comes next and who makes room: what a spec says about that, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data.base import Columns, TableSpec
from ludus.data.selectors import RESERVOIR, SELECTORS
from ludus.data.slots import Indices
from ludus.errors import DataError
from ludus.registry import load


@dataclass(frozen=True, slots=True)
class Choice:
    """Who samples, who makes room, and how often an item is sampled before it leaves (0: for ever)."""

    sampler: str
    remover: str
    times: int

    @staticmethod
    def of(spec: TableSpec) -> Choice:
        """What a spec says, or else its kind. Raises DataError where that does not go together, UnknownName for an unknown kind."""
        preset = PRESETS.get(spec.kind, PRESETS["ring"])
        choice = Choice(
            spec.sampler or preset.sampler,
            spec.remover or preset.remover,
            preset.times if spec.max_times_sampled is None else spec.max_times_sampled,
        )
        if choice.times < 0:
            raise DataError(
                f"table {spec.name!r}: max_times_sampled is {choice.times}; it must be 1 or more, or 0 for no limit."
            )
        if choice.remover == RESERVOIR and choice.times:
            raise DataError(
                f"table {spec.name!r}: a reservoir holds a uniform sample of all that came, and would not if items left after "
                f"max_times_sampled {choice.times} samples. Leave that out or choose another remover."
            )
        if not (spec.priority_exponent >= 0 and math.isfinite(spec.priority_exponent)):
            raise DataError(
                f"table {spec.name!r}: priority_exponent is {spec.priority_exponent}; it must be a finite number, 0 or more."
            )
        return choice

    @property
    def weighs(self) -> bool:
        """Whether priorities are weights of chances, and so may not be negative."""
        return "prioritised" in (self.sampler, self.remover)

    @property
    def by_priority(self) -> bool:
        """Whether anything goes by priorities."""
        kinds = [load("sampler", self.sampler, SELECTORS)]
        if self.remover != RESERVOIR:
            kinds.append(load("remover", self.remover, SELECTORS))
        return any(kind.by == "priority" for kind in kinds)

    def check_update(self, table: str, index: Any, priority: Any) -> tuple[Indices, NDArray[np.float64]]:
        """(index, priority) of `Table.update_priorities`, as arrays. Raises DataError for what is out of range."""
        names, priority = np.asarray(index), np.asarray(priority, np.float64)
        if names.ndim != 1 or names.shape != priority.shape or names.dtype.kind != "i":
            raise DataError(
                f"table {table!r}: index has shape {names.shape} and dtype {names.dtype}, the priorities have {priority.shape}; "
                "give one priority for each index of a sample."
            )
        self._check_priorities(table, priority)
        return names, priority

    def given_priorities(self, table: str, columns: Columns) -> NDArray[np.float64] | None:
        """Those that come with new items; None if there are none, or nothing goes by them. Raises DataError."""
        if "priority" not in columns or not self.by_priority:
            return None
        given = columns["priority"]
        if given.ndim != 1 or given.dtype.kind not in "fiu":
            raise DataError(
                f"table {table!r}: the column 'priority' has items of {given.dtype}{list(given.shape[1:])}; it must be numbers."
            )
        priority = given.astype(np.float64)
        self._check_priorities(table, priority)
        return priority

    def _check_priorities(self, table: str, priority: NDArray[np.float64]) -> None:
        low, high = (float(priority.min()), float(priority.max())) if len(priority) else (0.0, 0.0)  # NaN if one is
        if not (math.isfinite(low) and math.isfinite(high)) or (self.weighs and low < 0):
            raise DataError(
                f"table {table!r}: priorities are {low:g} to {high:g}; priorities must be finite"
                f"{' and not negative' if self.weighs else ''}."
            )


PRESETS: Mapping[str, Choice] = {
    "prioritised": Choice("prioritised", "fifo", 0),
    "reservoir": Choice("uniform", RESERVOIR, 0),
    "ring": Choice("uniform", "fifo", 0),
    "stack": Choice("lifo", "fifo", 1),
}
"""What the kinds of replay tables stand for where a spec says nothing else."""
