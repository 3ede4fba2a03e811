"""The picture of `benchmarks.hidden_boards`: exact exploitability over moves of training, a panel for each game and budget, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from benchmarks.contestants import Repetition

WIDTH, HEIGHT, LEFT, TOP, PANEL = 360, 290, 56, 34, (280, 200)
COLUMNS, LEGEND_ROW = 2, 22
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf")
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
LOW, HIGH = 0.01, 1.0
"""Ends of the logarithmic axis."""

Panels = Mapping[str, Mapping[str, Sequence[Repetition]]]
"""Title of a panel -> method -> its runs, whose curves have `steps` and `exploitability`."""


def svg(panels: Panels) -> str:
    """Draw the curves of every run.

    Args:
        panels: What to draw, in order.

    Returns:
        The picture.

    Raises:
        ValueError: There are no runs.
    """
    if not panels:
        raise ValueError("there are no cells to draw; run the benchmark first.")
    methods = list(dict.fromkeys(method for runs in panels.values() for method in runs))
    colours = {method: COLOURS[k % len(COLOURS)] for k, method in enumerate(methods)}
    rows, legend_rows = -(-len(panels) // COLUMNS), -(-len(methods) // 4)
    width, height = COLUMNS * WIDTH, rows * HEIGHT + (legend_rows + 1) * LEGEND_ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="14">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for k, (title, runs) in enumerate(panels.items()):
        place = f"translate({k % COLUMNS * WIDTH + LEFT} {k // COLUMNS * HEIGHT + TOP})"
        parts += [f'<g transform="{place}">', *_panel(title, runs, colours), "</g>"]
    for k, method in enumerate(methods):
        x, y = 20 + k % 4 * width // 4, rows * HEIGHT + LEGEND_ROW * (1 + k // 4)
        parts.append(f'<path d="M{x} {y}h26" stroke="{colours[method]}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 32}" y="{y + 5}">{escape(method)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(title: str, runs: Mapping[str, Sequence[Repetition]], colours: Mapping[str, str]) -> Iterator[str]:
    wide, high = PANEL
    budget = max(run.curve["steps"][-1] for many in runs.values() for run in many)
    yield f'<text x="{wide / 2}" y="-12" text-anchor="middle" font-size="16">{escape(title)}</text>'
    yield f'<rect width="{wide}" height="{high}" fill="none" stroke="#888"/>'
    for tick in TICKS:
        y = _height(tick)
        yield f'<path d="M0 {y:.1f}H{wide}" stroke="#ddd"/>'
        yield f'<text x="-6" y="{y + 5:.1f}" text-anchor="end">{tick:g}</text>'
    for share in (0, 0.5, 1):
        x = share * wide
        yield f'<text x="{x:.0f}" y="{high + 18}" text-anchor="middle">{share * budget / 1e6:.2g}</text>'
    yield f'<text x="{wide / 2}" y="{high + 36}" text-anchor="middle">moves of training, millions</text>'
    for method, many in runs.items():
        for run in many:
            points = [
                (steps / budget * wide, _height(value))
                for steps, value in zip(run.curve["steps"], run.curve["exploitability"], strict=True)
            ]
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            name = escape(f"{method}, seed {run.seed}")
            yield f'<circle cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="3" fill="{colours[method]}"/>'
            yield f'<path d="M{path}" fill="none" stroke="{colours[method]}" stroke-width="1.6"><title>{name}</title></path>'


def _height(value: float) -> float:
    """Return the place on the axis, downwards; what is beyond its ends lies on them."""
    return PANEL[1] * (1.0 - math.log(min(max(value, LOW), HIGH) / LOW) / math.log(HIGH / LOW))
