"""Policy-Space Response Oracles (Lanctot et al. 2017, Algorithm 1) for n players.

One generation: evaluate the profiles that are missing (or matter), solve the meta-game, announce the meta-strategies (which asks for
their exploitability), train new policies for each population, and so on. Generation 0 has the initial policies only. What the new
policies are trained against is a rule of `ludus.schedulers.responses`: with correlated solvers that is JPSRO, with α-Rank α-PSRO.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from ludus.core import seeding
from ludus.core.types import EvaluationTask, Opponents, PolicyRef, State, Task, TaskResult, Trained, TrainingTask
from ludus.population.base import View
from ludus.schedulers.diversity import DiversityRule
from ludus.schedulers.queue import TaskQueue, alone, pack_solution, unpack_solution
from ludus.schedulers.responses import BestResponse, ResponseRule, Target, opponents
from ludus.schedulers.sampling import EveryHole, Sampling, task_id
from ludus.schedulers.subgame import everyone
from ludus.schedulers.warm_start import WarmStart, choose
from ludus.solvers.base import MetaSolver, Solution

Order = Literal["simultaneous", "sequential"]


class PSROScheduler:
    """State: the generation, whose turn it is, the solution, and which tasks are queued or out."""

    together = 1  # responses do not depend on each other

    def __init__(
        self,
        *,
        solver: MetaSolver,
        generations: int,
        population: tuple[int, ...],
        seed: int,
        responses: ResponseRule | None = None,
        order: Order = "simultaneous",
        warm_start: tuple[WarmStart, ...] = (),
        diversity: DiversityRule | None = None,
        mode: str = "greedy",
        sampling: Sampling | None = None,
    ) -> None:
        """population: [P] index of each player's population (equal where players share one). responses: what new policies are trained
        against, by default one per population against the meta-strategy. diversity: how they are made to differ from the members.
        order: whether all populations respond to the same meta-strategies, or one after the other, each to the game that holds what those
        before it have added. mode: in which new
        members are played. sampling: what is played before the game is solved, by default every hole."""
        self.solver, self.generations, self.population, self.seed = solver, generations, population, seed
        self.responses, self.order = responses or BestResponse(), order
        self.warm_start, self.mode, self.sampling = warm_start, mode, sampling or EveryHole()
        self.generation = 0
        self.solution: Solution | None = None  # of this generation and turn, once solved
        self._turn = 0  # populations that have responded in this generation; always 0 where they do so at once
        self._steps = 0  # evaluation tasks of this turn's game
        self._asked = False  # for this turn's responses
        self._warm: Any = None
        self._queue = TaskQueue()
        self.diversity = diversity

    @property
    def populations(self) -> tuple[int, ...]:
        """The indices of the populations."""
        return tuple(sorted(set(self.population)))

    def next_tasks(self, view: View, free: int) -> Sequence[Task]:
        if self._queue.idle:
            self._queue.plan(self._plan(view))
        return self._queue.take(free)

    def on_result(self, result: TaskResult, view: View) -> None:
        if not self._queue.answered(result.task):
            return  # given twice
        if not isinstance(result, Trained):
            return
        self.trained(result)
        if not self._queue.training:
            self._turn = 0 if self.order == "simultaneous" else (self._turn + 1) % len(self.populations)
            self.generation += self._turn == 0
            self.solution, self._steps, self._asked = None, 0, False
            self.sampling.begin()

    def _plan(self, view: View) -> Sequence[Sequence[Task]]:
        """Groups of what can be done now; nothing when the schedule is complete."""
        tasks: list[Task] = []
        if self.solution is None:
            missing = self.sampling.next_profiles(view.payoffs, game=everyone(view.payoffs))
            if missing:
                self._steps += 1
                name = task_id(f"payoffs-{'x'.join(map(str, view.payoffs.sizes))}", self._steps)
                return alone([EvaluationTask(name, self.generation, missing)])
        view = replace(view, payoffs=self.sampling.completed(view.payoffs))
        if self.solution is None:
            self.solution = self.solve(view)
            if self._turn == 0:
                name = f"exploitability-{self.generation}"
                tasks.append(EvaluationTask(name, self.generation, solution=self.solution))
        groups: list[Sequence[Task]] = [*alone(tasks)]
        if self.generation < self.generations and not self._asked:
            self._asked = True
            turn = self.populations if self.order == "simultaneous" else (self.populations[self._turn],)
            for population in turn:
                groups += self.groups(population, view, self.solution)
        return groups

    # ------------------------------------------------------------------------------------------ what variants change

    def solve(self, view: View) -> Solution:
        """The meta-strategies of this generation and turn."""
        path = (self.generation, self._turn) if self._turn else (self.generation,)
        rng = seeding.generator(self.seed, "solve", *path)
        solution = self.solver.solve(view.payoffs, warm=self._warm, rng=rng)
        self._warm = solution.warm
        return solution

    def groups(self, population: int, view: View, solution: Solution) -> Sequence[Sequence[TrainingTask]]:
        """The responses of a population, in groups that are trained together."""
        return alone(self.tasks(population, view, solution))

    def opponents(self, target: Target, view: View) -> Opponents:
        """What a response is trained against."""
        refs = tuple(view.populations[p] for p in self.population)
        moved = self.diversity.opponents(target, view.payoffs, refs) if self.diversity is not None else None
        return moved or opponents(target.opponents, refs)

    def trained(self, result: Trained) -> None:
        """Called once per training result."""

    # ------------------------------------------------------------------------------------------ responses

    def tasks(self, population: int, view: View, solution: Solution) -> list[TrainingTask]:
        """The responses of a population."""
        targets = self.responses.targets(view.payoffs, solution, self.seats(population))
        several = len(targets) > 1
        return [
            self._response(population, target, view, label=f"-{k + 1}" if several else "")
            for k, target in enumerate(targets)
        ]

    def seats(self, population: int) -> tuple[int, ...]:
        """The players of a population."""
        return tuple(p for p, which in enumerate(self.population) if which == population)

    def _response(self, population: int, target: Target, view: View, *, label: str) -> TrainingTask:
        generation = self.generation + 1
        return TrainingTask(
            id=f"response-{population}-{generation}{label}",
            generation=generation,
            population=population,
            seats=target.seats,
            policy=f"{population}-{generation}{label}",
            opponents=self.opponents(target, view),
            start=self._start(population, target, view),
            mode=self.mode,
            diversity=None if self.diversity is None else self.diversity.objective(view.populations[population]),
        )

    def _start(self, population: int, target: Target, view: View) -> PolicyRef | str | None:
        if target.improves:  # the initial policy, at 0, is not of the learner's architecture
            return view.populations[population][target.improves]
        return choose(
            self.warm_start,
            generation=self.generation + 1,
            population=population,
            view=view,
            gains=target.scores,
        )

    def state_dict(self) -> State:
        """Tasks that are out or queued are kept whole, and given out again after loading."""
        return {
            "generation": self.generation,
            "turn": self._turn,
            "tasks": self._queue.state_dict(),
            "solution": None if self.solution is None else pack_solution(self.solution),
            "steps": self._steps,
            "sampling": self.sampling.state_dict(),
            "asked": self._asked,
            "warm": self._warm,
        }

    def load_state_dict(self, state: State) -> None:
        self.generation, self._turn = int(state["generation"]), int(state["turn"])
        self.solution = None if state["solution"] is None else unpack_solution(state["solution"])
        self._steps, self._asked = int(state["steps"]), bool(state["asked"])
        self._warm = state["warm"]
        if state["sampling"] is not None:  # it is another rule's, if the run goes on with another one
            self.sampling.load_state_dict(state["sampling"])
        self._queue.load_state_dict(state["tasks"])
