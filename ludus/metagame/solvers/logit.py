"""Logit quantal response equilibrium (QRE, McKelvey and Palfrey 1995), for any number of players."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ludus.core.errors import ConfigError, SolverError
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.base import MetaSolution
from ludus.metagame.solvers.limits import check_watcher

# --------------------------------------------------------------------------------------------------------------------
# The principal branch of logit quantal response equilibria, followed from uniform play (Turocy 2005). With y =
# log(strategy) of each population and u(y) its payoffs against the others, an equilibrium at the rationality λ
# solves F(y, λ) = y - λ u + log sum exp(λ u) = 0 for each population. Pseudo-arclength continuation (Allgower and
# Georg 1990, ch. 6): a step along the tangent, Newton's method back to the curve at right angles to it. λ may fall
# for a while where the branch turns back. In logarithms weights as small as exp(-700) keep their digits, and F is
# nearly linear in λ for strategies that die out.

Vector = NDArray[np.float64]

FIRST, LARGEST, SMALLEST = 0.05, 0.5, 1e-9  # step lengths: change of strategies and of log(1 + λ)
STRAIGHT, SMALLEST_TURN = (
    0.9,
    1e-6,
)  # the least cosine between one tangent and the next, for steps longer than the second
CORRECTIONS = 8  # Newton steps before a step along the curve counts as too long
ASIDE, CONTRACTION = (
    0.05,
    0.5,
)  # the most of a step that the first correction is, and of one correction that the next is
NEXT_TO_NOTHING = 1e-9  # the length of a correction that cannot lead anywhere else
MAX_STEPS = 20_000
FAR = 1e6  # of rationality times the payoffs' range: from there on gaps are below log(policies) / FAR of the range
HIGHEST = 3.0  # of a logarithm of a probability on the way


class QuantalResponse:
    """F and its derivatives for mean float64[P, n_0, …] with payoffs in [0, 1], symmetric where players share a population."""

    def __init__(self, mean: NDArray[np.float64], population: Sequence[int]) -> None:
        kinds = sorted(set(population))
        self.group = [kinds.index(p) for p in population]  # [P]
        self.mean = mean
        self.first = [self.group.index(g) for g in range(len(kinds))]  # a player of each group
        self.sizes = [mean.shape[1 + p] for p in self.first]
        self.start = np.concatenate([[0], np.cumsum(self.sizes)])

    def slices(self) -> list[slice]:
        return [slice(int(a), int(b)) for a, b in zip(self.start[:-1], self.start[1:], strict=True)]

    def strategies(self, y: Vector) -> list[Vector]:
        """Return per group, of sum 1."""
        return [np.exp(y[s] - logsumexp(y[s])) for s in self.slices()]

    def evaluate(self, y: Vector, rationality: float) -> tuple[Vector, NDArray[np.float64], Vector]:
        """Return (F float64[n], dF/dy float64[n, n], dF/dλ float64[n])"""
        probs = np.exp(y)
        slices = self.slices()
        value, by_y, by_rationality = y.copy(), np.eye(len(y)), np.empty_like(y)
        for player, own in zip(self.first, slices, strict=True):
            pairs = self._pairs(player, [probs[slices[h]] for h in self.group])
            payoff = pairs[0][1] @ probs[slices[self.group[pairs[0][0]]]] if pairs else self.mean[player]
            total = float(logsumexp(rationality * payoff))
            response = np.exp(rationality * payoff - total)
            value[own] += total - rationality * payoff
            by_rationality[own] = response @ payoff - payoff
            for other, table in pairs:
                opponent = slices[self.group[other]]
                centred = table - response @ table
                by_y[own, opponent] -= rationality * centred * probs[opponent]
        return value, by_y, by_rationality

    def _pairs(self, player: int, probs: Sequence[Vector]) -> list[tuple[int, NDArray[np.float64]]]:
        """Return (other, float64[n_player, n_other]): the payoff of each own strategy against each of the other's, the rest as they
        play."""
        out = []
        for other in range(len(self.mean)):
            if other != player:
                table = np.moveaxis(self.mean[player], (player, other), (0, 1))
                for third in reversed([p for p in range(len(self.mean)) if p not in (player, other)]):
                    table = table @ probs[third]
                out.append((other, table))
        return out


@dataclass(slots=True, eq=False)
class _Place:
    y: Vector
    rationality: float
    tangent: tuple[Vector, float]  # of length 1 as `_length` measures it, in the direction of travel


def follow_path(game: QuantalResponse, rationality: float) -> tuple[list[Vector], float]:
    """Return ([groups] float64[n] the strategies, where they are an equilibrium): at `rationality`, or at a smaller one, but above `FAR`,
    where rounding ends the branch. Raises SolverError if it cannot be followed so far."""
    y = np.concatenate([np.full(n, -np.log(n)) for n in game.sizes])
    place = _Place(y, 0.0, _tangent(game, y, 0.0, None))
    step = FIRST
    for _ in range(MAX_STEPS):
        check_watcher()
        if rationality <= place.rationality:
            break
        ahead = _advance(game, place, step)
        if ahead is None or ahead.rationality >= rationality:
            # either the step was too long, or the end is within reach
            between = _between(place, ahead, rationality) if ahead else None
            reached = _correct(game, *between, None, most=ASIDE * step) if between else None
            if reached is not None:
                return game.strategies(reached[0]), rationality
            step *= 0.5
            if step < SMALLEST:
                break
            continue
        place, step = ahead, min(1.5 * step, LARGEST)
    if place.rationality >= min(rationality, FAR):
        return game.strategies(place.y), min(rationality, place.rationality)
    raise SolverError(
        f"logit: the branch of equilibria could not be followed beyond rationality times payoff range {place.rationality:.6g}, "
        f"{rationality:.6g} was asked for. Use a lower `rationality`."
    )


def _advance(game: QuantalResponse, place: _Place, step: float) -> _Place | None:
    """Return the point `step` further along the curve; None if Newton's method does not find it, or the curve turns much on the way."""
    dy, dr = place.tangent
    y, rationality = place.y + step * dy, place.rationality + step * dr
    if y.max() > HIGHEST or rationality < 0.0:
        return None
    point = _correct(game, y, rationality, place, most=ASIDE * step)
    if point is None:
        return None
    ahead = _Place(*point, _tangent(game, *point, place))
    over_y, over_r = _weights(*point)
    turned = [np.append(np.sqrt(over_y) * t[0], np.sqrt(over_r) * t[1]) for t in (place.tangent, ahead.tangent)]
    straight = float(turned[0] @ turned[1]) >= STRAIGHT * float(np.linalg.norm(turned[0]))
    return ahead if straight or step < SMALLEST_TURN else None


def _between(place: _Place, ahead: _Place, rationality: float) -> tuple[Vector, float]:
    """Return a first guess at `rationality` on the line from one place to the next."""
    share = (rationality - place.rationality) / (ahead.rationality - place.rationality)
    return place.y + share * (ahead.y - place.y), rationality


def _length(y: Vector, rationality: float, dy: Vector, dr: float) -> float:
    over_y, over_r = _weights(y, rationality)
    return float(np.sqrt(over_y @ dy**2 + over_r * dr**2))


def _weights(y: Vector, rationality: float) -> tuple[Vector, float]:
    """Lengths are measured in probabilities and in log(1 + λ): d(exp y) and dλ / (1 + λ)."""
    return np.exp(np.minimum(2.0 * y, 0.0)), 1.0 / (1.0 + rationality) ** 2


def _tangent(game: QuantalResponse, y: Vector, rationality: float, last: _Place | None) -> tuple[Vector, float]:
    """Return the direction in which F stays 0: towards larger λ at first, then the one that turns less than a right angle."""
    _, by_y, by_rationality = game.evaluate(y, rationality)
    over_y, over_r = _weights(y, rationality)
    old_y, old_r = last.tangent if last else (np.zeros_like(y), 1.0)
    matrix = np.block([[by_y, by_rationality[:, None]], [(over_y * old_y)[None], np.array([[over_r * old_r]])]])
    direction = _solve(matrix, np.append(np.zeros(len(y)), 1.0))
    if direction is None:
        return old_y, old_r
    dy, dr = direction[:-1], float(direction[-1])
    length = _length(y, rationality, dy, dr)
    return dy / length, dr / length


def _correct(
    game: QuantalResponse, y: Vector, rationality: float, place: _Place | None, *, most: float
) -> tuple[Vector, float] | None:
    """Newton's method: at right angles to the place's tangent, or at this very λ if `place` is None. most: length of the first correction;
    a longer one, or corrections that do not get shorter, might lead to another branch."""
    enough = 1e-10 + 1e-13 * rationality
    for _ in range(CORRECTIONS):
        value, by_y, by_rationality = game.evaluate(y, rationality)
        if not np.isfinite(value).all():
            return None
        if place is None:
            change = _solve(by_y, -value)
            by = 0.0
        else:
            over_y, over_r = _weights(place.y, place.rationality)
            row = np.append(over_y * place.tangent[0], over_r * place.tangent[1])
            full = np.vstack([np.hstack([by_y, by_rationality[:, None]]), row])
            newton_step = _solve(full, -np.append(value, 0.0))
            change, by = (None, 0.0) if newton_step is None else (newton_step[:-1], float(newton_step[-1]))
        if change is None or (y + change).max() > HIGHEST or rationality + by < 0.0:
            return None
        moved = _length(y, rationality, change, by)
        if moved > most and moved > NEXT_TO_NOTHING:  # towards another branch, maybe
            return None
        most = CONTRACTION * moved
        y, rationality = y + change, rationality + by
        if np.abs(np.expm1(np.minimum(change, 1.0)) * np.exp(y)).max() <= enough and np.abs(value).max() <= 1e-6:
            return y, rationality
    return None


def _solve(matrix: NDArray[np.float64], right: Vector) -> Vector | None:
    try:
        solution = np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    return solution if np.isfinite(solution).all() else None


@dataclass(frozen=True, kw_only=True)
class Logit:
    """Logit quantal response equilibrium (QRE, McKelvey and Palfrey 1995): each player plays softmax(rationality × payoffs against
    the others).

    0 is uniform; large values are near a Nash equilibrium. Where there are several such equilibria, the one on the principal branch, which
    leads from uniform play, is taken; it is unique in almost all games. The gap is what deviations gain: it shrinks as λ grows, about as
    log(policies) / λ. Players who share a population get the same strategy.

    Attributes:
        rationality: λ, per unit of payoff.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    rationality: float = 10.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.rationality < math.inf:
            raise ConfigError(
                f"logit: rationality is {self.rationality}, expected a number per unit of payoff, 0 or more."
            )

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError for missing entries or NaN, and if the branch cannot be followed up to `rationality`, or
        to where that makes no difference (with a note). `warm` is not used."""
        normal_form.require_complete(payoffs, "logit")
        mean = normal_form.symmetrize(payoffs)
        scale = normal_form.payoff_range(mean) or 1.0
        least = mean.reshape(len(mean), -1).min(axis=1).reshape(-1, *[1] * len(mean))
        game = QuantalResponse((mean - least) / scale, payoffs.population)
        strategies, reached = follow_path(game, self.rationality * scale)
        marginals: tuple[NDArray[np.float64], ...] = tuple(strategies[group] for group in game.group)
        note = ""
        if reached < self.rationality * scale:
            note = (
                f"logit: rounding ended the branch of equilibria at rationality {reached / scale:.3g}; {self.rationality:.3g} was asked "
                f"for. The answer is the equilibrium there, next to Nash's; a rationality of {FAR / scale:.1g} is enough for that."
            )
        return MetaSolution(marginals, normal_form.nash_conv(payoffs, marginals), note=note)
