"""NeuPL (Liu, Marris, Hennes, Merel, Heess and Graepel 2022, "NeuPL: neural population learning"): one network for a whole population.

A network π(a | s, σ) is told the meta-strategy σ that it is to answer. With the rows σ_1 … σ_N of an interaction graph it is N policies,
which train together, against each other as they are now, and share what they learn.

    row 1: the policies that are there from the start
    row i: the meta-strategy among these and rows 1 … i - 1     (the graph of PSRO; with other meta-solvers that of others)

    repeat
        what the newest policies earn is not known?     ── EvaluationTask(profiles) ──► exact cells, or matches
        solve for each row the game of those below it; announce the solution of all    ── EvaluationTask(solution) ──► exploitability
        generations done?                               stop
        train the network in all its rows               ── TrainingTask(rows, continues) ──► the network, a member in its last row
        save each row                                   ── TrainingTask(takes_row) ──► a frozen member each: the weights, and its σ

In a generation there is one more row than in the last one, until there are N: any further one would be equal to it. What a row is, that
of its σ, may change from one generation to the next, as those below it improve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ludus.core import seeding
from ludus.core.types import (
    MetaSolution,
    Mixture,
    OpponentFactor,
    PolicyCondition,
    PolicyRef,
    State,
    Task,
    TrainingResult,
    TrainingTask,
    condition_mode,
)
from ludus.metagame.population.base import Payoffs, Places, View
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.registry import solve
from ludus.schedulers.config import ScheduleContext, ScheduleOptions, Solver
from ludus.schedulers.planning import (
    MatchSelection,
    PayoffTasks,
    PlanningScheduler,
    announcement,
    one_task_per_group,
    refuse_changes,
)

Array = NDArray[np.float64]


class NeuPLOptions(ScheduleOptions):
    """NeuPL (Liu et al. 2022): one network per population plays `policies` rows, each conditioned on the meta-strategy that it answers;
    they train together.

    Attributes:
        generations: Pieces of the network's training, `response` each.
        mode: How members are played.
        policies: Rows of the network, one a policy.
        meta_solver: Of the games among the rows below each one, and of what is announced.
        cells: Which payoffs are computed, those among the newest policies (needed), or all.
    """

    generations: int = Field(20, ge=0)
    mode: Literal["explore", "greedy"] = "explore"
    policies: int = Field(8, ge=1)
    meta_solver: Solver = "nash"
    cells: Literal["needed", "all"] = "needed"

    @property
    def needs_learner(self) -> bool:
        return True

    @property
    def asks_for_all(self) -> bool:
        return self.cells == "all"

    def check_schedule(self, context: ScheduleContext) -> None:
        context.check_solver(self.meta_solver)
        super().check_schedule(context)
        from ludus.algorithms.common.delegating import Conditioned  # a scenario can be read without loading policies

        for assignment in context.assigned:
            condition = np.zeros((1, self.policies), np.float32)
            Conditioned(assignment.algorithm, condition).check(context.env, assignment.seats)  # type: ignore[arg-type]


class NeuPLScheduler(PlanningScheduler):
    """State beyond the tasks: the generation, its graph and solution, and whether its rows are to be saved."""

    options: NeuPLOptions

    def __init__(
        self, options: NeuPLOptions, *, population: tuple[int, ...], selection: MatchSelection | None = None
    ) -> None:
        """population: [P] index of each player's population. selection: what is played after a generation, by default every hole."""
        super().__init__(population)
        self.options, self.payoffs = options, PayoffTasks(selection)
        self.together = len(self.populations)
        self.generation = 0  # that are done
        self._rows = 0  # of the networks as they were saved last
        self._graph: list[
            list[Array]
        ] = []  # [rows][P] meta-strategies over the first policies and the rows, those to come included
        self._solved = self._saving = self._asked = False
        self._lost: dict[str, str] = {}  # population -> the policy to go on from, where its last training ended early

    def _plan(self, view: View) -> Sequence[Sequence[Task]]:
        if self._saving:
            return one_task_per_group(
                self._save(k, row, view) for k in self.populations for row in range(len(self._graph))
            )
        groups: list[Sequence[Task]] = []
        if not self._solved:
            places = self._places(view)
            game = view.payoffs.everyone if self.options.cells == "all" else places
            if missing := self.payoffs.missing(str(self.generation), self.generation, view.payoffs, game=game):
                return missing
            solution = self._solve(self.payoffs.completed(view.payoffs), places, view)
            self._solved = True
            groups += one_task_per_group([announcement(self.generation, solution)])
        if self.generation < self.options.generations and not self._asked:
            self._asked = True
            groups.append([self._train(k, view) for k in self.populations])
        return groups

    def advance(self) -> None:
        """Go from training to saving, or to the next generation."""
        if not self._saving:
            self._saving = True
            return
        self._rows = len(self._graph)
        self.generation += 1
        self._solved = self._saving = self._asked = False
        self.payoffs.begin()

    # ------------------------------------------------------------------------------------------ the graph

    def _name(self, population: int, generation: int, row: int | None = None) -> str:
        """Return the name of a network (row None), or of one of its rows as it was saved."""
        return f"{population}-{generation}" + ("" if row is None else f"-{row + 1}")

    def _places(self, view: View) -> Places:
        """Return the policies of the graph: those that were there from the start, and the rows that were saved last."""
        places = {}
        for k in self.populations:
            place = {ref.policy: i for i, ref in enumerate(view.populations[k])}
            saved = [place[self._name(k, self.generation, row)] for row in range(self._rows)]
            places[k] = [*range(view.first(k)), *saved]
        return places

    def _solve(self, payoffs: Payoffs, places: Places, view: View) -> MetaSolution:
        """Return the solution of all; and solve, for each row of the next generation, the game of those below it."""
        self._graph = []
        for row in range(min(self.options.policies, self._rows + 1)):
            below = {k: places[k][: view.first(k) + row] for k in self.populations}
            solution = self._solution(payoffs.part(below), row)
            self._graph.append([np.asarray(probs, np.float64) for probs in solution.strategies])
        return normal_form.lift(self._solution(payoffs.part(places), self.options.policies), payoffs, places)

    def _solution(self, payoffs: Payoffs, row: int) -> MetaSolution:
        rng = seeding.generator(self.options.seed, "solve", self.generation, row)
        solution: MetaSolution = solve(self.options.meta_solver, payoffs, rng=rng)
        return solution

    def _condition(self, population: int, row: int, view: View) -> tuple[float, ...]:
        """Return the condition of a row: the meta-strategies of the populations that it plays against, concatenated, each with an entry for
        every policy that there may be."""
        condition: list[float] = []
        for k in self.populations:
            others = [p for p in self.seats(k) if k != population or len(self.seats(k)) > 1]
            if others:
                mean = np.mean([self._graph[row][p] for p in others], axis=0)
                room = view.first(k) + self.options.policies - len(mean)
                condition += [*mean.tolist(), *[0.0] * room]
        return tuple(condition)

    # ------------------------------------------------------------------------------------------ tasks

    def _opponents(self, row: int, view: View, *, live: bool) -> Mixture:
        """Return the opponents of a row: the others' rows as they are now (live), or as they were saved last."""
        factors = []
        for seat, k in enumerate(self.population):
            first = view.first(k)
            refs = list(view.populations[k][:first])
            for lower in range(row):
                mode = condition_mode(lower)
                now = PolicyRef(k, self._name(k, self.generation + 1), None, mode)
                refs.append(now if live else view.populations[k][self._places(view)[k][first + lower]])
            factors.append(OpponentFactor.of((seat,), [refs], self._graph[row][seat]))
        return Mixture(tuple(factors))

    def _train(self, population: int, view: View) -> TrainingTask:
        """Return the task that trains the network in all its rows, from where the last generation left it."""
        rows = tuple(
            PolicyCondition(self._condition(population, row, view), self._opponents(row, view, live=True))
            for row in range(len(self._graph))
        )
        lost = self._lost.get(str(population))
        before = f"network-{population}-{self.generation}" if self.generation and lost is None else None
        return TrainingTask(
            id=f"network-{population}-{self.generation + 1}",
            generation=self.generation + 1,
            population=population,
            seats=self.seats(population),
            policy=self._name(population, self.generation + 1),
            opponents=_together([row.opponents for row in rows]),
            start=None if lost is None else PolicyRef(population, lost, mode=self.options.mode),
            mode=self.options.mode,
            continues=before,
            keep=True,
            length=self.options.generations,
            rows=rows,
        )

    def _save(self, population: int, row: int, view: View) -> TrainingTask:
        """Return a row as a member."""
        network = self._name(population, self.generation + 1)
        return TrainingTask(
            id=f"row-{population}-{self.generation + 1}-{row + 1}",
            generation=self.generation + 1,
            population=population,
            seats=self.seats(population),
            policy=self._name(population, self.generation + 1, row),
            opponents=self._opponents(row, view, live=False),
            start=PolicyRef(population, network, mode=self.options.mode),
            mode=self.options.mode,
            takes_row=row,
        )

    def trained(self, result: TrainingResult, view: View) -> None:
        """Record a training; one that ended early continues from its last good weights."""
        if result.task.takes_row is None:
            self._lost.pop(str(result.task.population), None)
            if result.failure is not None:
                self._lost[str(result.task.population)] = result.ref.policy

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            **self.payoffs.state_dict(),
            "policies": self.options.policies,
            "generation": self.generation,
            "rows": self._rows,
            "graph": self._graph,
            "flags": [self._solved, self._saving, self._asked],
            "lost": dict(self._lost),
        }

    def load_state_dict(self, state: State) -> None:
        """Raise RunError for another number of policies: what the network is told would have another length."""
        super().load_state_dict(state)
        refuse_changes(state, {"policies": self.options.policies})
        self.payoffs.load_state_dict(state)
        self.generation, self._rows = int(state["generation"]), int(state["rows"])
        self._graph = [[np.array(probs, np.float64) for probs in row] for row in state["graph"]]
        self._solved, self._saving, self._asked = map(bool, state["flags"])
        self._lost = {str(k): str(policy) for k, policy in state["lost"].items()}


def _together(mixtures: Sequence[Mixture]) -> Mixture:
    """Return what is met where each has its turn, seat by seat."""
    factors = []
    for parts in zip(*(mixture.factors for mixture in mixtures), strict=True):
        probs: dict[tuple[PolicyRef, ...], float] = {}
        for factor in parts:
            for entry, prob in zip(factor.entries, factor.probs, strict=True):
                probs[entry] = probs.get(entry, 0.0) + prob / len(mixtures)
        factors.append(OpponentFactor(parts[0].seats, tuple(probs), tuple(probs.values())))
    return Mixture(tuple(factors))
