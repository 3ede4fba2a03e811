"""Policy-Space Response Oracles (Lanctot et al. 2017, Algorithm 1) for n players, with simultaneous best responses.

One generation: evaluate the profiles that are missing, solve the meta-game, announce the meta-strategies (which asks for their
exploitability), train one best response per population, and so on. Generation 0 has the initial policies only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ludus import seeding
from ludus.meta_solvers.base import MetaSolver, Solution
from ludus.meta_solvers.games import values_against
from ludus.population.base import View
from ludus.schedulers.pack import pack_solution, pack_task, unpack_solution, unpack_task
from ludus.schedulers.warm_start import WarmStart, choose
from ludus.types import EvaluationTask, Factor, Mixture, PolicyRef, State, Task, TaskResult, Trained, TrainingTask


class PSROScheduler:
    """State: the generation, its solution, and which of its tasks are queued or out."""

    def __init__(
        self,
        *,
        solver: MetaSolver,
        generations: int,
        population: tuple[int, ...],
        seed: int,
        warm_start: tuple[WarmStart, ...] = (),
        mode: str = "greedy",
        min_episodes: int = 1,
    ) -> None:
        """population: [P] index of each player's population (equal where players share one). mode: in which new
        members are played. min_episodes: a sampled cell with fewer is a hole."""
        self.solver, self.generations, self.population, self.seed = solver, generations, population, seed
        self.warm_start, self.mode, self.min_episodes = warm_start, mode, min_episodes
        self.generation = 0
        self.solution: Solution | None = None  # of this generation, once solved
        self._asked = False  # for this generation's responses
        self._warm: Any = None
        self._queue: list[Task] = []
        self._out: dict[str, Task] = {}

    def next_tasks(self, view: View, free: int) -> Sequence[Task]:
        if not self._queue and not self._out:
            self._queue = self._plan(view)
        now, self._queue = self._queue[:free], self._queue[free:]
        self._out |= {task.id: task for task in now}
        return now

    def on_result(self, result: TaskResult, view: View) -> None:
        if self._out.pop(result.task.id, None) is None:
            return  # given twice
        left = [*self._out.values(), *self._queue]
        if isinstance(result, Trained) and not any(isinstance(task, TrainingTask) for task in left):
            self.generation += 1
            self.solution, self._asked = None, False

    def _plan(self, view: View) -> list[Task]:
        """What can be done now; nothing when the schedule is complete."""
        tasks: list[Task] = []
        if self.solution is None:
            holes = view.payoffs.holes(self.min_episodes)
            if len(holes):
                sizes = "x".join(map(str, view.payoffs.sizes))
                return [EvaluationTask(f"payoffs-{sizes}", self.generation, tuple(map(tuple, holes.tolist())))]
            rng = seeding.generator(self.seed, "solve", self.generation)
            self.solution = self.solver.solve(view.payoffs, warm=self._warm, rng=rng)
            self._warm = self.solution.warm
            tasks.append(EvaluationTask(f"exploitability-{self.generation}", self.generation, solution=self.solution))
        if self.generation < self.generations and not self._asked:
            self._asked = True
            tasks += [self._response(p, self.solution, view) for p in sorted(set(self.population))]
        return tasks

    def _response(self, population: int, solution: Solution, view: View) -> TrainingTask:
        seats = tuple(p for p, which in enumerate(self.population) if which == population)
        generation = self.generation + 1
        gains = values_against(view.payoffs.mean, solution.strategies, seats[0])
        start = choose(self.warm_start, generation=generation, population=population, view=view, gains=gains)
        return TrainingTask(
            id=f"response-{population}-{generation}",
            generation=generation,
            population=population,
            seats=seats,
            policy=f"{population}-{generation}",
            opponents=opponents(solution, tuple(view.populations[p] for p in self.population)),
            start=start,
            mode=self.mode,
        )

    def state_dict(self) -> State:
        """Tasks that are out or queued are kept whole, and given out again after loading."""
        left = [*self._out.values(), *self._queue]
        return {
            "generation": self.generation,
            "tasks": [pack_task(task) for task in left],
            "solution": None if self.solution is None else pack_solution(self.solution),
            "asked": self._asked,
            "warm": self._warm,
        }

    def load_state_dict(self, state: State) -> None:
        self.generation = int(state["generation"])
        self.solution = None if state["solution"] is None else unpack_solution(state["solution"])
        self._asked = bool(state["asked"])
        self._warm = state["warm"]
        self._queue, self._out = [unpack_task(task) for task in state["tasks"]], {}


def opponents(solution: Solution, populations: tuple[tuple[PolicyRef, ...], ...]) -> Mixture:
    """The meta-strategy as opponents for any seat: one factor per seat, or a joint one. Policies without weight are left out."""
    if solution.marginals is not None:
        marginals: dict[int, tuple[list[PolicyRef], list[float]]] = {}
        for seat, probs in enumerate(solution.marginals):
            kept = [int(i) for i in np.flatnonzero(probs > 0)]
            marginals[seat] = ([populations[seat][i] for i in kept], [float(probs[i]) for i in kept])
        return Mixture.product(marginals)
    assert solution.joint is not None
    kept_profiles = np.argwhere(solution.joint > 0)
    entries = tuple(tuple(populations[p][i] for p, i in enumerate(profile)) for profile in kept_profiles.tolist())
    weights = tuple(float(solution.joint[tuple(profile)]) for profile in kept_profiles)
    return Mixture((Factor(tuple(range(len(populations))), entries, weights),))
