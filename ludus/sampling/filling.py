"""Guesses for the payoffs that were never played, so that a table with holes can be solved while it is decided what to play.

A guess is the player's mean payoff plus an effect of each player's policy: what skill alone predicts, and cycles do not. It steers; what a
meta-strategy is worth is said by `payoff_bounds`, which knows of no guesses, and by what is played.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ludus.population.payoffs import Payoffs

SWEEPS = 30
RIDGE = 2.0
"""Profiles of average payoff that are added to each policy's own: few results are believed less."""


def filled(payoffs: Payoffs) -> Payoffs:
    """The same view with a guess in every hole, which counts as one unit without spread. Played and exact cells stay as they are.

    Least squares with a ridge over the played profiles, each with equal weight, by sweeps over the players; clipped to the utility range.
    """
    known = payoffs.exact | (payoffs.count > 0)
    if known.all():
        return payoffs
    mean = np.where(known, payoffs.mean, 0.0)
    for p, (least, most) in enumerate(payoffs.utility_range):
        guess = np.clip(_additive(mean[p], known), least, most)
        mean[p] = np.where(known, mean[p], guess)
    count = np.where(known, payoffs.count, 1)
    return dataclasses.replace(payoffs, mean=mean, count=count, m2=np.where(known, payoffs.m2, 0.0))


def _additive(values: NDArray[np.float64], known: NDArray[np.bool_]) -> NDArray[np.float64]:
    """float64[n_0, …]: overall mean plus one effect for each axis' index, fitted where `known`."""
    axes = range(values.ndim)
    middle = float(values[known].mean()) if known.any() else 0.0
    rest = np.where(known, values - middle, 0.0)
    sums = [rest.sum(axis=tuple(a for a in axes if a != axis)) for axis in axes]
    met = {(a, b): _together(known, a, b) for a in axes for b in axes if a != b}
    number = [known.sum(axis=tuple(a for a in axes if a != axis)) + RIDGE for axis in axes]
    effects = [np.zeros(n) for n in values.shape]
    for _ in range(SWEEPS):
        for a in axes:
            explained = sum((met[a, b] @ effects[b] for b in axes if b != a), np.zeros(values.shape[a]))
            effects[a] = (sums[a] - explained) / number[a]
    total = np.full(values.shape, middle)
    for axis, effect in enumerate(effects):
        total = total + effect.reshape(tuple(-1 if a == axis else 1 for a in axes))
    return np.asarray(total)


def _together(known: NDArray[np.bool_], a: int, b: int) -> NDArray[np.float64]:
    """float64[n_a, n_b]: in how many known profiles index i of axis a meets index j of axis b."""
    counts = known.sum(axis=tuple(axis for axis in range(known.ndim) if axis not in (a, b)), dtype=np.float64)
    return np.asarray(counts if a < b else counts.T)
