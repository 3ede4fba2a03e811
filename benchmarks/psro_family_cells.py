"""Measured cells of `benchmarks.psro_family`: where each lies, and what the findings and the picture read of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from benchmarks.machine import ROOT
from benchmarks.psro_family_methods import GAMES, METHODS

RESULTS = ROOT / "benchmarks" / "results" / "psro_family"
SEEDS = (0, 1, 2, 3, 4)
_POPULATION = "population exploitability at "


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One run. episodes, exploitability: float64[n], after each generation, of what it announced. population: float64[m], exploitability of
    the least exploitable mixture of the policies that there were at 1/m, 2/m, … of the generations. seconds: of the run."""

    game: str
    method: str
    seed: int
    episodes: NDArray[np.float64]
    exploitability: NDArray[np.float64]
    population: NDArray[np.float64]
    seconds: float

    @property
    def end(self) -> float:
        """Exploitability in the end."""
        return float(self.exploitability[-1])

    def at(self, share: float) -> float:
        """Exploitability when `share` of the budget had been played."""
        place = int(np.searchsorted(self.episodes, share * GAMES[self.game].budget, side="right")) - 1
        return float(self.exploitability[max(place, 0)])

    def population_at(self, share: float) -> float:
        """The same of the least exploitable mixture of the population."""
        return float(self.population[max(round(share * len(self.population)), 1) - 1])

    @property
    def rises(self) -> NDArray[np.float64]:
        """float64[n - 1]: by how much exploitability rose from each generation to the next; 0 where it fell."""
        return np.maximum(np.diff(self.exploitability), 0.0)


@dataclass(frozen=True, slots=True)
class Cells:
    """Those that there are, by game and method, in the order of their seeds."""

    of: Mapping[tuple[str, str], Sequence[Cell]]

    def __call__(self, game: str, method: str) -> Sequence[Cell]:
        """Empty if there are none."""
        return self.of.get((game, method), ())

    def methods(self, game: str) -> list[str]:
        """Methods with cells of this game."""
        return [method for method in METHODS if self(game, method)]


def cell_path(game: str, method: str, seed: int, *, folder: Path = RESULTS) -> Path:
    """Where a cell's result lies."""
    return folder / game / f"{re.sub('[^a-z0-9]+', '-', method.lower()).strip('-')}-{seed}.json"


def load(folder: Path = RESULTS) -> Cells:
    """All cells in `folder`."""
    pairs = [(game, method) for game in GAMES for method in METHODS]
    return Cells({(game, method): tuple(_cells(game, method, folder)) for game, method in pairs})


def _cells(game: str, method: str, folder: Path) -> Iterator[Cell]:
    for seed in SEEDS:
        path = cell_path(game, method, seed, folder=folder)
        if path.exists():
            yield read(game, method, json.loads(path.read_text(encoding="utf-8"))["repetition"])


def read(game: str, method: str, repetition: Mapping[str, object]) -> Cell:
    """The cell of a repetition, as it was written."""
    curve, figures = repetition["curve"], repetition["figures"]
    assert isinstance(curve, dict)
    assert isinstance(figures, dict)
    return Cell(
        game=game,
        method=method,
        seed=int(str(repetition["seed"])),
        episodes=np.array(curve["episodes"], float),
        exploitability=np.array(curve["nash_conv"], float) / 2,
        population=np.array([value for name, value in figures.items() if name.startswith(_POPULATION)], float),
        seconds=float(figures["seconds"]),
    )


def below(values: Sequence[float], others: Sequence[float] | float, *, margin: float = 0.0) -> bool | None:
    """Whether the mean of `values` is at most that of `others`, or a number, plus `margin`: by the 95% interval of the difference
    (Welch's t); None if it holds both, as it does of single seeds. Values without any variance are taken at their word."""
    known = [others] if isinstance(others, float) else others
    if len(values) < 2 or (len(known) < 2 and not isinstance(others, float)):
        return None
    parts = [stdev(values) ** 2 / len(values), 0.0 if isinstance(others, float) else stdev(known) ** 2 / len(known)]
    difference, variance = mean(values) - mean(known) - margin, sum(parts)
    half = _quantile(parts, (values, known)) * variance**0.5
    if difference + half <= 0:
        return True
    return False if difference - half > 0 else None


def ratio_interval(values: Sequence[float], others: Sequence[float]) -> tuple[float, float] | None:
    """The 95% interval (low, high) of the mean of `values` over that of `others`, two independent samples, by Fieller's theorem. None
    where there is none: a sample of fewer than two, or a mean of `others` that may be zero (its interval, with the same t, holds it).

    It holds each ratio r at which the mean of `values` and r times that of `others` do not differ, by Student's t with the degrees of
    freedom that Welch's formula gives at the ratio of the two means (Fieller 1954; unequal variances: Tamhane and Logan 2004, as in R's
    package mratios). Where both means are negative, a ratio above 1 is the lower mean of `values`.
    """
    if min(len(values), len(others)) < 2:
        return None
    top, bottom = mean(values), mean(others)
    spread, other_spread = (stdev(some) ** 2 / len(some) for some in (values, others))
    if bottom == 0:
        return None
    squared = _quantile((spread, (top / bottom) ** 2 * other_spread), (values, others)) ** 2
    # the ends solve (top - r bottom)^2 = squared (spread + r^2 other_spread): square r^2 - 2 top bottom r + rest = 0
    square, rest = bottom**2 - squared * other_spread, top**2 - squared * spread
    if square <= 0:
        return None
    root = max((top * bottom) ** 2 - square * rest, 0.0) ** 0.5
    return (top * bottom - root) / square, (top * bottom + root) / square


def _quantile(parts: Sequence[float], samples: Sequence[Sequence[float]]) -> float:
    """Student's t at 0.975 for a sum of means, with Welch's degrees of freedom. parts: each sample's part of the variance of that sum; 0.0
    if none has any."""
    known = [(part, len(some) - 1) for part, some in zip(parts, samples, strict=True) if part]
    if not known:
        return 0.0
    freedom = sum(part for part, _ in known) ** 2 / sum(part**2 / n for part, n in known)
    return float(student.ppf(0.975, freedom))


def all_of(*verdicts: bool | None) -> bool | None:
    """False if one is, otherwise None if one is, otherwise True."""
    return False if False in verdicts else None if None in verdicts else True


def interval(values: Sequence[float]) -> str:
    """Mean ± half the 95% interval (Student's t); the mean alone of a single value."""
    if not values:
        return "-"
    middle = round(mean(values), 3) + 0.0  # no minus zero
    if len(values) == 1:
        return f"{middle:.3f}"
    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return f"{middle:.3f} ± {half:.3f}"
