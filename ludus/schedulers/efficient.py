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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ludus.core.errors import ConfigError
from ludus.core.types import Adaptive, EvaluationTask, Mixture, PolicyRef, State, Task, Trained, TrainingTask
from ludus.population.base import View
from ludus.schedulers.anytime import AnytimePSROScheduler, with_newcomers
from ludus.schedulers.diversity import DiversityRule
from ludus.schedulers.queue import alone
from ludus.schedulers.responses import Target
from ludus.schedulers.warm_start import WarmStart
from ludus.solvers.fixed import Uniform


class EfficientPSROScheduler(AnytimePSROScheduler):
    """State beyond that of `AnytimePSROScheduler`: how many levels the generation in training has."""

    def __init__(
        self,
        *,
        generations: int,
        population: tuple[int, ...],
        seed: int,
        levels: int = 1,
        rule: str = "hedge",
        rule_options: Mapping[str, Any] | None = None,
        begin: Literal["uniform", "last"] = "uniform",
        warm_start: tuple[WarmStart, ...] = (),
        diversity: DiversityRule | None = None,
        mode: str = "greedy",
    ) -> None:
        """levels: unrestricted-restricted games that are played at once, each of which adds a policy to each population. begin: the mixture
        that they begin with, uniform, or the mean of the last one, in which policies without weight get a uniform share. The rest: see
        `PSROScheduler` and `AnytimePSROScheduler`. Raises ConfigError for other than two players, and for what would need payoffs."""
        if len(population) != 2:
            raise ConfigError(f"efficient PSRO is for two players; this game has {len(population)}.")
        if levels < 1:
            raise ConfigError(f"efficient PSRO trains at least one level at a time; levels is {levels}.")
        if any(rule.source == "best" for rule in warm_start):
            raise ConfigError(
                "warm_start best compares payoffs, and efficient PSRO has none; use last, random or file."
            )
        if diversity is not None and diversity.moves:
            raise ConfigError(
                f"{type(diversity).__name__} reads payoffs, and efficient PSRO has none; use behavioural diversity."
            )
        super().__init__(
            solver=Uniform(),  # of algorithms that moved nothing
            generations=generations,
            population=population,
            seed=seed,
            rule=rule,
            rule_options=rule_options,
            begin=begin,
            warm_start=warm_start,
            diversity=diversity,
            mode=mode,
        )
        self.levels = levels
        self.together = levels * len(self.populations) if levels > 1 else 1
        self._training = levels

    def _plan(self, view: View) -> Sequence[Sequence[Task]]:
        """No match is played."""
        groups: list[Sequence[Task]] = []
        if self.solution is None:
            self.solution = self.solve(view)
            name = f"exploitability-{self.generation}"
            groups += alone([EvaluationTask(name, self.generation, solution=self.solution)])
        if self.generation < self.generations and not self._asked:
            self._asked, self._training = True, self.levels
            tasks = [self._level(k, level, view) for level in range(1, self.levels + 1) for k in self.populations]
            groups += [tasks] if self.levels > 1 else alone(tasks)
        return groups

    def _level(self, population: int, level: int, view: View) -> TrainingTask:
        """The response of a population in a level."""
        assert self.solution is not None
        target = Target(self.seats(population), self.solution, np.empty(0))
        task = self._response(population, target, view, label=self._label(level))
        return replace(task, opponents=self._restricted(level, view))

    def _restricted(self, level: int, view: View) -> Adaptive:
        """The members, and the levels below."""
        assert self.solution is not None
        marginals = {}
        for player, which in enumerate(self.population):
            known = view.populations[which]
            below = [PolicyRef(which, self._name(which, lower), None) for lower in range(1, level)]
            probs = np.full(len(known) + len(below), 1.0 / (len(known) + len(below)))
            if self.begin == "last":
                probs = with_newcomers(np.append(self.solution.strategies[player], np.zeros(len(below))))
            marginals[player] = ((*known, *below), probs.tolist())
        return Adaptive(Mixture.product(marginals), self.rule, self.rule_options, moves_live=True)

    def _label(self, level: int) -> str:
        return f"-{level}" if self._training > 1 else ""

    def _name(self, population: int, level: int) -> str:
        """Of the policy that it trains in this generation."""
        return f"{population}-{self.generation + 1}{self._label(level)}"

    def trained(self, result: Trained) -> None:
        """The mixture that the last level has met is what is announced."""
        if result.ref.policy == self._name(result.task.population, self._training):
            super().trained(result)

    def state_dict(self) -> State:
        return {**super().state_dict(), "training": self._training}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._training = int(state["training"])
