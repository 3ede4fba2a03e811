"""Does tasks: trains, computes, evaluates. What comes of them is the driver's to record.

tasks --> TaskRunner.results --> TaskResult, in the order of the tasks
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np

from ludus.algorithms.common.base import Algorithm, ComputedOracle, Response, SolvesRestricted
from ludus.algorithms.common.delegating import in_restricted_game, on_rows
from ludus.algorithms.common.registry import COMPUTED, Algorithms
from ludus.core.errors import RunError, ScenarioError
from ludus.core.parts import with_options
from ludus.core.types import (
    Array,
    EvaluationResult,
    EvaluationTask,
    Match,
    MetaSolution,
    Metrics,
    Mixture,
    PolicyRef,
    RestrictedGame,
    RestrictedSolution,
    State,
    Task,
    TaskResult,
    TrainingResult,
    TrainingTask,
)
from ludus.core.user_code import qualified_name
from ludus.envs.sweep_rules import SweepRules
from ludus.evaluation.exact import ExactEvaluator
from ludus.evaluation.matches import EarlyMatches, MatchProfile, MatchRunner
from ludus.metagame.population.agent_manager import AgentManager
from ludus.policies.file import load_policy
from ludus.policies.registry import build_policy
from ludus.runs.scenario import Checkpoints, Evaluation
from ludus.runs.scenario_runtime import RuntimeChoice
from ludus.training.stopping import Stopper
from ludus.training.training import Barriers, Checkpoint, Proceed, Training, TrainingParts, plays_others, train

_TAKEN = "no device: a row of a network that was trained"
_AHEAD = 4  # matches that are given out at a time


@dataclass(slots=True)
class TaskRunner:
    """`exact` is None where the game has no tree. sweep_rules: of a game without one whose exploitability sweeps compute. matches: gives
    what plays them. early: plays matches while others train, if asked to. task_slots: tasks that are in progress at a time. concurrent:
    whether tasks are that do not depend on each other. runtime, response, evaluation, checkpoints: as in the scenario; response: when a
    training task stops.

    resumed: states of training tasks that a checkpoint was taken in. kept: learners that later tasks go on with, of the present generation
    and the one before it.
    """

    runtime: RuntimeChoice
    response: Stopper
    evaluation: Evaluation
    checkpoints: Checkpoints
    algorithms: Algorithms
    manager: AgentManager
    parts: TrainingParts
    exact: ExactEvaluator | None
    matches: Callable[[], MatchRunner]
    early: EarlyMatches | None = None
    sweep_rules: SweepRules | None = None
    task_slots: int = 1
    concurrent: bool = False
    resumed: Mapping[str, State] = field(default_factory=dict)
    learners: Mapping[str, State] = field(default_factory=dict)
    _oracles: dict[tuple[int, str], ComputedOracle | None] = field(default_factory=dict)
    _solved: tuple[RestrictedGame, RestrictedSolution] | None = None  # the last one

    def results(
        self,
        tasks: Sequence[Task],
        *,
        proceed: Proceed,
        on_progress: Callable[[float], None],
        checkpoint: Checkpoint,
    ) -> Iterator[TaskResult]:
        """Yield the results of tasks that can be in progress together. proceed(share, metrics): after each iteration or match; may raise to
        end it all. on_progress(share): now and then within a match; may, too. checkpoint(states): at barriers, with those of training
        tasks in progress."""

        def go_on(fraction: float | None, metrics: Metrics) -> None:
            if self.early is not None:
                self.early.poll()
            proceed(fraction, metrics)

        training = [task for task in tasks if isinstance(task, TrainingTask)]
        for task in tasks:
            if isinstance(task, EvaluationTask):
                yield self._evaluate(task, proceed, on_progress)
        computed = [self._oracle(task) for task in training]
        learned = self._learned(
            [t for t, oracle in zip(training, computed, strict=True) if oracle is None and t.takes_row is None],
            proceed=go_on,
            checkpoint=checkpoint,
        )
        with closing(learned):
            for task, oracle in zip(training, computed, strict=True):
                self._expect()
                if task.takes_row is not None:
                    yield self._take_row(task, task.takes_row)
                else:
                    yield next(learned) if oracle is None else self._compute(task, oracle)

    def _learned(
        self, tasks: Sequence[TrainingTask], *, proceed: Proceed, checkpoint: Checkpoint
    ) -> Generator[TrainingResult]:
        """Yield the results of tasks that learn, in their order."""
        for group in self._in_progress(tasks):
            yield from train(
                group,
                make=self._training,
                barriers=Barriers(self.checkpoints.iterations, horizon=self.checkpoints.horizon),
                proceed=proceed,
                checkpoint=lambda last: checkpoint({**self.resumed, **last}),
                states=self._resumed(group),
                keep=self._keep,
            )

    def _in_progress(self, tasks: Sequence[TrainingTask]) -> Sequence[Sequence[TrainingTask]]:
        """Return groups of tasks that are in progress together: all, where one may learn while workers or a GPU play for another, or where
        they play each other."""
        if self.concurrent or any(plays_others(task) for task in tasks):
            return [tasks] if tasks else []
        return [[task] for task in tasks]

    def admit(self, ref: PolicyRef) -> None:
        """Tell the exact evaluator of a new member."""
        if self.exact is not None:
            self.exact.add(ref, self.parts.policy(ref))

    def value(self, players: Mixture, seat: int, payoffs: Array) -> float:
        """Return what a seat earns where all are drawn from members: exactly where possible, else by `payoffs` float64[P, n_0, …]; NaN
        where these do not say."""
        value = np.nan if self.exact is None else float(self.exact.values(players)[seat])
        return self.manager.value(players, seat, payoffs) if np.isnan(value) else value

    # ------------------------------------------------------------------------------------------ training

    def _training(self, task: TrainingTask, task_slot: int) -> Training:
        start = None
        if isinstance(task.start, PolicyRef):
            start = self.manager.weights_of(task.start)[1]
        elif task.start is not None:
            start = load_policy(task.start).weights()
        if task.continues is not None and task.continues not in self.learners:
            known = ", ".join(map(repr, self.learners)) or "none"
            raise RunError(
                f"task {task.id} continues {task.continues!r}, whose learner was not kept; there are {known}. Learners are kept for the "
                "next generation of tasks only."
            )
        algorithm: Algorithm = with_options(self.algorithms.of(task.population, task.role), task.overrides)
        if task.restricted is not None:
            algorithm = in_restricted_game(algorithm, task.restricted, task.seats, self.parts.policy)
        if task.rows:
            algorithm = on_rows(algorithm, task.rows)
        return Training(
            task,
            algorithm=algorithm,
            parts=self.parts,
            stop=self.response,
            start=start,
            task_slot=task_slot,
            async_limits=self.runtime.async_limits,
            goes_on=None if task.continues is None else self.learners[task.continues]["learner"],
        )

    def _keep(self, task: TrainingTask, state: State) -> None:
        recent = {
            name: learner for name, learner in self.learners.items() if learner["generation"] >= task.generation - 1
        }
        self.learners = {**recent, task.id: {"generation": task.generation, "learner": state}}

    def forget(self, generation: int) -> None:
        """Drop the learners of earlier generations than this one, which is over: nothing goes on from them."""
        self.learners = {
            name: learner for name, learner in self.learners.items() if learner["generation"] >= generation
        }

    def _resumed(self, tasks: Sequence[TrainingTask]) -> Mapping[str, State]:
        """Return the states of these tasks; those of others, whose turn comes later, stay in checkpoints until then."""
        own_states = {task.id: self.resumed[task.id] for task in tasks if task.id in self.resumed}
        self.resumed = {name: state for name, state in self.resumed.items() if name not in own_states}
        return own_states

    def _oracle(self, task: TrainingTask) -> ComputedOracle | None:
        """Return what computes a task's policy; None: it is learned. Each algorithm is looked at once: checking a protocol costs as much as
        a small best response."""
        who = task.population, task.role
        if who not in self._oracles:
            algorithm = self.algorithms.of(*who)
            self._oracles[who] = algorithm if isinstance(algorithm, ComputedOracle) else None
        return self._oracles[who]

    def _compute(self, task: TrainingTask, algorithm: ComputedOracle) -> TrainingResult:
        assert self.exact is not None
        with self.parts.profile.part("learning"):
            if task.restricted is not None:
                response = self._part(task.restricted, task.seats, algorithm)
            else:
                response = algorithm.respond(self.exact.tree, task.seats, task.opponents, self.exact.stack)
        metrics = {**response.metrics, "return": float(np.mean(list(response.value.values())))}
        ref, member = PolicyRef(task.population, task.policy, mode=task.mode), None
        task = replace(task, start=None)  # a computed response starts from nothing, and its lineage says so
        if task.rival is not None:
            policy = build_policy(response.spec, response.weights)
            member = self.exact.member_like(task.population, policy, mode=task.mode)
            if member is None and task.rival.strict and metrics["return"] <= task.rival.bar:
                member = task.rival.ref
        return TrainingResult(
            task,
            member or ref,
            response.spec,
            response.weights,
            metrics,
            counters={},
            place=COMPUTED,
            member=member is not None,
        )

    def _take_row(self, task: TrainingTask, row: int) -> TrainingResult:
        """Return one policy of a network that plays several: its weights, and what this one is told."""
        assert isinstance(task.start, PolicyRef)
        spec, weights = self.manager.weights_of(task.start)
        own = {**weights, "condition": weights["condition"][row : row + 1]}
        ref = PolicyRef(task.population, task.policy, mode=task.mode)
        return TrainingResult(task, ref, spec, own, metrics={}, counters={}, place=_TAKEN)

    def _part(self, game: RestrictedGame, seats: tuple[int, ...], algorithm: ComputedOracle) -> Response:
        """Return the seats' part of a restricted game's equilibrium, which is computed once for all its players."""
        assert self.exact is not None
        if not isinstance(algorithm, SolvesRestricted):
            raise ScenarioError(
                f"{qualified_name(algorithm)} computes best responses, and no equilibria of restricted games: it lacks the "
                f"methods solve and "
                "part of ludus.algorithms.common.base.SolvesRestricted. Use algorithm exact for the role meta."
            )
        if self._solved is None or self._solved[0] != game:
            self._solved = (game, algorithm.solve(self.exact.tree, game, self._tables))
        return algorithm.part(self.exact.tree, seats, self._solved[1])

    def _tables(self, player: int, refs: Sequence[PolicyRef]) -> Array:
        """Return float64[k, I_p, A]: what policies do at the information states of a player. Raises ScenarioError for one that has no
        table."""
        assert self.exact is not None
        tables = []
        for ref in refs:
            policy = self.parts.policy(ref)
            table = policy.tabulate(self.exact.tree.enumeration, player, mode=ref.mode)
            if table is None:
                raise ScenarioError(
                    f"policy {ref.policy!r}, of kind {policy.spec.kind}, depends on more than the information state, so that the "
                    "restricted game with it cannot be solved exactly. Leave it out, or have the role meta learn."
                )
            tables.append(table)
        return np.stack(tables)

    # ------------------------------------------------------------------------------------------ evaluation

    def _evaluate(
        self, task: EvaluationTask, proceed: Proceed, on_progress: Callable[[float], None]
    ) -> EvaluationResult:
        if task.solution is not None:
            with self.parts.profile.part("evaluation"):
                return self._exploitability(task, task.solution, on_progress)
        if self.exact is not None and self.evaluation.payoffs != "simulate":
            with self.parts.profile.part("evaluation"):
                return EvaluationResult(task, payoffs=self.exact.payoffs())
        return EvaluationResult(task, matches=tuple(self._matches(task, proceed, on_progress)))

    def _exploitability(
        self, task: EvaluationTask, solution: MetaSolution, on_progress: Callable[[float], None]
    ) -> EvaluationResult:
        """Return what is computed on the game's tree, or by sweeps where these were asked for. What these cannot compute ends no run."""
        if self.evaluation.exploitability == "off":
            return EvaluationResult(task)
        if self.exact is not None:
            return EvaluationResult(task, exploitability=self.exact.exploitability(solution))
        if self.sweep_rules is None:
            return EvaluationResult(task)
        from ludus.evaluation.sweep_exploitability import sweep_exploitability  # few runs need its kernels

        members = [self.manager.populations[which] for which in self.manager.table.population]

        def tell(done: int, total: int, size: int) -> None:
            del size
            on_progress(done / total)

        try:
            sweep = sweep_exploitability(self.sweep_rules, solution, members, self.parts.policy, tell=tell)
        except ScenarioError as error:
            return EvaluationResult(task, note=str(error))
        return EvaluationResult(task, exploitability=sweep.exploitability)

    def _matches(self, task: EvaluationTask, proceed: Proceed, on_progress: Callable[[float], None]) -> Iterator[Match]:
        profiles, portion = self._profiles(task.profiles), self.evaluation.portion
        ahead = 1 if self.task_slots == 1 or self.runtime.kind == "inprocess" else _AHEAD
        done, episodes = 0, portion * len(task.profiles)

        def within(ended: int) -> None:
            on_progress((done + ended) / episodes)

        for match in self.matches().play(profiles, portion, ahead=ahead, on_progress=within):
            yield match
            done += match.n
            proceed(done / episodes, {})

    def _profiles(self, indices: Iterable[tuple[int, ...]]) -> list[MatchProfile]:
        """Return what is to be played: as many portions of each as it is named."""
        populations, which = self.manager.populations, self.manager.table.population
        return [
            MatchProfile(
                index,
                tuple(populations[p][i] for p, i in zip(which, index, strict=True)),
                block=self.manager.table.matches_of(index),  # after those that it has
                portions=portions,
            )
            for index, portions in Counter(indices).items()
        ]

    def _expect(self) -> None:
        """Start matches of members that have not played yet, while others train."""
        if self.early is None:
            return
        known = self.manager.table.view().known
        axes = range(known.ndim)
        new = [~known.any(axis=tuple(a for a in axes if a != axis), keepdims=True) for axis in axes]
        holes = ~known & np.logical_or.reduce(np.broadcast_arrays(*new, known)[:-1])
        self.early.expect(self._profiles(map(tuple, np.argwhere(holes).tolist())))
