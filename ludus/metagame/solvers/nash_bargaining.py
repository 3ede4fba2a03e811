"""Nash's bargaining solution of meta-games (Nash 1950), for any number of players."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, SolverError
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.base import MetaSolution
from ludus.metagame.solvers.correlated import LEAST, least_epsilon
from ludus.metagame.solvers.limits import note_of
from ludus.metagame.solvers.nash import solve_interior_point
from ludus.metagame.solvers.normal_form import joint_gains, symmetric_joint
from ludus.metagame.solvers.simplex_program import SimplexProgram, minimize

INDIFFERENT = 1e-9  # a player's payoffs that differ by less, as a part of the largest, leave nothing to bargain about
ROOM = 1e-8  # in units of each player's range: agreements that are better by less are none


@dataclass(frozen=True, kw_only=True)
class NashBargaining:
    """Nash bargaining solution (Nash 1950): the joint distribution that maximizes the product of the players' gains over disagreement.

    Payoffs at the optimum are unique; of the distributions the most even is taken (least sum of squares). A player whose payoffs are all
    equal is left out of the product. Bargaining supposes binding agreements, so deviations may gain: the gap is what they gain by one fixed
    strategy. Players who share a population get a symmetric joint distribution.

    Attributes:
        disagreement: "minimum", each player's least payoff; "maximin", what each can guarantee itself against all others together; or one
            number per player.
        tolerance: Tolerance of each player's payoffs, as a fraction of their range; the unit of one player changes nothing.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    ignores_copies: ClassVar[bool] = True

    disagreement: Literal["minimum", "maximin"] | tuple[float, ...] = "minimum"
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        disagreement = self.disagreement
        if not (
            disagreement in ("minimum", "maximin")
            if isinstance(disagreement, str)
            else all(math.isfinite(d) for d in disagreement)
        ):
            raise ConfigError(
                f"nash_bargaining: disagreement is {disagreement!r}, expected 'minimum', 'maximin' or a number per player."
            )
        if not 1e-10 <= self.tolerance <= 1e-2:
            raise ConfigError(
                f"nash_bargaining: tolerance is {self.tolerance}, expected a fraction of the payoffs' range between 1e-10 and 1e-2."
            )

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError for missing entries or NaN, and if no agreement is better for everybody than to disagree.
        `warm` is not used."""
        normal_form.require_complete(payoffs, "nash_bargaining")
        mean = normal_form.symmetrize(payoffs)
        flat = mean.reshape(len(mean), -1)
        spread = np.ptp(flat, axis=1, keepdims=True)
        bargains = spread[:, 0] > INDIFFERENT * np.abs(flat).max(axis=1)
        surplus = (flat - self._disagreement(mean)[:, None])[bargains] / spread[bargains]
        weights, note = self._joint(surplus)
        joint = symmetric_joint(weights.reshape(payoffs.sizes), payoffs.population)
        return MetaSolution(None, float(joint_gains(mean, joint, "cce").sum()), joint=joint, note=note)

    def _disagreement(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return float64[P]"""
        if self.disagreement == "minimum":
            return np.asarray(mean.reshape(len(mean), -1).min(axis=1))
        if self.disagreement == "maximin":
            return np.array([security(mean, player) for player in range(len(mean))])
        if len(self.disagreement) != len(mean):
            raise SolverError(
                f"nash_bargaining: disagreement has {len(self.disagreement)} numbers; the game has {len(mean)} players."
            )
        return np.array(self.disagreement, dtype=np.float64)

    def _joint(self, surplus: NDArray[np.float64]) -> tuple[NDArray[np.float64], str]:
        """Return (float64[profiles], a note or ""), from each bargainer's surplus float64[p, profiles] in units of its own range."""
        start = self._agreement(surplus)
        # the multipliers of these rows end at 1 / surplus, the gradient of the sum of logarithms
        product = SimplexProgram(-surplus, np.zeros(len(surplus)), even=False, target=1.0)
        agreed = minimize(product, tolerance=0.1 * self.tolerance, start=start)
        earned = surplus @ agreed.x
        optimum = minimize(SimplexProgram(-surplus, -earned), tolerance=0.1 * self.tolerance)
        error = max(agreed.error, optimum.error)
        note = note_of(error, self.tolerance, solver="nash_bargaining", of="the agreement", advice="Raise `tolerance`.")
        return normal_form.distribution(optimum.x, least=LEAST / len(optimum.x)), note

    def _agreement(self, surplus: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return float64[profiles] > 0: a distribution that is better for everybody than to disagree."""
        uniform = normal_form.uniform(surplus.shape[1])
        if not len(surplus):
            return uniform
        least, best = least_epsilon(-surplus)
        if -least <= ROOM:
            raise SolverError(
                "nash_bargaining: no agreement is better for all players than their disagreement payoffs; lower `disagreement`."
            )
        # half of what everybody gains at `best` is left after mixing
        loss = float((surplus @ best - surplus @ uniform).max())
        share = min(0.5, -0.5 * least / loss) if loss > 0.0 else 0.5
        return np.asarray((1.0 - share) * best + share * uniform)


def security(mean: NDArray[np.float64], player: int) -> float:
    """Return what the player can guarantee itself by a mixed strategy, whatever the others do together."""
    table = np.moveaxis(mean[player], player, 0)
    matrix = np.ascontiguousarray(table.reshape(len(table), -1))
    scale = float(np.ptp(matrix)) or 1.0
    return float((solve_interior_point(matrix, gap=1e-9 * scale).row @ matrix).min())
