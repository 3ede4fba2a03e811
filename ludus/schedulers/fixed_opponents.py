"""Plain (multi-agent) reinforcement learning: train against opponents that do not learn, or against nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BeforeValidator, Field

from ludus.core.errors import ConfigError, RunError, nearest
from ludus.core.types import Mixture, State, TrainingTask
from ludus.metagame.population.base import View
from ludus.metagame.solvers.base import MetaSolution
from ludus.metagame.solvers.match_selection import PolicyProfile
from ludus.schedulers.config import PlayMode
from ludus.schedulers.planning import (
    ChunkedOptions,
    ChunkedScheduler,
    MatchSelection,
    one_task_per_group,
    pack_mixture,
    unpack_mixture,
)


def _several(value: Any) -> Any:
    several = (value,) if isinstance(value, int | str) else value
    if not isinstance(several, list | tuple):
        return several
    return tuple(int(one) if isinstance(one, str) and one.isdecimal() else one for one in several)


class FixedOpponentsOptions(ChunkedOptions):
    """Train against opponents that do not learn, or, in a task of one player, against nothing.

    Attributes:
        opponents: Policies and bots (`Opponent`), drawn by their weights in each episode, for each seat by itself; they are copied into
            the run. Without any they play uniformly at random.
        learners: The populations that learn; in a scenario also the names of their agents.
        mode: How snapshots are played; each generation adds one.
        start: The file of a policy that each learner starts from, also one that a run goes on with and that did not train in the last
            chunk.
    """

    by_weight: ClassVar[bool] = True

    generations: int = Field(1, ge=0)
    learners: Annotated[tuple[int | str, ...], BeforeValidator(_several)] = (0,)
    mode: PlayMode = "explore"

    def meets_first(self, population: Sequence[int]) -> bool:
        return any(opponent.policy == "random" for opponent in self.opponents)


class FixedOpponentsScheduler(ChunkedScheduler):
    """One learner for each population of `learners`; they do not meet each other. Each chunk's snapshot becomes a member.

    opponents: over members, for all seats; None: the first member of each population. In a game of one player nobody is met, whatever they
    are. Where opponents were given, the payoffs of the newest snapshots against them are found out.
    """

    options: FixedOpponentsOptions

    def __init__(
        self, options: FixedOpponentsOptions, *, population: tuple[int, ...], selection: MatchSelection | None = None
    ) -> None:
        """As `ChunkedScheduler`. Raises ConfigError for no learners, for one given twice, and if a population does not exist."""
        super().__init__(options, population=population, selection=selection)
        learners = tuple(one for one in options.learners if isinstance(one, int))
        if names := [one for one in options.learners if isinstance(one, str)]:
            raise ConfigError(f"learners are populations here; given {names}, there are {list(self.populations)}.")
        self.learners = learners
        if unknown := set(learners) - set(self.populations):
            raise ConfigError(f"learners are populations; given {sorted(unknown)}, there are {list(self.populations)}.")
        if not learners or len(set(learners)) < len(learners):
            raise ConfigError(f"learners are one or more populations, each once; given {list(learners)}.")
        self.opponents: Mixture | None = None
        self._lacking: tuple[int, ...] = ()  # seats that no opponent was given for

    @property
    def opponent_seats(self) -> tuple[int, ...]:
        """Seats in which the learners meet somebody: a learner sits in each seat of its population in turn."""
        seats = range(len(self.population))
        return tuple(q for q in seats if any(p != q for k in self.learners for p in self.seats(k)))

    def set_opponents(self, opponents: Mixture, *, lacking: tuple[int, ...] = ()) -> None:
        """See `TakesOpponents`."""
        self.opponents, self._lacking = opponents, lacking

    def groups(self, view: View) -> Sequence[Sequence[TrainingTask]]:
        """Return one task per learner."""
        opponents = self._mixture(view)
        return one_task_per_group([self._task(k, opponents, self._before(k, view)) for k in self.learners])

    def _before(self, population: int, view: View) -> str | None:
        """Return a learner's task of the last chunk; None if it has no snapshot of it, as when it was added to `learners` since."""
        trained = any(ref.policy == self._policy(population, self.chunk) for ref in view.populations[population])
        return f"chunk-{self._policy(population, self.chunk)}" if self.chunk and trained else None

    @staticmethod
    def _policy(population: int, chunk: int) -> str:
        return f"{population}-{chunk}"

    def _task(self, population: int, opponents: Mixture, before: str | None) -> TrainingTask:
        chunk = self.chunk + 1
        return TrainingTask(
            id=f"chunk-{self._policy(population, chunk)}",
            generation=chunk,
            population=population,
            seats=self.seats(population),
            policy=self._policy(population, chunk),
            opponents=opponents,
            mode=self.options.mode,
            keep=True,
            length=self.options.chunks,
            **self.source(population, before, self.options.start),
        )

    def _mixture(self, view: View) -> Mixture:
        """Return the opponents. Raises ConfigError if one of them is no member."""
        if self.opponents is None:
            return Mixture.product({p: ([view.populations[k][0]], [1.0]) for p, k in enumerate(self.population)})
        known = [{ref.policy for ref in refs} for refs in view.populations]
        for factor in self.opponents.factors:
            for entry in factor.entries:
                for seat, ref in zip(factor.seats, entry, strict=True):
                    which = self.population[seat]
                    if ref.population != which or ref.policy not in known[which]:
                        raise ConfigError(
                            f"opponent {ref.policy!r} of seat {seat} is no member of population {which}"
                            f"{nearest(ref.policy, known[which])} Add it to the population first."
                        )
        return self.opponents

    def _newest(self, population: int, view: View) -> int:
        """Return the place of a learner's newest snapshot, or of the policy that was there first; opponents are not its own."""
        factors = () if self.opponents is None else self.opponents.factors
        opponents = {(ref.population, ref.policy) for f in factors for entry in f.entries for ref in entry}
        refs = view.populations[population]
        return max((i for i, ref in enumerate(refs) if (ref.population, ref.policy) not in opponents), default=0)

    def needed(self, view: View) -> Iterator[PolicyProfile]:
        """Yield what each learner's newest snapshot earns against the opponents that were given, in each of its seats."""
        if self.opponents is None:
            return
        mixture = self._mixture(view)
        place = {(ref.population, ref.policy): i for refs in view.populations for i, ref in enumerate(refs)}
        for population in self.learners:
            newest = self._newest(population, view)
            for seat in self.seats(population):
                entries = [f.entries[:1] if f.seats == (seat,) else f.entries for f in mixture.factors]
                for combination in product(*entries):
                    cell = [0] * len(self.population)
                    for factor, entry in zip(mixture.factors, combination, strict=True):
                        for other, ref in zip(factor.seats, entry, strict=True):
                            cell[other] = newest if other == seat else place[ref.population, ref.policy]
                    yield tuple(cell)

    def solution(self, view: View) -> MetaSolution:
        """Return the newest snapshot of each learner; the others play their share of the opponents."""
        mixture, marginals = self._mixture(view), []
        for player, which in enumerate(self.population):
            refs = view.populations[which]
            probs = np.zeros(len(refs))
            if which in self.learners:
                probs[self._newest(which, view)] = 1.0
            else:
                place = {ref.policy: i for i, ref in enumerate(refs)}
                (factor,) = (f for f in mixture.factors if player in f.seats)
                column = factor.seats.index(player)
                for entry, share in zip(factor.entries, factor.probs, strict=True):
                    probs[place[entry[column].policy]] += share
            marginals.append(probs)
        return MetaSolution(tuple(marginals), np.nan)

    def state_dict(self) -> State:
        """Return the state as `ChunkedScheduler`, with the opponents."""
        opponents = None if self.opponents is None else pack_mixture(self.opponents)
        return {**super().state_dict(), "opponents": opponents, "lacking": list(self._lacking)}

    def load_state_dict(self, state: State) -> None:
        """Raise RunError if the learners are others by now, and one of them meets a seat that no opponent was given for."""
        super().load_state_dict(state)
        if state.get("opponents") is not None:
            self.set_opponents(unpack_mixture(state["opponents"]), lacking=tuple(state["lacking"]))
        if empty := set(self.opponent_seats) & set(self._lacking):
            raise RunError(
                f"learners {list(self.learners)} meet somebody in seat {min(empty)}, and the run began with opponents that have no "
                "policy for it. Leave `learners` as they were, or start a new run with `ludus train`."
            )
