"""The part of a meta-game that a scheduler solves: some policies of each population, and their equilibrium among all the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.types import Solution
from ludus.population.payoffs import Payoffs

Places = Mapping[int, Sequence[int]]
"""population -> places of the policies that take part, rising."""


def everyone(payoffs: Payoffs) -> Places:
    """All policies."""
    return {which: range(size) for which, size in zip(payoffs.population, payoffs.sizes, strict=True)}


def restricted(payoffs: Payoffs, places: Places) -> Payoffs:
    """The view of the part alone."""
    cells = np.ix_(*(places[which] for which in payoffs.population))
    every: tuple[Any, ...] = (slice(None), *cells)
    return replace(
        payoffs,
        mean=payoffs.mean[every],
        count=payoffs.count[cells],
        m2=payoffs.m2[every],
        exact=payoffs.exact[cells],
    )


def lifted(solution: Solution, payoffs: Payoffs, places: Places) -> Solution:
    """A solution of the part as one of all the policies: the others have no weight. gap and warm stay those of the part."""
    if solution.marginals is not None:
        marginals = tuple(
            spread(probs, places[which], size)
            for probs, which, size in zip(solution.marginals, payoffs.population, payoffs.sizes, strict=True)
        )
        return replace(solution, marginals=marginals)
    joint = np.zeros(payoffs.sizes)
    joint[np.ix_(*(places[which] for which in payoffs.population))] = solution.joint
    return replace(solution, joint=joint)


def spread(probs: NDArray[np.float64], places: Sequence[int], size: int) -> NDArray[np.float64]:
    """float64[size]: `probs` at `places`, zero elsewhere."""
    out = np.zeros(size)
    out[list(places)] = probs
    return out
