"""PSRO whose meta-strategies adapt while the responses to them train (two-player zero-sum games).

    AnytimePSRO    a no-regret rule moves the opponent's distribution over its population against the response that trains, so that it
                   approaches the least exploitable one: exploitability does not rise from one generation to the next (McAleer et al.
                   2022, "Anytime PSRO for two-player zero-sum games")
    SelfPlayPSRO   besides, the opponent trains a new strategy against the live response, which meets it live, and both are added
                   (McAleer et al. 2022, "Self-play PSRO: toward optimal populations in two-player zero-sum games")

What is announced is the mean over its training of the distribution that the rule has moved, not a solution of the payoff table. The rule
moves it against the response. So it approaches the least exploitable one where the other player earns what the response loses; in games
that are not zero-sum it is what holds the response down, and promises nothing for whoever plays it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from ludus.core.errors import ScenarioError
from ludus.core.parts import build_part, registered_name
from ludus.core.types import (
    AdaptiveMixture,
    MetaSolution,
    Mixture,
    OpponentFactor,
    PolicyRef,
    State,
    TrainingResult,
    TrainingTask,
)
from ludus.metagame.population.base import View
from ludus.rollout.opponent_rules import RULES, Rule
from ludus.schedulers.config import ScheduleContext
from ludus.schedulers.planning import MatchSelection, require_two_players
from ludus.schedulers.psro import PSROOptions, PSROScheduler, ResponseOptions
from ludus.schedulers.responses import RESPONSES, RectifiedResponse, SequentialLeague, Target

# --------------------------------------------------------------------------------------------------------------------
# What a no-regret rule moves while responses train.

_MEANS = TypeAdapter(dict[str, Mixture])


class MovedMixtureOptions(ResponseOptions):
    """Options of a mixture that moves while a response trains.

    Attributes:
        rule: How the mixture that a response meets moves, `regret_matching_plus` or `hedge` (`ludus.rollout.opponent_rules`).
        rule_options: Options of the rule.
        begin: Where it begins, uniform over the population or at the last mean, in which policies without weight get a uniform share.
    """

    rule: str = "regret_matching_plus"
    rule_options: dict[str, Any] = Field(default_factory=dict)
    begin: Literal["uniform", "last"] = "uniform"

    @property
    def needs_learner(self) -> bool:
        return True

    @property
    def moves_opponents(self) -> bool:
        return True

    def check_schedule(self, context: ScheduleContext) -> None:
        super().check_schedule(context)
        build_part("rule", {"kind": self.rule, **self.rule_options}, RULES, (Rule,))  # refuses what there is not


class MeanMixtures:
    """State: what the opponents of each population have played on average while its last response trained."""

    def __init__(self, population: tuple[int, ...]) -> None:
        """population: [2] index of each player's population."""
        self._population = population
        self._means: dict[str, Mixture] = {}  # population that has trained -> what its opponents have played

    def record(self, result: TrainingResult) -> None:
        """Keep what the rule has come to."""
        if isinstance(result.task.opponents, AdaptiveMixture):
            self._means.pop(str(result.task.population), None)
            if result.average is not None:
                self._means[str(result.task.population)] = result.average

    def solution(self, view: View) -> MetaSolution | None:
        """Return the means as meta-strategies, in which new policies have no weight yet, as in the paper; None if one is not known."""
        marginals = []
        for player, which in enumerate(self._population):
            by = self._means.get(str(self._population[1 - player]))  # what the other player's response has met
            if by is None:
                return None
            marginals.append(_marginal(by, player, view.populations[which]))
        return MetaSolution(tuple(marginals), np.nan)

    def state_dict(self) -> State:
        state: State = _MEANS.dump_python(self._means, mode="json")
        return state

    def load_state_dict(self, state: State) -> None:
        self._means = _MEANS.validate_python(state)


# --------------------------------------------------------------------------------------------------------------------


class AnytimePSROOptions(PSROOptions, MovedMixtureOptions):
    """Anytime PSRO (McAleer et al. 2022): a response trains against a distribution over all members, which a no-regret rule moves in the
    meantime; its mean is what is announced. So exploitability should not rise. Two players.

    Attributes:
        meta_solver: Of generation 0, and of algorithms that move nothing.
    """

    def check_schedule(self, context: ScheduleContext) -> None:
        super().check_schedule(context)
        if "joint" in self.responses.needs:
            raise ScenarioError(
                f"responses {registered_name(self.responses, RESPONSES)!r} need a joint meta-strategy, and what is announced here "
                f"is the mean of "
                "each player's distribution, which a rule has moved. Use responses: best, or scenario psro."
            )
        if isinstance(self.responses, RectifiedResponse | SequentialLeague):
            raise ScenarioError(
                f"responses {registered_name(self.responses, RESPONSES)!r} say whom not to meet, and here each meets all members, "
                f"by a rule that "
                "moves their weights. Give responses=best, or scenario psro."
            )


class AnytimePSROScheduler(PSROScheduler):
    """State beyond PSRO's: the mean mixtures."""

    options: AnytimePSROOptions

    def __init__(
        self, options: AnytimePSROOptions, *, population: tuple[int, ...], selection: MatchSelection | None = None
    ) -> None:
        """As `PSROScheduler`. Raises ConfigError for other than two players: only there is a distribution moved by one response, that of
        its only opponent."""
        require_two_players(population, "anytime and self-play PSRO are")
        super().__init__(options, population=population, selection=selection)
        self._means = MeanMixtures(population)

    def trained(self, result: TrainingResult, view: View) -> None:
        self._means.record(result)

    def solve(self, view: View) -> MetaSolution:
        """Return the means of the last distributions."""
        return self._means.solution(view) or super().solve(view)

    def opponents(self, target: Target, view: View) -> AdaptiveMixture:
        """Return all members, whatever their weight is now."""
        marginals = {}
        for player, which in enumerate(self.population):
            refs = view.populations[which]
            uniform = np.full(len(refs), 1.0 / len(refs))
            probs = (
                uniform
                if self.options.begin == "uniform"
                else weight_for_new_policies(target.opponents.strategies[player])
            )
            marginals[player] = (refs, probs.tolist())
        return AdaptiveMixture(Mixture.product(marginals), self.options.rule, self.options.rule_options)

    def state_dict(self) -> State:
        return {**super().state_dict(), "averages": self._means.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._means.load_state_dict(state["averages"])


class SelfPlayPSROOptions(AnytimePSROOptions):
    """Self-play PSRO (McAleer et al. 2022): besides, each response meets a new strategy that trains against it, and is added too.

    Attributes:
        share_of_new: Share of the response's games that are against the new strategy; the rule moves the rest.
        new_mode: Mode in which the new strategy is played as a member; the paper adds its average over training, which an algorithm may
            publish as a mode of its own (NFSP's `average`).
    """

    share_of_new: float = Field(0.5, ge=0, le=1)
    new_mode: str = "explore"

    @property
    def modes(self) -> frozenset[str]:
        return super().modes | {self.new_mode}


class SelfPlayPSROScheduler(AnytimePSROScheduler):
    """In each generation a population gets a response, and a new strategy that has trained against the other's response."""

    options: SelfPlayPSROOptions
    together = 2

    def groups(self, population: int, view: View, solution: MetaSolution) -> Sequence[Sequence[TrainingTask]]:
        """Return pairs of a response and the new strategy that it meets."""
        seats = self.seats(population)
        other = population if len(seats) == 2 else self.population[1 - seats[0]]
        return [self._pair(task, other, k) for k, task in enumerate(self.tasks(population, view, solution))]

    def _pair(self, response: TrainingTask, other: int, k: int) -> list[TrainingTask]:
        generation, label = response.generation, f"-{k + 1}" if k else ""
        name = f"{other}-{generation}-new{label}"
        seats = self.seats(other)
        assert isinstance(response.opponents, AdaptiveMixture)
        start = response.opponents.start
        live = PolicyRef(other, name, None)
        factors = tuple(
            _shared(f, live, self.options.share_of_new) if f.seats[0] in seats else f for f in start.factors
        )
        opponent = PolicyRef(response.population, response.policy, None)
        own_seats = self.seats(response.population)
        against = tuple(
            OpponentFactor(f.seats, ((opponent,),), (1.0,)) if f.seats[0] in own_seats else f for f in start.factors
        )
        new = TrainingTask(
            id=f"new-{other}-{generation}{label}",
            generation=generation,
            population=other,
            seats=seats,
            policy=name,
            opponents=Mixture(against),
            mode=self.options.new_mode,
        )
        moving = replace(response.opponents, start=replace(start, factors=factors))
        return [replace(response, opponents=moving), new]


def _shared(factor: OpponentFactor, live: PolicyRef, share: float) -> OpponentFactor:
    """`live` has `share`, and the others what is left."""
    probs = (share, *((1.0 - share) * p for p in factor.probs))
    return OpponentFactor(factor.seats, ((live,), *factor.entries), probs)


def weight_for_new_policies(probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64[n]: those without weight get a uniform share each, as a rule that multiplies weights would never move them from
    zero."""
    new = probs == 0
    return np.where(new, 1.0 / len(probs), probs * (1.0 - new.mean()))


def _marginal(mixture: Mixture, seat: int, refs: Sequence[PolicyRef]) -> NDArray[np.float64]:
    """Return float64[n]: what a seat plays; live refs are members by now."""
    place = {ref.policy: i for i, ref in enumerate(refs)}
    probs = np.zeros(len(refs))
    for ref, share in _entries(mixture, seat):
        probs[place[ref.policy]] += share
    return np.asarray(probs / probs.sum())


def _entries(mixture: Mixture, seat: int) -> Iterator[tuple[PolicyRef, float]]:
    for factor in mixture.factors:
        if seat in factor.seats:
            for entry, share in zip(factor.entries, factor.probs, strict=True):
                yield entry[factor.seats.index(seat)], share
