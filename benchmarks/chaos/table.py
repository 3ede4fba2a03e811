"""Harm × promise: the table of a campaign, its result file, and its bars."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from benchmarks.chaos.promises import PROMISES
from benchmarks.lines import versions
from benchmarks.machine import ROOT, commit, this_machine, today
from benchmarks.results import FORMAT, PACKAGES, Outcome

PATH = ROOT / "benchmarks" / "results" / "chaos.json"
OUTCOMES = ("survived", "clear", "late", "skipped", "broken", "fault")
WITHIN = 30.0
Row = Mapping[str, Any]


def summary(rows: Sequence[Row], *, jobs: int) -> dict[str, Any]:
    """Return what is committed of the rows of campaigns. jobs: cases at a time."""
    names = sorted({row["harm"] for row in rows})
    minutes = sum(row["seconds"] for row in rows) / jobs / 60
    outcomes = bars(rows, hours=minutes / 60)
    return {
        "format": FORMAT,
        "benchmark": "chaos",
        "quick": False,
        "date": today(),
        "commit": commit(),
        "machine": this_machine().as_json(),
        "versions": versions((*PACKAGES, "ray")),
        "seeds": sorted({int(row["case"].partition(":")[0]) for row in rows}),
        "jobs": jobs,
        "minutes": round(minutes, 1),
        "load": median([row["load"] for row in rows]),
        "slow_down": median([row["slow"] for row in rows]),
        "harms": {name: _harm([row for row in rows if row["harm"] == name]) for name in names},
        "runtimes": dict(Counter(row["scenario"].partition("/")[2] for row in rows if counts(row))),
        "scenarios": len({row["scenario"] for row in rows}),
        "skipped": sorted({f"{row['harm']}: {row['why']}" for row in rows if row["outcome"] == "skipped"}),
        "broken": [
            {key: row[key] for key in ("case", "harm", "scenario", "options", "broken")}
            for row in rows
            if row["broken"]
        ],
        "bars": [
            {"name": o.name, "wanted": o.wanted, "unit": o.unit, "value": o.value, "verdict": o.verdict}
            for o in outcomes
        ],
    }


def counts(row: Row) -> bool:
    """Return whether a case has harmed something."""
    return row["outcome"] in ("survived", "clear", "broken")


def _harm(rows: Sequence[Row]) -> dict[str, Any]:
    outcomes = Counter(row["outcome"] for row in rows)
    times = {key: [row[key] for row in rows if row[key] is not None] for key in ("recovery", "end", "resumed")}
    return {
        **{name: outcomes[name] for name in OUTCOMES if outcomes[name]},
        "promises": {
            name: [sum(name in row["checked"] for row in rows), sum(name in row["broken"] for row in rows)]
            for name in PROMISES
        },
        **{key: [len(values), median(values), round(max(values), 1)] for key, values in times.items() if values},
    }


def median(values: Sequence[float]) -> float:
    """Return the median, in tenths."""
    return round(statistics.median(values), 1) if values else 0.0


def bars(rows: Sequence[Row], *, hours: float) -> list[Outcome]:
    """Return what was asked for. hours: that the cases have taken."""
    harmed = [row for row in rows if counts(row)]
    ray = sum(row["scenario"].endswith(("/ray", "/cluster")) for row in harmed)
    broken = sum(bool(row["broken"]) for row in harmed)
    times = [row[key] for row in harmed for key in ("recovery", "end") if row[key] is not None]
    late = sum(bool(row["broken"].get("time")) for row in harmed)
    return [
        _bar("harms", ">= 500", len(harmed)),
        _bar("harms in 60 minutes", ">= 200", len(harmed) / hours if hours else 0.0),
        _bar("harms on Ray", ">= 20", ray),
        _bar("broken promises", "<= 0", broken),
        _bar("recovery or end later than 30 s or the documented deadline", "<= 0", late),
        _bar("median seconds until recovery or end", f"<= {WITHIN:g}", median(times), " s", judged=bool(times)),
    ]


def _bar(name: str, wanted: str, value: float, unit: str = "", *, judged: bool = True) -> Outcome:
    comparison, _, limit = wanted.partition(" ")
    met = value >= float(limit) if comparison == ">=" else value <= float(limit)
    verdict: Literal["met", "short", "unjudged"] = ("met" if met else "short") if judged else "unjudged"
    return Outcome(name, wanted, unit, round(float(value), 1), verdict)


def write(document: Mapping[str, Any], path: Path = PATH) -> None:
    """Write a result file, a harm a line."""
    head = json.dumps(
        {key: value for key, value in document.items() if key not in ("harms", "broken", "bars")}, indent=1
    )
    parts = [head[:-2]]
    lines = [f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in document["harms"].items()]
    parts.append(' "harms": {\n' + ",\n".join(lines) + "\n }")
    for key in ("broken", "bars"):
        entries = [f"  {json.dumps(entry, ensure_ascii=False)}" for entry in document[key]]
        parts.append(f' "{key}": [' + ("\n" + ",\n".join(entries) + "\n " if entries else "") + "]")
    path.write_text(",\n".join(parts) + "\n}\n", encoding="utf-8")


def cells(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the table, its heading first: a row a harm."""
    table: list[tuple[str, ...]] = [
        ("harm", "survived", "clear", "late", "broken", "recovered in s", "ended in s", "resumed in s")
    ]
    total: Counter[str] = Counter()
    for name, entry in document["harms"].items():
        total.update({outcome: entry.get(outcome, 0) for outcome in OUTCOMES})
        numbers = (str(entry.get(outcome) or "") for outcome in ("survived", "clear", "late", "broken"))
        table.append((name, *numbers, *(_spread(entry.get(key)) for key in ("recovery", "end", "resumed"))))
    table.append(("all", *(str(total[outcome]) for outcome in ("survived", "clear", "late", "broken")), "", "", ""))
    return table


def _spread(values: Sequence[float] | None) -> str:
    return "" if values is None else f"{values[1]:.1f}, {values[2]:.1f}"


def promise_cells(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return how often each promise was checked and broken, by harm."""
    table: list[tuple[str, ...]] = [("harm", *PROMISES)]
    for name, entry in document["harms"].items():
        table.append((name, *(_share(entry["promises"][promise]) for promise in PROMISES)))
    return table


def _share(pair: Iterable[int]) -> str:
    checked, broken = pair
    return "" if not checked else f"{checked - broken} of {checked}"


def sentence(document: Mapping[str, Any]) -> str:
    """Return what was done, in words."""
    totals = Counter({name: sum(entry.get(name, 0) for entry in document["harms"].values()) for name in OUTCOMES})
    harmed = sum(totals[name] for name in ("survived", "clear", "broken"))
    runtimes = ", ".join(f"{count} in {name}" for name, count in document["runtimes"].items())
    skipped = "".join(f" Skipped: {line}." for line in document["skipped"])
    return (
        f"{harmed} harms of {document['scenarios']} scenarios ({runtimes}) in {document['minutes']:.0f} minutes, "
        f"{document['jobs']} cases at a time, seeds {', '.join(map(str, document['seeds']))}. The machine was "
        f"{document['slow_down']:g} times slower than idle (median). Seconds: median, worst.{skipped}"
    )
