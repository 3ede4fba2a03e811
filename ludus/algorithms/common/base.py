"""Algorithms (immutable configurations), the learners that they build, and oracles that compute best responses.

The training loop of the driver, for every algorithm:

    rollout = worker.run(algorithm.collect → episodes or decisions)
    for items in learner.items(rollout.trajectories): table.try_insert(items)
    while learner.batches() names a table that can be sampled: metrics = learner.update(batch);
    updated_priorities(learner) -> table
    workers play with learner.weights() from now on
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.backend.ranks import SINGLE_RANK, RankGroup
from ludus.core.types import (
    CPU,
    DeviceChoice,
    EnvSpec,
    Metrics,
    Mixture,
    Opponents,
    PolicyRef,
    PolicySpec,
    RestrictedGame,
    RestrictedSolution,
    State,
    Weights,
)
from ludus.envs.base import VectorEnv
from ludus.envs.tree.game_tree import GameTree
from ludus.replay.base import ItemColumns, ItemUnit, ProcessesTrajectories, Sample, Sizes, TableSpec, exact
from ludus.replay.trajectories import Trajectories
from ludus.rollout.base import RolloutRequest

ROLLOUTS: Final = "rollouts"
"""The table of learners that learn once from what their newest weights did."""
TRANSITIONS: Final = "transitions"
"""The same of tabular learners, whose items are one step each."""
REPLAY: Final = "replay"
"""The table that off-policy learners sample from, again and again."""
RESERVOIR: Final = "reservoir"
"""The table that holds a uniform sample of all that was ever inserted."""


@dataclass(frozen=True, slots=True)
class CollectConfig:
    """How much one iteration collects, and what it records.

    Attributes:
        unit: "episodes": exactly `amount` whole episodes; "decisions": at least `amount` learner decisions, in
            fragments whose open episodes continue in the next one.
        amount: Number of units.
        extras: Names of the `PolicyOutput.extras` to record.
        modes: Published modes that the learner plays its episodes in, with probabilities; (): "explore".
        state: Whether the environment's state is recorded at each decision.
        publish_every: Rounds of collecting and learning between two publications of the weights.
        processing: Processing of trajectories, applied by the workers.
        place: Whether policies are passed the position of their environment among all (`RolloutRequest.place`).
        bootstrap_value: Name of the extra that holds the value of an observation, so that bootstrap observations are
            evaluated too; "": none.
    """

    unit: Literal["episodes", "decisions"]
    amount: int
    extras: tuple[str, ...] = ()  # what `PolicyOutput.extras` to record
    modes: tuple[tuple[str, float], ...] = ()  # published modes that it plays in, with probabilities; (): explore
    state: bool = False  # record the environment's state at each decision
    publish_every: int = 1  # rounds of collecting and learning from one publication of the weights to the next
    processing: tuple[ProcessesTrajectories, ...] = ()  # of trajectories, where they are made
    place: bool = False  # policies are told which environment they act in (`RolloutRequest.place`)
    bootstrap_value: str = ""  # of `extras`, what observations are worth: asked about bootstrap observations, too

    def request(self, learner: PolicyRef, opponents: Mixture, **task: Any) -> RolloutRequest:
        """Return the request for workers, completed with what only the task knows: other fields of `RolloutRequest`."""
        return RolloutRequest(
            learner=learner,
            opponents=opponents,
            unit=self.unit,
            amount=self.amount,
            extras=self.extras,
            modes=self.modes,
            state=self.state,
            processing=self.processing,
            place=self.place,
            bootstrap_value=self.bootstrap_value,
            **task,
        )


@dataclass(frozen=True, slots=True)
class AlgorithmInfo:
    """Properties of an algorithm, as `ludus list algorithms` shows them; every configuration class has them as `about`.

    Attributes:
        actions: Action spaces that it supports.
        data: Whether it learns from the newest weights' experience (or nearly), from any recorded experience, or
            computes.
        recurrent: Whether its networks may be recurrent.
        masks: Whether it respects action masks.
        paper: Authors and year.
    """

    actions: tuple[Literal["discrete", "multi_discrete", "box"], ...]
    data: Literal["on-policy", "off-policy", "computed"]
    recurrent: bool
    masks: bool
    paper: str


@dataclass(frozen=True, slots=True, eq=False)
class DiversityTargets:
    """Members that a learner's policy must differ from.

    Attributes:
        policies: (spec, weights) of each member.
        weight: Reward per nat of divergence, in scaled rewards.
        smoothing: Share of the uniform policy that is mixed into each member.
    """

    policies: tuple[tuple[PolicySpec, Weights], ...]
    weight: float
    smoothing: float


@dataclass(frozen=True, slots=True)
class LearnerContext:
    """Where and how a learner is built.

    Attributes:
        env: The environment.
        seats: Players that the policy plays.
        seed: Seed of all random streams.
        total: Training budget that schedules run over; None: unknown.
        ranks: Ranks that train the same policy together; building a learner and every `update` are then collective
            calls. A learner that ignores them does the same whole work on every rank.
        diversity: Members that the policy is trained to differ from (`ludus.algorithms.common.behavioral_diversity`); set only for
            algorithms that declare support.
        device: Requested device.
        unit: Unit of `total`, "episodes" or "decisions"; None: that of the algorithm's `CollectConfig`.
    """

    env: EnvSpec
    seats: tuple[int, ...]
    seed: int
    total: int | None = None
    ranks: RankGroup = SINGLE_RANK
    diversity: DiversityTargets | None = None
    device: DeviceChoice = CPU
    unit: str | None = None


@runtime_checkable
class Learner(Protocol):
    """Weights, optimizer and schedules of one policy. Deterministic given its context, start weights and batches.

    A learner whose only batch in each round is everything that its only queue holds may say so by an attribute
    `empties_tables = True`: items are then handed over to it without a table (`ludus.replay.episode_server`).
    """

    spec: PolicySpec

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return the items to insert for a rollout, as (table name, columns with one entry per item) pairs."""
        ...

    def batches(self) -> Sequence[tuple[str, int]]:
        """Return the batches to learn from now, one (table name, number of items) per `update`; 0 items: everything
        that the table holds."""
        ...

    def update(self, batch: Sample) -> Metrics:
        """Run one update.

        Args:
            batch: Sampled items. Columns are NumPy arrays; for a learner whose `placement` is not the CPU, tensors on
                its device, except those in `ludus.replay.base.ON_HOST`.

        Returns:
            Metrics by name.

        Raises:
            TrainingError: A loss or weight became NaN or infinite; the last good weights stay.
        """
        ...

    def weights(self) -> Weights:
        """Return copies of everything that acting needs: parameters, exploration state, normaliser statistics and
        warm-up flags (invariant 8)."""
        ...

    def state_dict(self) -> State:
        """Return everything that the next update depends on: weights, target networks, optimizers, schedules, random
        streams."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Restore the state in a learner of an equal context; later updates are bitwise identical."""
        ...


Priorities: TypeAlias = Sequence[tuple[str, NDArray[np.int64], NDArray[np.float64]]]
"""(table name, index of sampled items, their new priorities), as `Table.update_priorities` takes them."""


@runtime_checkable
class SupportsPriorities(Protocol):
    """A learner that computes priorities for the items of its tables."""

    def priorities(self) -> Priorities:
        """Return the new priorities of the items of the last `update`."""
        ...


def updated_priorities(learner: Learner) -> Priorities:
    """Return the priorities to write to the tables after an update; () for a learner without priorities."""
    priorities = getattr(learner, "priorities", None)  # checking a protocol costs as much as a small update
    return () if priorities is None else priorities()


@runtime_checkable
class VersionAware(Protocol):
    """A learner that is notified of the version numbers of its published weights."""

    def on_version_published(self, version: int) -> None:
        """Record that the present weights are this version: rows that are collected with them carry it
        (`Trajectories.version_lo`)."""
        ...


def notify_version(learner: Learner, version: int) -> None:
    """Notify the learner, if it is `VersionAware`, that its present weights are this version."""
    notify = getattr(learner, "on_version_published", None)  # as in `updated_priorities`
    if notify is None and (notify := getattr(learner, "published", None)) is not None:
        _warn_renamed("Learner.published", "on_version_published")
    if notify is not None:
        notify(version)


@runtime_checkable
class Algorithm(Protocol):
    """An immutable configuration (a pydantic model of `ludus.core.config.Config`) that builds learners."""

    @property
    def item(self) -> ItemUnit:
        """Return what one item of its tables is."""
        ...

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError if it cannot learn in this environment (continuous actions, not enumerated …).

        Args:
            env: The environment.
            seats: Players that it trains; (): all. Other algorithms may train the others.
        """
        ...

    def collect(self) -> CollectConfig:
        """Return what one iteration collects."""
        ...

    def tables(self) -> Sequence[TableSpec]:
        """Return the tables that its learners sample from, each with a different name."""
        ...

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        """Return the spec of the policies that it trains."""
        ...

    def learner(self, context: LearnerContext, start: Weights | None = None) -> Learner:
        """Return a new learner.

        Args:
            context: Environment, seats, seed, budget and device.
            start: Warm-start weights of the same spec; None: fresh ones from the context's seed.
        """
        ...


@runtime_checkable
class HasBatchSizes(Protocol):
    """An algorithm whose insert and batch sizes are known in advance."""

    def sizes(self) -> Mapping[str, Sizes]:
        """Return the sizes by table name, where they are known: the items inserted before a batch is requested (at
        least), and those of a batch."""
        ...


def batch_sizes(algorithm: Algorithm) -> Mapping[str, Sizes]:
    """Return the sizes that `EpisodeServer.create` uses to detect deadlocks; {} where they are unknown."""
    return algorithm.sizes() if isinstance(algorithm, HasBatchSizes) else {}


def updates_of(decisions: int, per_decision: float) -> int:
    """Return the whole number of updates for some decisions, rounded toward 0: 29 for 100 decisions at 0.29, which is a
    little less in floats."""
    return int(exact(per_decision) * decisions)


@dataclass(frozen=True, slots=True)
class Warmup:
    """Decisions that are collected before the first update.

    Attributes:
        option: Name of the algorithm's option that asks for `decisions`.
        decisions: Decisions that this option asks for.
        updates_per_decision: Updates that become due per decision after those.
        part: Name of the inner algorithm that has both options; "": the algorithm itself.
        batch: Items per update, where `samples_per_insert` paces replay; 0: it does not.
        first: With `samples_per_insert`, further decisions that the first update needs at least.
    """

    option: str
    decisions: int
    updates_per_decision: float
    part: str = ""
    batch: int = 0
    first: int = 0

    @property
    def decisions_per_update(self) -> int:
        """Return the decisions until one update is due: 50 at 0.02 updates per decision."""
        if self.batch:
            return self.first
        rate = exact(self.updates_per_decision)
        return math.ceil(1 / (rate or self.updates_per_decision))

    @property
    def total(self) -> int:
        """Return the decisions before the first update."""
        return self.decisions + self.decisions_per_update

    def __str__(self) -> str:
        inner = self._inner
        if self.batch:
            ratio = self.updates_per_decision * self.batch
            return f"{inner}{self.option}={self.decisions}, and {self.decisions_per_update} more at {inner}samples_per_insert={ratio:g}"
        return (
            f"{inner}{self.option}={self.decisions}, and {self.decisions_per_update} more at "
            f"{inner}updates_per_decision={self.updates_per_decision:g}"
        )

    def changes(self, decisions: int) -> list[str]:
        """Return settings, each sufficient alone, with which the first update comes after this many decisions."""
        out = []
        if (left := decisions - self.decisions) > 0 and self.decisions_per_update > 1:
            name, batch = ("samples_per_insert", self.batch) if self.batch else ("updates_per_decision", 1)
            out.append(f"algorithm.{self._inner}{name}={math.ceil(1000 * batch / left) / 1000:g} or more")
        if (most := decisions - self.decisions_per_update) > 0:
            out.append(f"algorithm.{self._inner}{self.option}={most} or less")
        return out

    @property
    def _inner(self) -> str:
        return f"{self.part}." if self.part else ""


@runtime_checkable
class HasWarmup(Protocol):
    """An algorithm whose learners replay, and wait before their first update."""

    def warm_up(self) -> Warmup:
        """Return how long they wait."""
        ...


@runtime_checkable
class ChecksStart(Protocol):
    """An algorithm with requirements that no spec of an environment shows."""

    def check_start(self, env: VectorEnv) -> None:
        """Raise ScenarioError if it cannot learn in this environment, judging by first observations. May reset it."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """A computed best response.

    Attributes:
        spec: Spec of the policy.
        weights: Its weights.
        value: Expected return against the opponents, by seat that it plays.
        metrics: Figures of the computation.
    """

    spec: PolicySpec
    weights: Weights
    value: Mapping[int, float]
    metrics: Metrics = field(default_factory=dict)


PlansFn: TypeAlias = Callable[[int, Sequence[PolicyRef]], NDArray[np.float64]]
TablesFn: TypeAlias = Callable[[int, Sequence[PolicyRef]], NDArray[np.float64]]


@runtime_checkable
class ComputedOracle(Protocol):
    """An oracle that computes without episodes: an exact best response on an enumerated game."""

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError if it cannot respond in this environment for the players `seats`; (): for all of them."""
        ...

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        """Return the spec of the policies that it computes."""
        ...

    def respond(self, tree: GameTree, seats: tuple[int, ...], opponents: Opponents, stack: PlansFn) -> Response:
        """Return one policy that plays best in any of `seats` against the opponents.

        Args:
            tree: The enumerated game.
            seats: Players that the policy plays.
            opponents: Mixture of the other seats' policies.
            stack: stack(player, refs) -> float64[k, S_p], realisation plans of k policies over the S_p sequences of
                `player`.
        """
        ...


@runtime_checkable
class SolvesRestricted(Protocol):
    """A `ComputedOracle` that also computes equilibria of restricted games (`ludus.core.types.RestrictedGame`)."""

    def solve(self, tree: GameTree, game: RestrictedGame, tables: TablesFn) -> RestrictedSolution:
        """Return an equilibrium for all players.

        Args:
            tree: The enumerated game.
            game: Members that each player may mix, and the accuracy.
            tables: tables(player, refs) -> float64[k, I_p, A], action probabilities of k policies at the I_p
                information states of `player`.
        """
        ...

    def part(self, tree: GameTree, seats: tuple[int, ...], solution: RestrictedSolution) -> Response:
        """Return the policy that plays the solution's part of `seats`; its `value` is the expected return against the
        other parts."""
        ...


_RENAMED = {
    "Collect": "CollectConfig",
    "HearsVersions": "VersionAware",
    "Prioritises": "SupportsPriorities",
    "Sized": "HasBatchSizes",
    "WarmUp": "Warmup",
    "WarmsUp": "HasWarmup",
}
"""Names of earlier releases, which still work and warn."""


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _warn_renamed(f"{__name__}.{name}", _RENAMED[name])
    return globals()[_RENAMED[name]]


def _warn_renamed(former: str, name: str) -> None:
    warnings.warn(f"{former} is called {name} now.", DeprecationWarning, stacklevel=3)
