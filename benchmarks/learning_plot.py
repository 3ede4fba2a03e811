"""The picture of `benchmarks.learning`: returns in training of the teams on simple_spread, a panel for each algorithm, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from benchmarks.contestants import Repetition
from benchmarks.learning_cells import peer_of
from benchmarks.psro_family_cells import interval

TEAM = "spread-"
"""What the names of the tasks begin with that are drawn."""
LOW, HIGH, MILLIONS = -90.0, -20.0, 1.0
"""Ends of the axes: of the team's return, and of the environment's steps in millions."""
COLUMNS, WIDTH, HEIGHT, LEFT, TOP, PANEL = 3, 240, 210, 44, 34, (180, 140)
POINTS = 51
"""Of a curve."""


def svg(found: Mapping[str, Sequence[Repetition]]) -> str:
    """Runs by contestant: each seed thin, their mean thick, a peer's tests as dots; the best algorithms first. Raises ValueError if there
    are no runs."""
    scored = {
        name: mean(r.figures["score"] for r in runs)
        for name, runs in found.items()
        if runs and "share" in runs[0].curve
    }
    names = sorted((name for name in scored if name.startswith(TEAM)), key=lambda name: -scored[name])
    if not names:
        raise ValueError("there are no runs to draw; run the benchmark first.")
    rows = -(-len(names) // COLUMNS)
    width, height = COLUMNS * WIDTH + LEFT, rows * HEIGHT + TOP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for k, name in enumerate(names):
        x, y = k % COLUMNS * WIDTH + LEFT, k // COLUMNS * HEIGHT + TOP
        parts.append(f'<g transform="translate({x} {y})">')
        parts += _panel(name, found[name], found.get(peer_of(name), ()))
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(name: str, runs: Sequence[Repetition], theirs: Sequence[Repetition]) -> Iterator[str]:
    wide, high = PANEL
    scores = interval([r.figures["score"] for r in runs])
    title = f"{name.removeprefix(TEAM)}: {scores}"
    yield f'<text x="{wide / 2}" y="-8" text-anchor="middle" font-size="14">{escape(title)}</text>'
    for value in range(int(LOW), int(HIGH) + 1, 10):
        y = _height(value)
        yield f'<path d="M0 {y:.1f}H{wide}" stroke="#e4e4e4"/>'
        yield f'<text x="-4" y="{y + 4:.1f}" text-anchor="end">{value}</text>'
    for share in (0.0, 0.5, 1.0):
        yield f'<text x="{share * wide:.0f}" y="{high + 17}" text-anchor="middle">{share * MILLIONS:g} M</text>'
    curves = [curve(run) for run in runs]
    for each in curves:
        yield _line(each, "#9ecae1", 1.0)
    yield _line(np.mean(curves, axis=0), "#08519c", 2.0)
    for run in theirs:
        for steps, score in zip(run.curve["steps"], run.curve["score"], strict=True):
            x = min(float(steps) / (MILLIONS * 1e6), 1.0) * wide
            yield f'<circle cx="{x:.1f}" cy="{_height(float(score)):.1f}" r="2.5" fill="#d62728"/>'


def curve(run: Repetition) -> NDArray[np.float64]:
    """float64[POINTS]: returns in training, at equal shares of the budget."""
    at = np.linspace(0.0, 1.0, POINTS)
    return np.interp(at, run.curve["share"], run.curve["training_return"])


def _line(values: NDArray[np.float64], colour: str, width: float) -> str:
    points = zip(np.linspace(0.0, PANEL[0], POINTS), map(_height, values.tolist()), strict=True)
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _height(value: float) -> float:
    """Downwards; what is beyond an end lies on it."""
    return PANEL[1] * (HIGH - min(max(value, LOW), HIGH)) / (HIGH - LOW)
