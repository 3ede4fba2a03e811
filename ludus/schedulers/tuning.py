"""Exploit and explore: pure functions of population based training (Jaderberg et al. 2017, sections 3 and 4; 2019, supplement)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError

Array = NDArray[np.float64]
Hyper = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Range:
    """Where a hyper-parameter may lie: from `low` to `high`, both above 0 if it is drawn on a logarithmic scale (`log`)."""

    low: float
    high: float
    log: bool = True

    def __post_init__(self) -> None:
        if not self.low <= self.high or (self.log and self.low <= 0):
            raise ConfigError(
                f"a range of a hyper-parameter is from low to high, above 0 if log; given low: {self.low}, high: {self.high}, "
                f"log: {self.log}."
            )

    def draw(self, rng: np.random.Generator) -> float:
        """Anywhere in the range, alike on its scale."""
        if self.log:
            return float(np.exp(rng.uniform(np.log(self.low), np.log(self.high))))
        return float(rng.uniform(self.low, self.high))


@dataclass(frozen=True, slots=True)
class TuningRules:
    """every: chunks between two rounds of exploiting. fraction: the worst so many copy one of the best so many, at least one of them unless
    it is 0. factors: what a copied hyper-parameter is multiplied by, one or the other; resample: probability that it is drawn anew
    instead. spread: of the normal distribution around even games by which opponents are matched, in win rate (2019: 1/6); None: all
    alike."""

    every: int = 1
    fraction: float = 0.2
    factors: tuple[float, float] = (0.8, 1.2)
    resample: float = 0.25
    spread: float | None = 1 / 6

    def __post_init__(self) -> None:
        if self.every < 1 or not 0 <= self.fraction <= 0.5 or not 0 <= self.resample <= 1:
            raise ConfigError(
                f"every is at least 1, fraction at most a half and resample a probability; given every: {self.every}, fraction: "
                f"{self.fraction}, resample: {self.resample}."
            )


def drawn(ranges: Mapping[str, Range], rng: np.random.Generator) -> dict[str, float]:
    """Hyper-parameters to begin with."""
    return {name: ranges[name].draw(rng) for name in sorted(ranges)}


def explored(
    hyper: Hyper, ranges: Mapping[str, Range], rules: TuningRules, rng: np.random.Generator
) -> dict[str, float]:
    """Copied hyper-parameters, each drawn anew or perturbed, inside its range."""
    out = {}
    for name in sorted(ranges):
        if rng.random() < rules.resample:
            out[name] = ranges[name].draw(rng)
        else:
            value = hyper[name] * rules.factors[int(rng.integers(2))]
            out[name] = min(ranges[name].high, max(ranges[name].low, value))
    return out


def copies(ratings: Array, rules: TuningRules, rng: np.random.Generator) -> dict[int, int]:
    """Truncation selection: loser -> winner. The worst `fraction` each copy one of the best, at least one of two or more does so unless the
    fraction is 0; of equal ratings the lower index is better."""
    least = int(rules.fraction > 0 and len(ratings) > 1)
    count = max(least, int(rules.fraction * len(ratings) + 1e-9))
    order = [int(i) for i in np.argsort(-ratings, kind="stable")]
    return {loser: order[int(rng.integers(count))] for loser in order[len(order) - count :]}


def matched(rates: Array, spread: float | None) -> Array:
    """float64[n]: opponents by how even the games against them are, exp(-(rate - 1/2)² / (2 spread²)) (Jaderberg et al. 2019)."""
    if spread is None:
        return np.full(len(rates), 1.0 / len(rates))
    power = -((rates - 0.5) ** 2) / (2.0 * spread**2)
    weights = np.exp(power - power.max())
    return np.asarray(weights / weights.sum())
