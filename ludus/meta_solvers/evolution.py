"""α-Rank's Markov chain: mutants that appear one at a time and take over their population, or die out (Omidshafiei et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.meta_solvers.stationary import stationary


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """Every mutation: source, target int64[E] states, gain float64[E]: by how much the mutant's payoff is above the resident's.

    Each state has equally many, and each is tried equally often, so the common factor of the rates is left out.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    gain: NDArray[np.float64]
    states: int

    def stationary(self, rate: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """float64[states], where the mutant of each move takes over with probability `rate`; None if that is not unique."""
        return stationary(self.source, self.target, rate, self.states)


def multi_population(mean: NDArray[np.float64]) -> Moves:
    """A population per player; states are the profiles of mean float64[P, n_0, …] in C order (ibid., section 2.4.1)."""
    sizes = mean.shape[1:]
    index = np.arange(int(np.prod(sizes)), dtype=np.int64).reshape(sizes)
    source, target, gain = [], [], []
    for player, table in enumerate(mean):
        size = sizes[player]
        state = np.moveaxis(index, player, 0).reshape(size, -1)
        payoff = np.moveaxis(table, player, 0).reshape(size, -1)
        resident, mutant = np.nonzero(~np.eye(size, dtype=np.bool_))
        source.append(state[resident].ravel())
        target.append(state[mutant].ravel())
        gain.append((payoff[mutant] - payoff[resident]).ravel())
    return Moves(np.concatenate(source), np.concatenate(target), np.concatenate(gain), index.size)


def single_population(payoff: NDArray[np.float64]) -> Moves:
    """One population of a symmetric game, payoff float64[n, n] of the row player; states are strategies. A mutant's payoff is what it
    earns against the resident, and the resident's what that earns against the mutant."""
    resident, mutant = np.nonzero(~np.eye(len(payoff), dtype=np.bool_))
    return Moves(resident, mutant, payoff[mutant, resident] - payoff[resident, mutant], len(payoff))


def fixation(strength: NDArray[np.float64], population_size: int) -> NDArray[np.float64]:
    """Probability that a mutant with the advantage u = alpha (f_mutant - f_resident) takes over m residents (ibid., eq. 5):

    (1 - exp(-u)) / (1 - exp(-m u)), and 1 / m for u = 0. Written so that neither sign of u overflows.
    """
    m = population_size
    size = np.abs(strength)
    with np.errstate(invalid="ignore", under="ignore"):
        upward = np.expm1(-size) / np.expm1(-m * size)
    upward = np.where(size < 1e-14, 1.0 / m, upward)
    # for u < 0, numerator and denominator are multiplied with exp(u) and exp(m u)
    with np.errstate(under="ignore"):
        return np.asarray(np.where(strength < 0.0, upward * np.exp(-(m - 1) * size), upward))


def response(gain: NDArray[np.float64], epsilon: float, *, tie: float) -> NDArray[np.float64]:
    """The limit of infinite alpha, noise epsilon: 1 - epsilon for a mutant that earns more, 1/2 for an equal, epsilon for a worse one
    (Rowland et al. 2019, section 2; the limit of `fixation` with m residents has 1 / m instead of 1/2 for equals)."""
    return np.where(np.abs(gain) <= tie, 0.5, np.where(gain > 0.0, 1.0 - epsilon, epsilon))
