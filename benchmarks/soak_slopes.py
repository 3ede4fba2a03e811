"""Slopes of what a long run takes, by robust regression, and a picture of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import theilslopes

from benchmarks.results import Outcome
from ludus.storage.database import FILE

Array = NDArray[np.float64]
Columns = Mapping[str, Array]
WARM = 600.0
"""Seconds after which slopes begin."""
MOST = 2.0
"""Percent per hour."""
JUDGED = {
    "memory": "memory beyond the state",
    "descriptors": "descriptors",
    "threads": "threads",
    "match": "database bytes per match",
    "decisions": "processor seconds per decision",
}
"""Series -> the name of its bar."""


@dataclass(frozen=True, slots=True)
class Slope:
    """Theil and Sen's slope: the median of those of all pairs of samples.

    Attributes:
        percent: Per hour, relative to the median of the series.
        low: Lower end of its 95% interval.
        high: Upper end.
        level: Median of the series.
    """

    percent: float
    low: float
    high: float
    level: float

    @classmethod
    def of(cls, seconds: Array, values: Array) -> Slope:
        """Fit samples after `WARM`; of shorter series after a third."""
        warm = min(WARM, float(seconds[-1]) / 3)
        t, y = seconds[seconds >= warm] / 3600.0, values[seconds >= warm]
        level = float(np.median(y))
        slope, _, low, high = (float(end) for end in theilslopes(y, t))
        scale = 100.0 / level if level else 0.0
        return cls(slope * scale, low * scale, high * scale, level)


def columns(samples: Sequence[Mapping[str, float]]) -> dict[str, Array]:
    """Return samples as arrays by name."""
    return {name: np.array([sample[name] for sample in samples]) for name in samples[0]}


def decisions_by_generation(run_dir: Path) -> Array:
    """Return float64[n]: decisions played until each generation had finished."""
    sql = "SELECT value FROM metrics WHERE name = 'rollout/decisions' AND counter = 'generations' ORDER BY step"
    with closing(sqlite3.connect(f"{(run_dir / FILE).resolve().as_uri()}?mode=ro", uri=True)) as connection:
        return np.cumsum([value for (value,) in connection.execute(sql)])


def bytes_per_policy(old: Columns, new: Columns) -> float | None:
    """Return what the state takes in memory, per policy: what processes that went on from the state at the end take beyond those that had
    begun the run, after as many generations of their own; None where they have finished less than three."""
    own = float(new["generations"][-1] - new["generations"][new["generations"] > 0][0])
    if own < 3:
        return None
    late = new["generations"] == new["generations"][-1]
    k = int(np.argmax(old["generations"] >= own + 1.0))  # the first one is there before anybody has learned
    early = old["generations"] == old["generations"][k]
    grown = float(np.median(new["anonymous"][late]) - np.median(old["anonymous"][early]))
    return max(0.0, grown / float(new["policies"][-1] - old["policies"][k]))


def series(old: Columns, decisions: Array, *, policy: float) -> dict[str, tuple[Array, Array]]:
    """Return (seconds, values) of all that is judged. policy: bytes of state per policy."""
    seconds = old["seconds"]
    played = old["matches"] > 0
    return {
        "memory": (seconds, old["anonymous"] - policy * old["policies"]),
        "descriptors": (seconds, old["descriptors"]),
        "threads": (seconds, old["threads"]),
        "match": (seconds[played], old["database"][played] / old["matches"][played]),
        "decisions": _cost(old, decisions),
    }


def _cost(old: Columns, decisions: Array) -> tuple[Array, Array]:
    """Return processor seconds per decision, of each generation that a sample has seen the end of."""
    ends = np.flatnonzero(np.diff(old["generations"]) > 0) + 1
    ends = ends[(old["generations"][ends] > 1) & (old["generations"][ends] <= len(decisions))]
    total = decisions[old["generations"][ends].astype(int) - 1]
    apart = np.diff(total) > 0
    return old["seconds"][ends][1:][apart], (np.diff(old["processor"][ends])[apart] / np.diff(total)[apart])


def bars(part: str, slopes: Mapping[str, Slope], *, hours: float, state_known: bool) -> Iterator[Outcome]:
    """Yield the outcome of each series. Unjudged: runs of less than half an hour; memory, where what the state takes is not known; and the
    cost of decisions, in which that of matches is, of which each generation has more."""
    for name, title in JUDGED.items():
        value = slopes[name].percent
        judged = hours >= 0.5 and name != "decisions" and (state_known or name != "memory")
        verdict = "unjudged" if not judged else "met" if value <= MOST else "short"
        yield Outcome(f"{part}, {title}", f"<= {MOST:g}", "%/h", value, verdict)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------------------
# The picture, written by hand: a picture in the docs should not need a library more.

_WIDE, _HIGH, _LEFT, _TOP = 250, 130, 60, 40
_CELL = (_WIDE + _LEFT + 30, _HIGH + _TOP + 40)
_COLOURS = ("#1f77b4", "#d62728")
_TITLES = {
    "memory": "memory, MB (red: beyond the state)",
    "decisions": "processor µs per decision",
    "match": "database, kB per match",
    "descriptors": "descriptors (red: threads)",
}


def svg(parts: Mapping[str, Mapping[str, Sequence[tuple[Array, Array]]]]) -> str:
    """Draw a row of panels for each part: names as in `_TITLES`, curves as (seconds, values)."""
    width, height = _CELL[0] * len(_TITLES), _CELL[1] * len(parts)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for row, (part, panels) in enumerate(parts.items()):
        for column, name in enumerate(_TITLES):
            lines.append(f'<g transform="translate({column * _CELL[0] + _LEFT} {row * _CELL[1] + _TOP})">')
            lines += _panel(f"{part}: {_TITLES[name]}", panels[name])
            lines.append("</g>")
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(title: str, curves: Sequence[tuple[Array, Array]]) -> Iterator[str]:
    last = max(float(seconds[-1]) for seconds, _ in curves)
    top = 1.1 * max(float(np.max(values)) for _, values in curves)
    yield f'<text x="0" y="-10">{title}</text>'
    yield f'<rect width="{_WIDE}" height="{_HIGH}" fill="none" stroke="#999"/>'
    for share in (0.0, 0.5, 1.0):
        yield f'<text x="-6" y="{_HIGH * (1 - share) + 4:.0f}" text-anchor="end">{top * share:.3g}</text>'
        yield f'<text x="{_WIDE * share:.0f}" y="{_HIGH + 16}" text-anchor="middle">{last * share / 60:.0f} min</text>'
    for colour, (seconds, values) in zip(_COLOURS, curves, strict=False):
        points = " ".join(
            f"{_WIDE * t / last:.1f},{_HIGH * (1 - v / top):.1f}"
            for t, v in zip(seconds.tolist(), values.tolist(), strict=True)
        )
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
