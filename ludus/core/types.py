"""The records that flow between Ludus's parts.

Shapes: E environments, P players, A actions (the largest legal count of a player), I information states, n rows.
Every array is NumPy on the CPU. Records are frozen; those that are made at every step are named tuples, which are made fastest. The
arrays of a `Timestep` are buffers that their environment reuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core.env_types import ActionRequests as ActionRequests
from ludus.core.env_types import AgentSpec as AgentSpec
from ludus.core.env_types import Array as Array
from ludus.core.env_types import ClosedDecisions as ClosedDecisions
from ludus.core.env_types import Determinism as Determinism
from ludus.core.env_types import Enumeration as Enumeration
from ludus.core.env_types import EnvSpec as EnvSpec
from ludus.core.env_types import FinishedEpisodes as FinishedEpisodes
from ludus.core.env_types import SegmentEnd as SegmentEnd
from ludus.core.env_types import Timestep as Timestep
from ludus.core.env_types import warn_renamed

Weights: TypeAlias = Mapping[str, Array]
"""Flat name -> array; holds exploration state and normaliser statistics too (invariant 8)."""
State: TypeAlias = Mapping[str, Any]
"""Nested mappings and lists of arrays and JSON scalars: what a checkpoint can hold without pickle."""
Metrics: TypeAlias = Mapping[str, float]


# ---------------------------------------------------------------------------------------------- policies


class PolicyRef(NamedTuple):
    """Name of a policy's weights.

    It is a tuple because a large population looks its members up by the thousand, and tuples hash and compare fastest.

    Attributes:
        population: Index of its population.
        policy: Id within the population.
        version: None is live: the newest weights of a learner in progress, resolved when a rollout is requested and kept for the episodes
            that it begins.
        mode: One of the policy's published modes.
    """

    population: int
    policy: str
    version: int | None = 0
    mode: str = "explore"


Precision = Literal["float32", "tf32", "bf16"]


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """Device and precision that were requested.

    Attributes:
        device: As `ludus.backend.device.parse_device` reads it.
        precision: Of products, tf32 on a GPU only; parameters stay float32.
        written: Whether the CPU kernels may be used, where they can.
        compile: Whether torch compiles other computations, where it can.
        deterministic: Whether torch computes the same bits whenever it computes the same (`ludus.core.machine.deterministic_algorithms`).
        if_large: Whether a GPU that `device` names computes only what is large enough for it, as `auto` decides.
    """

    device: str = "auto"
    precision: Precision = "float32"
    written: bool = True
    compile: bool = False
    deterministic: bool = False
    if_large: bool = False


CPU = DeviceChoice("cpu")


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """Description that rebuilds a policy around weights.

    Attributes:
        kind: A registered kind, or `module:Class`.
        config: JSON keywords for it.
    """

    kind: str
    config: Mapping[str, Any] = field(default_factory=dict)


class PolicyOutput(NamedTuple):
    """A policy's answer for n rows.

    Attributes:
        action: [n, …] actions.
        logp: float32[n], log-probability of each action under the behaviour policy.
        memory: [n, *shape] next recurrent memory; None without.
        extras: Further columns of n rows, by the names that the policy declares.
    """

    action: Array
    logp: NDArray[np.float32]
    memory: Array | None = None
    extras: Mapping[str, Array] = MappingProxyType({})


# ---------------------------------------------------------------------------------------------- opponents and tasks


@dataclass(frozen=True, slots=True)
class OpponentFactor:
    """One independent draw of an episode: with probability probs[k], the seats `seats` are played by entries[k], one policy per seat."""

    seats: tuple[int, ...]
    entries: tuple[tuple[PolicyRef, ...], ...]
    probs: tuple[float, ...]

    @staticmethod
    def of(
        seats: tuple[int, ...], members: Sequence[Sequence[PolicyRef]], probs: NDArray[np.float64]
    ) -> OpponentFactor:
        """Return the factor of probabilities over the members of each seat; profiles of probability 0 are left out.

        Args:
            seats: Seats that are drawn together.
            members: Policies of each of these seats.
            probs: float64[n_0, …] probability of each profile.
        """
        profiles = np.argwhere(probs > 0)
        entries = tuple(tuple(members[k][i] for k, i in enumerate(profile)) for profile in profiles.tolist())
        return OpponentFactor(seats, entries, tuple(float(p) for p in probs[tuple(profiles.T)]))

    def marginalize(self, seat: int) -> OpponentFactor:
        """Return the marginal over the other seats, each entry once."""
        place = self.seats.index(seat)
        probs: dict[tuple[PolicyRef, ...], float] = {}
        for entry, prob in zip(self.entries, self.probs, strict=True):
            rest = entry[:place] + entry[place + 1 :]
            probs[rest] = probs.get(rest, 0.0) + prob
        return OpponentFactor(self.seats[:place] + self.seats[place + 1 :], tuple(probs), tuple(probs.values()))


@dataclass(frozen=True, slots=True)
class Mixture:
    """Fixed distribution over co-players: a product of `OpponentFactor`s.

    A product of marginals has one factor per seat; a joint (correlated) distribution is a single factor over all seats. Every seat is in
    exactly one factor. What is drawn for the seat that the learner plays in an episode is ignored. Live refs name the learner of the task
    itself, or learners of tasks in progress at the same time.

    Attributes:
        factors: Independent draws of an episode.
    """

    factors: tuple[OpponentFactor, ...]

    @staticmethod
    def product(marginals: Mapping[int, tuple[Sequence[PolicyRef], Sequence[float]]]) -> Mixture:
        """Return the product of independent marginals.

        Args:
            marginals: Of each seat, its policies and their probabilities.
        """
        return Mixture(
            tuple(
                OpponentFactor((seat,), tuple((ref,) for ref in refs), tuple(float(p) for p in probs))
                for seat, (refs, probs) in sorted(marginals.items())
            )
        )

    def with_seat_fixed(self, seat: int, ref: PolicyRef) -> Mixture:
        """Return the mixture with one policy in a seat; the other seats are drawn as before."""
        factors = []
        for factor in self.factors:
            if seat not in factor.seats:
                factors.append(factor)
                continue
            if len(factor.seats) > 1:
                factors.append(factor.marginalize(seat))
            factors.append(OpponentFactor((seat,), ((ref,),), (1.0,)))
        return Mixture(tuple(factors))

    def instead(self, seat: int, ref: PolicyRef) -> Mixture:
        """`with_seat_fixed`, by its former name."""
        warn_renamed("Mixture.instead", "with_seat_fixed")
        return self.with_seat_fixed(seat, ref)


@dataclass(frozen=True, slots=True)
class AdaptiveMixture:
    """Mixture whose probabilities a rule moves during the task, from the results of each entry.

    Attributes:
        start: Mixture at the beginning.
        rule: A registered name, or `module:Class`.
        options: Options of the rule.
        moves_live: Whether the rule also moves entries with live refs; otherwise these keep their probability.
    """

    start: Mixture
    rule: str
    options: Mapping[str, Any] = field(default_factory=dict)
    moves_live: bool = False


Opponents: TypeAlias = Mixture | AdaptiveMixture


@dataclass(frozen=True, slots=True)
class Diversity:
    """Objective that a policy acts unlike the nearest of `members`, in addition to its return
    (`ludus.algorithms.common.behavioral_diversity`).

    Attributes:
        members: Policies to differ from.
        weight: Of one nat of KL divergence at a decision, in rewards as the algorithm scales them.
        smoothing: Share of the uniform policy that the members are mixed with.
    """

    members: tuple[PolicyRef, ...]
    weight: float
    smoothing: float = 0.1


@dataclass(frozen=True, slots=True)
class PolicyCondition:
    """One of the policies that a conditioned network is trained to play (NeuPL, Liu et al. 2022).

    Attributes:
        condition: float[D], input that selects it: the meta-strategy of the others.
        opponents: Drawn from that meta-strategy; those that networks in training play are live, in the mode `condition_mode` of their row.
    """

    condition: tuple[float, ...]
    opponents: Mixture


def condition_mode(row: int) -> str:
    """Return the mode in which a network that plays several rows plays one of them."""
    return f"row-{row}"


@dataclass(frozen=True, slots=True)
class RestrictedGame:
    """Game in which each player picks, at every information state, the action of one of its members there (McAleer et al. 2021).

    Attributes:
        members: [P] members of each player.
        gap: NashConv inside that game that its solution may have, where it is computed.
        iterations: Most iterations of the solver.
    """

    members: tuple[tuple[PolicyRef, ...], ...]
    gap: float
    iterations: int


@dataclass(frozen=True, slots=True, eq=False)
class RestrictedSolution:
    """Approximate equilibrium of a `RestrictedGame` on a game tree.

    Attributes:
        tables: [P] float64[I_p, A], each player's strategy at its information states.
        value: float64[P] expected returns.
        gap: NashConv inside that game.
        iterations: Of the solver.
    """

    tables: tuple[NDArray[np.float64], ...]
    value: NDArray[np.float64]
    gap: float
    iterations: int


@dataclass(frozen=True, slots=True, eq=False)
class MetaSolution:
    """Solution of a meta-game: either `marginals` or `joint`.

    Attributes:
        marginals: float64[n_p] per player, each summing to 1.
        gap: Sum over players of the most that each gains by deviating inside the restricted game (NashConv of the meta-game); NaN where the
            solver guarantees nothing about it.
        joint: float64[n_0, …, n_{P-1}] over profiles, summing to 1.
        warm: State that the next call may start from (arrays and scalars only).
        note: What to know about a solution that is not quite what was requested (a tolerance that was missed, say); "" otherwise.
    """

    marginals: tuple[NDArray[np.float64], ...] | None
    gap: float
    joint: NDArray[np.float64] | None = None
    warm: Any = None
    note: str = ""

    @property
    def strategies(self) -> tuple[NDArray[np.float64], ...]:
        """[P] float64[n_p]: each player's meta-strategy; of a joint solution, its marginals."""
        if self.marginals is not None:
            return self.marginals
        assert self.joint is not None
        axes = range(self.joint.ndim)
        return tuple(self.joint.sum(axis=tuple(a for a in axes if a != p)) for p in axes)

    def factors(self, members: Sequence[Sequence[PolicyRef]], seats: Sequence[int]) -> tuple[OpponentFactor, ...]:
        """Return the factors of some of the seats: independent ones, or the joint distribution marginalized to these seats.

        Args:
            members: [P] the policies of each player; those of weight 0 are left out.
            seats: Seats of interest.
        """
        if self.joint is None:
            return tuple(OpponentFactor.of((p,), [members[p]], self.strategies[p]) for p in seats)
        others = tuple(p for p in range(self.joint.ndim) if p not in seats)
        joint = self.joint.sum(axis=others)
        return (OpponentFactor.of(tuple(seats), [members[p] for p in seats], joint),) if seats else ()


@dataclass(frozen=True, slots=True)
class Rival:
    """Member that a response must beat.

    Attributes:
        ref: The member.
        bar: Return to exceed: what the member itself earns, and the least margin that is no tie.
        strict: Whether a response that does not exceed it, and plays like no member, is also left out.
    """

    ref: PolicyRef
    bar: float
    strict: bool = True


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """Order to train one new policy for a population.

    Attributes:
        id: Unique within the run.
        generation: Number of the generation that it belongs to.
        population: Index of the population that the policy joins.
        seats: Seats that it plays.
        policy: Id of the policy to train.
        opponents: Distribution of the other seats.
        start: Warm start: a policy, or the path of a policy file; None: random weights.
        mode: Published mode in which the new member is played.
        continues: Id of an earlier task that kept its learner (`keep`): that learner continues, with its optimizer, tables and schedules.
        keep: Whether the learner is kept for a later task.
        length: Number of such tasks in the learner's whole training, which its schedules follow; 0: unknown, and the schedules stay at
            their start.
        overrides: Values for options of the algorithm.
        diversity: For algorithms that can differ from members.
        together: Share of its requests in which it plays all of `seats` at once, against itself, and learns from all of them.
        role: Role of its learner in the schedule, where learners differ.
        restricted: The policy is one of this game, in equilibrium with those of the other populations, whose tasks are given out together
            with it.
        rows: One network is trained to play each of these, in turn request by request; `opponents` is their average.
        takes_row: Nothing is trained: the policy is this row of the network of `start`.
        rival: For computed responses to exact payoffs: one that plays like a member, or earns no more than this one, is not added.
    """

    id: str
    generation: int
    population: int
    seats: tuple[int, ...]
    policy: str
    opponents: Opponents
    start: PolicyRef | str | None = None
    mode: str = "greedy"
    continues: str | None = None
    keep: bool = False
    length: int = 1
    overrides: Mapping[str, float] = field(default_factory=dict)
    diversity: Diversity | None = None
    together: float = 0.0
    role: str = ""
    restricted: RestrictedGame | None = None
    rows: tuple[PolicyCondition, ...] = ()
    takes_row: int | None = None
    rival: Rival | None = None


@dataclass(frozen=True, slots=True)
class EvaluationTask:
    """Order to fill payoff cells.

    Attributes:
        id: Unique within the run.
        generation: Number of the generation that it belongs to.
        profiles: One policy index per player each; a profile that is listed k times plays k portions of episodes.
        solution: If it is set, the task announces a generation's meta-strategies and requests their exploitability instead.
    """

    id: str
    generation: int
    profiles: tuple[tuple[int, ...], ...] = ()
    solution: MetaSolution | None = None


Task: TypeAlias = TrainingTask | EvaluationTask


@dataclass(frozen=True, slots=True, eq=False)
class NamedStatistics:
    """Statistics of some episodes for each player, [P, S] by `names`.

    Attributes:
        names: [S] names.
        n: int64[P, S], episodes in which it is known.
        mean: float64[P, S], NaN where n is 0.
        m2: float64[P, S], sum of squared deviations.
    """

    names: tuple[str, ...]
    n: NDArray[np.int64]
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Result of one profile, seat by seat.

    The unit of n is independent of the others: an episode, or a block of episodes that share their chance outcomes.

    Attributes:
        id: Unique within the run.
        profile: Index of each player's policy.
        seats: Policy of each seat.
        n: Number of units; 0 where it is exact.
        mean: float64[P] mean returns.
        m2: float64[P] sums of squared deviations; 0 where it is exact.
        wins: Of each player, (won, drawn, lost) episodes.
        exact: Whether it was computed, not sampled.
        statistics: Of its episodes; None where the environment has none, and for what was computed.
        outside: [P] (least, largest) return that the environment's range must have to hold its returns; None where it does.
    """

    id: str
    profile: tuple[int, ...]
    seats: tuple[PolicyRef, ...]
    n: int
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]
    wins: tuple[tuple[int, int, int], ...] = ()
    exact: bool = False
    statistics: NamedStatistics | None = None
    outside: tuple[tuple[float, float], ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Exploitability:
    """Exploitability of a profile of meta-strategies.

    Attributes:
        gain: float64[P], what each player's best response earns over the profile. Over a joint distribution it may be negative.
        value: float64[P], returns of the profile.
        exact: Whether it was computed, and is not a bound from simulation.
    """

    gain: NDArray[np.float64]
    value: NDArray[np.float64]
    exact: bool = True

    @property
    def nash_conv(self) -> float:
        """NashConv: sum of the positive gains."""
        return float(np.maximum(self.gain, 0.0).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Learning curve in few points (`ludus.core.recorders`); each summarizes several iterations.

    The columns are first the counts since the task began, at the point's end: iterations, env_steps, decisions, episodes, samples, updates.
    Then of the learner's episodes that ended in it: n, and mean, m2 (sum of squared deviations), low and high of their returns; length,
    their mean number of steps. learned: iterations with updates. Then the learner's metrics, means over these iterations; and
    statistics/NAME, means over the episodes.

    Attributes:
        columns: Names of the columns.
        values: float64[k, len(columns)], NaN where there is nothing.
        seconds: float64[k] of training; apart from the values because it is a clock.
    """

    columns: tuple[str, ...]
    values: NDArray[np.float64]
    seconds: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        """Return one column, float64[k]; NaN everywhere if there is none of that name."""
        if column == "seconds":
            return self.seconds
        if column not in self.columns:
            return np.full(len(self), np.nan)
        return self.values[:, self.columns.index(column)]


@dataclass(frozen=True, slots=True, eq=False)
class TrainingResult:
    """Result of a `TrainingTask`: the published policy and the numbers of its training.

    Attributes:
        task: The task.
        ref: The new policy, or the member that stands for it.
        spec: How to rebuild it.
        weights: Its arrays by name.
        metrics: The learner's last metrics.
        counters: Counts such as env_steps, decisions and updates.
        failure: Why training stopped early, with the last good weights kept; None otherwise.
        average: Mean over the task of a mixture that a rule has moved.
        curve: Learning curve; None if the policy was computed.
        place: Device and backend of its learner, with the reason.
        member: Whether nothing was added, since the member `ref` plays the same, or earns as much.
    """

    task: TrainingTask
    ref: PolicyRef
    spec: PolicySpec
    weights: Weights
    metrics: Metrics
    counters: Mapping[str, int]
    failure: str | None = None
    average: Mixture | None = None
    curve: Curve | None = None
    place: str = ""
    member: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationResult:
    """Result of an `EvaluationTask`: matches of its profiles, or the exploitability that it requested.

    Attributes:
        task: The task.
        matches: Played profiles.
        payoffs: float64[P, n_0, …], the whole exact table, instead of matches.
        exploitability: Of the announced meta-strategies.
        note: Why exploitability that was asked for is not known; "" otherwise.
    """

    task: EvaluationTask
    matches: tuple[Match, ...] = ()
    payoffs: NDArray[np.float64] | None = None
    exploitability: Exploitability | None = None
    note: str = ""


TaskResult: TypeAlias = TrainingResult | EvaluationResult


_RENAMED = {
    "Act": "PolicyOutput",
    "Adaptive": "AdaptiveMixture",
    "Due": "ActionRequests",
    "Ended": "ClosedDecisions",
    "Evaluated": "EvaluationResult",
    "Factor": "OpponentFactor",
    "Finished": "FinishedEpisodes",
    "PolicyRow": "PolicyCondition",
    "Solution": "MetaSolution",
    "Tail": "SegmentEnd",
    "Trained": "TrainingResult",
    "row_mode": "condition_mode",
}
"""Names of earlier releases, which still work and warn."""


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn_renamed(f"{__name__}.{name}", _RENAMED[name])
    return globals()[_RENAMED[name]]
