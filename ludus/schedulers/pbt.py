"""Population based training (Jaderberg et al. 2017, "Population based training of neural networks"; 2019, "Human-level performance in 3D
multiplayer games with population-based reinforcement learning").

Several learners of each population train together, each with hyper-parameters of its own, against the newest weights of the others by
how even their games are. Now and then the worst go on as copies of the best, optimizer and all, with hyper-parameters that are
changed a little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainSerializer, TypeAdapter, model_validator

from ludus.core import seeding
from ludus.core.config import Config
from ludus.core.errors import ConfigError, article
from ludus.core.parts import build_part, dump_part, with_options
from ludus.core.types import MetaSolution, Mixture, PolicyRef, State, TrainingResult, TrainingTask
from ludus.metagame.population.base import View
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.match_selection import PolicyProfile
from ludus.schedulers.config import ScheduleContext
from ludus.schedulers.planning import ChunkedScheduler, MatchSelection, OwnPastOptions, refuse_changes
from ludus.schedulers.win_rates import Member, WinRates

# --------------------------------------------------------------------------------------------------------------------
# Exploit and explore: pure functions of population based training (Jaderberg et al. 2017, sections 3 and 4; 2019,
# supplement).

Array = NDArray[np.float64]
Hyper = Mapping[str, float]


class Range(Config):
    """Where an option of the algorithm may lie: from `low` to `high`, both above 0 if it is drawn on a logarithmic scale (`log`)."""

    low: float = Field(allow_inf_nan=False)
    high: float = Field(allow_inf_nan=False)
    log: bool = True

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low <= self.high or (self.log and self.low <= 0):
            raise ConfigError(
                f"a range of a hyper-parameter is from low to high, above 0 if log; given low: {self.low}, high: {self.high}, "
                f"log: {self.log}."
            )
        return self

    def draw(self, rng: np.random.Generator) -> float:
        """Draw from the range, uniformly on its scale."""
        if self.log:
            return float(np.exp(rng.uniform(np.log(self.low), np.log(self.high))))
        return float(rng.uniform(self.low, self.high))


@dataclass(frozen=True, slots=True)
class TuningRules:
    """every: chunks between two rounds of exploiting. fraction: the worst so many copy one of the best so many, at least one of them unless
    it is 0. factors: what a copied hyper-parameter is multiplied by, one or the other; resample: probability that it is drawn anew
    instead. spread: of the normal distribution around even games by which opponents are matched, in win rate (2019: 1/6); None: all
    alike."""

    every: int = 1
    fraction: float = 0.2
    factors: tuple[float, float] = (0.8, 1.2)
    resample: float = 0.25
    spread: float | None = 1 / 6

    def __post_init__(self) -> None:
        if self.every < 1 or not 0 <= self.fraction <= 0.5 or not 0 <= self.resample <= 1:
            raise ConfigError(
                f"every is at least 1, fraction at most a half and resample a probability; given every: {self.every}, fraction: "
                f"{self.fraction}, resample: {self.resample}."
            )
        if not all(0 < factor < np.inf for factor in self.factors):
            raise ConfigError(
                f"factors are what hyper-parameters are multiplied by, above 0; given {list(self.factors)}."
            )
        if self.spread is not None and not self.spread > 0:
            raise ConfigError(f"spread is {self.spread}, expected above 0, or null: then all opponents are met alike.")


def sample_hyperparameters(ranges: Mapping[str, Range], rng: np.random.Generator) -> dict[str, float]:
    """Return hyper-parameters to begin with."""
    return {name: ranges[name].draw(rng) for name in sorted(ranges)}


def perturb(
    hyper: Hyper, ranges: Mapping[str, Range], rules: TuningRules, rng: np.random.Generator
) -> dict[str, float]:
    """Return copied hyper-parameters, each drawn again or perturbed, inside its range."""
    out = {}
    for name in sorted(ranges):
        if rng.random() < rules.resample:
            out[name] = ranges[name].draw(rng)
        else:
            value = hyper[name] * rules.factors[int(rng.integers(2))]
            out[name] = min(ranges[name].high, max(ranges[name].low, value))
    return out


def copies(ratings: Array, rules: TuningRules, rng: np.random.Generator) -> dict[int, int]:
    """Return loser -> winner, by truncation selection. The worst `fraction` each copy one of the best, at least one of two or more does so
    unless the fraction is 0; of equal ratings the lower index is better."""
    least = int(rules.fraction > 0 and len(ratings) > 1)
    count = max(least, int(rules.fraction * len(ratings) + 1e-9))
    order = [int(i) for i in np.argsort(-ratings, kind="stable")]
    return {loser: order[int(rng.integers(count))] for loser in order[len(order) - count :]}


def matched(rates: Array, spread: float | None) -> Array:
    """Return float64[n]: opponents by how even the games against them are, exp(-(rate - 1/2)² / (2 spread²)) (Jaderberg et al. 2019)."""
    if spread is None:
        return np.full(len(rates), 1.0 / len(rates))
    power = -((rates - 0.5) ** 2) / (2.0 * spread**2)
    weights = np.exp(power - power.max())
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, slots=True)
class PBTMember:
    """A learner. task: the one that it goes on from, its own or the one it has copied. place: of its newest snapshot, or of the copied one;
    -1: none yet."""

    population: int
    number: int
    hyper: dict[str, float] = field(default_factory=dict)
    task: str | None = None
    place: int = -1


Rival: TypeAlias = PBTMember | Member
_LEARNERS = TypeAdapter(tuple[PBTMember, ...])


TUNING_RULES = {"truncation": "ludus.schedulers.pbt:TuningRules"}
"""Which learners of population based training copy which, by name -> `module:Class`; each class's fields are its options."""


def _rules(value: Any) -> TuningRules:
    rules = build_part("tuning rules", value, TUNING_RULES, (TuningRules,))
    if not isinstance(rules, TuningRules):
        raise ConfigError(
            f"the rules of population based training are TuningRules; given {article(type(rules).__name__)}."
        )
    return rules


class PBTOptions(OwnPastOptions):
    """Population based training (Jaderberg et al. 2017, 2019): learners that play each other's newest weights, with options of their own;
    between generations the worst copy the best, options slightly changed. The best of each population are announced.

    Attributes:
        learners: Number of learners of each population.
        ranges: Option of the algorithm -> where it may lie, {learning_rate: {low: 1.0e-4, high: 1.0e-2}} say.
        rules: How often, how many and how much, by default as in the paper ({kind: truncation, fraction: 0.25} say).
    """

    learners: int = Field(8, ge=2)
    ranges: dict[str, Range]
    rules: Annotated[Any, BeforeValidator(_rules), PlainSerializer(lambda part: dump_part(part, TUNING_RULES))] = (
        "truncation"
    )
    cells: Literal["needed", "all"] = "needed"

    @model_validator(mode="before")
    @classmethod
    def _need_ranges(cls, values: Any) -> Any:
        """Raises ConfigError without `ranges`, which no default could stand for."""
        if isinstance(values, Mapping) and "ranges" not in values:
            raise ConfigError(
                "pbt changes options of the algorithm, and needs to know where they may lie: ranges={learning_rate: {low: 1.0e-4, high: "
                "1.0e-2}}, say."
            )
        return values

    @property
    def needs_learner(self) -> bool:
        return True

    @property
    def reads_rates(self) -> bool:
        return True

    def meets_first(self, population: Sequence[int]) -> bool:
        """Return whether the first members are played against; not by win rates, as its learners play against each other only."""
        return self.complete

    def check_schedule(self, context: ScheduleContext) -> None:
        super().check_schedule(context)
        for algorithm in (assignment.algorithm for assignment in context.assigned):
            known = getattr(type(algorithm), "model_fields", None)
            for name, where in self.ranges.items():
                if known is not None and name not in known:
                    raise ConfigError(f"ranges: the algorithm has no option {name!r}; it has {', '.join(known)}.")
                for end in (where.low, where.high):
                    with_options(algorithm, {name: end})  # refuses what it would refuse in the middle of the run


class PBTScheduler(ChunkedScheduler):
    """State beyond the chunk: the learners."""

    options: PBTOptions

    def __init__(
        self, options: PBTOptions, *, population: tuple[int, ...], selection: MatchSelection | None = None
    ) -> None:
        """As `ChunkedScheduler`."""
        super().__init__(options, population=population, selection=selection)
        self._learners = tuple(
            PBTMember(
                k, number, sample_hyperparameters(options.ranges, seeding.generator(options.seed, "draw", k, number))
            )
            for k in self.populations
            for number in range(options.learners)
        )
        self.together = len(self._learners)

    # ------------------------------------------------------------------------------------------ ratings

    def _of(self, population: int) -> list[PBTMember]:
        return [learner for learner in self._learners if learner.population == population]

    def _rivals(self, learner: PBTMember, population: int, view: View) -> list[Rival]:
        """Return its opponents: the other learners, and imported ones."""
        imported = [Member(population, place) for place in range(1, view.first(population))]
        return [*(other for other in self._of(population) if other is not learner), *imported]

    def needed(self, view: View) -> Iterable[PolicyProfile]:
        """Return the newest snapshots among each other."""
        if not self.chunk:
            return []
        if len(self.population) == 1:
            return [(learner.place,) for learner in self._learners]
        rates = self._win_rates(view)
        return [
            profile
            for own in self._learners
            for k in self.against(own.population)
            for profile in rates.profiles(_member(own), (_member(other) for other in self._rivals(own, k, view)))
        ]

    def _win_rates(self, view: View) -> WinRates:
        reference = {k: max(0, self._of(k)[0].place) for k in self.populations}
        return WinRates(view.payoffs, reference=reference, span=self.options.span)

    def _rating(self, learner: PBTMember, view: View) -> float:
        """Return its mean win rate against all that it meets; of a single player, its return."""
        if len(self.population) == 1:
            return float(view.payoffs.mean[0, learner.place])
        rates = self._win_rates(view)
        others = [other for k in self.against(learner.population) for other in self._rivals(learner, k, view)]
        return float(np.mean([_rate(rates, learner, other) for other in others]))

    def _exploit(self, view: View) -> None:
        """Exploit and explore, before the next chunk: also that of a run that was over and goes on."""
        if not self.chunk or self.chunk % self.options.rules.every:
            return
        for population in self.populations:
            learners = self._of(population)
            rng = seeding.generator(self.options.seed, "exploit", population, self.chunk)
            ratings = np.array([self._rating(learner, view) for learner in learners])
            for loser, winner in sorted(copies(ratings, self.options.rules, rng).items()):
                best = learners[winner]
                hyper = perturb(best.hyper, self.options.ranges, self.options.rules, rng)
                self._put(replace(learners[loser], hyper=hyper, task=best.task, place=best.place))

    def _put(self, learner: PBTMember) -> None:
        key = (learner.population, learner.number)
        self._learners = tuple(learner if (old.population, old.number) == key else old for old in self._learners)

    def trained(self, result: TrainingResult, view: View) -> None:
        """Record a new snapshot."""
        super().trained(result, view)
        population = result.task.population
        (learner,) = (t for t in self._of(population) if self._task_id(t, result.task.generation) == result.task.id)
        self._put(replace(learner, task=result.task.id, place=view.place(result.ref)))

    def solution(self, view: View) -> MetaSolution:
        """Return the best of each population; before there are any, the first policy."""
        best = dict.fromkeys(self.populations, 0)
        if self.chunk:
            best = {k: max(self._of(k), key=lambda t: self._rating(t, view)).place for k in self.populations}
        marginals = (normal_form.scatter(np.ones(1), [best[k]], len(view.populations[k])) for k in self.population)
        return MetaSolution(tuple(marginals), np.nan)

    # ------------------------------------------------------------------------------------------ tasks

    def groups(self, view: View) -> Sequence[Sequence[TrainingTask]]:
        """Return one task per learner, all together."""
        self._exploit(view)
        rates = self._win_rates(view) if len(self.population) > 1 else None
        return [[self._task(learner, view, rates) for learner in self._learners]]

    @staticmethod
    def _name(learner: PBTMember, chunk: int) -> str:
        return f"{learner.population}-{learner.number}-{chunk}"

    def _task_id(self, learner: PBTMember, chunk: int) -> str:
        return f"chunk-{self._name(learner, chunk)}"

    def _task(self, learner: PBTMember, view: View, rates: WinRates | None) -> TrainingTask:
        chunk = self.chunk + 1
        return TrainingTask(
            id=self._task_id(learner, chunk),
            generation=chunk,
            population=learner.population,
            seats=self.seats(learner.population),
            policy=self._name(learner, chunk),
            opponents=self._opponents(learner, view, rates),
            mode=self.options.mode,
            keep=True,
            length=self.options.chunks,
            **self.source(learner.population, learner.task, self.options.start),
            overrides=learner.hyper,
        )

    def _opponents(self, learner: PBTMember, view: View, rates: WinRates | None) -> Mixture:
        """rates: None of a single player, who meets nobody."""

        def opponents_from(population: int) -> tuple[Sequence[PolicyRef], Sequence[float]]:
            assert rates is not None
            others = self._rivals(learner, population, view)
            probs = matched(np.array([_rate(rates, learner, other) for other in others]), self.options.rules.spread)
            return [self._ref(other, view) for other in others], probs.tolist()

        return self.seat_by_seat(learner.population, view, opponents_from)

    def _ref(self, rival: Rival, view: View) -> PolicyRef:
        """Return how it is met: a learner by its newest weights."""
        if isinstance(rival, Member):
            return view.populations[rival.population][rival.place]
        return PolicyRef(rival.population, self._name(rival, self.chunk + 1), None)

    def state_dict(self) -> State:
        return {**super().state_dict(), "learners": _LEARNERS.dump_python(self._learners, mode="json")}

    def load_state_dict(self, state: State) -> None:
        """Raise RunError for other learners, and for ranges of other options; where these lie may change, from the next copies on."""
        learners = _LEARNERS.validate_python(state["learners"])
        refuse_changes(_options(learners), _options(self._learners))
        super().load_state_dict(state)
        self._learners = learners


def _options(learners: Sequence[PBTMember]) -> dict[str, object]:
    """Return the options that say which learners there are, and what of them is tuned."""
    first = learners[0]
    return {
        "populations": sorted({learner.population for learner in learners}),
        "learners": sum(learner.population == first.population for learner in learners),
        "ranges": sorted(first.hyper),
    }


def _member(rival: Rival) -> Member:
    return Member(rival.population, rival.place)


def _rate(rates: WinRates, own: PBTMember, other: Rival) -> float:
    if own.place < 0 or other.place < 0:
        return 0.5
    return rates.rate([_member(own)], [_member(other)])
