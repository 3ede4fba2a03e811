"""Self-play: each population has one learner, which plays the newest weights of the learners, and its past.

SelfPlay             a share against the newest weights, the rest against the past (OpenAI Five: 80% and 20%, by quality)
FictitiousSelfPlay   the past alone, all alike; the average of the past is the meta-strategy (Heinrich et al. 2015)
PFSP                 the past alone, by win rates (AlphaStar, Vinyals et al. 2019)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from ludus.algorithms.common.base import Algorithm
from ludus.core import seeding
from ludus.core.errors import ConfigError
from ludus.core.parts import build_part, dump_part
from ludus.core.types import Mixture, PolicyRef, State, TrainingResult, TrainingTask
from ludus.core.user_code import distribution, qualified_name
from ludus.metagame.population.base import View
from ludus.metagame.solvers.base import MetaSolution
from ludus.metagame.solvers.fixed import Last, LastK, Uniform
from ludus.metagame.solvers.match_selection import PolicyProfile
from ludus.metagame.solvers.pfsp import Weighting, pfsp
from ludus.metagame.solvers.registry import solve
from ludus.policies.specs import Modes
from ludus.schedulers.config import ScheduleContext, Solver
from ludus.schedulers.planning import ChunkedScheduler, MatchSelection, OwnPastOptions, one_task_per_group
from ludus.schedulers.win_rates import Member, WinRates

# --------------------------------------------------------------------------------------------------------------------
# Which of its past opponents a learner in self-play meets: pure rules over one number per opponent, which the
# scheduler keeps.

Array = NDArray[np.float64]

PAST_OPPONENT_RULES = {
    "prioritised": "ludus.schedulers.self_play:PrioritisedPast",
    "quality": "ludus.schedulers.self_play:QualityPast",
    "uniform": "ludus.schedulers.self_play:UniformPast",
}
"""Opponent sampling rules of the key `past`: name -> `module:Class`; each class's fields are its options. They are applied between chunks;
`ludus.rollout.opponent_rules.RULES` are applied within a task, after each rollout."""


@runtime_checkable
class OpponentSamplingRule(Protocol):
    """scores: float64[n], oldest opponent first; rates: float64[n], win rates of the learner's newest snapshot against them, or zeros
    unless the rule `reads` them; games: how many the learner has played against the past in its last chunk."""

    reads: ClassVar[bool]

    def probabilities(self, scores: Array, rates: Array) -> Array:
        """Return float64[n] that sum to 1; n > 0."""
        ...

    def updated(self, scores: Array, rates: Array, games: float) -> Array:
        """Return the scores after a chunk."""
        ...


@dataclass(frozen=True, kw_only=True)
class UniformPast:
    """All alike, or the `last` so many (Heinrich et al. 2015: a best response to the average of the past). Raises ConfigError for a `last`
    under 1."""

    reads: ClassVar[bool] = False
    last: int | None = None

    def __post_init__(self) -> None:
        if self.last is not None and self.last < 1:
            raise ConfigError(f"the last so many of the past are at least 1, or None for all; given last: {self.last}.")

    def probabilities(self, scores: Array, rates: Array) -> Array:
        n = len(scores)
        count = min(n, self.last or n)
        return np.concatenate([np.zeros(n - count), np.full(count, 1.0 / count)])

    def updated(self, scores: Array, rates: Array, games: float) -> Array:
        return scores


@dataclass(frozen=True, kw_only=True)
class PrioritisedPast:
    """In proportion to f(win rate): prioritised fictitious self-play (PFSP, Vinyals et al. 2019), whose other places are listed in
    `ludus.metagame.solvers.pfsp`."""

    reads: ClassVar[bool] = True
    weighting: Weighting = "squared"

    def probabilities(self, scores: Array, rates: Array) -> Array:
        return pfsp(rates, self.weighting)

    def updated(self, scores: Array, rates: Array, games: float) -> Array:
        return scores


@dataclass(frozen=True, kw_only=True)
class QualityPast:
    """In proportion to exp(quality) (Berner et al. 2019, OpenAI Five, appendix on opponent sampling). A new opponent gets the best quality
    that there is. There, each game that the learner wins against opponent i, drawn with p_i of N, takes rate / (N p_i) from i's
    quality. It plays p_i of its games against i; so a chunk takes rate × games × win rate / N, in expectation."""

    reads: ClassVar[bool] = True
    rate: float = 0.01

    def __post_init__(self) -> None:
        if not self.rate >= 0:
            raise ConfigError(f"past quality: rate is {self.rate}, expected at least 0.")

    def probabilities(self, scores: Array, rates: Array) -> Array:
        weights = np.exp(scores - scores.max())
        return np.asarray(weights / weights.sum())

    def updated(self, scores: Array, rates: Array, games: float) -> Array:
        return scores - self.rate * games * rates / max(1, len(scores))


def grown(scores: Array, size: int) -> Array:
    """`scores` for `size` opponents: new ones get the best that there is, the first ones 0."""
    best = float(scores.max()) if len(scores) else 0.0
    return np.concatenate([scores, np.full(size - len(scores), best)])


# --------------------------------------------------------------------------------------------------------------------


class _SolvedOptions(OwnPastOptions):
    """Options of self-play whose snapshots are solved.

    Attributes:
        meta_solver: The meta-strategy that is announced, by default the newest snapshots.
        cells: Which payoffs are computed: those that the schedule reads (needed); also those of the newest snapshots against the first,
            the ones before, and those of five chunks before, which say whether it improves (progress); or all.
    """

    meta_solver: Solver = "last"

    @property
    def complete(self) -> bool:
        """Also where the meta-solver reads payoffs."""
        return super().complete or not isinstance(self.meta_solver, Last | LastK | Uniform)

    def check_schedule(self, context: ScheduleContext) -> None:
        context.check_solver(self.meta_solver)
        super().check_schedule(context)


class _MixedOptions(_SolvedOptions):
    """Options of self-play against the newest weights and the past.

    Attributes:
        latest: Share of the games that are against the newest weights. The others are against the past, by win rates.
    """

    latest: float = Field(0.0, ge=0, le=1)

    @property
    def needs_learner(self) -> bool:
        return self.latest > 0

    @property
    def asks_for_all(self) -> bool:
        return super().asks_for_all or self.reads_rates

    @property
    def reads_rates(self) -> bool:
        return self.latest < 1

    def check_schedule(self, context: ScheduleContext) -> None:
        super().check_schedule(context)
        if self.opponents and self.latest == 1:
            raise ConfigError(
                "opponents were given, and with latest=1 learners meet each other's newest weights alone. Give latest=0.8, say: then the "
                "rest of the games is against the past, and opponents."
            )


class SelfPlayOptions(_MixedOptions):
    """Self-play.

    Attributes:
        latest: Share of the games that are against the newest weights, 1 for naive self-play; OpenAI Five had 0.8 (Berner et al. 2019).
        every_seat: Whether one learner (share=always) plays those games in all seats at once, and learns from all of them.
        past: Opponents of the other games: `uniform`, `quality` (OpenAI Five) or `prioritised` (by win rates).
    """

    latest: float = Field(1.0, ge=0, le=1)
    every_seat: bool = False
    past: Annotated[
        Any,
        BeforeValidator(lambda v: build_part("past", v, PAST_OPPONENT_RULES, (OpponentSamplingRule,))),
        PlainSerializer(lambda part: dump_part(part, PAST_OPPONENT_RULES)),
    ] = "uniform"

    @property
    def reads_rates(self) -> bool:
        return super().reads_rates and bool(self.past.reads)

    @model_validator(mode="after")
    def _check_past(self) -> Self:
        if "latest" not in self.model_fields_set and self.past != UniformPast():
            raise ValueError(
                "past says who is met in the rest of the games, and by default there is none; give latest=0.8, say"
            )
        return self

    def check_schedule(self, context: ScheduleContext) -> None:
        super().check_schedule(context)
        learners = [a.algorithm for a in context.assigned if isinstance(a.algorithm, Algorithm)]
        cut = any(algorithm.collect().unit == "decisions" for algorithm in learners)
        if self.every_seat and 0 < self.latest < 1 and cut:
            raise ConfigError(
                f"every_seat with latest={self.latest:g} takes turns with games against the past. They need whole episodes, and the "
                "algorithm collects decisions, whose episodes go on. Give it episodes (batch_unit=episodes), or latest=1."
            )


class FictitiousSelfPlayOptions(_SolvedOptions):
    """Fictitious self-play over snapshots (Heinrich, Lanctot and Silver 2015): each generation trains against the average of the past,
    which is the meta-strategy that is announced."""

    latest: ClassVar[float] = 0.0
    every_seat: ClassVar[bool] = False
    past: ClassVar[OpponentSamplingRule] = UniformPast()

    meta_solver: Solver = "uniform"


class PFSPOptions(_MixedOptions):
    """Prioritised fictitious self-play (Vinyals et al. 2019): against the past by win rates.

    Attributes:
        weighting: Which of the past are met most: the hard ones (squared, linear, linear_capped) or those of one's own level (variance).
        latest: Share of the games against the newest weights (0.35 of 0.85 for AlphaStar's main agents).
    """

    every_seat: ClassVar[bool] = False

    weighting: Weighting = "squared"

    @property
    def past(self) -> OpponentSamplingRule:
        """Whom it meets."""
        return PrioritisedPast(weighting=self.weighting)


EARLIER = 5
"""Chunks before, of the earliest snapshots that `cells: progress` compares, the first ones aside."""


class SelfPlayScheduler(ChunkedScheduler):
    """Of all three kinds. State beyond the chunk: a score per learner and past opponent, and the games that each learner has played in its
    last chunk."""

    options: SelfPlayOptions | FictitiousSelfPlayOptions | PFSPOptions

    def __init__(
        self,
        options: SelfPlayOptions | FictitiousSelfPlayOptions | PFSPOptions,
        *,
        population: tuple[int, ...],
        selection: MatchSelection | None = None,
        modes: Sequence[Modes] = (),
    ) -> None:
        """As `ChunkedScheduler`. modes: of each population, in which its newest weights are met, and how often each; by default they
        explore. Raises ConfigError for `every_seat` where no learner could play them all."""
        super().__init__(options, population=population, selection=selection)
        if options.every_seat and len(population) < 2:
            raise ConfigError("every_seat lets one learner play all seats at once; here is one player. Leave it out.")
        if options.every_seat and len(self.populations) > 1:
            raise ConfigError(
                f"every_seat lets one learner play all seats at once; here {len(population)} players have {len(self.populations)} "
                "populations. Give share=always, or leave every_seat out."
            )
        self.together = len(self.populations) if options.latest > 0 else 1
        self.modes = [own or (("explore", 1.0),) for own in modes or [()] * len(self.populations)]
        self.past: OpponentSamplingRule = options.past
        self._scores: dict[str, Array] = {}  # "learner/opponents' population"
        self._rates: dict[str, Array] = {}
        self._games: dict[str, float] = {}  # of each learner, in its last chunk
        self._warm: Any = None

    # ------------------------------------------------------------------------------------------ what the past is worth

    def needed(self, view: View) -> Iterable[PolicyProfile]:
        """Return newest snapshots against the past, where the rule reads win rates, or progress is measured."""
        measured = self._progress(view) if self.options.cells == "progress" else []
        if not self.options.reads_rates:
            return measured
        rates = self._win_rates(view)
        return measured + [
            profile
            for own in self.populations
            for other in self.populations
            for profile in rates.profiles(_newest(view, own), _members(view, other))
        ]

    def _progress(self, view: View) -> list[PolicyProfile]:
        """Return profiles in which each player alone has its newest snapshot, and the others have earlier ones."""
        newest = [_newest(view, own).place for own in self.population]
        earlier = (
            [0 for _ in newest],
            [max(0, place - 1) for place in newest],
            [
                min(place, max(1, place - EARLIER)) for place in newest
            ],  # the first ones may play at random: nearly all is better
        )
        profiles = [
            tuple(newest[p] if p == player else places[p] for p in range(len(newest)))
            for places in earlier
            for player in range(len(newest))
        ]
        return [profile for profile in dict.fromkeys(profiles) if profile != tuple(newest)]

    def review(self, view: View) -> None:
        """Update the scores of the past, and read its win rates."""
        rates = self._win_rates(view) if self.options.reads_rates else None
        for own in self.populations:
            for other in self.populations:
                key, size = f"{own}/{other}", len(view.populations[other])
                against = np.zeros(size)
                if rates is not None:
                    against[:] = [rates.rate([_newest(view, own)], [m]) for m in _members(view, other)]
                old = self._scores.get(key, np.zeros(0))
                games = self._games.get(str(own), 0.0) * (1.0 - self.options.latest)
                self._scores[key] = grown(self.past.updated(old, against[: len(old)], games), size)
                self._rates[key] = against

    def _win_rates(self, view: View) -> WinRates:
        reference = {k: _newest(view, k).place for k in self.populations}
        return WinRates(view.payoffs, reference=reference, span=self.options.span)

    def trained(self, result: TrainingResult, view: View) -> None:
        """Count its games."""
        super().trained(result, view)
        self._games[str(result.task.population)] = float(result.counters.get("episodes", 0))

    def solution(self, view: View) -> MetaSolution:
        """Return the meta-solver's."""
        rng = seeding.generator(self.options.seed, "solve", self.chunk)
        payoffs = self.payoffs.completed(view.payoffs)
        solution: MetaSolution = solve(self.options.meta_solver, payoffs, warm=self._warm, rng=rng)
        self._warm = solution.warm
        return solution

    # ------------------------------------------------------------------------------------------ tasks

    def groups(self, view: View) -> Sequence[Sequence[TrainingTask]]:
        """Return one task per population; together where they meet each other's newest weights."""
        tasks = [self._task(k, view) for k in self.populations]
        return [tasks] if self.options.latest > 0 else one_task_per_group(tasks)

    def _task(self, population: int, view: View) -> TrainingTask:
        chunk = self.chunk + 1
        before = f"chunk-{population}-{self.chunk}" if self.chunk else None
        return TrainingTask(
            id=f"chunk-{population}-{chunk}",
            generation=chunk,
            population=population,
            seats=self.seats(population),
            policy=f"{population}-{chunk}",
            opponents=self._opponents(population, view),
            mode=self.options.mode,
            keep=True,
            length=self.options.chunks,
            together=self.options.latest if self.options.every_seat else 0.0,
            **self.source(population, before, self.options.start),
        )

    def _opponents(self, population: int, view: View) -> Mixture:
        at_once = self.options.every_seat and self.options.latest < 1  # those games have orders of their own
        latest = 0.0 if at_once else self.options.latest

        def opponents_from(which: int) -> tuple[Sequence[PolicyRef], Sequence[float]]:
            key, refs, probs = f"{population}/{which}", list[PolicyRef](), list[float]()
            if latest > 0:
                refs = [PolicyRef(which, f"{which}-{self.chunk + 1}", None, mode) for mode, _ in self.modes[which]]
                probs = [latest * share for _, share in self.modes[which]]
            if latest < 1:
                scores = self._scores[key]
                probs_of_past = self.past.probabilities(scores, self._rates[key])
                past = (1.0 - latest) * distribution(f"rule {qualified_name(self.past)}", probs_of_past, len(scores))
                refs += [view.populations[which][i] for i in np.flatnonzero(past)]
                probs += past[past > 0].tolist()
            return refs, probs

        return self.seat_by_seat(population, view, opponents_from)

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            "scores": dict(self._scores),
            "rates": dict(self._rates),
            "games": dict(self._games),
            "warm": self._warm,
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._scores, self._rates = dict(state["scores"]), dict(state["rates"])
        self._warm = state["warm"]
        self._games = {key: float(games) for key, games in state["games"].items()}


def _members(view: View, population: int) -> list[Member]:
    return [Member(population, i) for i in range(len(view.populations[population]))]


def _newest(view: View, population: int) -> Member:
    """Return the newest snapshot; before there is one, the policy that was there first."""
    count = len(view.populations[population])
    return Member(population, count - 1 if count > view.first(population) else 0)
