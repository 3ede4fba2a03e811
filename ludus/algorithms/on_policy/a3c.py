"""Slopes of the weights that acted, which move the newest ones: how A3C's actor-learners share weights (Mnih et al. 2016, algorithm S3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.on_policy.autograd_model import Apart, Autograd
from ludus.algorithms.on_policy.config import A2C
from ludus.algorithms.on_policy.learner import Judged, OnPolicyLearner, Transitions
from ludus.algorithms.on_policy.model import Model, Settings
from ludus.backend.device import to_numpy
from ludus.core.errors import ScenarioError
from ludus.core.types import Metrics, State
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories, rows_of, select

Versions = NDArray[np.int64]
_UNKNOWN = np.iinfo(np.int64).max


class KeepsVersions(Settings, Protocol):
    """What the learner asks of an algorithm's options."""

    @property
    def max_lag(self) -> int | None: ...


@dataclass(slots=True, eq=False)
class ActedWeights:
    """The parameters of the last versions of a model. unmoved: the version that the model's weights are now, -1: of none."""

    model: Autograd
    most: int
    kept: dict[int, Tensor]
    unmoved: int = -1

    def keep(self, version: int) -> None:
        """The model's weights are this version now."""
        self.kept[version] = self.model.parameters.values.clone()
        for old in [number for number in self.kept if number < version - self.most]:
            del self.kept[old]
        self.unmoved = version

    def of(self, versions: Versions) -> Iterator[tuple[Tensor | None, NDArray[np.int64]]]:
        """(parameters, which of these have them), the oldest first. None: the present ones, also for versions that are not kept."""
        known = np.isin(versions, list(self.kept)) & (versions != self.unmoved)
        versions = np.where(known, versions, _UNKNOWN)
        for version in np.unique(versions):
            yield self.kept.get(int(version)), np.flatnonzero(versions == version)


class ActedTransitions(Transitions):
    """Judges every row by the weights that made it."""

    acted: ActedWeights

    def judged(
        self, rows: Trajectories, state: NDArray[np.float32] | None, bootstrap_state: NDArray[np.float32] | None
    ) -> Judged:
        """See `Transitions.judged`."""
        if self._model.memory:
            return self._remembered(rows, state, bootstrap_state)
        value, after = np.zeros(rows.num_rows), np.zeros(rows.num_segments)
        for versions, observation, states, estimates in (
            (_of_rows(rows), rows.observation, state, value),
            (rows.version_hi.astype(np.int64), rows.bootstrap_observation, bootstrap_state, after),
        ):
            for parameters, which in self.acted.of(versions):
                with self.acted.model.at(parameters):
                    estimates[which] = self._values(observation[which], None, None if states is None else states[which])
        return Judged(value, after)

    def _remembered(
        self, rows: Trajectories, state: NDArray[np.float32] | None, bootstrap_state: NDArray[np.float32] | None
    ) -> Judged:
        """A segment at a time, since what its first row remembers goes on into the others."""
        estimates = super().judged(rows, state, bootstrap_state)
        assert estimates.pieces is not None
        assert estimates.before is not None
        for parameters, which in self.acted.of(_of_segments(rows)):
            if parameters is None:
                continue
            states = None if state is None else state[rows_of(rows.start, which)]
            after_states = None if bootstrap_state is None else bootstrap_state[which]
            with self.acted.model.at(parameters):
                part = super().judged(select(rows, which), states, after_states)
            estimates.value[rows_of(rows.start, which)], estimates.after[which] = part.value, part.after
            estimates.before[np.isin(estimates.pieces.segment, which)] = part.before
        return estimates

    def items(self, rows: Trajectories, columns: dict[str, Any], judged: Judged) -> ItemColumns:
        """With the version that made each."""
        items = dict(super().items(rows, columns, judged))
        made_with = _of_rows(rows) if judged.pieces is None else _of_segments(rows)[judged.pieces.segment]
        return {**items, "version_lo": made_with.astype(np.int32)}


class A3CLearner(OnPolicyLearner):
    """Values, advantages and slopes of rows are those of the weights that played them. The newest weights take the step, one for a batch,
    down the mean of its rows' slopes. The weights of the last `max_lag` versions are kept for it; rows of others (older ones, those that
    nobody numbered) are learned from with the newest weights, as in `OnPolicyLearner`.

    A segment's first row may have waited for its reward since an older version, the others are of one. Of networks that remember, sequences
    count as of the newest version of their segment."""

    makes_items = ActedTransitions

    def __init__(self, config: KeepsVersions, model: Model, context: LearnerContext) -> None:
        """model: by autograd. Raises ScenarioError without a `max_lag`."""
        super().__init__(config, model, context)
        if config.max_lag is None:
            raise ScenarioError("the weights of the last max_lag versions are kept; say how many (given: none)")
        self._acted = ActedWeights(cast(Autograd, model), config.max_lag, {})
        cast(ActedTransitions, self._items).acted = self._acted
        self._made_with: Versions = np.zeros(0, np.int64)  # of the units of the batch that is learned from

    def published(self, version: int) -> None:
        """As `HearsVersions`."""
        self._acted.keep(version)

    def update(self, batch: Sample) -> Metrics:
        """As of any on-policy learner."""
        self._made_with = np.asarray(batch.columns["version_lo"], np.int64)
        metrics = super().update(batch)
        self._acted.unmoved = -1
        return metrics

    def _epochs(self, rows: Any, units: int) -> Iterator[tuple[int, Iterable[Any]]]:
        parts = [*self._acted.of(self._made_with)]
        if all(parameters is None for parameters, _ in parts):
            yield from super()._epochs(rows, units)
            return
        prepared = self.model.prepare(rows, [which for _, which in parts])
        yield 1, [Apart([(parameters, *part) for (parameters, _), part in zip(parts, prepared, strict=True)])]

    def state_dict(self) -> State:
        snapshots = {str(version): to_numpy(values).copy() for version, values in self._acted.kept.items()}
        return {**super().state_dict(), "acted": snapshots, "unmoved": self._acted.unmoved}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        there = self._acted.model.parameters.values
        self._acted.kept = {
            int(k): torch.from_numpy(values.copy()).to(there.device) for k, values in state["acted"].items()
        }
        self._acted.unmoved = int(state["unmoved"])

    def on_device_unsupported_reason(self) -> str:
        """As `SupportsOnDevice.on_device_unsupported_reason`."""
        return "it takes slopes of the weights that acted, which blocks do not tell"


def _of_rows(rows: Trajectories) -> Versions:
    """Which weights made each row int64[N]: a segment's first may have waited for its reward."""
    versions = np.repeat(rows.version_hi.astype(np.int64), np.diff(rows.start))
    versions[rows.start[:-1]] = rows.version_lo
    return versions


def _of_segments(rows: Trajectories) -> Versions:
    """The newest weights that made each segment int64[S]."""
    return np.where(np.diff(rows.start) > 1, rows.version_hi, rows.version_lo).astype(np.int64)


def make_learner(config: A2C, model: Model, context: LearnerContext) -> OnPolicyLearner:
    """Make the learner of the newest weights' gradients, or of those that acted."""
    return (
        A3CLearner(config, model, context) if config.gradients == "acting" else OnPolicyLearner(config, model, context)
    )
