"""Diversity of a population in one number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh

Floats = NDArray[np.float64]


def effective_number(marginal: Floats) -> float:
    """Return exp of the entropy of probabilities float64[n] (Hill 1973, order 1): n for n equal ones, 1 for a single one."""
    positive = marginal[marginal > 0]
    return float(np.exp(-(positive * np.log(positive)).sum()))


def antisymmetric(mean: Floats) -> Floats:
    """Return float64[n, n]: half of what i earns more than j when they meet, over both seat orders; -A' = A. NaN where they have not met.

    Args:
        mean: float64[2, n, n], the payoffs of two players who draw from one population.
    """
    own = (mean[0] + mean[1].T) / 2
    return np.asarray((own - own.T) / 2)


def effective_diversity(mean: Floats, marginal: Floats) -> float:
    """Return p' max(A, 0) p of a symmetric zero-sum game (Balduzzi et al. 2019, "Open-ended learning in symmetric zero-sum games",
    definition 4), as a share of half of what payoffs range over; NaN where payoffs are missing that matter.

    Args:
        mean: float64[2, n, n], as `antisymmetric` takes it.
        marginal: float64[n], how often each is played.
    """
    played = np.flatnonzero(marginal)
    payoff = antisymmetric(mean[:, played[:, None], played])
    half = float(np.fmax.reduce(mean, axis=None) - np.fmin.reduce(mean, axis=None)) / 2 if mean.size else 0.0
    return float(marginal[played] @ np.maximum(payoff, 0.0) @ marginal[played]) / half if half > 0 else 0.0


def expected_cardinality(rows: Floats) -> float:
    """Return tr(I - (L + I)^-1), L = M M' of the payoff rows M float64[n, m], each row scaled to length 1; what is not known counts as 0,
    the mean of its column having been taken away."""
    if not rows.size:
        return float("nan")
    known = np.isfinite(rows)
    middle = rows.sum(axis=0, where=known) / np.maximum(known.sum(axis=0), 1)
    unit = rows - middle
    unit[~known] = 0.0
    length = np.sqrt(np.einsum("ij,ij->i", unit, unit))
    unit /= np.where(length > 0, length, 1.0)[:, None]
    square = unit @ unit.T
    values = eigvalsh(square.T, overwrite_a=True)  # as LAPACK has it: no copy
    return float((values.clip(0) / (values.clip(0) + 1.0)).sum())
