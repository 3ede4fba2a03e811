"""Pipeline PSRO (McAleer et al. 2020, "Pipeline PSRO: a scalable approach for finding approximate Nash equilibria in large games").

Several levels of each population train at once. A level responds to the meta-equilibrium of the levels below it, those included that
still train, whose newest weights it plays. The lowest that trains plays frozen policies only, so it is an ordinary best response; when
it no longer improves it is frozen, and a new level begins on top. So the frozen levels are PSRO's generations, and the levels above
them have had a start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import TypeAdapter

from ludus.core import seeding
from ludus.core.errors import ConfigError, RunError
from ludus.core.types import Diversity, PolicyRef, Solution, State, Trained, TrainingTask
from ludus.population.base import View
from ludus.schedulers.chunked import Chunked
from ludus.schedulers.diversity import DiversityRule
from ludus.schedulers.responses import opponents, values_of
from ludus.schedulers.sampling import Sampling
from ludus.schedulers.subgame import Places, lifted, restricted
from ludus.solvers.base import MetaSolver


@dataclass(frozen=True, slots=True)
class PipelineLevel:
    """ages, places: chunks that it has trained, and places of its newest snapshots, one per population. settled: chunks since all the
    levels below are frozen. values: what the snapshots earned against these before the last chunk; empty: not known yet."""

    number: int
    ages: tuple[int, ...]
    places: tuple[int, ...]
    settled: int = 0
    values: tuple[float, ...] = ()
    frozen: bool = False


_LEVELS = TypeAdapter(tuple[PipelineLevel, ...])


class PipelinePSROScheduler(Chunked):
    """State beyond the chunk: the levels, lowest first, and how many initial policies there are below them."""

    def __init__(
        self,
        *,
        solver: MetaSolver,
        generations: int,
        population: tuple[int, ...],
        seed: int,
        levels: int = 3,
        least: int = 1,
        most: int = 10,
        improvement: float = 0.0,
        start: PolicyRef | str | None = None,
        diversity: DiversityRule | None = None,
        mode: str = "greedy",
        sampling: Sampling | None = None,
    ) -> None:
        """generations: levels that are frozen in the end. levels: of them train at once. The lowest is frozen when the levels below it have
        been frozen for `most` chunks, or for `least`, and the last one has raised the payoff of none of its policies by more than
        `improvement`. start: of each level. diversity: how levels are made to differ from the frozen ones below them, by another rule than
        their opponents'. mode: in which snapshots are played, once they are not live. The rest: see `Chunked`. Raises ConfigError for
        numbers that make no sense."""
        super().__init__(
            population=population,
            chunks=generations * most,
            seed=seed,
            solver=solver,
            mode=mode,
            sampling=sampling,
        )
        if levels < 1 or not 1 <= least <= most:
            raise ConfigError(
                f"a pipeline has a level that trains, and least is from 1 to most; given levels: {levels}, least: {least}, most: {most}."
            )
        self.generations, self.levels = generations, levels
        self.least, self.most, self.improvement, self.start = least, most, improvement, start
        self.together = max(1, min(levels, generations)) * len(self.populations)
        self.diversity = diversity
        self._levels: tuple[PipelineLevel, ...] = ()
        self._initial: tuple[int, ...] = ()

    @property
    def over(self) -> bool:
        return sum(level.frozen for level in self._levels) >= self.generations

    @property
    def _active(self) -> list[PipelineLevel]:
        return [level for level in self._levels if not level.frozen]

    # ------------------------------------------------------------------------------------------ the restricted game

    def _begin(self, view: View) -> None:
        if not self._initial:
            self._initial = tuple(len(view.populations[k]) for k in self.populations)

    def _grow(self) -> None:
        """As many levels as there may be at once."""
        none = (0,) * len(self.populations)
        while len(self._active) < self.levels and len(self._levels) < self.generations:
            self._levels += (PipelineLevel(len(self._levels) + 1, ages=none, places=none),)

    def _places(self, below: int) -> Places:
        """The initial policies, and the newest snapshots of the levels under `below`."""
        known = [level for level in self._levels if level.number < below and min(level.ages) > 0]
        return {
            k: [*range(self._initial[i]), *(level.places[i] for level in known)] for i, k in enumerate(self.populations)
        }

    def _solve(self, below: int, view: View) -> Solution:
        """The meta-strategies of the levels under `below`, among all policies."""
        places = self._places(below)
        rng = seeding.generator(self.seed, "solve", self.chunk, below)
        part = restricted(self.sampling.completed(view.payoffs), places)
        return lifted(self.solver.solve(part, rng=rng), view.payoffs, places)

    def _values(self, level: PipelineLevel, view: View) -> tuple[float, ...]:
        """What each population's newest snapshot of a level earns against the levels below, in the mean over its seats."""
        places = self._places(level.number + 1)
        part = restricted(self.sampling.completed(view.payoffs), places)
        below = {k: range(len(some) - 1) for k, some in places.items()}  # the level itself comes last
        rng = seeding.generator(self.seed, "values", self.chunk, level.number)
        against = lifted(self.solver.solve(restricted(part, below), rng=rng), part, below)
        return tuple(
            float(np.mean([values_of(part.mean, against, seat)[-1] for seat in self.seats(k)]))
            for k in self.populations
        )

    # ------------------------------------------------------------------------------------------ results

    def game(self, view: View) -> Places:
        """Among the initial policies and the newest snapshots."""
        self._begin(view)
        return self._places(len(self._levels) + 1)

    def review(self, view: View) -> None:
        """Freeze the lowest level that trains, if it no longer improves."""
        self._begin(view)
        if not self._active or not min(self._active[0].ages):
            return
        lowest = self._active[0]
        values = self._values(lowest, view)
        better = not lowest.values or any(
            new - old > self.improvement for new, old in zip(values, lowest.values, strict=True)
        )
        lowest = replace(lowest, settled=lowest.settled + 1, values=values)
        done = lowest.settled >= self.most or (lowest.settled >= self.least and not better)
        self._put(replace(lowest, frozen=done))
        if done:
            for following in self._active[:1]:
                if min(following.ages) > 0:
                    self._put(replace(following, values=self._values(following, view)))

    def _put(self, level: PipelineLevel) -> None:
        self._levels = tuple(level if old.number == level.number else old for old in self._levels)

    def trained(self, result: Trained, view: View) -> None:
        """A new snapshot of a level."""
        population = result.task.population
        i = self.populations.index(population)
        (level,) = (v for v in self._active if self._task_id(population, v, v.ages[i] + 1) == result.task.id)
        place = [ref.policy for ref in view.populations[population]].index(result.ref.policy)
        self._put(
            replace(level, ages=_with(level.ages, i, level.ages[i] + 1), places=_with(level.places, i, place)),
        )

    def solution(self, view: View) -> Solution:
        """Over all levels."""
        return self._solve(len(self._levels) + 1, view)

    # ------------------------------------------------------------------------------------------ tasks

    def groups(self, view: View) -> Sequence[Sequence[TrainingTask]]:
        """One task per level and population, all together. Levels that may begin do so here, also when a run goes on with more of them."""
        self._grow()
        refs, tasks = self._refs(view), list[TrainingTask]()
        for level in self._active:
            against = self._solve(level.number, view)
            tasks += [self._task(level, i, refs, against) for i in range(len(self.populations))]
        return [tasks]

    def _refs(self, view: View) -> tuple[tuple[PolicyRef, ...], ...]:
        """[P] how each player's policies are played: snapshots of levels that train by their newest weights."""
        now = [list(refs) for refs in view.populations]
        for level in self._active:
            for i, k in enumerate(self.populations):
                if level.ages[i]:
                    now[k][level.places[i]] = PolicyRef(k, self._policy(k, level, level.ages[i] + 1), None)
        return tuple(tuple(now[k]) for k in self.population)

    def _task(
        self, level: PipelineLevel, i: int, refs: tuple[tuple[PolicyRef, ...], ...], against: Solution
    ) -> TrainingTask:
        population, age = self.populations[i], level.ages[i]
        return TrainingTask(
            id=self._task_id(population, level, age + 1),
            generation=self.chunk + 1,
            population=population,
            seats=self.seats(population),
            policy=self._policy(population, level, age + 1),
            opponents=opponents(against, refs),
            mode=self.mode,
            diversity=self._objective(level, i, refs),
            keep=True,
            length=0,
            **self.source(population, self._task_id(population, level, age) if age else None, self.start),
        )

    def _objective(self, level: PipelineLevel, i: int, refs: tuple[tuple[PolicyRef, ...], ...]) -> Diversity | None:
        """Whom a level is to differ from: an initial policy, and the frozen levels below it."""
        if self.diversity is None:
            return None
        known = refs[self.seats(self.populations[i])[0]]
        below = [lower.places[i] for lower in self._levels if lower.frozen and lower.number < level.number]
        return self.diversity.objective([known[place] for place in (0, *below)])

    @staticmethod
    def _policy(population: int, level: PipelineLevel, age: int) -> str:
        return f"{population}-{level.number}-{age}"

    def _task_id(self, population: int, level: PipelineLevel, age: int) -> str:
        return f"level-{self._policy(population, level, age)}"

    def state_dict(self) -> State:
        levels = _LEVELS.dump_python(self._levels, mode="json")
        return {**super().state_dict(), "levels": levels, "initial": list(self._initial)}

    def load_state_dict(self, state: State) -> None:
        """With more levels or generations the pipeline grows. Raises RunError if more levels train in it than may."""
        levels = _LEVELS.validate_python(state["levels"])
        training = sum(not level.frozen for level in levels)
        if training > min(self.levels, self.generations):
            raise RunError(
                f"{training} levels of the saved pipeline train at once, which is more than the options allow: levels: {self.levels}, "
                f"generations: {self.generations}. Go on with at least {training} of both, or start a new run."
            )
        super().load_state_dict(state)
        self._levels = levels
        self._initial = tuple(int(n) for n in state["initial"])


def _with(values: tuple[int, ...], i: int, value: int) -> tuple[int, ...]:
    return (*values[:i], value, *values[i + 1 :])
