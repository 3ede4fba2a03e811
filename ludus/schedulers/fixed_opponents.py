"""Plain (multi-agent) reinforcement learning: train against opponents that do not learn, or against nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ludus.errors import ConfigError, nearest
from ludus.meta_solvers.base import Solution
from ludus.meta_solvers.last import Last
from ludus.population.base import View
from ludus.schedulers.chunked import Chunked
from ludus.schedulers.queue import alone
from ludus.schedulers.sampling import Sampling
from ludus.types import Mixture, PolicyRef, TrainingTask


class FixedOpponents(Chunked):
    """One learner for each population of `learners`; they do not meet each other. Each chunk's snapshot becomes a member."""

    def __init__(
        self,
        *,
        population: tuple[int, ...],
        chunks: int = 1,
        seed: int = 0,
        learners: tuple[int, ...] = (0,),
        opponents: Mixture | None = None,
        start: PolicyRef | str | None = None,
        mode: str = "explore",
        sampling: Sampling | None = None,
        complete: bool = False,
    ) -> None:
        """learners: populations. opponents: over members, for all seats; None: the first member of each population. In a game of one player
        nobody is met, whatever they are. start: of each learner, also of one that a run goes on with and that did not train in the last
        chunk. The rest: see `Chunked`. Raises ConfigError for no learners, for one given twice, and if a population does not exist."""
        super().__init__(
            population=population,
            chunks=chunks,
            seed=seed,
            solver=Last(),
            mode=mode,
            sampling=sampling,
            complete=complete,
        )
        if unknown := set(learners) - set(self.populations):
            raise ConfigError(f"learners are populations; given {sorted(unknown)}, there are {list(self.populations)}.")
        if not learners or len(set(learners)) < len(learners):
            raise ConfigError(f"learners are one or more populations, each once; given {list(learners)}.")
        self.learners, self.opponents, self.start = learners, opponents, start

    def groups(self, view: View) -> Sequence[Sequence[TrainingTask]]:
        """One task per learner."""
        opponents = self._mixture(view)
        return alone([self._task(k, opponents, self._before(k, view)) for k in self.learners])

    def _before(self, population: int, view: View) -> str | None:
        """A learner's task of the last chunk; None if it has no snapshot of it, as when it was added to `learners` since."""
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
            mode=self.mode,
            keep=True,
            length=self.chunks,
            **self.source(population, before, self.start),
        )

    def _mixture(self, view: View) -> Mixture:
        """The opponents. Raises ConfigError if one of them is no member."""
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

    def solution(self, view: View) -> Solution:
        """The newest snapshot of each learner; the others play their share of the opponents."""
        mixture, marginals = self._mixture(view), []
        for player, which in enumerate(self.population):
            refs = view.populations[which]
            probs = np.zeros(len(refs))
            if which in self.learners:
                probs[-1] = 1.0
            else:
                place = {ref.policy: i for i, ref in enumerate(refs)}
                (factor,) = (f for f in mixture.factors if player in f.seats)
                column = factor.seats.index(player)
                for entry, share in zip(factor.entries, factor.probs, strict=True):
                    probs[place[entry[column].policy]] += share
            marginals.append(probs)
        return Solution(tuple(marginals), np.nan)
