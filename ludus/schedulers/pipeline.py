"""Pipeline PSRO (McAleer et al. 2020, "Pipeline PSRO: a scalable approach for finding approximate Nash equilibria in large games").

Several levels of each population train at once. A level responds to the meta-equilibrium of the levels below it, those included that
still train, whose newest weights it plays. The lowest that trains plays frozen policies only, so it is an ordinary best response; when
it no longer improves it is frozen, and a new level begins on top. So the frozen levels are PSRO's generations, and the levels above
them have had a start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from pydantic import Field, TypeAdapter, model_validator

from ludus.core import seeding
from ludus.core.errors import ConfigError, RunError
from ludus.core.types import Diversity, MetaSolution, PolicyRef, State, TrainingResult, TrainingTask
from ludus.metagame.population.base import Places, View
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.registry import solve
from ludus.schedulers.config import ScheduleContext, Solver
from ludus.schedulers.planning import ChunkedOptions, ChunkedScheduler, MatchSelection
from ludus.schedulers.response_diversity import DiversityField, check_diversity
from ludus.schedulers.responses import opponents


class PipelinePSROOptions(ChunkedOptions):
    """Pipeline PSRO (McAleer et al. 2020): several levels of each population train at once, each against the meta-strategy of those
    below. The lowest is frozen when it no longer improves, and a new one begins on top.

    Attributes:
        generations: Levels that are frozen in the end.
        meta_solver: From payoffs to meta-strategies.
        levels: Levels that train at a time.
        least: Chunks since the levels below were frozen, after which the lowest is frozen if the last chunk has not improved it.
        most: Chunks since the levels below were frozen, after which the lowest is frozen in any case.
        improvement: Rise of the payoff of one of its policies in a chunk, above which a level counts as improved.
        start: The file of a policy that each level starts from.
        diversity: Behavioural, from the frozen levels below.
    """

    meta_solver: Solver = "nash"
    levels: int = Field(3, ge=1)
    least: int = Field(1, ge=1)
    most: int = Field(10, ge=1)
    improvement: float = Field(0.0, ge=0)
    diversity: DiversityField = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.least > self.most:
            raise ConfigError(f"a pipeline's least is from 1 to most; given least: {self.least}, most: {self.most}.")
        return self

    @property
    def chunks(self) -> int:
        return self.generations * self.most

    @property
    def needs_learner(self) -> bool:
        return True

    def meets_first(self, population: Sequence[int]) -> bool:
        return True

    def check_schedule(self, context: ScheduleContext) -> None:
        context.check_solver(self.meta_solver)
        super().check_schedule(context)
        for assignment in context.assigned:
            check_diversity(self.diversity, assignment.algorithm, [assignment.policy], moved=True)


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


class PipelinePSROScheduler(ChunkedScheduler):
    """State beyond the chunk: the levels, lowest first, and how many initial policies there are below them."""

    options: PipelinePSROOptions

    def __init__(
        self, options: PipelinePSROOptions, *, population: tuple[int, ...], selection: MatchSelection | None = None
    ) -> None:
        """As `ChunkedScheduler`."""
        super().__init__(options, population=population, selection=selection)
        self.together = max(1, min(options.levels, options.generations)) * len(self.populations)
        self._levels: tuple[PipelineLevel, ...] = ()
        self._initial: tuple[int, ...] = ()

    @property
    def over(self) -> bool:
        return sum(level.frozen for level in self._levels) >= self.options.generations

    @property
    def _active(self) -> list[PipelineLevel]:
        return [level for level in self._levels if not level.frozen]

    # ------------------------------------------------------------------------------------------ the restricted game

    def _begin(self, view: View) -> None:
        if not self._initial:
            self._initial = tuple(len(view.populations[k]) for k in self.populations)

    def _grow(self) -> None:
        """Add as many levels as may train at the same time."""
        none = (0,) * len(self.populations)
        while len(self._active) < self.options.levels and len(self._levels) < self.options.generations:
            self._levels += (PipelineLevel(len(self._levels) + 1, ages=none, places=none),)

    def _places(self, below: int) -> Places:
        """Return the initial policies, and the newest snapshots of the levels under `below`."""
        known = [level for level in self._levels if level.number < below and min(level.ages) > 0]
        return {
            k: [*range(self._initial[i]), *(level.places[i] for level in known)] for i, k in enumerate(self.populations)
        }

    def _solve(self, below: int, view: View) -> MetaSolution:
        """Return the meta-strategies of the levels under `below`, among all policies."""
        places = self._places(below)
        rng = seeding.generator(self.options.seed, "solve", self.chunk, below)
        part = self.payoffs.completed(view.payoffs).part(places)
        return normal_form.lift(solve(self.options.meta_solver, part, rng=rng), view.payoffs, places)

    def _values(self, level: PipelineLevel, view: View) -> tuple[float, ...]:
        """Return what each population's newest snapshot of a level earns against the levels below, in the mean over its seats."""
        places = self._places(level.number + 1)
        part = self.payoffs.completed(view.payoffs).part(places)
        below = {k: range(len(level_places) - 1) for k, level_places in places.items()}  # the level itself comes last
        rng = seeding.generator(self.options.seed, "values", self.chunk, level.number)
        solution = normal_form.lift(solve(self.options.meta_solver, part.part(below), rng=rng), part, below)
        return tuple(
            float(
                np.mean([normal_form.expected_payoffs(part.mean[seat], solution, seat)[-1] for seat in self.seats(k)])
            )
            for k in self.populations
        )

    # ------------------------------------------------------------------------------------------ results

    def game(self, view: View) -> Places:
        """Return the game among the initial policies and the newest snapshots."""
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
            new - old > self.options.improvement for new, old in zip(values, lowest.values, strict=True)
        )
        lowest = replace(lowest, settled=lowest.settled + 1, values=values)
        done = lowest.settled >= self.options.most or (lowest.settled >= self.options.least and not better)
        self._put(replace(lowest, frozen=done))
        if done:
            for following in self._active[:1]:
                if min(following.ages) > 0:
                    self._put(replace(following, values=self._values(following, view)))

    def _put(self, level: PipelineLevel) -> None:
        self._levels = tuple(level if old.number == level.number else old for old in self._levels)

    def trained(self, result: TrainingResult, view: View) -> None:
        """Record a new snapshot of a level."""
        super().trained(result, view)
        population = result.task.population
        i = self.populations.index(population)
        (level,) = (v for v in self._active if self._task_id(population, v, v.ages[i] + 1) == result.task.id)
        place = view.place(result.ref)
        self._put(
            replace(level, ages=_with(level.ages, i, level.ages[i] + 1), places=_with(level.places, i, place)),
        )

    def solution(self, view: View) -> MetaSolution:
        """Return the solution over all levels."""
        return self._solve(len(self._levels) + 1, view)

    # ------------------------------------------------------------------------------------------ tasks

    def groups(self, view: View) -> Sequence[Sequence[TrainingTask]]:
        """Return one task per level and population, all together. Levels that may begin do so here, also when a run goes on with more of
        them."""
        self._grow()
        refs, tasks = self._refs(view), list[TrainingTask]()
        for level in self._active:
            against = self._solve(level.number, view)
            tasks += [self._task(level, i, refs, against) for i in range(len(self.populations))]
        return [tasks]

    def _refs(self, view: View) -> tuple[tuple[PolicyRef, ...], ...]:
        """Return [P] how each player's policies are played: snapshots of levels that train by their newest weights."""
        now = [list(refs) for refs in view.populations]
        for level in self._active:
            for i, k in enumerate(self.populations):
                if level.ages[i]:
                    now[k][level.places[i]] = PolicyRef(k, self._policy(k, level, level.ages[i] + 1), None)
        return tuple(tuple(now[k]) for k in self.population)

    def _task(
        self, level: PipelineLevel, i: int, refs: tuple[tuple[PolicyRef, ...], ...], against: MetaSolution
    ) -> TrainingTask:
        population, age = self.populations[i], level.ages[i]
        return TrainingTask(
            id=self._task_id(population, level, age + 1),
            generation=self.chunk + 1,
            population=population,
            seats=self.seats(population),
            policy=self._policy(population, level, age + 1),
            opponents=opponents(against, refs),
            mode=self.options.mode,
            diversity=self._objective(level, i, refs),
            keep=True,
            length=0,
            **self.source(population, self._task_id(population, level, age) if age else None, self.options.start),
        )

    def _objective(self, level: PipelineLevel, i: int, refs: tuple[tuple[PolicyRef, ...], ...]) -> Diversity | None:
        """Return what a level is to differ from: an initial policy, and the frozen levels below it."""
        if self.options.diversity is None:
            return None
        known = refs[self.seats(self.populations[i])[0]]
        below = [lower.places[i] for lower in self._levels if lower.frozen and lower.number < level.number]
        objective: Diversity | None = self.options.diversity.objective([known[place] for place in (0, *below)])
        return objective

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
        if training > min(self.options.levels, self.options.generations):
            raise RunError(
                f"{training} levels of the saved pipeline train at once, which is more than the options allow: levels: "
                f"{self.options.levels}, generations: {self.options.generations}. Go on with at least {training} of both, or start a new "
                "run."
            )
        super().load_state_dict(state)
        self._levels = levels
        self._initial = tuple(int(n) for n in state["initial"])


def _with(values: tuple[int, ...], i: int, value: int) -> tuple[int, ...]:
    return (*values[:i], value, *values[i + 1 :])
