"""The learning half of a training task: trajectories in, versioned weights out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Final

import numpy as np

from ludus.algorithms.common.base import (
    Algorithm,
    Learner,
    LearnerContext,
    batch_sizes,
    notify_version,
    updated_priorities,
)
from ludus.algorithms.common.device_policy import SupportsOnDevice, on_device_learner
from ludus.backend.device import HasPlacement, Placement, describe_device, placement_for_table
from ludus.core.arrays import read_only
from ludus.core.errors import Deadlock, ScenarioError, TrainingError, join_or
from ludus.core.machine import out_of_memory
from ludus.core.recorders import Timings
from ludus.core.types import Metrics, PolicySpec, State, Weights
from ludus.core.user_code import qualified_name, short_repr
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.replay.base import ItemColumns, Sample, Sizes, TableSpec
from ludus.replay.episode_server import EpisodeServer, HandOver
from ludus.replay.prefetcher import Prefetcher, ToDevice, detached_copy
from ludus.replay.selectors import SelectorChoice
from ludus.replay.table import num_rows, rows_of
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, eq=False)
class TrainerSpec:
    """What a trainer is made from. task: whose tables it fills. start: weights to start from, None for fresh ones."""

    task: str
    algorithm: Algorithm
    context: LearnerContext
    start: Weights | None = None


@dataclass(frozen=True, slots=True)
class BatchPlacement:
    """How batches come to a learner.

    prefetch: those that are sampled, and moved to its device, while it learns from another. None: 2 where that is no CPU, and it replays
    from memory (unless priorities say what is sampled: those of the last updates would be missed); else 0. on_device: what it replays lies
    where it learns, which on a CPU is memory as ever. What it learns from once lies there in any case, unless shards keep it: rows are on
    their way as soon as they are inserted.
    """

    prefetch: int | None = None
    on_device: bool = False

    def keep_on_device(self, table: TableSpec, *, sharded: bool) -> bool:
        """Return whether a table of a learner on a device lies there."""
        return self.on_device or (table.kind == "queue" and not sharded)

    def prefetch_depth(self, moved: Sequence[TableSpec]) -> int:
        """Return the number of batches that are prepared ahead. moved: the tables whose batches have a way to go."""
        if self.prefetch is not None:
            return self.prefetch
        replayed = [table for table in moved if table.kind != "queue"]  # of others there is one batch a round
        return 2 if replayed and not any(SelectorChoice.of(table).by_priority for table in replayed) else 0


_NEVER = Event()

HOST_REPLAY: Final = BatchPlacement()
"""Tables beside the learner, and what is sampled ahead where that is worth it."""


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
        self,
        spec: TrainerSpec,
        episodes: EpisodeServer,
        profile: Timings | None = None,
        *,
        feed: BatchPlacement = HOST_REPLAY,
    ) -> None:
        """Raise what `Algorithm.learner` raises, and DataError if the task has tables already, or some that cannot lie on a device."""
        self._task, self._episodes, self._profile = spec.task, episodes, profile or Timings()
        self._algorithm, self._learner = spec.algorithm, spec.algorithm.learner(spec.context, spec.start)
        self._policy: tuple[int, Policy] | None = None
        self._pending_items: list[tuple[str, ItemColumns]] = []  # items that a table's limiter does not let in yet
        tables = spec.algorithm.tables()
        devices = _elsewhere(self._learner, tables)
        kept_on_device = {
            table.name for table in tables if feed.keep_on_device(table, sharded=episodes.sharded)
        } & devices.keys()
        moved = [table for table in tables if table.name in devices.keys() - kept_on_device]
        draw = partial(_draw, episodes, spec.task, {table.name: ToDevice(devices[table.name]) for table in moved})
        depth = feed.prefetch_depth(moved)
        self._prefetcher = Prefetcher(draw, detached_copy, depth=depth) if depth else None
        self._draw = draw
        self._weights, self._newest = read_only(self._learner.weights()), True
        self._replays_there = feed.on_device and bool(kept_on_device)
        sizes = batch_sizes(spec.algorithm)
        shared = episodes.sharded or bool(devices)
        episodes.create(
            spec.task,
            tables,
            sizes,
            devices={name: devices[name] for name in kept_on_device},
            handed_over=() if shared else _handed_over(self._learner, tables, sizes),
        )

    @property
    def learner(self) -> Learner:
        """Its own; who updates it beside `learn` sees to `weights`."""
        return self._learner

    @property
    def spec(self) -> PolicySpec:
        """Of the policy that is trained."""
        return self._learner.spec

    @property
    def place(self) -> str:
        """Where it learns; see `describe_device`."""
        return describe_device(self._learner)

    def policy(self, version: int) -> Policy:
        """Return the policy with the present weights, which are `version`."""
        if self._policy is None or self._policy[0] != version:
            self._policy = version, build_policy(self.spec, self.weights)
        return self._policy[1]

    def learn(self, collected: Sequence[Trajectories], *, version: int) -> LearnResult:
        """Insert what was collected, and do every update that is due. version: of the weights that the learner has."""
        try:
            for trajectories in collected:
                self._pending_items += self._learner.items(trajectories)
                self._flush_pending()
            learned = self._updates(version)
            self._keep(self._learner.weights())
            return learned
        except Exception as error:
            failed = self._failed(error, sum(trajectories.num_rows for trajectories in collected))
            if failed is None:
                raise
            return failed

    def _failed(self, error: Exception, rows: int) -> LearnResult | None:
        """Return what came of learning from new rows that cannot go on, with the last good weights; None of an error of another kind."""
        if isinstance(error, TrainingError):
            with suppress(TrainingError):  # the learner itself has kept the last good ones; if not, ours are older
                self._keep(self._learner.weights())
            self._newest = True
            return LearnResult(failure=str(error))
        full = out_of_memory(error)
        return None if full is None else LearnResult(failure=self._too_large(rows, full), full=True)

    def _too_large(self, rows: int, full: str) -> str:
        algorithm, count = self._algorithm, sum(array.size for array in self._weights.values())
        settings = [(name, getattr(algorithm, name, None)) for name in ("minibatches", "batch")]
        change = {"minibatches": "more", "batch": "a smaller"}
        smaller = [f"{change[name]} algorithm.{name} (it is {value})" for name, value in settings if value is not None]
        smaller += ["runtime.replay=host"] if self._replays_there else []
        return (
            f"{qualified_name(algorithm)}: there was not enough memory to learn from {rows:,} new decisions with {count:,} "
            f"numbers of weights: {full}. The weights from before are kept. Give "
            f"{join_or([*smaller, 'fewer tasks on one card (runtime.tasks)', 'device=cpu'])}."
        )

    @property
    def placement(self) -> Placement | None:
        """Where the learner computes; None: it knows of the CPU only."""
        return self._learner.placement if isinstance(self._learner, HasPlacement) else None

    @property
    def in_place(self) -> SupportsOnDevice | str:
        """The learner, if it can learn from what lies on its device; else why it cannot."""
        return on_device_learner(self._learner)

    def learn_in_place(self, learn: Callable[[], Metrics], rows: int) -> LearnResult:
        """Do one update of the learner, which calls its learner by itself, from rows on its device.

        Args:
            learn: Does it, and returns the learner's metrics.
            rows: How many there are.
        """
        self._newest = False
        try:
            metrics = self._checked(learn())
        except Exception as error:
            failed = self._failed(error, rows)
            if failed is None:
                raise
            return failed
        return LearnResult(rows, 1, metrics)

    def _flush_pending(self) -> None:
        """Insert what waits, as far as the tables' limiters allow it now: where `max_diff` holds inserts back, updates go between them.
        More than a table holds comes in one piece after the other."""
        waiting: list[tuple[str, ItemColumns]] = []
        for table, items in self._pending_items:
            left = items
            while True:
                rows = num_rows(left)
                room = int(min(rows, self._episodes.room(self._task, table)))
                part = left if room == rows else rows_of(left, slice(room))
                if (room or not rows) and not self._episodes.try_insert(self._task, table, part):
                    raise self._deadlock(table, room)
                if room == rows:
                    break
                left = rows_of(left, slice(room, None))
                if not room:
                    waiting.append((table, left))
                    break
        self._pending_items = waiting

    def _deadlock(self, table: str, rows: int) -> Deadlock:
        return Deadlock(
            f"task {self._task}: table {table!r} refuses the {rows} items of one rollout while nothing else could make room; collect less "
            "at a time, or raise its max_diff or capacity."
        )

    def _requests(self) -> Iterator[tuple[str, int]]:
        """Yield the batches that are due; between them more of what waits comes in."""
        for request in self._learner.batches():
            if self._pending_items:
                self._between(self._flush_pending)
            yield request

    def _batches(self) -> Generator[Sample, None, None]:
        """Yield the batches that are due, until a limiter wants more items first."""
        if self._prefetcher is not None:
            yield from self._prefetcher.batches(self._requests())
            return
        for request in self._requests():
            if (sample := self._draw(request, _NEVER)) is None:
                return
            yield sample

    def _between(self, call: Callable[[], object]) -> None:
        """Run a call between the samples that were requested and those that will be."""
        if self._prefetcher is None:
            call()
        else:
            self._prefetcher.run_between(call)

    def _updates(self, version: int) -> LearnResult:
        samples = updates = 0
        metrics: Metrics = {}
        last: Sample | None = None
        with closing(self._batches()) as batches:
            for batch in batches:
                with self._profile.part("learning"):
                    metrics, last = self._checked(self._learner.update(batch)), batch
                for name, index, priority in updated_priorities(self._learner):
                    update = partial(self._episodes.update_priorities, self._task, name, index, priority)
                    self._between(update)
                samples += len(batch.index)
                updates += 1
        self._flush_pending()
        if self._pending_items:
            raise self._deadlock(self._pending_items[0][0], num_rows(self._pending_items[0][1]))
        return LearnResult(samples, updates, metrics if last is None else {**metrics, **_lag(last, version)})

    def _checked(self, metrics: Metrics) -> Metrics:
        for name, value in metrics.items() if isinstance(metrics, Mapping) else [("metrics", metrics)]:
            if not isinstance(name, str) or not isinstance(value, int | float | np.number):
                raise ScenarioError(
                    f"learner {qualified_name(self._learner)}.update answered {short_repr(value)} for {name!r}; expected names "
                    f"with numbers."
                )
        return metrics

    def _keep(self, weights: Weights) -> None:
        for name, array in weights.items():
            if np.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all():
                raise TrainingError(f"the weights {name!r} became NaN or infinite; those from before are kept")
        self._weights, self._newest = read_only(weights), True

    @property
    def weights(self) -> Weights:
        """Of the newest version; of a learner that learns in place they are read back when they are asked for. Raises TrainingError, once,
        if those are no numbers: after that they are those from before."""
        if not self._newest:
            self._newest = True
            self._keep(self._learner.weights())
        return self._weights

    def announce(self, version: int) -> None:
        """Tell the tables, and a learner that wants to know, the newest version; see `Table.announce`."""
        self._episodes.announce(self._task, version)
        notify_version(self._learner, version)

    def close(self) -> None:
        """Free the tables."""
        self._episodes.close(self._task)

    def state_dict(self) -> State:
        return {"learner": self._learner.state_dict(), "tables": self._episodes.state_dict(self._task)}

    def load_state_dict(self, state: State) -> None:
        self._learner.load_state_dict(state["learner"])
        self._episodes.load_state_dict(self._task, state["tables"])
        self._weights, self._newest = read_only(self._learner.weights()), True
        self._policy = None


def _handed_over(learner: Learner, tables: Sequence[TableSpec], sizes: Mapping[str, Sizes]) -> Sequence[str]:
    """Return the table of a learner that empties it in each round, if that is all that the table is for."""
    if len(tables) > 1 or not getattr(learner, "empties_tables", False):
        return ()
    inserts = {name: size.insert for name, size in sizes.items()}
    return [spec.name for spec in tables if HandOver.replaces(spec, insert=inserts.get(spec.name, 0))]


def _draw(
    episodes: EpisodeServer, task: str, moves: Mapping[str, ToDevice], request: tuple[str, int], _unwanted: Event
) -> Sample | None:
    """Return a batch, where it will be learned from. None: the limiter wants more items first."""
    sample, move = episodes.try_sample(task, *request), moves.get(request[0])
    return sample if sample is None or move is None else move(sample)


def _elsewhere(learner: Learner, tables: Sequence[TableSpec]) -> dict[str, torch.device]:
    """Return where a learner wants what its tables hold, by table, unless that is memory."""
    places = {table.name: placement_for_table(learner, table.name) for table in tables}
    return {name: place.torch for name, place in places.items() if place is not None and place.device != "cpu"}


def _lag(batch: Sample, version: int) -> Mapping[str, float]:
    """Return mean and greatest number of versions that the rows are behind; nothing where all are new."""
    made_with = batch.columns.get("version_lo")
    if made_with is None or not len(made_with):
        return {}
    most = version - int(made_with.min())
    return {"lag_mean": version - float(made_with.mean()), "lag_max": float(most)} if most > 0 else {}
