"""How far a distributed run goes: a model of its parts, compared with what was measured, then asked about 100 to 10,000 workers.

    python -m benchmarks.capacity

The model (`benchmarks.capacity_model`) has the constants that other benchmarks measured (`benchmarks.capacity_scenarios`). It must repeat
measured runs of up to 16 workers to 15%. What it says of more workers is arithmetic, not a measurement: no such cluster was there. Times
are constant, so every call gives the same. Writes benchmarks/results/capacity.json, docs/images/capacity.svg, and the tables of
docs/guides/capacity.md.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from html import escape

from benchmarks.capacity_model import Outcome
from benchmarks.capacity_scenarios import (
    OPTIONS,
    SIZE,
    SIZES,
    SOURCES,
    TOLERANCE,
    cases,
    costs,
    foretold,
    scenarios,
)
from benchmarks.contestants import Repetition
from benchmarks.machine import ROOT
from benchmarks.page_results import RESULTS, document, medians, number, table
from benchmarks.psro_family_report import inserted
from benchmarks.results import Outcome as Judged
from benchmarks.results import result_path, write

PAGE, PICTURE = ROOT / "docs" / "guides" / "capacity.md", ROOT / "docs" / "images" / "capacity.svg"
RATE, CURVES = "decisions per second", ("as it is", "runtime.trainers=8")
PARTS = ("messages", "learning", "network", "workers", "servers")


def key(option: str, workers: int, what: str) -> str:
    """Name of a figure."""
    return f"{option}, {workers} workers: {what}"


def figures(outcome: Outcome, option: str, workers: int) -> dict[str, float]:
    """Return what is stored of a run of the model."""
    busy = {key(option, workers, part): outcome.busy[part] for part in PARTS}
    return {key(option, workers, RATE): outcome.rate, **busy}


def main() -> int:
    """Run the model, and write what it says."""
    known = costs()
    found = {case.name: (case.measured, case.model(known)) for case in cases()}
    said = {
        "measured": {name: pair[0] for name, pair in found.items()},
        "model": {n: pair[1] for n, pair in found.items()},
    }
    for name in scenarios():
        said[name] = {}
        for option, size in dict.fromkeys([*((c, s) for c in CURVES for s in SIZES), *((o, SIZE) for o in OPTIONS)]):
            said[name] |= figures(foretold(known, name, option, size), option, size)
            print(f"{name}, {option}, {size}: {said[name][key(option, size, RATE)]:.4g}", file=sys.stderr)
    worst = max(abs(model / measured - 1) for measured, model in found.values())
    bar = f"model of a run, worst of {len(found)} measured figures: off by"
    outcome = Judged(bar, f"<= {TOLERANCE:g}", "", worst, "met" if worst <= TOLERANCE else "short")
    write(
        result_path("capacity", part=False, folder=RESULTS),
        name="capacity",
        quick=False,
        measured={name: [Repetition(0, values)] for name, values in said.items()},
        carried={},
        outcomes=[outcome],
    )
    document.cache_clear()
    medians.cache_clear()
    PICTURE.write_text(svg(), encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{comparison()}\n\n{growth()}\n\n{options()}\n\n{outcome.line()}")
    return 0


# ------------------------------------------------------------------------------------------------------------ tables


def filled(text: str) -> str:
    """Return the page with its tables as the result file has them."""
    for block in (sources, comparison, growth, options):
        begin, end = (f"<!-- benchmarks.capacity {block.__name__}: {which} -->" for which in ("begin", "end"))
        text = inserted(text, block(), begin=begin, end=end)
    return text


def sources() -> str:
    """Return which command measured which constants."""
    rows = [
        (constants, ", ".join(f"`python -m benchmarks.{each}`" for each in names.split(", ")))
        for constants, names in SOURCES.items()
    ]
    return table(("measured", "by"), *rows)


def comparison() -> str:
    """Return the measured figures beside the model's."""
    found = medians("capacity")
    rows = [("figure", "measured", "model", "off by")]
    for name in document("capacity")["measured"]["measured"][0]["figures"]:
        measured, model = found("measured", name), found("model", name)
        rows.append((name, number(measured), number(model), f"{100 * (model / measured - 1):+.0f}%".replace("-", "−")))
    return table(*rows, right=(1, 2, 3))


def growth() -> str:
    """Return decisions per second by scenario and workers, and what is saturated."""
    found = medians("capacity")
    rows = [("scenario", "workers", RATE, "times ten times fewer", "what stops it")]
    for name in scenarios():
        for fewer, size in zip((0, *SIZES), SIZES, strict=False):
            rate = found(name, key("as it is", size, RATE))
            times = number(rate / found(name, key("as it is", fewer, RATE))) if fewer else ""
            rows.append((name, f"{size:,}", number(rate), times, limit(name, "as it is", size)))
    return table(*rows, right=(1, 2, 3))


def options() -> str:
    """Return what each option brings with `SIZE` workers."""
    found = medians("capacity")
    rows = [
        (f"{SIZE:,} workers", *(f"{name}: times" for name in scenarios()), *(f"{name}: then" for name in scenarios()))
    ]
    for option in OPTIONS:
        rates = [
            found(name, key(option, SIZE, RATE)) / found(name, key("as it is", SIZE, RATE)) for name in scenarios()
        ]
        rows.append(
            (
                option if option in ("as it is", "weights sent as a tree") else f"`{option}`",
                *map(number, rates),
                *(limit(name, option, SIZE) for name in scenarios()),
            )
        )
    return table(*rows, right=range(1, 1 + len(scenarios())))


def limit(name: str, option: str, workers: int) -> str:
    """Return the busiest part, and the share of the time in which it is busy."""
    busy = {part: medians("capacity")(name, key(option, workers, part)) for part in PARTS}
    apart = {f"network {busy['network']:.0%}": busy["network"], f"servers {busy['servers']:.0%}": busy["servers"]}
    if OPTIONS[option].get("trainers"):
        apart |= {
            f"trainers {busy['learning']:.0%}": busy["learning"],
            f"driver {busy['messages']:.0%}": busy["messages"],
        }
    else:
        both = busy["learning"] + busy["messages"]
        apart[f"driver {both:.0%} (learning {busy['learning']:.0%}, messages {busy['messages']:.0%})"] = both
    most = max(apart, key=apart.__getitem__)
    return most if apart[most] > 0.8 or busy["workers"] < 0.8 else f"nothing yet: workers {busy['workers']:.0%}"


# ----------------------------------------------------------------------------------------------------------- picture

WIDE, HIGH, LEFT, TOP = 250, 230, 100, 40
COLOURS = ("#1f77b4", "#d62728")


def svg() -> str:
    """Draw decisions per second over workers, a panel for each scenario."""
    width, height = (WIDE + LEFT + 14) * len(scenarios()) + 12, HIGH + TOP + 80
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for column, name in enumerate(scenarios()):
        lines.append(f'<g transform="translate({column * (WIDE + LEFT + 14) + LEFT} {TOP})">')
        lines += [*_panel(name), "</g>"]
    for k, curve in enumerate([*CURVES, "no limit but the workers"]):
        x, y = LEFT + 220 * k, height - 14
        stroke = (
            f'stroke="{COLOURS[k]}" stroke-width="2"' if k < len(CURVES) else 'stroke="#888" stroke-dasharray="3 3"'
        )
        lines.append(f'<path d="M{x} {y}h30" {stroke}/><text x="{x + 38}" y="{y + 4}">{escape(curve)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(name: str) -> Iterator[str]:
    found = medians("capacity")
    curves: Mapping[str, list[float]] = {c: [found(name, key(c, n, RATE)) for n in SIZES] for c in CURVES}
    alone = max(curve[0] for curve in curves.values())
    low = math.floor(math.log10(min(map(min, curves.values()))))
    high = math.ceil(math.log10(max(map(max, curves.values()))))

    def point(workers: float, rate: float) -> str:
        x = math.log10(workers) / math.log10(SIZES[-1]) * WIDE
        return f"{x:.1f} {HIGH * (1 - (math.log10(rate) - low) / (high - low)):.1f}"

    yield f'<text x="{WIDE / 2}" y="-14" text-anchor="middle" font-size="15">{escape(name)}</text>'
    yield f'<rect width="{WIDE}" height="{HIGH}" fill="none" stroke="#888"/>'
    for power in range(low, high + 1):
        y = HIGH * (1 - (power - low) / (high - low))
        yield f'<path d="M0 {y:.1f}H{WIDE}" stroke="#ddd"/>'
        yield f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{10.0**power:,.0f}</text>'
    for size in SIZES:
        x = point(size, 1).split()[0]
        yield f'<text x="{x}" y="{HIGH + 18}" text-anchor="middle">{size:,}</text>'
    yield f'<text x="{WIDE / 2}" y="{HIGH + 38}" text-anchor="middle">workers</text>'
    yield f'<text transform="translate(-84 {HIGH / 2}) rotate(-90)" text-anchor="middle">{RATE}</text>'
    last = min(SIZES[-1], 10**high / alone)
    yield f'<path d="M{point(1, alone)}L{point(last, alone * last)}" stroke="#888" stroke-dasharray="3 3"/>'
    for curve, colour in zip(CURVES, COLOURS, strict=True):
        path = "L".join(point(n, rate) for n, rate in zip(SIZES, curves[curve], strict=True))
        yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"><title>{escape(curve)}</title></path>'


if __name__ == "__main__":
    sys.exit(main())
