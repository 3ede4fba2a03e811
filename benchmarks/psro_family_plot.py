"""The picture of `benchmarks.psro_family`: exploitability over training episodes, of what is announced and of the population, as SVG.

Written by hand: the project's own charts are drawn by the browser, and a picture in the docs should not need a library more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from benchmarks.psro_family_cells import Cell, Cells
from benchmarks.psro_family_methods import GAMES

WIDTH, HEIGHT, LEFT, TOP, PANEL = 370, 330, 66, 36, (290, 230)
LEGEND_COLUMNS, LEGEND_ROW = 3, 22
FLOOR = 0.01  # least of a logarithmic axis; what is below lies on it
POINTS = 60  # of a curve
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#17becf", "#7f7f7f", "#bcbd22")
DASHES = ("", "6 3", "2 2")
MEASURES: Mapping[str, Callable[[Cell, float], float]] = {
    "exploitability": Cell.at,
    "population exploitability": Cell.population_at,
}
"""Name of the axis -> what a cell had reached at a share of the budget; a column each."""


def svg(cells: Cells) -> str:
    """Means over the seeds. Raises ValueError if there are no cells at all."""
    games = [game for game in GAMES if cells.methods(game)]
    if not games:
        raise ValueError("there are no cells to draw; run the benchmark first.")
    methods = list(dict.fromkeys(m for game in games for m in cells.methods(game)))
    legend_rows = -(-len(methods) // LEGEND_COLUMNS)
    width, height = len(MEASURES) * WIDTH, len(games) * HEIGHT + (legend_rows + 1) * LEGEND_ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="15">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for row, game in enumerate(games):
        for column, measure in enumerate(MEASURES):
            parts.append(f'<g transform="translate({column * WIDTH + LEFT} {row * HEIGHT + TOP})">')
            parts += _panel(game, cells, methods, measure)
            parts.append("</g>")
    parts += _legend(methods, top=len(games) * HEIGHT + LEGEND_ROW)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(game: str, cells: Cells, methods: Sequence[str], measure: str) -> Iterator[str]:
    wide, high = PANEL
    shares = np.linspace(0, 1, POINTS)
    curves = {m: mean_curve(cells(game, m), shares, measure) for m in methods if cells(game, m)}
    ends = [value for curve in curves.values() for value in curve.tolist()]
    low = max(FLOOR, 10 ** (math.floor(4 * math.log10(max(min(ends), FLOOR))) / 4))
    top = 10 ** (math.ceil(4 * math.log10(max(*ends, 2 * low))) / 4)
    yield f'<text x="{wide / 2}" y="-12" text-anchor="middle" font-size="17">{escape(game)}</text>'
    yield f'<rect width="{wide}" height="{high}" fill="none" stroke="#888"/>'
    for value in (v * 10.0**e for e in range(-2, 2) for v in (1, 2, 5)):
        if low <= value <= top:
            y = _height(value, low, top)
            yield f'<path d="M0 {y:.1f}H{wide}" stroke="#ddd"/>'
            yield f'<text x="-6" y="{y + 5:.1f}" text-anchor="end">{value:g}</text>'
    budget = GAMES[game].budget
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = share * wide
        yield f'<text x="{x:.0f}" y="{high + 18}" text-anchor="middle">{share * budget / 1e6:g}</text>'
    yield f'<text x="{wide / 2}" y="{high + 38}" text-anchor="middle">training episodes, millions</text>'
    yield f'<text transform="translate(-46 {high / 2}) rotate(-90)" text-anchor="middle">{escape(measure)}</text>'
    for k, method in enumerate(methods):
        if method in curves:
            points = zip(shares * wide, (_height(v, low, top) for v in curves[method].tolist()), strict=True)
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            yield f'<path d="M{path}" fill="none" {_stroke(k)}><title>{escape(method)}</title></path>'


def mean_curve(cells: Sequence[Cell], shares: NDArray[np.float64], measure: str) -> NDArray[np.float64]:
    """float64[n]: the mean over cells of what they had reached at these shares of the budget, by one of `MEASURES`."""
    at = MEASURES[measure]
    return np.asarray(np.mean([[at(cell, float(share)) for share in shares] for cell in cells], axis=0))


def _height(value: float, low: float, top: float) -> float:
    """On the logarithmic axis from `low` to `top`, downwards."""
    return PANEL[1] * (1.0 - math.log(max(value, low) / low) / math.log(top / low))


def _legend(methods: Sequence[str], *, top: int) -> Iterator[str]:
    for k, method in enumerate(methods):
        x, y = 20 + k % LEGEND_COLUMNS * len(MEASURES) * WIDTH // LEGEND_COLUMNS, top + k // LEGEND_COLUMNS * LEGEND_ROW
        yield f'<path d="M{x} {y}h30" {_stroke(k)}/><text x="{x + 38}" y="{y + 5}">{escape(method)}</text>'


def _stroke(k: int) -> str:
    dash = DASHES[k // len(COLOURS) % len(DASHES)]
    return f'stroke="{COLOURS[k % len(COLOURS)]}" stroke-width="1.6" stroke-dasharray="{dash or "none"}"'
