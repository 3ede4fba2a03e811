"""The records that flow between Ludus's parts.

Shapes: E environments, P players, A actions (the largest legal count of a player), I information states, n rows.
Every array is NumPy on the CPU. Records are frozen; those that are made at every step are named tuples, which are made fastest. The
arrays of a `Timestep` are buffers that their environment reuses.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Weights: TypeAlias = Mapping[str, Array]
"""Flat name -> array; holds exploration state and normaliser statistics too (invariant 8)."""
State: TypeAlias = Mapping[str, Any]
"""Nested mappings and lists of arrays and JSON scalars: what a checkpoint can hold without pickle."""
Metrics: TypeAlias = Mapping[str, float]


class SegmentEnd(IntEnum):
    """How a segment ends (invariant 4): termination does not bootstrap, truncation and cuts do."""

    TERMINATED = 0
    TRUNCATED = 1
    CUT = 2  # a fragment's end: the open decision carries on in the next fragment


# ---------------------------------------------------------------------------------------------- environments


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """A body in the environment. `player` is the strategic side that controls it; agents of one role share a network."""

    name: str
    player: int
    observation: Space[Any]
    action: Space[Any]
    role: str = "default"


@dataclass(frozen=True, slots=True, eq=False)
class Enumeration:
    """All information states of a game small enough to be enumerated; ids are global, grouped by player.

    Environments with an enumeration put int32 ids into `ActionRequests.observation`; `observation[ids]`, `mask[ids]` decode them.
    """

    observation: NDArray[np.float32]  # [I, *observation shape]
    mask: NDArray[np.bool_]  # [I, A]
    offset: tuple[int, ...]  # [P + 1]: player p's ids are offset[p] .. offset[p + 1] - 1
    key: tuple[str, ...]  # [I]: the game's own name for the state

    def ids(self, player: int) -> slice:
        """The ids of one player."""
        return slice(self.offset[player], self.offset[player + 1])


Determinism: TypeAlias = Literal["environment", "vector", "none"]
"""What the same seeds and actions promise: the same episodes in each environment, whatever else is in the vector; the same only in an
equal vector; nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class EnvSpec:
    """What a vector of environments plays. `agents` are ordered by (player, index within the player)."""

    id: str
    agents: tuple[AgentSpec, ...]
    utility_range: tuple[tuple[float, float], ...]  # [P]: least and largest undiscounted return, bounds or infinities
    symmetry: tuple[tuple[int, ...], ...]  # partition of the players; those in one group are interchangeable
    zero_sum: bool = False  # the players' returns sum to zero (or to a constant)
    state: Space[Any] | None = None  # for central critics and mixers only
    enumeration: Enumeration | None = None
    max_decisions: int | None = None  # most decisions of one player in an episode, if known
    determinism: Determinism = "environment"
    statistics: tuple[str, ...] = ()  # [S]: names of what is counted of each player in an episode, beside its return

    @property
    def num_players(self) -> int:
        return len(self.utility_range)

    def agents_of(self, player: int) -> tuple[AgentSpec, ...]:
        """The agents that one player controls, in slot order."""
        return tuple(a for a in self.agents if a.player == player)

    @property
    def constant_sum(self) -> float | None:
        """What the returns of two players sum to: None unless that is a constant, and 0 where their ranges do not say which, as they are
        infinite or loose."""
        if self.num_players != 2 or not self.zero_sum:
            return None
        (least, most), (other_least, other_most) = self.utility_range
        is_exact = np.isfinite(self.utility_range).all() and abs(least + other_most - most - other_least) < 1e-6
        return round(least + other_most, 6) if is_exact else 0.0

    @property
    def agent_index(self) -> NDArray[np.int64]:
        """int64[agents]: which of its player's agents each is."""
        player = np.array([agent.player for agent in self.agents])
        out: NDArray[np.int64] = np.arange(len(player)) - np.searchsorted(player, player)
        return out

    @property
    def constant(self) -> float | None:
        """`constant_sum`, by its former name."""
        _warn_renamed("EnvSpec.constant", "constant_sum")
        return self.constant_sum

    @property
    def places(self) -> NDArray[np.int64]:
        """`agent_index`, by its former name."""
        _warn_renamed("EnvSpec.places", "agent_index")
        return self.agent_index


class ActionRequests(NamedTuple):
    """The decisions of one player that are due now; n rows in rising slot order.

    slot: int32[n], environment × (agents of the player) + index of the agent.
    observation: [n, *shape], or int32[n] ids if the environment has an enumeration.
    mask: bool[n, A] legal actions; None if all always are, or if ids say it.
    reward: float32[n], summed since that slot's last decision; 0 where `first`.
    first: bool[n], the slot's first decision in this episode, or since its agent came back to it.
    """

    slot: NDArray[np.int32]
    observation: Array
    mask: NDArray[np.bool_] | None
    reward: NDArray[np.float32]
    first: NDArray[np.bool_]


class ClosedDecisions(NamedTuple):
    """Every slot of one player whose open decision closes now, whether it was due or not; n rows in slot order.

    reward: float32[n], since the slot's last decision. terminated: bool[n]; otherwise truncated.
    observation: [n, *shape] final observations, or int32[n] ids (-1: the game has no information state at its end).
    mask: legal actions in the final observation, where truncation bootstraps; None as in `ActionRequests`.
    """

    slot: NDArray[np.int32]
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    observation: Array
    mask: NDArray[np.bool_] | None = None


class FinishedEpisodes(NamedTuple):
    """Episodes that ended in this step: environment int32[k], returns float64[k, P], terminated bool[k], length int32[k]
    (environment steps), in rising environment order. statistics: float64[k, P, S] by the spec's names, totals of the episode, NaN where
    nobody knows them; None if there are no names."""

    environment: NDArray[np.int32]
    returns: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    length: NDArray[np.int32]
    statistics: NDArray[np.float64] | None = None


class Timestep(NamedTuple):
    """One step of E environments. An ended environment restarts within the same step: its new episode's decisions are in
    `due`, its old one's in `ended` and `finished`. Or it restarts a step later, and lists nothing as due in between, as one that is
    still at work (asynchronous) does; some environment always has something due. Buffers stay valid until the second-next step."""

    due: tuple[ActionRequests, ...]  # [P]
    ended: tuple[ClosedDecisions, ...]  # [P]
    finished: FinishedEpisodes
    state: Array | None = None  # [E, *shape]
    final_state: Array | None = None  # [k, *shape], rows as in `finished`


# ---------------------------------------------------------------------------------------------- policies


class PolicyRef(NamedTuple):
    """Names weights: `version` None is live, the newest weights of a learner in progress, resolved when a rollout is requested and kept for
    the episodes that it begins. `mode` is a published mode.

    A tuple, since a large population looks its members up by the thousand and tuples hash and compare fastest.
    """

    population: int
    policy: str
    version: int | None = 0
    mode: str = "explore"


Precision = Literal["float32", "tf32", "bf16"]


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """What is asked for. device: as `ludus.backend.device.parse_device` takes it. precision: of products, tf32 on a card only; parameters
    stay float32. written: whether passes that are written out may be used, where they can. compile: whether torch compiles others, where it
    can. deterministic: whether torch is to compute the same bits whenever it computes the same
    (`ludus.core.machine.deterministic_algorithms`)."""

    device: str = "auto"
    precision: Precision = "float32"
    written: bool = True
    compile: bool = False
    deterministic: bool = False


CPU = DeviceChoice("cpu")


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """What rebuilds a policy around weights: a registered kind or `module:Class`, and JSON keywords for it."""

    kind: str
    config: Mapping[str, Any] = field(default_factory=dict)


class PolicyOutput(NamedTuple):
    """A policy's answer for n rows: action [n, …], logp float32[n] of the behaviour, next memory, declared extras."""

    action: Array
    logp: NDArray[np.float32]
    memory: Array | None = None
    extras: Mapping[str, Array] = MappingProxyType({})


# ---------------------------------------------------------------------------------------------- opponents and tasks


@dataclass(frozen=True, slots=True)
class OpponentFactor:
    """One independent draw per episode: with probability probs[k], seats `seats` are played by entries[k] (one per seat)."""

    seats: tuple[int, ...]
    entries: tuple[tuple[PolicyRef, ...], ...]
    probs: tuple[float, ...]

    @staticmethod
    def of(
        seats: tuple[int, ...], members: Sequence[Sequence[PolicyRef]], probs: NDArray[np.float64]
    ) -> OpponentFactor:
        """From probabilities float64[n_0, …] over the members of each seat; what has none is left out."""
        profiles = np.argwhere(probs > 0)
        entries = tuple(tuple(members[k][i] for k, i in enumerate(profile)) for profile in profiles.tolist())
        return OpponentFactor(seats, entries, tuple(float(p) for p in probs[tuple(profiles.T)]))

    def marginalize(self, seat: int) -> OpponentFactor:
        """Over the other seats, each entry once."""
        place = self.seats.index(seat)
        probs: dict[tuple[PolicyRef, ...], float] = {}
        for entry, prob in zip(self.entries, self.probs, strict=True):
            rest = entry[:place] + entry[place + 1 :]
            probs[rest] = probs.get(rest, 0.0) + prob
        return OpponentFactor(self.seats[:place] + self.seats[place + 1 :], tuple(probs), tuple(probs.values()))


@dataclass(frozen=True, slots=True)
class Mixture:
    """A fixed distribution over co-players: a product of `OpponentFactor`s. A product of marginals has one factor per seat;
    a joint (correlated) one has a single factor over all of them. Every seat is in exactly one; what is drawn for the seat that
    the learner plays in an episode is ignored. Live refs name the learner of the task itself, or those of tasks in progress with it."""

    factors: tuple[OpponentFactor, ...]

    @staticmethod
    def product(marginals: Mapping[int, tuple[Sequence[PolicyRef], Sequence[float]]]) -> Mixture:
        """seat -> (policies, probabilities), drawn independently."""
        return Mixture(
            tuple(
                OpponentFactor((seat,), tuple((ref,) for ref in refs), tuple(float(p) for p in probs))
                for seat, (refs, probs) in sorted(marginals.items())
            )
        )

    def with_seat_fixed(self, seat: int, ref: PolicyRef) -> Mixture:
        """With one policy in a seat: the others are drawn as before, whatever was drawn for that seat."""
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
        _warn_renamed("Mixture.instead", "with_seat_fixed")
        return self.with_seat_fixed(seat, ref)


@dataclass(frozen=True, slots=True)
class AdaptiveMixture:
    """A mixture whose probabilities a rule (`module:Class` or a registered name) moves during the task, from the results of each entry.
    Entries with live refs keep their probability, and the rule moves those of the others; unless `moves_live`, then it moves all."""

    start: Mixture
    rule: str
    options: Mapping[str, Any] = field(default_factory=dict)
    moves_live: bool = False


Opponents: TypeAlias = Mixture | AdaptiveMixture


@dataclass(frozen=True, slots=True)
class Diversity:
    """That a policy shall act unlike the nearest of `members` (`ludus.algorithms.common.behavioral_diversity`), beside earning what it can.

    weight: of one nat of KL divergence at a decision, in rewards as the algorithm scales them. smoothing: share of the uniform policy that
    the members are mixed with.
    """

    members: tuple[PolicyRef, ...]
    weight: float
    smoothing: float = 0.1


@dataclass(frozen=True, slots=True)
class PolicyCondition:
    """One of the policies that a network is trained to play, told which (NeuPL, Liu et al. 2022). condition: what it is told, the
    meta-strategy of the others, float[D]. opponents: drawn from that; those that networks in training play are live, in the mode
    `condition_mode`
    of their place.
    """

    condition: tuple[float, ...]
    opponents: Mixture


def condition_mode(row: int) -> str:
    """The mode in which a network that plays several rows plays one of them."""
    return f"row-{row}"


@dataclass(frozen=True, slots=True)
class RestrictedGame:
    """The game in which each player picks, at every information state, what one of its members would do there (McAleer et al. 2021).

    members: [P] those of each player. gap: NashConv inside that game that its solution may have, where it is computed; iterations: of the
    solver, at most.
    """

    members: tuple[tuple[PolicyRef, ...], ...]
    gap: float
    iterations: int


@dataclass(frozen=True, slots=True, eq=False)
class RestrictedSolution:
    """An approximate equilibrium of a `RestrictedGame` on a game tree. tables: [P] float64[I_p, A], what each player does at its
    information states. value: float64[P] expected returns. gap: NashConv inside that game. iterations: of the solver."""

    tables: tuple[NDArray[np.float64], ...]
    value: NDArray[np.float64]
    gap: float
    iterations: int


@dataclass(frozen=True, slots=True, eq=False)
class MetaSolution:
    """A meta-solver's answer: either `marginals` (float64[n_p] per player, each summing to 1) or `joint` (float64[n_0, …, n_{P-1}]).

    gap: the most any player gains by deviating inside the restricted game, summed over players (NashConv of the meta-game);
    NaN where the solver promises nothing about it. warm: what the next call may start from (arrays and scalars only). note: what to know
    about an answer that is not quite what was asked for (a tolerance that was missed, say); "" where it is.
    """

    marginals: tuple[NDArray[np.float64], ...] | None
    gap: float
    joint: NDArray[np.float64] | None = None
    warm: Any = None
    note: str = ""

    @property
    def strategies(self) -> tuple[NDArray[np.float64], ...]:
        """[P] float64[n_p]: each player's meta-strategy; of a joint one, its marginals."""
        if self.marginals is not None:
            return self.marginals
        assert self.joint is not None
        axes = range(self.joint.ndim)
        return tuple(self.joint.sum(axis=tuple(a for a in axes if a != p)) for p in axes)

    def factors(self, members: Sequence[Sequence[PolicyRef]], seats: Sequence[int]) -> tuple[OpponentFactor, ...]:
        """How it plays some of the seats: each by itself, or from a joint distribution with what it is over these seats alone.

        members: [P] the policies of each player. What has no weight is left out.
        """
        if self.joint is None:
            return tuple(OpponentFactor.of((p,), [members[p]], self.strategies[p]) for p in seats)
        others = tuple(p for p in range(self.joint.ndim) if p not in seats)
        joint = self.joint.sum(axis=others)
        return (OpponentFactor.of(tuple(seats), [members[p] for p in seats], joint),) if seats else ()


@dataclass(frozen=True, slots=True)
class Rival:
    """A member, and what a response must earn more than to be better: what the member itself earns, and the least bit that is no tie.
    strict: whether one that does not, and plays as no member does, is left out, too."""

    ref: PolicyRef
    bar: float
    strict: bool = True


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """Order to train one new policy for the population `population`, playing in any of `seats`, against `opponents`.

    continues: the id of an earlier task, which kept its learner (`keep`): that learner goes on, with its optimizer, tables and schedules.
    length: how many such tasks the learner's whole training is long, which its schedules follow; 0: nobody knows, and they stay put.
    overrides: values of its own for options of the algorithm. diversity: of algorithms that can differ from members. restricted: the policy
    is one of this game, in equilibrium with those of the other populations, whose tasks are given out together with it.
    rows: one network is trained to play each of these, which have their turn request by request; `opponents` is what they meet together.
    takes_row: nothing is trained; the policy is that row of the network of `start`.
    together: share of its requests in which it plays all of `seats` at once, against itself, and learns from all of them. role: of its
    learner in the schedule, where learners differ. rival: of computed
    responses to exact payoffs; one that plays as some member does, or earns no more than this one, is not added.
    """

    id: str
    generation: int
    population: int
    seats: tuple[int, ...]
    policy: str  # id of the policy to make
    opponents: Opponents
    start: PolicyRef | str | None = None  # warm start: a policy, a file, or random
    mode: str = "greedy"  # published mode in which the new member will be played
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
    """Order to fill payoff cells: `profiles` hold one policy index per player; one that is listed k times plays k portions of episodes. If
    `solution` is set, it announces a generation's meta-strategies and asks for their exploitability instead."""

    id: str
    generation: int
    profiles: tuple[tuple[int, ...], ...] = ()
    solution: MetaSolution | None = None


Task: TypeAlias = TrainingTask | EvaluationTask


@dataclass(frozen=True, slots=True, eq=False)
class NamedStatistics:
    """What some episodes counted of each player, beside its return, [P, S] by `names`. n: int64, episodes in which it is known. mean:
    float64, NaN where n is 0. m2: float64, the sum of squared deviations."""

    names: tuple[str, ...]
    n: NDArray[np.int64]
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """The result of one profile, seat by seat: mean and M2 (sum of squared deviations) float64[P] over n units.

    The unit is whatever is independent of the others: an episode, or a block of episodes that share their luck. `exact`: computed, not
    sampled; then n = 0 and M2 = 0. statistics: of its episodes; None where the environment has none, and for what was computed.
    """

    id: str
    profile: tuple[int, ...]
    seats: tuple[PolicyRef, ...]
    n: int
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]
    wins: tuple[tuple[int, int, int], ...] = ()  # per player: won, drawn, lost episodes
    exact: bool = False
    statistics: NamedStatistics | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Exploitability:
    """gain float64[P]: what each player's best response earns over the profile of meta-strategies. NashConv is the sum of those that are
    gains: over a joint distribution a response may earn less than what the players draw together."""

    gain: NDArray[np.float64]
    value: NDArray[np.float64]
    exact: bool = True

    @property
    def nash_conv(self) -> float:
        return float(np.maximum(self.gain, 0.0).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """How a training went, in few points (`ludus.core.curve_recorder`); each is what its iterations came to together.

    columns: names of the columns of values float64[k, len(columns)]. First what was counted since the task began, at the point's end:
    iterations, env_steps, decisions, episodes, samples, updates. Then of the learner's episodes that ended in it: n, and mean, m2 (sum of
    squared deviations), low and high of their returns; length, their mean number of steps. learned: iterations with updates. Then the
    learner's metrics: means over these; and statistics/NAME, means over the episodes. NaN where there is nothing. seconds: float64[k] of
    training, apart because it is a clock.
    """

    columns: tuple[str, ...]
    values: NDArray[np.float64]
    seconds: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        """One column, float64[k]; NaN everywhere if there is none of that name."""
        if column == "seconds":
            return self.seconds
        if column not in self.columns:
            return np.full(len(self), np.nan)
        return self.values[:, self.columns.index(column)]


@dataclass(frozen=True, slots=True, eq=False)
class TrainingResult:
    """A finished `TrainingTask`: the published policy, and the numbers of its training. `failure` says why training stopped early, with
    the last good weights kept. average: the mean over the task of a mixture that a rule has moved. curve: how it went; None: it was
    computed. place: where it learned, by which road and why. member: nothing was added, as the member `ref` plays alike, or earns as
    much."""

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
    """A finished `EvaluationTask`: matches for its profiles, or the exploitability it asked for."""

    task: EvaluationTask
    matches: tuple[Match, ...] = ()
    payoffs: NDArray[np.float64] | None = None  # [P, n0, …]: the whole exact table, instead of matches
    exploitability: Exploitability | None = None


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
    _warn_renamed(f"{__name__}.{name}", _RENAMED[name])
    return globals()[_RENAMED[name]]


def _warn_renamed(former: str, name: str) -> None:
    warnings.warn(f"{former} is called {name} now.", DeprecationWarning, stacklevel=3)
