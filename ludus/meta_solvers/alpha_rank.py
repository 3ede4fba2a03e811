"""α-Rank (Omidshafiei et al. 2019): how often evolution under strong selection visits each strategy, for any number of players."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError, SolverError
from ludus.meta_solvers import games
from ludus.meta_solvers.base import Solution
from ludus.meta_solvers.deviations import joint_gains, symmetric_joint
from ludus.meta_solvers.evolution import Moves, fixation, multi_population, response, single_population
from ludus.population.payoffs import Payoffs

SETTLED, LEAST = (
    1e-5,
    1e-8,
)  # a sweep ends when a stronger selection changes no probability by a larger part, or by more than the second
FINEST = 1.01  # factor between two alphas below which a sweep no longer refines
TIE = 1e-12  # equal payoffs differ by no more than this part of the payoffs' range
SMALL = 1e-10  # the epsilon that stands for the limit of small ones where it decides between several sinks


@dataclass(frozen=True, kw_only=True)
class AlphaRank:
    """The stationary distribution of the Markov chain of mutants that take over populations; marginals of it, or the joint one.

    alpha: strength of selection, per unit of payoff, or "infinite": mutants that earn more always take over, equals half the time.
    sweep: raise `alpha` tenfold until the answer settles (within 1e-5 of each probability). It ends early where the next chain would hold
    rates too far apart for floating point; "infinite" has no such trouble.
    epsilon: with "infinite", the probability that a mutant that earns less takes over; 0 is the limit of small ones, computed directly.
    population_size: m in the paper; matters for finite alpha only.
    model: "multi_population" (a population per player: states are profiles), "single_population" (two players of one population: states
    are policies) or "auto": the second where it fits and `answer` is marginals.
    answer: "marginals" of each player, or "joint" over profiles.

    Equal payoffs are those that differ by no more than 1e-12 of their range. The gap is what deviations gain (from the joint
    distribution: by one strategy for good); α-Rank does not try to make it small. Over a shared population a joint
    distribution is symmetric.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    alpha: float | Literal["infinite"] = "infinite"
    sweep: bool = False
    epsilon: float = 0.0
    population_size: int = 50
    model: Literal["auto", "single_population", "multi_population"] = "auto"
    answer: Literal["marginals", "joint"] = "marginals"

    def __post_init__(self) -> None:
        infinite = self.alpha == "infinite"
        if not infinite and not (isinstance(self.alpha, int | float) and 0.0 < self.alpha < math.inf):
            raise ConfigError(f"alpha_rank: alpha is {self.alpha!r}, expected a positive number or 'infinite'.")
        if infinite and self.sweep:
            raise ConfigError("alpha_rank: a sweep needs the alpha to start from, and 'infinite' is where it leads.")
        if not 0.0 <= self.epsilon < 0.5:
            raise ConfigError(f"alpha_rank: epsilon is {self.epsilon}, expected a probability below 0.5.")
        if self.epsilon and not infinite:
            raise ConfigError("alpha_rank: epsilon belongs to alpha: infinite; leave it out.")
        if self.population_size < 2:
            raise ConfigError(f"alpha_rank: population_size is {self.population_size}, expected at least 2.")
        if self.model not in ("auto", "single_population", "multi_population"):
            raise ConfigError(
                f"alpha_rank: model is {self.model!r}, expected 'auto', 'single_population' or 'multi_population'."
            )
        if self.answer not in ("marginals", "joint"):
            raise ConfigError(f"alpha_rank: answer is {self.answer!r}, expected 'marginals' or 'joint'.")
        if self.answer == "joint" and self.model == "single_population":
            raise ConfigError("alpha_rank: a single population has no joint answer; use model: multi_population.")

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> Solution:
        """Raises SolverError for holes or NaN, a single-population model of anything but two players of one population, an alpha that
        splits the chain in floating point, and games of more than 12,000 profiles that are all visited. `warm` is not used."""
        games.require_complete(payoffs, "alpha_rank")
        mean = games.symmetrised(payoffs)
        if self._single(payoffs):
            ranked = self._ranked(single_population(mean[0]), games.payoff_range(mean))
            return Solution((ranked, ranked), games.nash_conv(payoffs, (ranked, ranked)))
        ranked = self._ranked(multi_population(mean), games.payoff_range(mean)).reshape(payoffs.sizes)
        joint = symmetric_joint(ranked, payoffs.population)
        if self.answer == "joint":
            return Solution(None, float(joint_gains(mean, joint, "cce").sum()), joint=joint)
        marginals = games.pooled(
            [games.distribution(m) for m in Solution(None, math.nan, joint=joint).strategies], payoffs.population
        )
        return Solution(marginals, games.nash_conv(payoffs, marginals))

    def _single(self, payoffs: Payoffs) -> bool:
        fits = payoffs.num_players == 2 and games.shared(payoffs)
        if self.model == "single_population" and not fits:
            raise SolverError(
                f"alpha_rank: single_population needs two players of one population, given {payoffs.num_players} of the populations "
                f"{list(payoffs.population)}; use model: multi_population."
            )
        return fits and self.answer == "marginals" and self.model != "multi_population"

    def _ranked(self, moves: Moves, scale: float) -> NDArray[np.float64]:
        """The stationary distribution over the states of `moves`."""
        tie = TIE * scale
        if self.alpha == "infinite":
            found = moves.stationary(response(moves.gain, self.epsilon, tie=tie))
            if found is None:  # several sinks, and no epsilon
                found = moves.stationary(response(moves.gain, SMALL, tie=tie))
        elif self.sweep:
            return self._swept(moves, float(self.alpha), scale)
        else:
            found = self._finite(moves, float(self.alpha))
        if found is None:
            raise SolverError(
                f"alpha_rank: alpha {self.alpha} times payoffs of range {scale:.6g} is too strong a selection for floating point: "
                "the chain falls apart. Use a smaller alpha, or 'infinite'."
            )
        return found

    def _finite(self, moves: Moves, alpha: float) -> NDArray[np.float64] | None:
        return moves.stationary(fixation(alpha * moves.gain, self.population_size))

    def _swept(self, moves: Moves, alpha: float, scale: float) -> NDArray[np.float64]:
        """The answer at the first alpha at which it has settled. Below alpha = 1 / range, where all strategies look alike, none has."""
        last, factor = self._finite(moves, alpha), 10.0
        while last is None:  # the start was too strong
            alpha /= 2.0
            last = self._finite(moves, alpha)
        while True:
            found = self._finite(moves, alpha * factor)
            if found is None:
                factor = math.sqrt(factor)
                if factor < FINEST:
                    return last
                continue
            alpha *= factor
            if _settled(found, last) and not 0.0 < alpha * scale < 1.0:
                return found
            last = found


def _settled(new: NDArray[np.float64], old: NDArray[np.float64]) -> bool:
    return bool(np.allclose(new, old, rtol=SETTLED, atol=LEAST))
