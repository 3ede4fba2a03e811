"""Slopes of the weights that acted, which move the newest ones: how A3C's actor-learners share weights (Mnih et al. 2016, algorithm S3)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ludus.core.errors import ScenarioError
from ludus.core.types import Metrics, State
from ludus.learners.base import LearnerContext
from ludus.learners.network import FlatModule
from ludus.learners.on_policy.learner import OnPolicyLearner
from ludus.learners.on_policy.model import Model, Settings
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.table import rows_of
from ludus.replay.trajectories import Trajectories, select


class KeepsVersions(Settings, Protocol):
    """What the learner asks of an algorithm's options."""

    @property
    def max_lag(self) -> int | None: ...


class MovableModel(Model, Protocol):
    """One whose parameters are a vector, and whose slopes can be taken elsewhere than at these (`Autograd.at`)."""

    @property
    def parameters(self) -> FlatModule: ...
    def at(self, parameters: Tensor | None) -> AbstractContextManager[None]: ...


class A3CLearner(OnPolicyLearner):
    """Values, advantages and slopes of rows are those of the weights that played them; each version's rows are a step of their own from the
    newest weights, the oldest first. The weights of the last `max_lag` versions are kept for it. Rows of others (older ones, those of a
    process that began anew, of a trainer by hand) are learned from with the newest weights, as `OnPolicyLearner` does; so is all that the
    newest version has played, as long as its weights have not moved."""

    def __init__(self, config: KeepsVersions, model: MovableModel, context: LearnerContext) -> None:
        """Raises ScenarioError without a `max_lag`."""
        super().__init__(config, model, context)
        if config.max_lag is None:
            raise ScenarioError("the weights of the last max_lag versions are kept; say how many (given: none)")
        self._movable, self._versions = model, config.max_lag
        self._kept: dict[int, Tensor] = {}  # parameters of versions
        self._unmoved: int | None = None  # the version that the weights are now

    def published(self, version: int) -> None:
        """As `HearsVersions`."""
        self._kept[version] = self._movable.parameters.values.clone()
        for old in [kept for kept in self._kept if kept < version - self._versions]:
            del self._kept[old]
        self._unmoved = version

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """As of any on-policy learner: for each version that acted, by itself."""
        made: list[tuple[str, ItemColumns]] = []
        together = replace(trajectories, version_lo=_oldest(trajectories))
        for version, which in self._of_versions(together.version_lo):
            rows = together if which is None else select(together, which)
            with self._movable.at(self._weights_of(version)):
                made += super().items(rows)
        return made

    def update(self, batch: Sample) -> Metrics:
        """A step for each version. The metrics are the last one's, but for `rows`. Raises TrainingError. The weights are those from before
        the update, whatever it raises."""
        kept, rows, metrics = self.model.kept(), 0.0, dict[str, float]()
        try:
            for version, which in self._of_versions(batch.columns["version_lo"]):
                columns = batch.columns if which is None else rows_of(batch.columns, which)
                with self._movable.at(self._weights_of(version)):
                    metrics = dict(super().update(replace(batch, columns=columns)))
                rows += metrics["rows"]
                self._unmoved = None
        except Exception:
            self.model.restore(kept)
            raise
        return {**metrics, "rows": rows}

    def _of_versions(self, made_with: Any) -> list[tuple[int, Any]]:
        """(a version, which of these are its; None: all), the oldest first. Those that are not kept count as one, the last."""
        versions, last = np.asarray(made_with, np.int64), np.iinfo(np.int64).max
        versions = np.where(np.isin(versions, list(self._kept)), versions, last)
        found = np.unique(versions)
        if len(found) < 2:
            return [(int(found[0]) if len(found) else last, None)]
        return [(int(version), np.flatnonzero(versions == version)) for version in found]

    def _weights_of(self, version: int) -> Tensor | None:
        """None: the present ones."""
        return None if version == self._unmoved else self._kept.get(version)

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._kept.clear()
        self._unmoved = None

    def why_not_in_place(self) -> str:
        """As `LearnsInPlace.why_not_in_place`."""
        return "it takes slopes of the weights that acted, which blocks do not tell"


def _oldest(trajectories: Trajectories) -> NDArray[np.int32]:
    """Version int32[S] of each segment: the oldest of those of its episode, so that teammates stay together."""
    _, episode = np.unique(trajectories.episode, return_inverse=True)
    oldest = np.full(trajectories.num_segments, np.iinfo(np.int32).max, np.int32)
    np.minimum.at(oldest, episode, trajectories.version_lo)
    return oldest[episode]
