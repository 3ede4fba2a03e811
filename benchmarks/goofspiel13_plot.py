"""The picture of `benchmarks.goofspiel13`: what each responder gained, and how exploitable the populations are in the end, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from benchmarks.contestants import Repetition

WIDTH, HEIGHT, LEFT, TOP, PANEL = 780, 310, 60, 30, (430, 230)
COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd")
PUBLISHED = 0.244
"""NeuPL in arXiv 2605.28273, by other responders."""


def svg(runs: Mapping[str, Sequence[Repetition]]) -> str:
    """Draw every run.

    Args:
        runs: By method; their curves have the gains of responders.

    Returns:
        The picture.

    Raises:
        ValueError: There are no runs.
    """
    every = [run for many in runs.values() for run in many]
    if not every:
        raise ValueError("there are no cells to draw; run the benchmark first.")
    top = 1.1 * max(PUBLISHED, *(max(_gains(run)) for run in every), *(run.figures["high"] for run in every))
    rounds = max(len(_gains(run)) for run in every)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="14">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<g transform="translate({LEFT} {TOP})">',
        *_axes(top, rounds),
    ]
    for k, (method, many) in enumerate(runs.items()):
        colour = COLOURS[k % len(COLOURS)]
        for run in many:
            parts += _run(run, f"{method}, seed {run.seed}", colour, top, rounds)
        x, y = PANEL[0] + 24, 20 + 46 * k
        parts.append(f'<path d="M{x} {y}h22" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 28}" y="{y + 5}">{escape(method.split(", ")[0])}</text>')
        parts.append(f'<text x="{x + 28}" y="{y + 22}">{escape(method.partition(", ")[2])} ({len(many)})</text>')
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _gains(run: Repetition) -> list[float]:
    """Return the mean gain of both players' responders, in their order."""
    pairs = zip(run.curve["gain_of_first"], run.curve["gain_of_second"], strict=True)
    return [(first + second) / 2 for first, second in pairs]


def _axes(top: float, rounds: int) -> Iterator[str]:
    wide, high = PANEL
    yield f'<rect width="{wide}" height="{high}" fill="none" stroke="#888"/>'
    for k in range(int(top / 0.1) + 1):
        y = _height(0.1 * k, top)
        yield f'<path d="M0 {y:.1f}H{wide}" stroke="#ddd"/>'
        yield f'<text x="-6" y="{y + 5:.1f}" text-anchor="end">{0.1 * k:.1f}</text>'
    y = _height(PUBLISHED, top)
    yield f'<path d="M0 {y:.1f}H{wide}" stroke="#555" stroke-dasharray="6 4"/>'
    yield f'<text x="{wide - 6}" y="{y - 6:.1f}" text-anchor="end" fill="#555">published: {PUBLISHED}</text>'
    for number in range(1, rounds + 1):
        yield f'<text x="{_place(number, rounds):.0f}" y="{high + 18}" text-anchor="middle">{number}</text>'
    yield f'<text x="{_place(rounds + 1, rounds):.0f}" y="{high + 18}" text-anchor="middle">mixture</text>'
    yield f'<text x="{wide / 2}" y="{high + 38}" text-anchor="middle">responders in turn, and the mixture that loses least to them</text>'
    yield f'<text x="{-high / 2}" y="-40" transform="rotate(-90)" text-anchor="middle">gain</text>'


def _run(run: Repetition, name: str, colour: str, top: float, rounds: int) -> Iterator[str]:
    points = [(_place(k, rounds), _height(gain, top)) for k, gain in enumerate(_gains(run), 1)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.4"><title>{escape(name)}</title></path>'
    x = _place(rounds + 1, rounds) + 4 * (run.seed % 5 - 2)
    low, high = (_height(run.figures[end], top) for end in ("low", "high"))
    yield f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{colour}" stroke-width="1.4"/>'
    yield f'<circle cx="{x:.1f}" cy="{_height(run.figures["exploitability"], top):.1f}" r="3" fill="{colour}"/>'


def _place(number: int, rounds: int) -> float:
    return PANEL[0] * number / (rounds + 2)


def _height(value: float, top: float) -> float:
    return PANEL[1] * (1.0 - value / top)
