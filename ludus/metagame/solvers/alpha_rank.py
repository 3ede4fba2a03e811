"""α-Rank (Omidshafiei et al. 2019): how often evolution under strong selection visits each strategy, for any number of players."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ludus.core.errors import ConfigError, SolverError
from ludus.core.ties import TIE
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.base import MetaSolution
from ludus.metagame.solvers.limits import check_watcher, require_memory
from ludus.metagame.solvers.normal_form import joint_gains, symmetric_joint

# --------------------------------------------------------------------------------------------------------------------
# Stationary distributions of finite Markov chains, exact to rounding in every entry. The elimination of Grassmann,
# Taksar and Heyman (1985) adds, multiplies and divides numbers >= 0 and never subtracts, so each entry of the
# answer keeps its digits however slow the chain mixes: probabilities of 1e-12 between clusters of states do no harm
# (O'Cinneide 1993). Eliminated in blocks, nearly all of its 2/3 n^3 operations are matrix products.

BLOCK = 32
CHUNK = 512  # rows of a product held at a time
MAX_STATES = 12_000  # 1.2 GB


def stationary(
    source: NDArray[np.int64], target: NDArray[np.int64], rate: NDArray[np.float64], states: int
) -> NDArray[np.float64] | None:
    """Return float64[states]: the stationary distribution of the chain with these transitions; None if it has several, or if its rates are
    too far apart for floating point to tell.

    source, target int64[E], rate float64[E] >= 0: at most one transition per ordered pair of different states; rates may have any
    common scale. States outside the one recurrent class get 0. Raises SolverError if that class has more than 12,000 states.
    """
    check_watcher()
    if not (positive := rate > 0.0).all():
        source, target, rate = source[positive], target[positive], rate[positive]
    graph = coo_array((rate, (source, target)), shape=(states, states)).tocsr()
    classes, of = connected_components(graph, directed=True, connection="strong")
    leaves = np.zeros(classes, dtype=np.bool_)
    leaves[of[source[of[source] != of[target]]]] = True
    recurrent = np.flatnonzero(~leaves)
    if len(recurrent) > 1:
        return None
    members = np.flatnonzero(of == recurrent[0])
    require_memory(
        16.0 * len(members) ** 2,  # the chain, and what its blocks add
        solver="alpha_rank",
        what=f"a Markov chain of {len(members)} states",
        advice="Use fewer policies.",
    )
    if len(members) > MAX_STATES:
        raise SolverError(
            f"alpha_rank: a Markov chain of {len(members)} states is too large to solve, at most {MAX_STATES} are; use fewer policies."
        )
    chain = graph if len(members) == states else graph[members][:, members]
    del (
        graph,
        source,
        target,
        rate,
    )  # a chain of a thousand states has a million transitions, and is as large as a table
    weights = eliminate(chain.toarray())
    if weights is None:
        return None
    out = np.zeros(states)
    out[members] = weights
    return out


def eliminate(rates: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return float64[n]: the stationary distribution of the irreducible chain with transition rates float64[n, n], which are overwritten.

    The diagonal does not matter. None if rates are so far apart that products of them underflow.
    """
    n = len(rates)
    for first in range(0, n, BLOCK):
        check_watcher()
        last = min(first + BLOCK, n)
        if not _eliminate_rows(rates, first, last):
            return None
        _eliminate_columns(rates, first, last)
        ahead = rates[first:last, last:]
        for row in range(last, n, CHUNK):
            end = min(row + CHUNK, n)
            rates[row:end, last:] += rates[row:end, first:last] @ ahead
    with np.errstate(over="ignore", invalid="ignore"):  # looked at here
        weights = _substitute(rates)
    return weights if np.isfinite(weights).all() else None


def _eliminate_rows(rates: NDArray[np.float64], first: int, last: int) -> bool:
    """Finish rows first:last. A row's entries left of the diagonal become the factors by which earlier rows were added to it."""
    final = len(rates) - 1
    for k in range(first, last):
        out = rates[k, k + 1 :].sum()  # the chance to leave for states that are still there
        if not out > 0.0 and k < final:
            return False
        rates[k, k] = out
        below = rates[k + 1 : last]
        below[:, k] /= out
        below[:, k + 1 :] += np.multiply.outer(below[:, k], rates[k, k + 1 :])
    return True


def _eliminate_columns(rates: NDArray[np.float64], first: int, last: int) -> None:
    """Turn columns first:last of the rows below into factors."""
    below = rates[last:]
    for k in range(first, last):
        below[:, k] /= rates[k, k]
        below[:, k + 1 : last] += np.multiply.outer(below[:, k], rates[k, k + 1 : last])


def _substitute(factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weight of the last state is 1; each earlier one is visited `factors` times per visit of later ones."""
    n = len(factors)
    weight = np.zeros(n)
    weight[n - 1] = 1.0
    for i in range(n - 1, 0, -1):  # by rows, as they lie in memory
        if weight[i] > 1e200:
            weight /= weight[i]
        weight[:i] += weight[i] * factors[i, :i]
    weight /= weight.sum()
    return weight


# --------------------------------------------------------------------------------------------------------------------
# α-Rank's Markov chain: mutants that appear one at a time and take over their population, or die out (Omidshafiei
# et al. 2019).


@dataclass(frozen=True, slots=True, eq=False)
class Mutations:
    """Every mutation: source, target int64[E] states, gain float64[E]: by how much the mutant's payoff is above the resident's.

    Each state has equally many, and each is tried equally often, so the common factor of the rates is left out.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    gain: NDArray[np.float64]
    states: int

    def stationary(self, rate: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Return float64[states], where the mutant of each move takes over with probability `rate`; None if that is not unique."""
        return stationary(self.source, self.target, rate, self.states)


def multi_population(mean: NDArray[np.float64]) -> Mutations:
    """Return a population per player; states are the profiles of mean float64[P, n_0, …] in C order (ibid., section 2.4.1)."""
    sizes = mean.shape[1:]
    profiles = int(np.prod(sizes))
    moves = float(profiles) * sum(size - 1 for size in sizes)
    require_memory(
        120.0 * moves,  # source, target and gain, in pieces and as one, and the graph of them
        solver="alpha_rank",
        what=f"{profiles:,} profiles with {moves:,.0f} moves between them",
        advice="Use fewer policies.",
    )
    index = np.arange(profiles, dtype=np.int64).reshape(sizes)
    source, target, gain = [], [], []
    for player, table in enumerate(mean):
        size = sizes[player]
        state = np.moveaxis(index, player, 0).reshape(size, -1)
        payoff = np.moveaxis(table, player, 0).reshape(size, -1)
        resident, mutant = np.nonzero(~np.eye(size, dtype=np.bool_))
        source.append(state[resident].ravel())
        target.append(state[mutant].ravel())
        gain.append((payoff[mutant] - payoff[resident]).ravel())
    return Mutations(np.concatenate(source), np.concatenate(target), np.concatenate(gain), index.size)


def single_population(payoff: NDArray[np.float64]) -> Mutations:
    """One population of a symmetric game, payoff float64[n, n] of the row player; states are strategies. A mutant's payoff is what it
    earns against the resident, and the resident's what that earns against the mutant."""
    resident, mutant = np.nonzero(~np.eye(len(payoff), dtype=np.bool_))
    return Mutations(resident, mutant, payoff[mutant, resident] - payoff[resident, mutant], len(payoff))


def fixation(strength: NDArray[np.float64], population_size: int) -> NDArray[np.float64]:
    """Return probability that a mutant with the advantage u = alpha (f_mutant - f_resident) takes over m residents (ibid., eq. 5):

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
    """Return the limit of infinite alpha, noise epsilon: 1 - epsilon for a mutant that earns more, 1/2 for an equal, epsilon for a worse
    one (Rowland et al. 2019, section 2; the limit of `fixation` with m residents has 1 / m instead of 1/2 for equals)."""
    return np.where(np.abs(gain) <= tie, 0.5, np.where(gain > 0.0, 1.0 - epsilon, epsilon))


SETTLED, LEAST = (
    1e-5,
    1e-8,
)  # a sweep ends when a stronger selection changes no probability by a larger part, or by more than the second
FINEST = 1.01  # factor between two alphas below which a sweep no longer refines
SMALL = 1e-10  # the epsilon that stands for the limit of small ones where it decides between several sinks


@dataclass(frozen=True, kw_only=True)
class AlphaRank:
    """α-Rank (Omidshafiei et al. 2019): the stationary distribution of the Markov chain of mutants that take over populations.

    Equal payoffs are those that differ by at most 1e-12 of their range. The gap is what deviations gain (from the joint distribution: by
    one fixed strategy); α-Rank does not minimize it. Over a shared population a joint distribution is symmetric.

    Attributes:
        alpha: Strength of selection per unit of payoff, or "infinite": mutants that earn more always take over, equal ones half the time.
        sweep: Raise `alpha` tenfold until the answer settles (within 1e-5 of each probability). It ends early where the next chain would
            hold rates too far apart for floating point; "infinite" has no such trouble.
        epsilon: With "infinite", the probability that a mutant that earns less takes over; 0 is the limit of small ones, computed directly.
        population_size: m of the paper; only used for finite alpha.
        model: "multi_population" (a population per player: states are profiles), "single_population" (two players of one population: states
            are policies), or "auto": the second where it fits and `answer` is marginals.
        answer: "marginals" of each player, or "joint" over profiles.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    ignores_copies: ClassVar[bool] = True

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

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError for missing entries or NaN, a single-population model of anything but two players of one
        population, an alpha that splits the chain in floating point, and games of more than 12,000 profiles that are all visited. `warm` is
        not used."""
        normal_form.require_complete(payoffs, "alpha_rank")
        mean = normal_form.symmetrize(payoffs)
        if self._single(payoffs):
            ranked = self._ranked(single_population(mean[0]), normal_form.payoff_range(mean))
            return MetaSolution((ranked, ranked), normal_form.nash_conv(payoffs, (ranked, ranked)))
        ranked = self._ranked(multi_population(mean), normal_form.payoff_range(mean)).reshape(payoffs.sizes)
        joint = symmetric_joint(ranked, payoffs.population)
        if self.answer == "joint":
            return MetaSolution(None, float(joint_gains(mean, joint, "cce").sum()), joint=joint)
        marginals = normal_form.pool_marginals(
            [normal_form.distribution(m) for m in MetaSolution(None, math.nan, joint=joint).strategies],
            payoffs.population,
        )
        return MetaSolution(marginals, normal_form.nash_conv(payoffs, marginals))

    def _single(self, payoffs: Payoffs) -> bool:
        fits = payoffs.num_players == 2 and normal_form.share_population(payoffs)
        if self.model == "single_population" and not fits:
            raise SolverError(
                f"alpha_rank: single_population needs two players of one population, given {payoffs.num_players} of the populations "
                f"{list(payoffs.population)}; use model: multi_population."
            )
        return fits and self.answer == "marginals" and self.model != "multi_population"

    def _ranked(self, moves: Mutations, scale: float) -> NDArray[np.float64]:
        """Return the stationary distribution over the states of `moves`."""
        tie = TIE * scale
        if self.alpha == "infinite":
            distribution = moves.stationary(response(moves.gain, self.epsilon, tie=tie))
            if distribution is None:  # several sinks, and no epsilon
                distribution = moves.stationary(response(moves.gain, SMALL, tie=tie))
        elif self.sweep:
            return self._swept(moves, float(self.alpha), scale)
        else:
            distribution = self._finite(moves, float(self.alpha))
        if distribution is None:
            raise SolverError(
                f"alpha_rank: alpha {self.alpha} times payoffs of range {scale:.6g} is too strong a selection for floating point: "
                "the chain falls apart. Use a smaller alpha, or 'infinite'."
            )
        return distribution

    def _finite(self, moves: Mutations, alpha: float) -> NDArray[np.float64] | None:
        return moves.stationary(fixation(alpha * moves.gain, self.population_size))

    def _swept(self, moves: Mutations, alpha: float, scale: float) -> NDArray[np.float64]:
        """Return the answer at the first alpha at which it has settled. Below alpha = 1 / range, where all strategies look alike, none
        has."""
        last, factor = self._finite(moves, alpha), 10.0
        while last is None:  # the start was too strong
            alpha /= 2.0
            last = self._finite(moves, alpha)
        while True:
            distribution = self._finite(moves, alpha * factor)
            if distribution is None:
                factor = math.sqrt(factor)
                if factor < FINEST:
                    return last
                continue
            alpha *= factor
            if _settled(distribution, last) and not 0.0 < alpha * scale < 1.0:
                return distribution
            last = distribution


def _settled(new: NDArray[np.float64], old: NDArray[np.float64]) -> bool:
    return bool(np.allclose(new, old, rtol=SETTLED, atol=LEAST))
