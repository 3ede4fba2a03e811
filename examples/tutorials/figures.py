"""Three small charts as SVG, for the tutorials: they need no plotting library, and a browser shows them.

lines("curve.svg", "Title", x="generation", y="payoff", curves={"main agent": [0.1, 0.4]})
bars("bars.svg", "Title", y="payoff", labels=["a", "b"], groups={"before": [1.0, 2.0], "after": [0.5, 0.2]})
heat_map("map.svg", "Title", rows=["a", "b"], columns=["a", "b"], values=[[0.0, 1.0], [-1.0, 0.0]])
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")
LEFT, TOP, WIDE, HIGH, LEGEND = 70, 46, 460, 260, 190  # of the plot, in pixels


def lines(
    path: str | Path, title: str, *, x: str, y: str, curves: Mapping[str, Sequence[float]], first: int = 0
) -> None:
    """Draw curves over `first`, `first` + 1 …"""
    ends = max(len(curve) for curve in curves.values()) - 1
    low, high, ticks = _axis([value for curve in curves.values() for value in curve])
    parts = [*_frame(y, low, high, ticks), _text(LEFT + WIDE / 2, TOP + HIGH + 36, x)]
    for k in range(0, ends + 1, max(1, ends // 8)):
        parts.append(_text(LEFT + WIDE * k / max(ends, 1), TOP + HIGH + 16, str(first + k)))
    for k, curve in enumerate(curves.values()):
        points = [
            (LEFT + WIDE * i / max(ends, 1), _height(v, low, high)) for i, v in enumerate(curve) if not math.isnan(v)
        ]
        path_data = "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        parts.append(f'<path d="M{path_data}" fill="none" stroke="{_colour(k)}" stroke-width="2"/>')
    _write(path, title, parts, list(curves))


def bars(path: str | Path, title: str, *, y: str, labels: Sequence[str], groups: Mapping[str, Sequence[float]]) -> None:
    """Draw a bar of each group at each label."""
    low, high, ticks = _axis([0.0, *(value for group in groups.values() for value in group)])
    parts = list(_frame(y, low, high, ticks))
    step = WIDE / len(labels)
    width = 0.8 * step / len(groups)
    for k, group in enumerate(groups.values()):
        for i, value in enumerate(group):
            left = LEFT + i * step + 0.1 * step + k * width
            top, bottom = sorted((_height(value, low, high), _height(0.0, low, high)))
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{bottom - top:.1f}" fill="{_colour(k)}"/>'
            )
    parts += [_text(LEFT + (i + 0.5) * step, TOP + HIGH + 16, label) for i, label in enumerate(labels)]
    _write(path, title, parts, list(groups))


def heat_map(
    path: str | Path, title: str, *, rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]]
) -> None:
    """Draw a table of numbers: blue above 0, red below."""
    left, most = 120, max(abs(value) for row in values for value in row if not math.isnan(value)) or 1.0
    wide, high = min(60, 480 // len(columns)), min(34, 300 // len(rows))
    parts = []
    for i, row in enumerate(values):
        parts.append(_text(left - 8, TOP + 20 + (i + 0.65) * high, rows[i], anchor="end"))
        for j, value in enumerate(row):
            cell = f'x="{left + j * wide}" y="{TOP + 20 + i * high}" width="{wide}" height="{high}"'
            colour, opacity = ("#1f77b4" if value > 0 else "#d62728"), 0.75 * min(abs(value) / most, 1.0)
            if math.isnan(value):
                continue
            parts.append(f'<rect {cell} fill="{colour}" fill-opacity="{opacity:.2f}" stroke="#ddd"/>')
            parts.append(_text(left + (j + 0.5) * wide, TOP + 20 + (i + 0.65) * high, f"{value:.2f}"))
    parts += [_text(left + (j + 0.5) * wide, TOP + 12, name) for j, name in enumerate(columns)]
    _write(path, title, parts, [], size=(left + wide * len(columns) + 20, TOP + 40 + high * len(rows)))


def _axis(values: Sequence[float]) -> tuple[float, float, list[float]]:
    """Return the ends of an axis for these values, and its marks."""
    finite = [value for value in values if not math.isnan(value)]
    low, high = min(finite), max(finite)
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-6) / 2))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [k * step for k in range(first, max(last, first + 1) + 1)]
    return ticks[0], ticks[-1], ticks


def _frame(y: str, low: float, high: float, ticks: Sequence[float]) -> Iterator[str]:
    """The plot's box, its marks, and the name of the vertical axis."""
    yield f'<rect x="{LEFT}" y="{TOP}" width="{WIDE}" height="{HIGH}" fill="none" stroke="#888"/>'
    for value in ticks:
        at = _height(value, low, high)
        yield f'<path d="M{LEFT} {at:.1f}h{WIDE}" stroke="{"#888" if abs(value) < 1e-12 else "#ddd"}"/>'
        yield _text(LEFT - 8, at + 4, f"{value + 0.0:.4g}", anchor="end")
    yield f'<text transform="translate(18 {TOP + HIGH / 2}) rotate(-90)" text-anchor="middle">{escape(y)}</text>'


def _height(value: float, low: float, high: float) -> float:
    return TOP + HIGH * (high - value) / (high - low)


def _colour(k: int) -> str:
    return COLOURS[k % len(COLOURS)]


def _text(x: float, y: float, text: str, *, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _write(
    path: str | Path, title: str, parts: Sequence[str], legend: Sequence[str], *, size: tuple[int, int] | None = None
) -> None:
    width, height = size or (LEFT + WIDE + 20 + LEGEND * (len(legend) > 1), TOP + HIGH + 50)
    size_of = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size_of} font-family="sans-serif" font-size="12">'
    body = [f'<rect width="{width}" height="{height}" fill="white"/>', *parts]
    body.append(f'<text x="{width / 2}" y="22" text-anchor="middle" font-size="15">{escape(title)}</text>')
    for k, name in enumerate(legend if len(legend) > 1 else ()):
        at = TOP + 12 + 20 * k
        body.append(f'<rect x="{LEFT + WIDE + 16}" y="{at - 9}" width="14" height="10" fill="{_colour(k)}"/>')
        body.append(_text(LEFT + WIDE + 36, at, name, anchor="start"))
    Path(path).write_text("\n".join([head, *body, "</svg>"]) + "\n", encoding="utf-8")
