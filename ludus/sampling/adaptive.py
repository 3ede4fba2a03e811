"""Evaluation that goes on until it knows enough: solve, look at the bounds, order the matches that matter, and so on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ludus import seeding
from ludus.errors import ConfigError
from ludus.meta_solvers.base import MetaSolver
from ludus.meta_solvers.games import nash_conv
from ludus.population.payoffs import Payoffs
from ludus.sampling.blocks import mirrored
from ludus.sampling.cells import Cells, Goal, first_cells, next_cells
from ludus.sampling.filling import filled
from ludus.sampling.goals import Certainty, MetaStrategy
from ludus.sampling.payoff_bounds import MIN_UNITS, nash_conv_bounds, payoff_bounds
from ludus.types import Solution, State

Reason = Literal["confident", "budget", "nothing to learn"]


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """What is known after a step. units: blocks that were ordered so far. estimate: NashConv of the solution in the estimated meta-game.
    least, most: what it can be, with the stated confidence at all steps together; NaN where no tolerance is asked for (`nash_conv_bounds`
    says it at any time). These matches steered: figures that are published come from fresh ones."""

    step: int
    units: int
    solution: Solution
    estimate: float
    least: float
    most: float


class AdaptiveEvaluation:
    """Says what to play in order to solve one meta-game, step by step. It ends when NashConv is at most `tolerance` with `confidence`, the
    budget is spent, or no match matters any more; `reason` then says which, and `standing.solution` is the meta-strategy.

    In units of mirrored blocks: batches of `growth` times what was ordered so far, at least `batch`, at most what `budget` leaves, each
    cell in portions of `portion`. At first every policy is played in `start` random profiles (None: in all), also beyond the budget; what
    is never played is guessed from these (`filled`), so a new policy does not cost a whole row.
    """

    def __init__(
        self,
        *,
        solver: MetaSolver,
        budget: int,
        goal: Goal | None = None,
        start: int | None = 10,
        tolerance: float = 0.0,
        confidence: float = 0.95,
        batch: int = 1000,
        growth: float = 0.25,
        portion: int = 1,
        min_units: int = MIN_UNITS,
        seed: int = 0,
    ) -> None:
        """tolerance: NashConv, in returns; with 0 only the budget ends it. goal: of the matches (None: the NashConv of the meta-strategy).
        Raises ConfigError for what makes no sense."""
        if budget < 0 or batch < 1 or portion < 1 or not growth >= 0.0 or not tolerance >= 0.0:
            raise ConfigError(
                f"adaptive evaluation: budget {budget}, batch {batch}, portion {portion}, growth {growth}, tolerance {tolerance}; "
                "expected a batch and a portion of at least 1, and nothing negative."
            )
        steer = MetaStrategy(min_units=min_units)
        certain = Certainty(tolerance=tolerance, confidence=confidence, steer=steer) if tolerance > 0.0 else None
        self.solver, self.budget, self.goal = solver, budget, goal or certain or steer
        self.tolerance, self.confidence, self.min_units, self.seed = tolerance, confidence, min_units, seed
        self._start, self._batch, self._growth, self._portion = start, batch, growth, portion
        self.step, self.units = 0, 0
        self.standing: Standing | None = None
        self.reason: Reason | None = None
        self._warm: Any = None

    def next_cells(self, payoffs: Payoffs) -> Cells | None:
        """What to play next, given the results of everything that was ordered before; None when it has ended."""
        if self.reason is not None:
            return None
        rng = seeding.generator(self.seed, "adaptive start", self.step)
        cells = first_cells(payoffs, profiles=self._start, at_least=self._portion, rng=rng)
        if len(cells.units):
            return self._ordered(cells)
        if max(payoffs.sizes) == 1:  # nobody has a choice
            self.reason = "nothing to learn"
            return None
        self.standing = self._look(payoffs)
        left = self.budget - self.units
        if self.tolerance > 0.0 and self.standing.most <= self.tolerance:
            self.reason = "confident"
        elif left < max(self._portion, self._batch // 20):
            self.reason = "budget"
        else:
            units = min(max(self._batch, int(self._growth * self.units), self._portion), left)
            cells = next_cells(payoffs, self.standing.solution, goal=self.goal, units=units, at_least=self._portion)
            if len(cells.units):
                return self._ordered(cells)
            self.reason = "nothing to learn"
        return None

    def next_profiles(self, payoffs: Payoffs) -> tuple[tuple[int, ...], ...]:
        """The same as a list of profiles; empty when it has ended. They are whole blocks, every seat order of each; one that gets k
        portions is listed k times."""
        cells = self.next_cells(payoffs)
        if cells is None:
            return ()
        return tuple(
            order
            for profile, units in zip(cells.profiles.tolist(), cells.units.tolist(), strict=True)
            for _ in range(units // self._portion)
            for order in mirrored(profile, payoffs.population)
        )

    def _ordered(self, cells: Cells) -> Cells:
        self.step += 1
        self.units += int(cells.units.sum())
        return cells

    def _look(self, payoffs: Payoffs) -> Standing:
        rng = seeding.generator(self.seed, "adaptive", self.step)
        complete = filled(payoffs)
        solution = self.solver.solve(complete, warm=self._warm, rng=rng)
        self._warm = solution.warm
        least = most = np.nan
        if self.tolerance > 0.0:
            bounds = payoff_bounds(payoffs, confidence=self.confidence, min_units=self.min_units)
            least, most = nash_conv_bounds(bounds, payoffs, solution)
        estimate = solution.gap if solution.marginals is None else nash_conv(complete, solution.marginals)
        return Standing(self.step, self.units, solution, float(estimate), least, most)

    def state_dict(self) -> State:
        """Enough to go on with the same tasks, once the results of what was ordered are in the table."""
        return {"step": self.step, "units": self.units, "reason": self.reason, "warm": self._warm}

    def load_state_dict(self, state: State) -> None:
        self.step, self.units, self.reason = int(state["step"]), int(state["units"]), state["reason"]
        self._warm, self.standing = state["warm"], None
