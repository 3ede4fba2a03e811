"""The likelihood of paired comparisons with draws, and its maximum.

Davidson (1970, JASA 65, eq. 2.3): with strengths e^t and a draw parameter v = e^h,

    P(i beats j) = e^(d/2) / Z,    P(draw) = v / Z,    Z = 2 cosh(d/2) + v,    d = t_i - t_j.

v = 0 is the model of Bradley and Terry (1952), in which a draw counts as half a win. The logarithm is concave in (t, h). To it comes a
prior: `prior` draws, by v = 0, of every policy against one of strength 1 (as in Caron and Doucet 2012), and `prior` draws and wins among
equals for v; so unbeaten policies, and those that only drew, stay finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky
from scipy.linalg.lapack import dpotri
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import cg

from ludus.errors import DataError
from ludus.population.ratings.results import Pairs

Vector = NDArray[np.float64]
Index = NDArray[np.int64]
MOST_STEPS, HALVINGS = 200, 40
RIDGE = (
    1e-9  # keeps what neither data nor prior decide (the common level of all strengths, without a prior) where it is
)
SPARSE = 20  # one in so many entries: from there on a Newton step costs less by conjugate gradients


@dataclass(frozen=True, eq=False)
class Curve:
    """At one point: the log-likelihood with its prior, its gradient float64[m], minus its Hessian float64[m, m] (sparse where few of
    many policies met)."""

    value: float
    gradient: Vector
    information: NDArray[np.float64] | csr_array

    @cached_property
    def factor(self) -> NDArray[np.float64]:
        """float64[m, m]: lower triangular L, the information being L L'."""
        information = self.information
        dense = information.toarray() if isinstance(information, csr_array) else information
        return np.asarray(cholesky(dense, lower=True, check_finite=False))


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Of the results `pairs` of n policies. Parameters float64[m]: n log strengths, and the log of the draw parameter if there are draws
    that are to be modelled (`davidson`)."""

    pairs: Pairs
    prior: float
    davidson: bool

    @cached_property
    def drawn(self) -> bool:
        """Whether the draw parameter is among the parameters."""
        return self.davidson and bool(self.pairs.drawn.any())

    @cached_property
    def size(self) -> int:
        return self.pairs.n + int(self.drawn)

    @cached_property
    def _data(self) -> tuple[Index, Index, Vector, Vector, float]:
        """Of each pair that met: its first and second policy, and their games. Half of wins minus losses; number of draws that are
        modelled."""
        pairs, n = self.pairs, self.pairs.n
        net = 0.5 * (pairs.won - pairs.lost)
        score = np.asarray(np.bincount(pairs.first, net, n) - np.bincount(pairs.second, net, n), dtype=np.float64)
        return pairs.first, pairs.second, pairs.games, score, float(pairs.drawn.sum()) if self.drawn else 0.0

    def value(self, at: Vector) -> float:
        """The log-likelihood with its prior; constants of the data are left out."""
        first, second, games, score, draws = self._data
        strength, log_draw = self._split(at)
        distance = np.abs(strength[first] - strength[second]) / 2
        draw = np.exp(log_draw)
        partition = distance + np.log(1 + np.exp(-2 * distance) + draw * np.exp(-distance))
        value = strength @ score - float(games @ partition)
        value -= self.prior * float((np.abs(strength) / 2 + np.log1p(np.exp(-np.abs(strength)))).sum())
        if self.drawn:
            value += (draws + self.prior) * log_draw - 2 * self.prior * np.log(2 + draw)
        return float(value)

    def curve(self, at: Vector) -> Curve:
        """Value, gradient and information."""
        first, second, games, score, draws = self._data
        strength, log_draw = self._split(at)
        n, draw = len(strength), float(np.exp(log_draw))
        difference = strength[first] - strength[second]
        e = np.exp(-np.abs(difference) / 2)
        z = 1 + e**2 + draw * e  # Z and all that is divided by it are scaled by e, so nothing overflows
        slope = games * np.sign(difference) * (1 - e**2) / (2 * z)
        bend = games * (e**2 + draw * e * (1 + e**2) / 4) / z**2
        gradient = np.empty(self.size)
        likely = 1 / (1 + np.exp(-strength))
        gradient[:n] = score - self._sums(slope, -slope) + self.prior * (0.5 - likely)
        diagonal = self._sums(bend, bend) + self.prior * likely * (1 - likely) + RIDGE
        if not self.drawn:
            return Curve(self.value(at), gradient, self._symmetric((first, second), -bend, diagonal))
        share = draw * e / z
        against = draw / (2 + draw)
        gradient[n] = draws + self.prior - float(games @ share) - 2 * self.prior * against
        last = float(games @ (share * (1 - share))) + 2 * self.prior * against * (1 - against)
        at_side = (np.concatenate([first, np.arange(n)]), np.concatenate([second, np.full(n, n)]))
        side = np.concatenate([-bend, -self._sums(slope * share, -slope * share)])
        return Curve(self.value(at), gradient, self._symmetric(at_side, side, np.append(diagonal, last)))

    def _symmetric(self, at: tuple[Index, Index], side: Vector, diagonal: Vector) -> NDArray[np.float64] | csr_array:
        """The matrix [m, m] with `side` at the places `at` above its diagonal."""
        m, every = len(diagonal), np.arange(len(diagonal))
        if SPARSE * len(side) > m * m:
            whole = np.diag(diagonal)
            whole[at] = whole[at[::-1]] = side
            return whole
        rows, columns = (np.concatenate([a, b, every]) for a, b in (at, at[::-1]))
        return csr_array((np.concatenate([side, side, diagonal]), (rows, columns)), shape=(m, m))

    def _sums(self, of_first: Vector, of_second: Vector) -> Vector:
        """float64[n]: over each policy's pairs."""
        first, second, n = self._data[0], self._data[1], self.pairs.n
        return np.asarray(np.bincount(first, of_first, n) + np.bincount(second, of_second, n), dtype=np.float64)

    def _split(self, at: Vector) -> tuple[Vector, float]:
        return (at[:-1], float(at[-1])) if self.drawn else (at, -np.inf)


def maximise(
    likelihood: Likelihood,
    *,
    start: Vector | None = None,
    fixed: tuple[Vector, float] | None = None,
    tolerance: float = 1e-9,
) -> tuple[Vector, Curve]:
    """The parameters of greatest likelihood, and the curve at the last point before them, by Newton's method with halved steps.

    fixed: (c float64[m], r), only points with c @ parameters = r. Raises DataError if it does not converge, which needs a maximum that is
    not finite.
    """
    at = np.zeros(likelihood.size) if start is None else start.copy()
    if fixed is not None:
        contrast, target = fixed
        at += contrast * (target - contrast @ at) / (contrast @ contrast)
    curve = likelihood.curve(at)
    for _ in range(MOST_STEPS):
        step = _newton(curve, None if fixed is None else fixed[0])
        gain = float(curve.gradient @ step)  # twice what the step promises
        if gain < tolerance:
            return at + step, curve
        at = at + _damped(likelihood, curve.value, at, step)
        curve = likelihood.curve(at)
    raise DataError("the ratings did not converge; give a larger prior.")


def _newton(curve: Curve, contrast: Vector | None) -> Vector:
    information = curve.information
    if isinstance(information, csr_array) and contrast is None:
        inverse = diags_array(1.0 / information.diagonal())
        step, failed = cg(information, curve.gradient, rtol=1e-10, maxiter=len(curve.gradient), M=inverse)
        if not failed:
            return np.asarray(step)
    factor = (curve.factor, True)
    free = cho_solve(factor, curve.gradient, check_finite=False)
    if contrast is None:
        return np.asarray(free)
    back = cho_solve(factor, contrast, check_finite=False)
    return np.asarray(free - back * (contrast @ free) / (contrast @ back))


def _damped(likelihood: Likelihood, value: float, at: Vector, step: Vector) -> Vector:
    for _ in range(HALVINGS):
        if likelihood.value(at + step) >= value:
            return step
        step = step / 2
    return step


def covariance(curve: Curve) -> NDArray[np.float64]:
    """float64[m, m]: the inverse of the observed information."""
    half, _ = dpotri(curve.factor, lower=True)  # its lower triangle; a third of the work of solving for an identity
    whole = half + half.T
    np.fill_diagonal(whole, half.diagonal())
    return np.asarray(whole)
