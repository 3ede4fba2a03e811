"""What is drawn for the seats of an episode, from solutions and names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ludus.types import Factor, Mixture, PolicyRef, Solution


def factors_of(solution: Solution, members: Sequence[Sequence[PolicyRef]], seats: Sequence[int]) -> tuple[Factor, ...]:
    """How a solution plays some of the seats: each by itself, or from a joint distribution with what it is over these seats alone.

    members: [P] the policies of each player. What has no weight is left out.
    """
    if solution.joint is None:
        return tuple(_factor((p,), [members[p]], solution.strategies[p]) for p in seats)
    others = tuple(p for p in range(solution.joint.ndim) if p not in seats)
    return (_factor(tuple(seats), [members[p] for p in seats], solution.joint.sum(axis=others)),) if seats else ()


def instead(mixture: Mixture, seat: int, ref: PolicyRef) -> Mixture:
    """The mixture with one policy in a seat: the others are drawn as before, whatever was drawn for that seat."""
    factors = []
    for factor in mixture.factors:
        if factor.seats == (seat,):
            factors.append(Factor((seat,), ((ref,),), (1.0,)))
        elif seat in factor.seats:
            factors += [_without(factor, seat), Factor((seat,), ((ref,),), (1.0,))]
        else:
            factors.append(factor)
    return Mixture(tuple(factors))


def _without(factor: Factor, seat: int) -> Factor:
    """Over the other seats, each entry once."""
    place = factor.seats.index(seat)
    probs: dict[tuple[PolicyRef, ...], float] = {}
    for entry, prob in zip(factor.entries, factor.probs, strict=True):
        rest = entry[:place] + entry[place + 1 :]
        probs[rest] = probs.get(rest, 0.0) + prob
    return Factor(factor.seats[:place] + factor.seats[place + 1 :], tuple(probs), tuple(probs.values()))


def _factor(seats: tuple[int, ...], members: Sequence[Sequence[PolicyRef]], probs: np.ndarray) -> Factor:
    kept = np.argwhere(probs > 0)
    entries = tuple(tuple(members[k][i] for k, i in enumerate(profile)) for profile in kept.tolist())
    return Factor(seats, entries, tuple(float(p) for p in probs[tuple(kept.T)]))
