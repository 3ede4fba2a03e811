"""Softmax of ratings: better policies more often, the weaker ones not never."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from ludus.core.errors import ConfigError, SolverError
from ludus.metagame.population.base import Payoffs
from ludus.metagame.population.ratings.bradley_terry import Likelihood, maximize
from ludus.metagame.population.ratings.win_counts import PairCounts
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.base import MetaSolution

PRIOR = 1.0  # draws against an average policy that each starts with, so that unbeaten ones stay finite


@dataclass(frozen=True, kw_only=True)
class RatingSoftmax:
    """Probability proportional to exp(rating / temperature), within each population.

    No single number orders policies in games with cycles. The gap is what deviations gain; a softmax does not minimize it.

    Attributes:
        rating: "mean": the mean payoff against uniformly sampled co-players, as a fraction of the payoffs' range; temperature 0.1 then
            makes a policy that earns a tenth of the range more e times as likely. "elo": maximum-likelihood Elo (Bradley and Terry 1952)
            in units of 400 / ln 10 points, in which a rating higher by 1 wins with odds of e : 1. It needs a two-player zero-sum game with
            bounded
            returns: the share of the way from the least to the largest return counts as the share of games won.
        temperature: Temperature of the softmax.
        rounds: Games that each pair of policies counts as, for "elo" (in each seat order).
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    rating: Literal["mean", "elo"] = "mean"
    temperature: float = 0.1
    rounds: int = 100

    def __post_init__(self) -> None:
        if self.rating not in ("mean", "elo"):
            raise ConfigError(f"rating_softmax: rating is {self.rating!r}, expected 'mean' or 'elo'.")
        if not self.temperature > 0.0:
            raise ConfigError(f"rating_softmax: temperature is {self.temperature}, expected above 0.")
        if self.rounds < 1:
            raise ConfigError(f"rating_softmax: rounds is {self.rounds}, expected at least 1.")

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError for missing entries or NaN, and with "elo" for other games than two-player zero-sum ones
        with bounds."""
        normal_form.require_complete(payoffs, "rating_softmax")
        ratings = self._elo(payoffs) if self.rating == "elo" else mean_ratings(payoffs)
        marginals = normal_form.pool_marginals([softmax(r / self.temperature) for r in ratings], payoffs.population)
        return MetaSolution(marginals, normal_form.nash_conv(payoffs, marginals))

    def _elo(self, payoffs: Payoffs) -> list[NDArray[np.float64]]:
        """Return [P] float64[n_p], natural units; both populations on one scale."""
        normal_form.require_two_player_zero_sum(
            payoffs, "rating_softmax with elo", advice="rating: mean takes any game"
        )
        low, high = payoffs.utility_range[0]
        if not (np.isfinite((low, high)).all() and low < high):
            raise SolverError(
                f"rating_softmax: elo needs the least and the largest return, given {[low, high]}; use rating: mean."
            )
        rows, columns = payoffs.sizes
        share = np.clip((payoffs.mean[0] - low) / (high - low), 0.0, 1.0) * self.rounds
        if normal_form.share_population(payoffs):
            rating = _log_strengths(share + self.rounds - share.T)
            return [rating, rating]
        won = np.zeros((rows + columns, rows + columns))
        won[:rows, rows:], won[rows:, :rows] = share, self.rounds - share.T
        rating = _log_strengths(won)
        return [rating[:rows], rating[rows:]]


def _log_strengths(won: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64[n] from how often i beat j, float64[n, n]; games against itself do not count."""
    return maximize(Likelihood.of(PairCounts.of(won), PRIOR, davidson=False))[0]


def mean_ratings(payoffs: Payoffs) -> list[NDArray[np.float64]]:
    """Return [P] float64[n_p]: mean payoffs against uniformly drawn co-players, as fractions of the payoffs' range; seats of a shared
    population are pooled."""
    mean = normal_form.symmetrize(payoffs)
    scale = normal_form.payoff_range(mean) or 1.0
    uniform = [normal_form.uniform(size) for size in payoffs.sizes]
    return [normal_form.values_against(mean, uniform, player) / scale for player in range(payoffs.num_players)]
