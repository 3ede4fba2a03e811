"""Prioritised fictitious self-play: opponents weighted by how the newest policies fare against them (Vinyals et al. 2019).

PFSP has four places, which share `pfsp`: the meta-solver `pfsp` (here), the schedule `pfsp` and the rule `prioritised` of self-play
(`schedulers/self_play.py`), the rule `pfsp` of `AdaptiveMixture` (`rollout/opponent_rules.py`), and leagues (`schedulers/league.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, SolverError
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.base import MetaSolution

Weighting: TypeAlias = Literal["squared", "variance", "linear", "linear_capped"]
WEIGHTINGS: tuple[Weighting, ...] = ("squared", "variance", "linear", "linear_capped")


def pfsp_weights(win_rate: NDArray[np.float64], weighting: Weighting) -> NDArray[np.float64]:
    """Return float64[K] -> float64[K], not normalised: how much an opponent that the learner beats with this probability matters (Vinyals
    et al. 2019, "prioritized fictitious self-play"). squared: (1 - x)², the hard ones; variance: x (1 - x), those of one's own level;
    linear: 1 - x; linear_capped: min(½, 1 - x)."""
    lost = 1.0 - win_rate
    if weighting == "squared":
        return np.asarray(lost**2)
    if weighting == "variance":
        return np.asarray(win_rate * lost)
    if weighting == "linear":
        return np.asarray(lost)
    if weighting == "linear_capped":
        return np.asarray(np.minimum(0.5, lost))
    raise ConfigError(f"weighting {weighting!r} was given; there are {', '.join(WEIGHTINGS)}.")


def pfsp(win_rate: NDArray[np.float64], weighting: Weighting) -> NDArray[np.float64]:
    """Return float64[K] probabilities; uniform where no opponent matters (all are always beaten)."""
    weight = pfsp_weights(win_rate, weighting)
    total = weight.sum()
    return np.asarray(weight / total) if total > 0 else np.full(len(weight), 1.0 / len(weight))


@dataclass(frozen=True, kw_only=True)
class PFSPSolver:
    """Prioritized fictitious self-play (Vinyals et al. 2019): policy j has the weight f(x_j), x_j being how often the other players' newest
    policies beat it.

    Only profiles in which all players but one play their newest policy are read; missing entries elsewhere do not matter. With more than
    two players x_j is the mean over the others. Players who share a population get one strategy, the mean over their seats. The gap is what
    deviations gain; PFSP does not minimize it. It is NaN if entries are missing.

    Attributes:
        weighting: f. "squared": (1 - x)², the hardest opponents; "variance": x (1 - x), those of one's own level; "linear": 1 - x;
            "linear_capped": min(1/2, 1 - x). Uniform where f is 0 for all.
        span: Returns of a defeat and of a victory, between which win rates are read off linearly and cut off beyond; None: the game's least
            and largest return. With returns of -1, 0 and 1 that counts draws half.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    weighting: Weighting = "squared"
    span: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.weighting not in WEIGHTINGS:
            raise ConfigError(f"pfsp: weighting is {self.weighting!r}, expected one of {', '.join(WEIGHTINGS)}.")
        if self.span is not None and not (np.isfinite(self.span).all() and self.span[0] < self.span[1]):
            raise ConfigError(
                f"pfsp: span is {self.span}, expected the return of a defeat and a larger one of a victory."
            )

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError for an empty population, a missing entry or NaN among the profiles that are read, and
        unbounded returns without a `span`. One player has no opponents: uniform."""
        normal_form.require_populated(payoffs, "pfsp")
        spans = self._spans(payoffs)
        by_player = [pfsp(_beaten(payoffs, player, spans), self.weighting) for player in range(payoffs.num_players)]
        marginals = normal_form.pool_marginals(by_player, payoffs.population)
        return MetaSolution(marginals, normal_form.nash_conv(payoffs, marginals))

    def _spans(self, payoffs: Payoffs) -> NDArray[np.float64]:
        """Return float64[P, 2]: each player's returns of a defeat and of a victory."""
        spans = np.array([self.span or bounds for bounds in payoffs.utility_range], dtype=np.float64)
        if not (np.isfinite(spans).all() and (spans[:, 0] < spans[:, 1]).all()):
            raise SolverError(
                f"pfsp: win rates need the returns of a defeat and of a victory, given {spans.tolist()}; set `span`."
            )
        return spans


def _beaten(payoffs: Payoffs, player: int, spans: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64[n_player] in [0, 1]: how often the others' newest policies beat each of the player's, on average over them."""
    others = [p for p in range(payoffs.num_players) if p != player]
    if not others:
        return np.full(payoffs.sizes[0], 0.5)
    newest: list[Any] = [size - 1 for size in payoffs.sizes]
    newest[player] = slice(None)
    earned = payoffs.mean[(others, *newest)]
    bad = np.flatnonzero(~np.isfinite(earned).all(axis=0))
    if len(bad):
        newest[player] = int(bad[0])
        raise SolverError(f"pfsp: profile {tuple(newest)} has no payoff yet. Evaluate it before solving.")
    low, high = spans[others].T[:, :, None]
    return np.asarray(np.clip((earned - low) / (high - low), 0.0, 1.0).mean(axis=0))
