"""Rectified Nash (Balduzzi et al. 2019, PSRO_rN): the Nash strategy, and the opponents that each policy in it holds its own against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import SolverError
from ludus.population.payoffs import Payoffs
from ludus.solvers import games
from ludus.solvers.nash import Nash


@dataclass(frozen=True, kw_only=True)
class RectifiedNash(Nash):
    """The equilibrium of `Nash`, with its options. What rN changes is who trains against whom: each policy with weight gets a response of
    its own, trained against `rectified(payoffs, solution.marginals)`, "amplify strengths, ignore weaknesses".
    """

    needs: ClassVar[frozenset[str]] = Nash.needs


@dataclass(frozen=True, slots=True, eq=False)
class Rectified:
    """For each player p and each of its policies i, a distribution over the other player's policies.

    opponents: [2] float64[n_p, n_{1-p}], rows of sum 1; rows of zeros for policies that get no response: they have no weight, or, where
    the equilibrium is approximate, a small weight and nobody in it to beat. weights: [2] float64[n_p], the Nash strategies.
    """

    opponents: tuple[NDArray[np.float64], NDArray[np.float64]]
    weights: tuple[NDArray[np.float64], ...]


def rectified(payoffs: Payoffs, marginals: games.Marginals) -> Rectified:
    """Row i is the other player's Nash strategy, limited to those that policy i beats or ties (ibid., definition 5 and algorithm 4).

    To beat is to earn more than the value of the game, which is 0 in the symmetric games of the paper. Raises SolverError as `Nash` does.
    """
    games.require_two_player_zero_sum(payoffs, "rectified_nash")
    games.require_complete(payoffs, "rectified_nash")
    if [len(m) for m in marginals] != list(payoffs.sizes):
        raise SolverError(
            f"rectified_nash: marginals of the sizes {[len(m) for m in marginals]} were given for populations of {list(payoffs.sizes)}."
        )
    matrix = games.zero_sum_matrix(payoffs)
    edge = matrix - marginals[0] @ matrix @ marginals[1]
    tie = games.SUM_TOLERANCE * max(games.payoff_range(payoffs.mean), 1e-300)
    return Rectified((_rows(edge, marginals, tie=tie), _rows(-edge.T, marginals[::-1], tie=tie)), tuple(marginals))


def _rows(edge: NDArray[np.float64], marginals: games.Marginals, *, tie: float) -> NDArray[np.float64]:
    """float64[n, m] from one player's advantages float64[n, m] and the strategies (own, other)."""
    own, other = marginals
    kept = np.where(edge >= -tie, other, 0.0) * (own > 0.0)[:, None]
    total = kept.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(kept, total, out=np.zeros_like(kept), where=total > 0.0))
