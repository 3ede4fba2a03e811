"""Efficient PSRO (Zhou, Chen, Wen et al. 2022, "Efficient policy space response oracles") for two-player zero-sum games.

Each generation plays an unrestricted-restricted game: a response, which may be any policy, against a mixture of the other player's members,
which a no-regret rule moves by the results of the very episodes that the response trains on. What the mixture was on average is the
player's meta-strategy. So no match is played for a table of payoffs, and nothing is solved.

Several such games may be played at once, level by level: the mixture that a level meets is over all members and the levels below it, which
train beside it and are met live; the rule moves these too.

    level 1    response --- mixture of the members
    level 2    response --- mixture of the members and level 1 (live)
    level 3    response --- mixture of the members, level 1 and level 2 (live)

All levels become members. What is announced is the mean mixture of the last level, whose restricted game holds those of the others.

In an unrestricted-restricted game that is solved, the mixture is the least exploitable one of its members, and members are never taken
away: exploitability does not rise. That takes responses that are best ones and a rule that has come to rest; of short training it is a
tendency.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from ludus.core import seeding
from ludus.core.types import (
    AdaptiveMixture,
    MetaSolution,
    Mixture,
    PolicyRef,
    State,
    Task,
    TrainingResult,
    TrainingTask,
)
from ludus.metagame.population.base import View
from ludus.metagame.solvers.fixed import Uniform
from ludus.schedulers.anytime import MeanMixtures, MovedMixtureOptions, weight_for_new_policies
from ludus.schedulers.planning import announcement, one_task_per_group, require_two_players
from ludus.schedulers.psro import ResponseScheduler


class EfficientPSROOptions(MovedMixtureOptions):
    """Efficient PSRO (Zhou et al. 2022): a response trains against a mixture of all members, which a no-regret rule moves by the same
    episodes; its mean is what is announced. No match is played for payoffs, so that there is no meta-game and no meta-solver.
    `warm_start` and `diversity` are as in psro, where they need no payoffs. Two players.

    Attributes:
        levels: Number of such games that are played at once, each of which adds a policy to each population; each also meets the live
            responses of those below it.
    """

    lacks_payoffs: ClassVar[str] = ", and efficient PSRO has none"

    rule: str = "hedge"
    levels: int = Field(1, ge=1)

    @property
    def reads_payoffs(self) -> bool:
        return False


class EfficientPSROScheduler(ResponseScheduler):
    """State beyond that of its base: the mean mixtures, and how many levels the generation in training has."""

    options: EfficientPSROOptions

    def __init__(self, options: EfficientPSROOptions, *, population: tuple[int, ...]) -> None:
        """population: [2] index of each player's population. Raises ConfigError for other than two players."""
        require_two_players(population, "efficient PSRO is")
        super().__init__(options, population=population)
        self.together = options.levels * len(self.populations) if options.levels > 1 else 1
        self._training = options.levels
        self._means = MeanMixtures(population)

    def _plan(self, view: View) -> Sequence[Sequence[Task]]:
        """Return the next tasks; no match is played."""
        groups: list[Sequence[Task]] = []
        if self.solution is None:
            self.solution = self._solve(view)
            groups += one_task_per_group([announcement(self.generation, self.solution)])
        if self.generation < self.options.generations and not self._asked:
            levels = self.options.levels
            self._asked, self._training = True, levels
            tasks = [self._level(k, level, view) for level in range(1, levels + 1) for k in self.populations]
            groups += [tasks] if levels > 1 else one_task_per_group(tasks)
        return groups

    def _solve(self, view: View) -> MetaSolution:
        """Return the means of the last mixtures; of algorithms that moved nothing, all members alike."""
        rng = seeding.generator(self.options.seed, "solve", self.generation)
        return self._means.solution(view) or Uniform().solve(view.payoffs, rng=rng)

    def _level(self, population: int, level: int, view: View) -> TrainingTask:
        """Return the response of a population in a level."""
        return self.response(population, self._restricted(level, view), view, label=self._label(level))

    def _restricted(self, level: int, view: View) -> AdaptiveMixture:
        """Return the members, and the levels below."""
        assert self.solution is not None
        marginals = {}
        for player, which in enumerate(self.population):
            known = view.populations[which]
            below = [PolicyRef(which, self._name(which, lower), None) for lower in range(1, level)]
            probs = np.full(len(known) + len(below), 1.0 / (len(known) + len(below)))
            if self.options.begin == "last":
                probs = weight_for_new_policies(np.append(self.solution.strategies[player], np.zeros(len(below))))
            marginals[player] = ((*known, *below), probs.tolist())
        return AdaptiveMixture(
            Mixture.product(marginals), self.options.rule, self.options.rule_options, moves_live=True
        )

    def _label(self, level: int) -> str:
        return f"-{level}" if self._training > 1 else ""

    def _name(self, population: int, level: int) -> str:
        """Return the name of the policy that it trains in this generation."""
        return f"{population}-{self.generation + 1}{self._label(level)}"

    def trained(self, result: TrainingResult, view: View) -> None:
        """Record the mixture that the last level has played against, which is announced."""
        if result.ref.policy == self._name(result.task.population, self._training):
            self._means.record(result)

    def state_dict(self) -> State:
        return {**super().state_dict(), "averages": self._means.state_dict(), "training": self._training}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._means.load_state_dict(state["averages"])
        self._training = int(state["training"])
