"""Gradients at the weights that acted, applied to the newest ones: how A3C's actor-learners share weights (Mnih et al.
2016, algorithm S3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.on_policy.autograd_model import TorchModel, VersionedBatches
from ludus.algorithms.on_policy.config import A2C
from ludus.algorithms.on_policy.experience import ExperienceBuilder, ValueEstimates
from ludus.algorithms.on_policy.learner import OnPolicyLearner
from ludus.algorithms.on_policy.model import Model
from ludus.backend.device import to_numpy
from ludus.core.errors import ScenarioError
from ludus.core.types import Metrics, State
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories, rows_of, select

Versions = NDArray[np.int64]
_UNKNOWN = np.iinfo(np.int64).max


@dataclass(slots=True, eq=False)
class WeightHistory:
    """Parameters of the last versions of a model. current: the version that equals the model's present weights; -1:
    none does."""

    model: TorchModel
    max_lag: int
    snapshots: dict[int, Tensor]
    current: int = -1

    def record(self, version: int) -> None:
        """Record the model's present weights as this version."""
        self.snapshots[version] = self.model.parameters.values.clone()
        for old in [number for number in self.snapshots if number < version - self.max_lag]:
            del self.snapshots[old]
        self.current = version

    def by_version(self, versions: Versions) -> Iterator[tuple[Tensor | None, NDArray[np.int64]]]:
        """Yield (parameters, indices with this version), the oldest first. None: the present ones, also for versions
        that are not kept."""
        known = np.isin(versions, list(self.snapshots)) & (versions != self.current)
        versions = np.where(known, versions, _UNKNOWN)
        for version in np.unique(versions):
            yield self.snapshots.get(int(version)), np.flatnonzero(versions == version)


class PerVersionExperience(ExperienceBuilder):
    """Estimates the values of every row by the weights that acted."""

    history: WeightHistory

    def estimate_values(
        self, rows: Trajectories, state: NDArray[np.float32] | None, bootstrap_state: NDArray[np.float32] | None
    ) -> ValueEstimates:
        if self._model.memory:
            return self._estimate_by_segment(rows, state, bootstrap_state)
        value, after = np.zeros(rows.num_rows), np.zeros(rows.num_segments)
        for versions, observation, states, estimates in (
            (_of_rows(rows), rows.observation, state, value),
            (rows.version_hi.astype(np.int64), rows.bootstrap_observation, bootstrap_state, after),
        ):
            for parameters, which in self.history.by_version(versions):
                with self.history.model.at(parameters):
                    estimates[which] = self._values(observation[which], None, None if states is None else states[which])
        return ValueEstimates(value, after)

    def _estimate_by_segment(
        self, rows: Trajectories, state: NDArray[np.float32] | None, bootstrap_state: NDArray[np.float32] | None
    ) -> ValueEstimates:
        """Estimate values segment by segment, since the memory after a segment's first row continues in the others."""
        estimates = super().estimate_values(rows, state, bootstrap_state)
        assert estimates.pieces is not None
        assert estimates.before is not None
        for parameters, which in self.history.by_version(_of_segments(rows)):
            if parameters is None:
                continue
            states = None if state is None else state[rows_of(rows.start, which)]
            after_states = None if bootstrap_state is None else bootstrap_state[which]
            with self.history.model.at(parameters):
                part = super().estimate_values(select(rows, which), states, after_states)
            estimates.value[rows_of(rows.start, which)], estimates.after[which] = part.value, part.after
            estimates.before[np.isin(estimates.pieces.segment, which)] = part.before
        return estimates

    def items(self, rows: Trajectories, columns: dict[str, Any], estimates: ValueEstimates) -> ItemColumns:
        """Return items with the version that acted in each."""
        items = dict(super().items(rows, columns, estimates))
        versions = _of_rows(rows) if estimates.pieces is None else _of_segments(rows)[estimates.pieces.segment]
        return {**items, "version_lo": versions.astype(np.int32)}


class A3CLearner(OnPolicyLearner):
    """On-policy learner whose values, advantages and gradients are those of the weights that acted. The newest weights
    take one step per batch, along the mean of its rows' gradients. The weights of the last `max_lag` versions are kept;
    rows of other versions are learned from with the newest weights, as in `OnPolicyLearner`.

    A segment's first row may have waited for its reward since an older version; the others are of one version. With a
    memory, sequences count as of the newest version of their segment.
    """

    makes_items = PerVersionExperience

    def __init__(self, config: A2C, model: Model, context: LearnerContext) -> None:
        """model: A `TorchModel`. Raise ScenarioError without a `max_lag`."""
        super().__init__(config, model, context)
        if config.max_lag is None:
            raise ScenarioError("the weights of the last max_lag versions are kept; say how many (given: none)")
        self._history = WeightHistory(cast(TorchModel, model), config.max_lag, {})
        cast(PerVersionExperience, self._items).history = self._history
        self._versions: Versions = np.zeros(0, np.int64)  # of the units of the batch that is learned from

    def on_version_published(self, version: int) -> None:
        self._history.record(version)

    def update(self, batch: Sample) -> Metrics:
        self._versions = np.asarray(batch.columns["version_lo"], np.int64)
        metrics = super().update(batch)
        self._history.current = -1
        return metrics

    def _epochs(self, rows: Any, units: int) -> Iterator[tuple[int, Iterable[Any]]]:
        parts = [*self._history.by_version(self._versions)]
        if all(parameters is None for parameters, _ in parts):
            yield from super()._epochs(rows, units)
            return
        prepared = self.model.prepare(rows, [which for _, which in parts])
        yield (
            1,
            [VersionedBatches([(parameters, *part) for (parameters, _), part in zip(parts, prepared, strict=True)])],
        )

    def state_dict(self) -> State:
        snapshots = {str(version): to_numpy(values).copy() for version, values in self._history.snapshots.items()}
        return {**super().state_dict(), "acted": snapshots, "unmoved": self._history.current}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        there = self._history.model.parameters.values
        self._history.snapshots = {
            int(k): torch.from_numpy(values.copy()).to(there.device) for k, values in state["acted"].items()
        }
        self._history.current = int(state["unmoved"])

    def on_device_unsupported_reason(self) -> str:
        return "it takes gradients at the weights that acted, which blocks do not record"


def _of_rows(rows: Trajectories) -> Versions:
    """Return the version that acted in each row, int64[N]: a segment's first row may have waited for its reward."""
    versions = np.repeat(rows.version_hi.astype(np.int64), np.diff(rows.start))
    versions[rows.start[:-1]] = rows.version_lo
    return versions


def _of_segments(rows: Trajectories) -> Versions:
    """Return the newest version that acted in each segment, int64[S]."""
    return np.where(np.diff(rows.start) > 1, rows.version_hi, rows.version_lo).astype(np.int64)


def make_learner(config: A2C, model: Model, context: LearnerContext) -> OnPolicyLearner:
    """Make the learner for gradients at the newest weights, or at those that acted."""
    return (
        A3CLearner(config, model, context) if config.gradients == "acting" else OnPolicyLearner(config, model, context)
    )
