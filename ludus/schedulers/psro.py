"""Policy-Space Response Oracles (Lanctot et al. 2017, Algorithm 1) for n players, and what its family has in common.

One generation: evaluate the profiles that are missing (or matter), solve the meta-game, announce the meta-strategies (which asks for
their exploitability), train new policies for each population, and so on. Generation 0 has the initial policies only. What the new
policies are trained against is a rule of `ludus.schedulers.responses`: with correlated solvers that is JPSRO, with α-Rank α-PSRO.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from ludus.algorithms.common.registry import COMPUTED
from ludus.core import seeding
from ludus.core.config import Config, is_stored
from ludus.core.errors import ConfigError, ScenarioError, SolverError
from ludus.core.parts import build_part, dump_part, registered_name, require
from ludus.core.ties import TIE, best_index
from ludus.core.types import Opponents, PolicyRef, Rival, State, Task, TrainingResult, TrainingTask
from ludus.metagame.population.base import View
from ludus.metagame.solvers.base import MetaSolution
from ludus.metagame.solvers.normal_form import expected_payoffs, payoff_range, symmetrize
from ludus.metagame.solvers.registry import META_SOLVERS, solve
from ludus.schedulers.config import ScheduleContext, ScheduleOptions, Solver
from ludus.schedulers.planning import (
    MatchSelection,
    PayoffTasks,
    PlanningScheduler,
    announcement,
    one_task_per_group,
    pack_solution,
    unpack_solution,
)
from ludus.schedulers.response_diversity import (
    DiversityField,
    check_diversity,
    diversified_opponents,
    training_objective,
)
from ludus.schedulers.responses import (
    RESPONSES,
    BestResponse,
    PreferenceResponse,
    RecommendedResponse,
    RectifiedResponse,
    ResponseRule,
    Target,
    opponents,
    response_targets,
)

# --------------------------------------------------------------------------------------------------------------------
# What a new policy starts from: Light-MALib's rules, conditional on the generation, as data.


class WarmStart(Config):
    """Rule for the weights of new policies: from generation `first` to `last` they start from `source`.

    Attributes:
        source: random: fresh weights. last: a copy of the population's newest policy. best: a copy of its policy with the highest mean
            payoff against the current meta-strategy. file: weights from `path`.
        first: First generation.
        last: Last generation, inclusive; None: no limit.
        path: A policy file of the same architecture, or the name of a policy of a run.
    """

    source: Literal["random", "last", "best", "file"] = "random"
    first: int = Field(default=1, ge=1)
    last: int | None = Field(default=None, ge=1)
    path: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> WarmStart:
        if (self.source == "file") != (self.path is not None):
            raise ValueError("`path` belongs to source: file, and source: file needs one")
        if self.last is not None and self.last < self.first:
            raise ValueError(f"from generation {self.first} to {self.last} there is none")
        return self


def choose(
    rules: tuple[WarmStart, ...],
    *,
    generation: int,
    population: int,
    view: View,
    gains: NDArray[np.float64],
) -> PolicyRef | str | None:
    """Return the start of a new policy: a ref, a file, or None for random. The first rule that applies decides. Policies that were there
    from the start are not copied: they do not have the learner's architecture.

    Args:
        rules: In order.
        generation: Of the new policy.
        population: Its population.
        view: Populations and payoffs.
        gains: float64[n], mean payoff of each of the population's policies against the meta-strategy.
    """
    for rule in rules:
        if rule.first <= generation and (rule.last is None or generation <= rule.last):
            refs, first = view.populations[population], view.first(population)
            if rule.source == "file":
                return rule.path
            if rule.source == "random" or len(refs) <= first:
                return None
            if rule.source == "last":
                return refs[-1]
            stake = np.nan_to_num(payoff_range(view.payoffs.mean))  # 0 where there are holes: then nothing is equal
            return refs[first + best_index(gains[first:], float(stake))]
    return None


def _warm_starts(value: Any) -> Any:
    rules = value if isinstance(value, list | tuple) else (value,)
    return tuple({"source": rule} if isinstance(rule, str) else rule for rule in rules)


# --------------------------------------------------------------------------------------------------------------------
# Generation by generation, new policies: PSRO, and those that solve nothing.


class ResponseOptions(ScheduleOptions):
    """Options of schedules that train responses.

    Attributes:
        lacks_payoffs: Why payoffs of all members cannot be compared; "": they can.
        warm_start: What a new policy starts from, one rule or several.
        diversity: How new policies are made to differ from the members, behavioural or response, {kind: behavioural, weight: 0.01} say.
    """

    lacks_payoffs: ClassVar[str] = ""

    warm_start: Annotated[tuple[WarmStart, ...], BeforeValidator(_warm_starts)] = (WarmStart(),)
    diversity: DiversityField = None

    @model_validator(mode="after")
    def _best_is_known(self) -> Self:
        if self.lacks_payoffs and any(rule.source == "best" for rule in self.warm_start):
            raise ConfigError(f"warm_start best compares payoffs{self.lacks_payoffs}; use last, random or file.")
        return self

    @property
    def moves_opponents(self) -> bool:
        """Whether the method itself moves the probabilities of opponents while a response trains."""
        return False

    def check_schedule(self, context: ScheduleContext) -> None:
        super().check_schedule(context)
        for assignment in context.assigned:
            check_diversity(self.diversity, assignment.algorithm, [assignment.policy], moved=self.moves_opponents)
        for rule in self.warm_start:
            if rule.path is not None and (rule.last is None or rule.last > context.generation):
                context.check_file("warm_start", rule.path)


class ResponseScheduler(PlanningScheduler):
    """Base of schedulers that train responses. Its state beyond the tasks: the generation, and its solution."""

    options: ResponseOptions

    def __init__(self, options: ResponseOptions, *, population: tuple[int, ...]) -> None:
        """population: [P] index of each player's population."""
        super().__init__(population)
        self.options = options
        self.generation = 0
        self.solution: MetaSolution | None = None  # of this generation, once solved
        self._asked = False  # for its responses

    def advance(self) -> None:
        """Begin the next generation."""
        self.generation += 1
        self._renew()

    def _renew(self) -> None:
        """Forget what was solved and requested."""
        self.solution, self._asked = None, False

    # ------------------------------------------------------------------------------------------ responses

    def members(self, view: View) -> tuple[tuple[PolicyRef, ...], ...]:
        """Return [P] each player's policies."""
        return tuple(view.populations[which] for which in self.population)

    def response(
        self, population: int, opponents: Opponents, view: View, *, target: Target | None = None, label: str = ""
    ) -> TrainingTask:
        """Return the task of a response.

        Args:
            population: Whose response it is.
            opponents: What it is trained against.
            view: Populations and payoffs.
            target: Its seats, and scores to choose its start from; None: all seats of its population, and a start that needs no payoffs.
            label: Distinguishes it from others of its population in this generation.
        """
        generation, rule = self.generation + 1, self.options.diversity
        first, *others = view.populations[population]
        trained = others[view.first(population) - 1 :]
        return TrainingTask(
            id=f"response-{population}-{generation}{label}",
            generation=generation,
            population=population,
            seats=self.seats(population) if target is None else target.seats,
            policy=f"{population}-{generation}{label}",
            opponents=opponents,
            start=self._start(population, view, target),
            mode=self.options.mode,
            diversity=None if rule is None else training_objective(rule, (first, *trained)),
        )

    def _start(self, population: int, view: View, target: Target | None) -> PolicyRef | str | None:
        improved = None if target is None else target.improves
        if improved is not None and improved >= view.first(population):
            return view.populations[population][improved]
        return choose(
            self.options.warm_start,
            generation=self.generation + 1,
            population=population,
            view=view,
            gains=np.empty(0) if target is None else target.scores,
        )

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            "generation": self.generation,
            "solution": None if self.solution is None else pack_solution(self.solution),
            "asked": self._asked,
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.generation, self._asked = int(state["generation"]), bool(state["asked"])
        self.solution = None if state["solution"] is None else unpack_solution(state["solution"])


# --------------------------------------------------------------------------------------------------------------------
# PSRO.


class PSROOptions(ResponseOptions):
    """Policy-Space Response Oracles (Lanctot et al. 2017) and its family.

    Attributes:
        meta_solver: From payoffs to meta-strategies.
        responses: What the new policies of a generation are trained against.
        order: Whether all populations respond at the same time to the same meta-strategies, or in turn, each to the game that holds what
            those before it have added.
    """

    meta_solver: Solver = "nash"
    responses: Annotated[
        Any,
        BeforeValidator(lambda v: build_part("response rule", v, RESPONSES, (ResponseRule,))),
        PlainSerializer(lambda part: dump_part(part, RESPONSES)),
    ] = "best"
    order: Literal["simultaneous", "sequential"] = "simultaneous"

    @model_validator(mode="after")
    def _check_rectified(self) -> Self:
        named = registered_name(self.meta_solver, META_SOLVERS) == "rectified_nash"
        if named and registered_name(self.responses, RESPONSES) != "rectified" and not is_stored():
            raise ValueError(
                "meta_solver rectified_nash solves as nash does: what makes it PSRO_rN is whom each policy meets; give responses: "
                "rectified, too, or meta_solver: nash"
            )
        return self

    def check_schedule(self, context: ScheduleContext) -> None:
        context.check_solver(self.meta_solver)
        super().check_schedule(context)
        require(self.responses, "response rule", (ResponseRule,), RESPONSES)
        env, needs, name = context.env, self.responses.needs, registered_name(self.responses, RESPONSES)
        if "joint" in needs and not self._solves_jointly(context):
            raise ScenarioError(
                f"responses {name!r} need a meta-solver that gives a joint distribution; "
                f"{registered_name(self.meta_solver, META_SOLVERS)!r} gives one for each player. Use ce or cce, or responses: best."
            )
        if "two_player" in needs and env.num_players != 2:
            raise ScenarioError(
                f"responses {name!r} are for two players; {env.id} has {env.num_players}. Use best or recommended."
            )
        if isinstance(self.responses, RecommendedResponse) and 2 < env.num_players > len(set(context.population)):
            raise ScenarioError(
                f"responses 'recommended' are trained in one seat, and in {env.id}, which has {env.num_players} players, policies play in "
                "several: players share a population. Set share=never, or responses: best."
            )

    def _solves_jointly(self, context: ScheduleContext) -> bool:
        """Return whether the solver answers with a joint distribution, or will say for itself what it lacks: asked about one policy per
        player."""
        try:
            return context.answer(self.meta_solver).joint is not None
        except SolverError:
            return True


IDLE = 2  # rounds without gain that end a run


class PSROScheduler(ResponseScheduler):
    """Scheduler of PSRO. Its state beyond that of its base: the population whose turn it is, how far its game is evaluated, and whether
    exact responses still gain.

    Where responses are computed, payoffs are exact, and a copy of a policy does not change the meta-solver's solution, a response is added
    only if it earns more than each member does. The schedule is over after two rounds in which none was added, and in which the solver's
    solution (an approximate one, with `slack`, say) did not improve either.
    """

    options: PSROOptions

    def __init__(
        self, options: PSROOptions, *, population: tuple[int, ...], selection: MatchSelection | None = None
    ) -> None:
        """Args:
        options: Of the schedule.
        population: [P] index of each player's population.
        selection: Which matches are played before the game is solved; None: those of all missing entries.
        """
        super().__init__(options, population=population)
        self.payoffs = PayoffTasks(selection)  # of this turn's game
        self._turn = 0  # populations that have responded in this generation; always 0 where they do so at once
        self._warm: Any = None
        self._gained: bool | None = None  # whether a response of this turn did; None: nobody has looked
        self._idle = 0  # turns, the last ones, in which none did
        self._gap = np.nan  # of the last turn's solution
        self._rough = False  # whether that of this turn is larger than the solver's tolerance

    def advance(self) -> None:
        """Begin the next population's turn, or the next generation."""
        gap = np.nan if self.solution is None else self.solution.gap
        better = self._rough and gap < self._gap
        self._idle = self._idle + 1 if self._gained is False and not better else 0
        self._gained, self._gap = None, gap
        at_once = self.options.order == "simultaneous"
        self._turn = 0 if at_once else (self._turn + 1) % len(self.populations)
        self.generation += self._turn == 0
        self._renew()
        self.payoffs.begin()

    def _plan(self, view: View) -> Sequence[Sequence[Task]]:
        """Return groups of what can be done now; none when the schedule is complete."""
        tasks: list[Task] = []
        if self.conclusion:
            return []
        if self.solution is None:
            name = "x".join(map(str, view.payoffs.sizes))
            if missing := self.payoffs.missing(name, self.generation, view.payoffs, game=view.payoffs.everyone):
                return missing
        view = replace(view, payoffs=self.payoffs.completed(view.payoffs))
        if self.solution is None:
            self.solution = self.solve(view)
            if self._turn == 0:
                tasks.append(announcement(self.generation, self.solution))
        groups: list[Sequence[Task]] = [*one_task_per_group(tasks)]
        if self.generation < self.options.generations and not self._asked:
            self._asked = True
            if "joint" in self.options.responses.needs and self.solution.joint is None:
                self.solution = self.solve(view)  # it is of the solver that the run had before it was extended
            at_once = self.options.order == "simultaneous"
            for population in self.populations if at_once else (self.populations[self._turn],):
                groups += self.groups(population, view, self.solution)
        return groups

    @property
    def conclusion(self) -> str:
        """Why it ends before its generations are over; see `Concludes`."""
        turns = 1 if self.options.order == "simultaneous" else len(self.populations)
        if self._turn or self._idle < IDLE * turns:
            return ""
        return (
            f"no response gains anything: for {IDLE} rounds none earned more than a member of its population does (what is left of "
            "NashConv is the meta-solver's own gap)"
        )

    def trained(self, result: TrainingResult, view: View) -> None:
        """Record whether a response gained; of learned ones that is assumed."""
        rival = result.task.rival
        better = rival is None or result.place != COMPUTED or result.metrics["return"] > rival.bar
        self._gained = bool(self._gained) or (better and not result.member)

    # ------------------------------------------------------------------------------------------ what variants change

    def solve(self, view: View) -> MetaSolution:
        """Return the meta-strategies of this generation and turn."""
        path = (self.generation, self._turn) if self._turn else (self.generation,)
        rng = seeding.generator(self.options.seed, "solve", *path)
        solution: MetaSolution = solve(self.options.meta_solver, view.payoffs, warm=self._warm, rng=rng)
        self._warm = solution.warm
        tolerance = getattr(self.options.meta_solver, "tolerance", np.inf)
        self._rough = bool(solution.gap > tolerance * payoff_range(view.payoffs.mean))
        return solution

    def groups(self, population: int, view: View, solution: MetaSolution) -> Sequence[Sequence[TrainingTask]]:
        """Return the responses of a population, in groups that are trained together."""
        return one_task_per_group(self.tasks(population, view, solution))

    def opponents(self, target: Target, view: View) -> Opponents:
        """Return what a response is trained against."""
        refs, rule = self.members(view), self.options.diversity
        moved: Opponents | None = None if rule is None else diversified_opponents(rule, target, view.payoffs, refs)
        return moved or opponents(target.opponents, refs)

    # ------------------------------------------------------------------------------------------ responses

    def tasks(self, population: int, view: View, solution: MetaSolution) -> list[TrainingTask]:
        """Return the responses of a population."""
        targets = response_targets(
            self.options.responses,
            view.payoffs,
            solution,
            self.seats(population),
            initial=[view.first(which) for which in self.population],
        )
        several = len(targets) > 1
        tasks = [
            self.response(
                population, self.opponents(target, view), view, target=target, label=f"-{k + 1}" if several else ""
            )
            for k, target in enumerate(targets)
        ]
        if not self._copies_add_nothing(view):
            return tasks
        return [
            replace(task, rival=self._rival(target, view, population)) if self._is_plain(task, target, view) else task
            for task, target in zip(tasks, targets, strict=True)
        ]

    def _is_plain(self, task: TrainingTask, target: Target, view: View) -> bool:
        """Return whether a response is trained for its return alone, against what it is to answer."""
        if self.options.diversity is None:
            return True
        return task.diversity is None and task.opponents == opponents(target.opponents, self.members(view))

    def _rival(self, target: Target, view: View, population: int) -> Rival:
        """Return the member that earns most against what a response is to meet.

        What earns no more may still open a better equilibrium, where there are several: in a game that is not zero-sum one response to the
        meta-strategy is added then, if the last round has gained something. (Of responses to recommendations there is one for each, and
        populations would double.) α-Rank's masses are met for what is preferred, not for the most return, and any new policy has something
        to say there.
        """
        mean, seat, rule = symmetrize(view.payoffs), target.seats[0], self.options.responses
        span = payoff_range(mean)
        earned = expected_payoffs(mean[seat], target.opponents, seat)
        best = best_index(earned, span)
        if isinstance(rule, PreferenceResponse):
            return Rival(view.populations[population][best], float(earned.min()) - span, strict=False)
        chosen = view.payoffs.num_players > 2 or not view.payoffs.zero_sum
        strict = not chosen or bool(self._idle) or not isinstance(rule, BestResponse)
        return Rival(view.populations[population][best], float(earned.max()) + TIE * span, strict=strict)

    def _copies_add_nothing(self, view: View) -> bool:
        """Return whether a second policy that plays as a member does would change nothing: payoffs are exact, the solver says so, and
        neither the responses nor what they meet go by places in the population."""
        rule, solver = self.options.responses, self.options.meta_solver
        known = type(rule) in (BestResponse, RecommendedResponse, RectifiedResponse, PreferenceResponse)
        alike = bool(getattr(solver, "ignores_copies", False))
        return known and alike and bool(view.payoffs.exact.all())

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            **self.payoffs.state_dict(),
            "turn": self._turn,
            "warm": self._warm,
            "gained": self._gained,
            "idle": self._idle,
            "gap": self._gap,
            "rough": self._rough,
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.payoffs.load_state_dict(state)
        self._turn, self._warm = int(state["turn"]), state["warm"]
        self._gained, self._idle = state.get("gained"), int(state.get("idle", 0))
        self._gap, self._rough = float(state.get("gap", np.nan)), bool(state.get("rough", False))
