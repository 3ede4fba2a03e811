"""What the two psro_v2 peers share: exact payoffs in place of simulated ones, and the loop that judges NashConv."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyspiel
from numpy.typing import NDArray
from open_spiel.python import policy as policy_lib
from open_spiel.python.algorithms.psro_v2 import psro_v2

from benchmarks.lines import Lines
from benchmarks.peers.sequence_form import Floats, SequenceForm

PlanOf = Callable[[SequenceForm, int, policy_lib.Policy], Floats]


class ExactPayoffs:
    """Expected returns of pairs of policies; each policy's realisation plan is made once."""

    def __init__(self, form: SequenceForm, plan_of: PlanOf) -> None:
        self.form = form
        self._plan_of = plan_of
        self._plans: tuple[dict[int, Floats], dict[int, Floats]] = ({}, {})
        self._against: dict[int, Floats] = {}
        self._alive: list[policy_lib.Policy] = []  # keeps id() unique

    def plan(self, player: int, policy: policy_lib.Policy) -> Floats:
        """The policy's realisation plan, shape [sequences]."""
        plans = self._plans[player]
        if id(policy) not in plans:
            self._alive.append(policy)
            plans[id(policy)] = self._plan_of(self.form, player, policy)
            if player == 1:
                self._against[id(policy)] = self.form.payoff @ plans[id(policy)]
        return plans[id(policy)]

    def __call__(self, policies: Sequence[policy_lib.Policy]) -> NDArray[np.float64]:
        """Returns of both players, shape [2]."""
        self.plan(1, policies[1])
        value = float(self.plan(0, policies[0]) @ self._against[id(policies[1])])
        return np.array([value, -value])

    def nash_conv(self, game: pyspiel.Game, solver: psro_v2.PSROSolver) -> float:
        """NashConv of the current meta-strategies' mixtures (mixed at the root), by pyspiel."""
        table: dict[str, list[tuple[int, float]]] = {}
        for player, (policies, weights) in enumerate(
            zip(solver.get_policies(), solver.get_meta_strategies(), strict=True)
        ):
            mixed = sum(w * self.plan(player, p) for p, w in zip(policies, weights, strict=True))
            table |= self.form.policy_dict(player, mixed)
        return float(pyspiel.nash_conv(game, table))


def judge(
    *, solver: psro_v2.PSROSolver, payoffs: ExactPayoffs, lines: Lines, target: float, max_seconds: float
) -> None:
    """Iterates until NashConv is at most `target` or `max_seconds` are over; the clock stands while it is judged."""
    game = pyspiel.load_game("leduc_poker")
    iteration = 0
    nash_conv = float("inf")
    while nash_conv > target and lines.seconds < max_seconds:
        iteration += 1
        solver.iteration()
        with lines.aside():
            nash_conv = payoffs.nash_conv(game, solver)
        lines.point(iteration=iteration, nash_conv=nash_conv)
