"""Extensive-form double oracle, XDO (McAleer, Lanier, Wang, Baldi and Fox 2021, "XDO: a double oracle algorithm for extensive-form games"),
for two-player zero-sum games.

PSRO draws a member once, at the root of the game, and may need exponentially many of them. Here a player may pick anew at every
information state, what any of its members would do there; so a number of generations that is linear in the information states is enough.

    generation 0: one uniformly random policy per population
    repeat
        announce the meta-strategies                 ── EvaluationTask(solution) ──► exploitability on the whole game, where there is a tree
        generations done?                            stop
        one response per population to them          ── TrainingTask ──► a new frozen member
        what they gain is within ε?                  ε falls
        the restricted game's equilibrium, within ε  ── TrainingTask(restricted), one per population ──► a frozen member each

The equilibrium is no mixture of members; it is a policy of its own, a member that no restricted game looks at. It is computed where the
algorithm of the role `meta` computes (`exact`), and else learned by self-play inside the restricted game (NXDO): then ε plays no part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from ludus.algorithms.common.base import Algorithm
from ludus.algorithms.common.registry import Assignment
from ludus.algorithms.rewards.base import refuse_recorded
from ludus.core.errors import ScenarioError
from ludus.core.types import (
    MetaSolution,
    Mixture,
    PolicyRef,
    PolicySpec,
    RestrictedGame,
    State,
    Task,
    TrainingResult,
    TrainingTask,
)
from ludus.metagame.population.base import View
from ludus.policies.specs import searches, tabulates
from ludus.schedulers.config import ScheduleContext
from ludus.schedulers.planning import MatchSelection, PayoffTasks, announcement, one_task_per_group, require_two_players
from ludus.schedulers.psro import ResponseOptions, ResponseScheduler
from ludus.schedulers.responses import opponents

META, RESPONSE = "meta", "response"
"""The roles: what plays restricted games, and what responds to it."""


class XDOOptions(ResponseOptions):
    """Extensive-form double oracle (McAleer et al. 2021): a player picks at every information state what one of its members would do
    there; the equilibrium of that restricted game is what is announced, and what new policies respond to. `algorithms` may name the roles
    meta and response; `warm_start` and `diversity` are of responses, as in psro, where they need no payoffs. Two players, zero-sum.

    Attributes:
        tolerance: ε, NashConv inside the restricted game that its computed equilibrium may have at first.
        fall: Factor of ε, applied until it is below what the responses gain.
        iterations: Iterations of CFR+ for one equilibrium, at most.
        cells: Which payoffs are computed, those of the announced meta-strategies (needed), or all.
    """

    lacks_payoffs: ClassVar[str] = ", and xdo reads none"

    tolerance: float = Field(1.0, gt=0, allow_inf_nan=False)
    fall: float = Field(0.5, gt=0, lt=1)
    iterations: int = Field(100_000, ge=1)
    cells: Literal["needed", "all"] = "needed"

    @property
    def roles(self) -> tuple[str, ...]:
        return META, RESPONSE

    @property
    def modes(self) -> frozenset[str]:
        """An equilibrium mixes."""
        return super().modes | {"explore"}

    @property
    def asks_for_all(self) -> bool:
        return self.cells == "all"

    def meets_first(self, population: Sequence[int]) -> bool:
        return self.cells == "all"

    @property
    def meets_bots(self) -> bool:
        return False

    def check_schedule(self, context: ScheduleContext) -> None:
        super().check_schedule(context.of_role(RESPONSE))
        context.check_zero_sum("xdo is for", "Use psro with meta_solver cce.")
        metas = context.of_role(META).assigned
        if len({assignment.computed for assignment in metas}) > 1:
            names = " and ".join(sorted({assignment.name for assignment in metas}))
            raise ScenarioError(
                f"the role meta is played by {names}: one computes the restricted game's equilibrium, and the other would have nobody to "
                "learn against. Give all players the same."
            )
        for meta, response in zip(metas, context.of_role(RESPONSE).assigned, strict=True):
            if meta.computed:
                self._check_tables(meta, response)
            else:
                self._check_pair(meta, response)

    def _check_tables(self, meta: Assignment, response: Assignment) -> None:
        """Check that a restricted game with these responses can be computed."""
        if tabulates(response.policy, mode=self.mode):
            return
        other = next((mode for mode in ("greedy", "explore") if tabulates(response.policy, mode=mode)), None)
        leave = "Leave" if other is None else f"Set mode={other}, leave"
        raise ScenarioError(
            f"the role meta computes ({meta.name}) the equilibrium of a game of picks, from tables of what policies do at each information "
            f"state; those of {response.name} have none in mode {self.mode} (they have memory, noise, networks of agents, or an "
            f"epsilon_spread, say). {leave} that out, or give the role response another algorithm, such as exact or ppo."
        )

    def _check_pair(self, meta: Assignment, response: Assignment) -> None:
        """Check that what is learned in the restricted game can say how likely each pick is, and pick from responses."""
        assert isinstance(meta.algorithm, Algorithm)
        refuse_recorded(
            meta.algorithm,
            why=f"The role meta learns ({meta.name}) which member to pick, and no file has picks. Give that role an algorithm without it, "
            "such as mmd or exact (the role response may have it), or use another scenario, such as psro.",
        )
        if not tabulates(meta.policy, mode="explore"):
            raise ScenarioError(
                f"the role meta learns ({meta.name}), and explores otherwise than by chances of picks: it has memory, noise, networks of "
                "agents, or an epsilon_spread. Leave that out, or use another algorithm, ppo say, or meta: exact."
            )
        if recorded := meta.algorithm.collect().extras:
            raise ScenarioError(
                f"the role meta learns ({meta.name}) from more than what was picked ({', '.join(recorded)}), which nobody records there. "
                "Leave out what asks for that (initial_priority=error, say), or give another algorithm, such as mmd."
            )
        if not tabulates(response.policy, mode=self.mode) or searches(response.policy):
            raise ScenarioError(
                f"the role meta learns ({meta.name}), and picks from policies that say how likely each action is; those of {response.name} "
                f"do not in mode {self.mode} (they have memory, or can search, say). Use another algorithm for the role response."
            )
        if _is_table(meta.policy) != _is_table(response.policy):
            raise ScenarioError(
                f"of the roles meta ({meta.name}) and response ({response.name}) one has tables and the other networks, which see a game "
                "differently. Give both the same, or meta: exact."
            )


def _is_table(spec: PolicySpec) -> bool:
    part = spec.config.get("average", {})  # of a policy that is made of two
    return "tabular" in (spec.kind, part.get("kind"))


class XDOScheduler(ResponseScheduler):
    """State beyond that of its base: ε, whether this generation's equilibrium is there, how good it is, and what was earned."""

    options: XDOOptions

    def __init__(
        self, options: XDOOptions, *, population: tuple[int, ...], selection: MatchSelection | None = None
    ) -> None:
        """population: [2] index of each player's population. selection: what is played before an announcement, by default every hole.
        Raises ConfigError for other than two players."""
        require_two_players(population, "xdo is")
        super().__init__(options, population=population)
        self.payoffs = PayoffTasks(selection)
        self.together = len(self.populations)
        self.tolerance = options.tolerance
        self._solved = False
        self._gap = np.nan
        self._earned = {META: 0.0, RESPONSE: 0.0}  # by all players together

    def _plan(self, view: View) -> Sequence[Sequence[Task]]:
        if not self._solved and any(self._members(k, view) for k in self.populations):
            return [[self._meta(k, view) for k in self.populations]]
        self._solved = True
        groups: list[Sequence[Task]] = []
        if self.solution is None:
            solution = self._announced(view)
            place = tuple(int(np.argmax(probs)) for probs in solution.strategies)
            game = view.payoffs.everyone if self.options.cells == "all" else None
            name = str(self.generation)
            if missing := self.payoffs.missing(name, self.generation, view.payoffs, game=game, needed=[place]):
                return missing
            self.solution = solution
            groups += one_task_per_group([announcement(self.generation, solution)])
        if self.generation < self.options.generations and not self._asked:
            self._asked = True
            groups += one_task_per_group(self._response(k, view) for k in self.populations)
        return groups

    def advance(self) -> None:
        """Go from the equilibrium to the responses, or to the next generation."""
        if not self._asked:
            self._solved = True
            return
        self._narrow()
        super().advance()
        self._solved, self._gap = False, np.nan
        self._earned = {META: 0.0, RESPONSE: 0.0}
        self.payoffs.begin()

    def _narrow(self) -> None:
        """Lower ε below what the responses gained, so that the next equilibrium is another one even if they bring nothing new."""
        gained = self._earned[RESPONSE] - self._earned[META]
        if gained <= self.tolerance:
            self.tolerance *= self.options.fall
        while 0.0 < gained <= self.tolerance:
            self.tolerance *= self.options.fall

    # ------------------------------------------------------------------------------------------ who is who

    def _name(self, population: int, generation: int) -> str:
        """Return the name of the policy that plays a generation's restricted game."""
        return f"{population}-{generation}-{META}"

    def _members(self, population: int, view: View) -> tuple[PolicyRef, ...]:
        """Return what its player may pick from: responses, and policies that were given. The random policy that is there from the start is
        none; it would allow everything."""
        metas = {self._name(population, generation) for generation in range(self.generation + 1)}
        return tuple(ref for ref in view.populations[population][1:] if ref.policy not in metas)

    def _announced(self, view: View) -> MetaSolution:
        """Return this generation's equilibrium; the initial policies where there was nothing to pick from."""
        marginals = []
        for which in self.population:
            names = [ref.policy for ref in view.populations[which]]
            name = self._name(which, self.generation)
            marginals.append(np.eye(1, len(names), names.index(name) if name in names else 0)[0])
        return MetaSolution(tuple(marginals), self._gap)

    # ------------------------------------------------------------------------------------------ tasks

    def _meta(self, population: int, view: View) -> TrainingTask:
        """Return the part of a population's players in the restricted game's equilibrium."""
        lists = tuple(self._members(which, view) or view.populations[which][:1] for which in self.population)
        live = {
            seat: ([PolicyRef(which, self._name(which, self.generation), None)], [1.0])
            for seat, which in enumerate(self.population)
        }
        return TrainingTask(
            id=f"{META}-{population}-{self.generation}",
            generation=self.generation,
            population=population,
            seats=self.seats(population),
            policy=self._name(population, self.generation),
            opponents=Mixture.product(live),
            mode="explore",
            role=META,
            restricted=RestrictedGame(lists, self.tolerance, self.options.iterations),
        )

    def _response(self, population: int, view: View) -> TrainingTask:
        """Return a best response to the others' part of the equilibrium."""
        assert self.solution is not None
        against = opponents(self.solution, self.members(view))
        first = view.first(population)
        known = (*view.populations[population][:first], *self._members(population, view)[first - 1 :])
        populations = tuple(known if k == population else refs for k, refs in enumerate(view.populations))
        task = self.response(population, against, replace(view, populations=populations))
        return replace(task, role=RESPONSE)

    def trained(self, result: TrainingResult, view: View) -> None:
        """Record what it earned, and how near an equilibrium it is."""
        task, earned = result.task, float(result.metrics.get("return", 0.0))
        self._earned[task.role] += earned * len(task.seats)
        if task.restricted is not None:
            self._gap = float(result.metrics.get("gap", np.nan))

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            **self.payoffs.state_dict(),
            "tolerance": self.tolerance,
            "solved": self._solved,
            "gap": self._gap,
            "earned": dict(self._earned),
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.payoffs.load_state_dict(state)
        self.tolerance, self._gap = float(state["tolerance"]), float(state["gap"])
        self._solved = bool(state["solved"])
        self._earned = {role: float(earned) for role, earned in state["earned"].items()}
