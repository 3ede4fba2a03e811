"""Algorithms (immutable configuration) and the learners they build; oracles that compute instead of learning.

The driver's training loop, whatever the algorithm:

    rollout = worker.run(algorithm.collect → episodes or decisions)
    for items in learner.items(rollout.trajectories): table.try_insert(items)
    while learner wants a batch and table.try_sample gives one: metrics = learner.update(batch); priorities_of(learner) -> table
    workers play with learner.weights() from now on
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

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
class Collect:
    """How much to collect before the learner is asked again. `unit` "episodes": exactly `amount` whole episodes;
    "decisions": at least `amount` learner decisions, in fragments whose open episodes go on in the next."""

    unit: Literal["episodes", "decisions"]
    amount: int
    extras: tuple[str, ...] = ()  # what `PolicyOutput.extras` to record
    modes: tuple[tuple[str, float], ...] = ()  # published modes that it plays in, with probabilities; (): explore
    state: bool = False  # record the environment's state at each decision
    publish_every: int = 1  # rounds of collecting and learning from one publication of the weights to the next
    processing: tuple[ProcessesTrajectories, ...] = ()  # of trajectories, where they are made
    place: bool = False  # policies are told which environment they act in (`RolloutRequest.place`)
    bootstrap_value: str = ""  # of `extras`, what observations are worth: asked about bootstrap observations, too

    def request(
        self,
        learner: PolicyRef,
        opponents: Mixture,
        *,
        seats: tuple[int, ...],
        seed: int,
        modes_seed: int,
        first_episode: int,
        together: bool,
        carry_on: bool = False,
        seconds: float | None = None,
    ) -> RolloutRequest:
        """What workers are asked for, with what only the task knows (see `RolloutRequest`)."""
        return RolloutRequest(
            learner=learner,
            seats=seats,
            opponents=opponents,
            unit=self.unit,
            amount=self.amount,
            seed=seed,
            carry_on=carry_on,
            extras=self.extras,
            first_episode=first_episode,
            together=together,
            modes=self.modes,
            modes_seed=modes_seed,
            state=self.state,
            seconds=seconds,
            processing=self.processing,
            place=self.place,
            bootstrap_value=self.bootstrap_value,
        )


@dataclass(frozen=True, slots=True)
class AlgorithmInfo:
    """What an algorithm is, as `ludus list algorithms` shows it; each configuration class has one as its `about`.

    actions: the spaces that it serves. data: whether it learns from what its newest weights did (or nearly), from whatever was recorded,
    or computes. recurrent: its networks may remember. masks: it keeps to the legal actions where an environment has masks.
    """

    actions: tuple[Literal["discrete", "multi_discrete", "box"], ...]
    data: Literal["on-policy", "off-policy", "computed"]
    recurrent: bool
    masks: bool
    paper: str


@dataclass(frozen=True, slots=True, eq=False)
class DiversityTargets:
    """The members that a learner's policy is to differ from. weight: of one nat, in rewards as the learner scales them. smoothing: share of
    the uniform policy in them."""

    policies: tuple[tuple[PolicySpec, Weights], ...]
    weight: float
    smoothing: float


@dataclass(frozen=True, slots=True)
class LearnerContext:
    """Where a learner is built: the environment, the seats it will play, its random streams' seed, and how much there will be.

    total: training budget that schedules run over; None: unknown.
    unit: what `total` counts, "episodes" or "decisions"; None: what the algorithm's `Collect` counts.
    ranks: who learns the same policy beside it; making a learner and every `update` are then joint acts of all of them. A learner that
    does not look at them does the same whole work on every rank.
    diversity: members that its policy is trained to differ from (`ludus.algorithms.common.behavioral_diversity`); only algorithms that
    say so are given any. device: where it is asked to compute.
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
    """Owns weights, optimizer and schedules of one policy. Deterministic given its context, start and batches."""

    spec: PolicySpec

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """(table name, items) to insert for a rollout."""
        ...

    def batches(self) -> Sequence[tuple[str, int]]:
        """(table name, items) wanted now, one entry per `update`: all of them on-policy, the replay's due updates off-policy.
        0 items: everything that the table holds."""
        ...

    def update(self, batch: Sample) -> Metrics:
        """One update. Raises TrainingError where a loss or weight is not finite, leaving the last good weights in place. Columns are
        arrays; of a learner whose `placement` is no CPU, tensors there, but for those of `ludus.replay.base.ON_HOST`."""
        ...

    def weights(self) -> Weights:
        """Copies; with exploration state, normaliser statistics and warm-up flags (invariant 8)."""
        ...

    def state_dict(self) -> State:
        """Everything that the next update depends on: targets, optimizers, schedules, random streams."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Into a learner of an equal context: what follows is equal to the bit."""
        ...


Priorities: TypeAlias = Sequence[tuple[str, NDArray[np.int64], NDArray[np.float64]]]
"""(table name, index of sampled items, their new priorities), as `Table.update_priorities` takes them."""


@runtime_checkable
class Prioritises(Protocol):
    """A learner that says what its tables' priorities should be."""

    def priorities(self) -> Priorities:
        """After an `update`: of the items that it learned from."""
        ...


def priorities_of(learner: Learner) -> Priorities:
    """What to tell the tables after an update."""
    tell = getattr(learner, "priorities", None)  # checking a protocol costs as much as a small update
    return () if tell is None else tell()


@runtime_checkable
class HearsVersions(Protocol):
    """A learner that is told which weights workers play with."""

    def published(self, version: int) -> None:
        """Its weights are this version of them from now on: rows that are made with it say so (`Trajectories.version_lo`)."""
        ...


def tell_version(learner: Learner, version: int) -> None:
    """Its weights are this version from now on."""
    tell = getattr(learner, "published", None)  # as in `priorities_of`
    if tell is not None:
        tell(version)


@runtime_checkable
class Algorithm(Protocol):
    """An immutable configuration (a pydantic model of `ludus.core.config.Config`) that builds learners."""

    @property
    def item(self) -> ItemUnit:
        """What a row of its tables is."""
        ...

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raises ScenarioError if it cannot learn in this environment (continuous actions, not enumerated …) for the players `seats`, which
        other algorithms may train beside; (): for all of them."""
        ...

    def collect(self) -> Collect:
        """What one iteration collects."""
        ...

    def tables(self) -> Sequence[TableSpec]:
        """The tables that its learners are fed from, each with a name of its own."""
        ...

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        """The spec of the policies it trains."""
        ...

    def learner(self, context: LearnerContext, start: Weights | None = None) -> Learner:
        """A new learner; `start`: warm start weights of the same spec, else fresh ones from the context's seed."""
        ...


@runtime_checkable
class Sized(Protocol):
    """An algorithm that can tell beforehand how much goes into its tables and out of them at once."""

    def sizes(self) -> Mapping[str, Sizes]:
        """By table name, for those of which it is known: the items that are inserted before a batch is asked for (no fewer), and those of
        a batch."""
        ...


def sizes_of(algorithm: Algorithm) -> Mapping[str, Sizes]:
    """What `EpisodeServer.create` looks for deadlocks with: the sizes that the algorithm tells, or none."""
    return algorithm.sizes() if isinstance(algorithm, Sized) else {}


def updates_of(decisions: int, per_decision: float) -> int:
    """Whole updates for so many decisions, toward 0: of 100 at 0.29, which are a little less in floats, 29."""
    return int(exact(per_decision) * decisions)


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What is collected before the first update. option: of the algorithm, which asks for `decisions` of them. updates_per_decision: that
    become due after those. part: of the algorithm that has both options; "": itself.

    first: where samples_per_insert paces updates of `batch` items, how many more decisions the first one needs at least.
    """

    option: str
    decisions: int
    updates_per_decision: float
    part: str = ""
    batch: int = 0
    first: int = 0

    @property
    def more(self) -> int:
        """Decisions until one update is due: of 0.02 for each, 50."""
        if self.batch:
            return self.first
        rate = exact(self.updates_per_decision)
        return math.ceil(1 / (rate or self.updates_per_decision))

    @property
    def needed(self) -> int:
        """Decisions before the first update."""
        return self.decisions + self.more

    def __str__(self) -> str:
        inner = self._inner
        if self.batch:
            ratio = self.updates_per_decision * self.batch
            return f"{inner}{self.option}={self.decisions}, and {self.more} more at {inner}samples_per_insert={ratio:g}"
        return (
            f"{inner}{self.option}={self.decisions}, and {self.more} more at "
            f"{inner}updates_per_decision={self.updates_per_decision:g}"
        )

    def changes(self, decisions: int) -> list[str]:
        """Settings with which the first update comes after so many decisions, each by itself."""
        out = []
        if (left := decisions - self.decisions) > 0 and self.more > 1:
            name, batch = ("samples_per_insert", self.batch) if self.batch else ("updates_per_decision", 1)
            out.append(f"algorithm.{self._inner}{name}={math.ceil(1000 * batch / left) / 1000:g} or more")
        if (most := decisions - self.more) > 0:
            out.append(f"algorithm.{self._inner}{self.option}={most} or less")
        return out

    @property
    def _inner(self) -> str:
        return f"{self.part}." if self.part else ""


@runtime_checkable
class WarmsUp(Protocol):
    """An algorithm whose learners replay, and wait before their first update."""

    def warm_up(self) -> WarmUp:
        """How long."""
        ...


@runtime_checkable
class ChecksStart(Protocol):
    """An algorithm that asks of an environment what no spec of it says."""

    def check_start(self, env: VectorEnv) -> None:
        """Raises ScenarioError if it cannot learn there. May reset it."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """A computed best response: weights, the value it earns against the opponents, per seat it plays."""

    spec: PolicySpec
    weights: Weights
    value: Mapping[int, float]
    metrics: Metrics = field(default_factory=dict)


Stack: TypeAlias = Callable[[int, Sequence[PolicyRef]], NDArray[np.float64]]
Tables: TypeAlias = Callable[[int, Sequence[PolicyRef]], NDArray[np.float64]]


@runtime_checkable
class ComputedOracle(Protocol):
    """An oracle that needs no episodes: exact best response on an enumerated game."""

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raises ScenarioError if it cannot respond in this environment for the players `seats`; (): for all of them."""
        ...

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        """The spec of the policies it computes."""
        ...

    def respond(self, tree: GameTree, seats: tuple[int, ...], opponents: Opponents, stack: Stack) -> Response:
        """One policy that plays any of `seats` best against the opponents. stack(player, refs) -> float64[k, S_p] holds the
        realisation plans of policies in the seat of `player`."""
        ...


@runtime_checkable
class SolvesRestricted(Protocol):
    """A `ComputedOracle` that also computes equilibria of restricted games (`ludus.core.types.RestrictedGame`)."""

    def solve(self, tree: GameTree, game: RestrictedGame, tables: Tables) -> RestrictedSolution:
        """Of all players. tables(player, refs) -> float64[k, I_p, A] holds what policies do at the information states of `player`."""
        ...

    def part(self, tree: GameTree, seats: tuple[int, ...], solution: RestrictedSolution) -> Response:
        """The policy that plays the part of `seats`; `value` is what it earns against the others' parts."""
        ...
