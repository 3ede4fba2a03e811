"""The learning half of a training task: trajectories in, versioned weights out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event

import numpy as np

from ludus.core.arrays import read_only
from ludus.core.device import Placed
from ludus.core.errors import ConfigError, Deadlock, ScenarioError, TrainingError, either
from ludus.core.machine import out_of_memory
from ludus.core.own_code import brief, own_name
from ludus.core.timings import Timings
from ludus.core.types import Metrics, PolicySpec, State, Weights
from ludus.learners.base import Algorithm, Learner, LearnerContext, priorities_of, sizes_of
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.replay.episode_server import EpisodeServer
from ludus.replay.prefetcher import Prefetcher, unchanged
from ludus.replay.trajectories import Trajectories


@dataclass(frozen=True, slots=True, eq=False)
class TrainerSpec:
    """What a trainer is made from. task: whose tables it fills. start: weights to start from, None for fresh ones."""

    task: str
    algorithm: Algorithm
    context: LearnerContext
    start: Weights | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LearnResult:
    """What came of one iteration. metrics: of the last update, empty if there was none. failure: why learning cannot go on. full: there was
    not enough memory, which other ranks know nothing of."""

    samples: int = 0
    updates: int = 0
    metrics: Metrics = field(default_factory=dict)
    failure: str | None = None
    full: bool = False


class Trainer:
    """Owns a learner and the tables that feed it. `weights` are always the last good ones."""

    def __init__(
        self, spec: TrainerSpec, episodes: EpisodeServer, profile: Timings | None = None, *, prefetch: int = 0
    ) -> None:
        """prefetch: batches that are sampled while the learner learns (0: none). Raises what `Algorithm.learner` raises, and DataError if
        the task has tables already."""
        self._task, self._episodes, self._profile = spec.task, episodes, profile or Timings()
        self._algorithm, self._learner = spec.algorithm, spec.algorithm.learner(spec.context, spec.start)
        _require_device(self._learner, spec)
        self._policy: tuple[int, Policy] | None = None
        self._prefetcher = Prefetcher(partial(_draw, episodes, spec.task), unchanged, depth=prefetch)
        self.weights = read_only(self._learner.weights())
        episodes.create(spec.task, spec.algorithm.tables(), sizes_of(spec.algorithm))

    @property
    def spec(self) -> PolicySpec:
        """Of the policy that is trained."""
        return self._learner.spec

    def policy(self, version: int) -> Policy:
        """The policy with the present weights, which are `version`."""
        if self._policy is None or self._policy[0] != version:
            self._policy = version, build_policy(self.spec, self.weights)
        return self._policy[1]

    def learn(self, collected: Sequence[Trajectories], *, version: int) -> LearnResult:
        """Insert what was collected, and do every update that is due. version: of the weights that the learner has."""
        try:
            for trajectories in collected:
                self._insert(trajectories)
            learned = self._updates(version)
            self._keep(self._learner.weights())
            return learned
        except Exception as error:
            failed = self._failed(error, sum(trajectories.num_rows for trajectories in collected))
            if failed is None:
                raise
            return failed

    def _failed(self, error: Exception, rows: int) -> LearnResult | None:
        """What came of learning from new rows that cannot go on, with the last good weights; None of an error of another kind."""
        if isinstance(error, TrainingError):
            with suppress(TrainingError):  # the learner itself has kept the last good ones; if not, ours are older
                self._keep(self._learner.weights())
            return LearnResult(failure=str(error))
        full = out_of_memory(error)
        return None if full is None else LearnResult(failure=self._too_large(rows, full), full=True)

    def _too_large(self, rows: int, full: str) -> str:
        algorithm, count = self._algorithm, sum(array.size for array in self.weights.values())
        settings = [(name, getattr(algorithm, name, None)) for name in ("minibatches", "batch")]
        change = {"minibatches": "more", "batch": "a smaller"}
        smaller = [f"{change[name]} algorithm.{name} (it is {value})" for name, value in settings if value is not None]
        return (
            f"{own_name(algorithm)}: there was not enough memory to learn from {rows:,} new decisions with {count:,} numbers of weights: "
            f"{full}. The weights from before are kept. Give {either([*smaller, 'fewer tasks on one card (runtime.tasks)', 'device=cpu'])}."
        )

    def _insert(self, trajectories: Trajectories) -> None:
        for table, items in self._learner.items(trajectories):
            if not self._episodes.try_insert(self._task, table, items):
                raise Deadlock(
                    f"task {self._task}: table {table!r} refuses the {len(next(iter(items.values())))} items of one rollout "
                    "while nothing else could make room; collect less at a time, or raise its max_diff or capacity."
                )

    def _updates(self, version: int) -> LearnResult:
        samples = updates = 0
        metrics: Metrics = {}
        with closing(self._prefetcher.batches(self._learner.batches())) as batches:
            for batch in batches:
                with self._profile.part("learning"):
                    metrics = {**self._update(batch), **_lag(batch, version)}
                for name, index, priority in priorities_of(self._learner):
                    update = partial(self._episodes.update_priorities, self._task, name, index, priority)
                    self._prefetcher.between(update)
                samples += len(batch.index)
                updates += 1
        return LearnResult(samples, updates, metrics)

    def _update(self, batch: Sample) -> Metrics:
        metrics = self._learner.update(batch)
        for name, value in metrics.items() if isinstance(metrics, Mapping) else [("metrics", metrics)]:
            if not isinstance(name, str) or not isinstance(value, int | float | np.number):
                raise ScenarioError(
                    f"learner {own_name(self._learner)}.update answered {brief(value)} for {name!r}; expected names with numbers."
                )
        return metrics

    def _keep(self, weights: Weights) -> None:
        for name, array in weights.items():
            if np.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all():
                raise TrainingError(f"the weights {name!r} became NaN or infinite; those from before are kept")
        self.weights = read_only(weights)

    def announce(self, version: int) -> None:
        """Tell the tables the newest version; see `Table.announce`."""
        self._episodes.announce(self._task, version)

    def close(self) -> None:
        """Free the tables."""
        self._episodes.close(self._task)

    def state_dict(self) -> State:
        return {"learner": self._learner.state_dict(), "tables": self._episodes.state_dict(self._task)}

    def load_state_dict(self, state: State) -> None:
        self._learner.load_state_dict(state["learner"])
        self._episodes.load_state_dict(self._task, state["tables"])
        self.weights = read_only(self._learner.weights())
        self._policy = None


def _require_device(learner: Learner, spec: TrainerSpec) -> None:
    """Raises ConfigError where a place was asked for, and the learner knows of none but the CPU."""
    asked = spec.context.device
    if not isinstance(learner, Placed) and (asked.device not in ("auto", "cpu") or asked.precision != "float32"):
        given = f"device={asked.device}" if asked.device not in ("auto", "cpu") else f"precision={asked.precision}"
        raise ConfigError(
            f"runtime.{given} was given, and {own_name(spec.algorithm)} computes on the CPU, in float32, only. Leave it out."
        )


def _draw(episodes: EpisodeServer, task: str, request: tuple[str, int], _unwanted: Event) -> Sample | None:
    """None: the limiter wants more items first."""
    return episodes.try_sample(task, *request)


def _lag(batch: Sample, version: int) -> Mapping[str, float]:
    """Mean and greatest number of versions that the rows are behind; nothing where all are new."""
    made_with = batch.columns.get("version_lo")
    if made_with is None or not len(made_with):
        return {}
    most = version - int(made_with.min())
    return {"lag_mean": version - float(made_with.mean()), "lag_max": float(most)} if most > 0 else {}
