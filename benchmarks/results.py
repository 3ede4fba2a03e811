"""Result files: every repetition with what is needed to judge it, and the figures of committed ones."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.contestants import Repetition
from benchmarks.lines import versions
from benchmarks.machine import Machine, commit, this_machine, today
from ludus.core.config import to_yaml
from ludus.core.errors import ConfigError
from ludus.runs.scenario import Scenario
from ludus.runs.scenario_files import parse_scenario

PACKAGES = ("highspy", "ludus", "numba", "numpy", "open-spiel", "scipy", "torch")
FORMAT = 1
Verdict = Literal["met", "short", "unjudged"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a bar; `value` is None where it could not be judged. committed: whose figures are not of this run, and of when. why:
    why it could not be judged, where that is known."""

    name: str
    wanted: str
    unit: str
    value: float | None
    verdict: Verdict
    committed: tuple[str, ...] = ()
    why: str = ""

    def line(self) -> str:
        """`bar NAME: VALUE (wanted CONDITION) met|short|unjudged`, and what of it was not measured in this run."""
        value = "-" if self.value is None else f"{self.value:.4g}{self.unit}"
        return f"bar {self.name}: {value} (wanted {self.wanted}{self.unit}) {self.verdict}" + (
            f" (committed result: {', '.join(self.committed)})"
            if self.committed
            else f": {self.why}"
            if self.why
            else ""
        )


def result_path(name: str, *, part: bool, folder: Path) -> Path:
    """Where results go; part of a measurement (`--quick`, `--only`) goes to a file that git ignores."""
    return folder / (f"{name}.quick.json" if part else f"{name}.json")


def write(
    path: Path,
    *,
    name: str,
    quick: bool,
    measured: Mapping[str, Sequence[Repetition]],
    carried: Mapping[str, Sequence[Repetition]],
    outcomes: Sequence[Outcome],
) -> None:
    """Writes a result file; `carried` are contestants whose committed repetitions were used."""
    document = {
        "format": FORMAT,
        "benchmark": name,
        "quick": quick,
        "date": today(),
        "commit": commit(),
        "machine": this_machine().as_json(),
        "versions": versions(PACKAGES),
        "measured": {contestant: [to_json(r) for r in many] for contestant, many in measured.items()},
        "from_committed_results": sorted(carried),
        "bars": [
            {"name": o.name, "wanted": o.wanted, "unit": o.unit, "value": _finite(o.value), "verdict": o.verdict}
            for o in outcomes
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump(document), encoding="utf-8")


def write_cell(path: Path, repetition: Repetition, **more: Any) -> None:
    """Writes one repetition that has a file of its own, as a whole or not at all. more: what else is told beside it. Raises ValueError for
    figures that are no finite numbers."""
    facts = {"date": today(), "commit": commit(), "machine": this_machine().as_json(), **more}
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    aside.write_text(
        json.dumps({**facts, "repetition": asdict(repetition)}, indent=1, allow_nan=False) + "\n", encoding="utf-8"
    )
    aside.replace(path)


def in_full(text: str, overrides: Sequence[str] = ()) -> Scenario:
    """The scenario that a text describes, as it was measured: what is left out has the classes' defaults, and not what the environment
    would say today."""
    scenario = parse_scenario(text, list(overrides))
    return parse_scenario(to_yaml({"scenario": scenario.kind, **scenario.model_dump(mode="json")}))


def same_scenario(text: str, other: str) -> bool:
    """Whether two scenarios are one. A text of the past may lack keys that came since: they count as their defaults."""
    try:
        return in_full(text) == in_full(other)
    except ConfigError:
        return False


def committed(name: str, machine: Machine, *, folder: Path) -> tuple[str, dict[str, list[Repetition]]]:
    """The date of the committed result file, and its repetitions by contestant; nothing if there is none from this kind of machine."""
    path = result_path(name, part=False, folder=folder)
    if not path.exists():
        return "", {}
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["format"] != FORMAT or not Machine(**document["machine"]).same_kind(machine):
        return "", {}
    return document["date"], {
        contestant: [from_json(r) for r in many] for contestant, many in document["measured"].items()
    }


def to_json(repetition: Repetition) -> dict[str, Any]:
    """Return a repetition as a result file holds it."""
    return {
        "seed": repetition.seed,
        "error": repetition.error,
        "versions": repetition.versions,
        "figures": {name: _finite(value) for name, value in repetition.figures.items()},
        "curve": {column: [_finite(v) for v in values] for column, values in repetition.curve.items()},
    }


def from_json(stored: Mapping[str, Any]) -> Repetition:
    """Return what `to_json` wrote."""
    return Repetition(
        seed=stored["seed"],
        error=stored["error"],
        versions=stored["versions"],
        figures={name: _number(value) for name, value in stored["figures"].items()},
        curve={column: [_number(v) for v in values] for column, values in stored["curve"].items()},
    )


def _finite(value: float | None) -> float | None:
    """Six digits; JSON has no infinity: null stands for a first passage that never came."""
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.inf if value is None else value


def dump(document: Mapping[str, Any]) -> str:
    """Indented JSON, but each list of numbers on one line."""
    text = json.dumps(document, indent=1, allow_nan=False)
    return re.sub(r"\[\s+([-+\d.eul,\sn]+?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"
