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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from ludus.core.errors import ConfigError
from ludus.core.types import Adaptive, Factor, Mixture, PolicyRef, Solution, State, Trained, TrainingTask
from ludus.population.base import View
from ludus.schedulers.psro import PSROScheduler
from ludus.schedulers.responses import Target

_AVERAGES = TypeAdapter(dict[str, Mixture])


class AnytimePSROScheduler(PSROScheduler):
    """State beyond PSRO's: the mean mixture of each population's last task."""

    def __init__(
        self,
        *,
        rule: str = "regret_matching_plus",
        rule_options: Mapping[str, Any] | None = None,
        begin: Literal["uniform", "last"] = "uniform",
        **options: Any,
    ) -> None:
        """rule, rule_options: of `Adaptive`. begin: the distribution that a task begins with, uniform over the population or the last
        meta-strategy, in which policies without weight get a uniform share. Options: those of `PSROScheduler`; its solver serves
        generation 0, and algorithms that move nothing. Raises ConfigError for other than two players: only there is a distribution moved by
        one response, that of its only opponent."""
        super().__init__(**options)
        if len(self.population) != 2:
            raise ConfigError(f"anytime and self-play PSRO are for two players; this game has {len(self.population)}.")
        self.rule, self.rule_options, self.begin = rule, dict(rule_options or {}), begin
        self._averages: dict[str, Mixture] = {}  # population that has trained -> what its opponents have played

    def trained(self, result: Trained) -> None:
        """Keep what the rule has come to."""
        if isinstance(result.task.opponents, Adaptive):
            self._averages.pop(str(result.task.population), None)
            if result.average is not None:
                self._averages[str(result.task.population)] = result.average

    def solve(self, view: View) -> Solution:
        """The means of the last distributions. New policies have no weight in them yet, as in the paper."""
        marginals = []
        for player, which in enumerate(self.population):
            by = self._averages.get(str(self.population[1 - player]))  # what the other player's response has met
            if by is None:
                return super().solve(view)
            marginals.append(_marginal(by, player, view.populations[which]))
        return Solution(tuple(marginals), np.nan)

    def opponents(self, target: Target, view: View) -> Adaptive:
        """All members, whatever their weight is now."""
        marginals = {}
        for player, which in enumerate(self.population):
            refs = view.populations[which]
            uniform = np.full(len(refs), 1.0 / len(refs))
            probs = uniform if self.begin == "uniform" else with_newcomers(target.opponents.strategies[player])
            marginals[player] = (refs, probs.tolist())
        return Adaptive(Mixture.product(marginals), self.rule, self.rule_options)

    def state_dict(self) -> State:
        return {**super().state_dict(), "averages": _AVERAGES.dump_python(self._averages, mode="json")}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._averages = _AVERAGES.validate_python(state["averages"])


class SelfPlayPSROScheduler(AnytimePSROScheduler):
    """In each generation a population gets a response, and a new strategy that has trained against the other's response."""

    together = 2

    def __init__(self, *, share: float = 0.5, new_mode: str = "explore", **options: Any) -> None:
        """share: of a response's games, against the new strategy; the rule moves the rest. new_mode: in which the new strategy is played;
        the paper adds its average over training, which an algorithm may publish as a mode of its own (NFSP's `average`). Options:
        those of `AnytimePSROScheduler`. Raises ConfigError for a share that is none."""
        super().__init__(**options)
        if not 0 <= share <= 1:
            raise ConfigError(f"share is a share of the games, from 0 to 1; given {share}.")
        self.share, self.new_mode = share, new_mode

    def groups(self, population: int, view: View, solution: Solution) -> Sequence[Sequence[TrainingTask]]:
        """Pairs of a response and the new strategy that it meets."""
        seats = self.seats(population)
        other = population if len(seats) == 2 else self.population[1 - seats[0]]
        return [self._pair(task, other, k) for k, task in enumerate(self.tasks(population, view, solution))]

    def _pair(self, response: TrainingTask, other: int, k: int) -> list[TrainingTask]:
        generation, label = response.generation, f"-{k + 1}" if k else ""
        name = f"{other}-{generation}-new{label}"
        seats = self.seats(other)
        assert isinstance(response.opponents, Adaptive)
        start = response.opponents.start
        live = PolicyRef(other, name, None)
        factors = tuple(_shared(f, live, self.share) if f.seats[0] in seats else f for f in start.factors)
        met = PolicyRef(response.population, response.policy, None)
        mine = self.seats(response.population)
        against = tuple(Factor(f.seats, ((met,),), (1.0,)) if f.seats[0] in mine else f for f in start.factors)
        new = TrainingTask(
            id=f"new-{other}-{generation}{label}",
            generation=generation,
            population=other,
            seats=seats,
            policy=name,
            opponents=Mixture(against),
            mode=self.new_mode,
        )
        moving = replace(response.opponents, start=replace(start, factors=factors))
        return [replace(response, opponents=moving), new]


def _shared(factor: Factor, live: PolicyRef, share: float) -> Factor:
    """`live` has `share`, and the others what is left."""
    probs = (share, *((1.0 - share) * p for p in factor.probs))
    return Factor(factor.seats, ((live,), *factor.entries), probs)


def with_newcomers(probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[n]: those without weight get a uniform share each, as a rule that multiplies weights would never move them from zero."""
    new = probs == 0
    return np.where(new, 1.0 / len(probs), probs * (1.0 - new.mean()))


def _marginal(mixture: Mixture, seat: int, refs: Sequence[PolicyRef]) -> NDArray[np.float64]:
    """float64[n]: what a seat plays; live refs are members by now."""
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
