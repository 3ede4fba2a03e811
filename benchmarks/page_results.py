"""Committed result files as `benchmarks.page` reads them: medians, cells, and the outcome of every bar."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from scipy.stats import t as student

from benchmarks import football, goofspiel13, gpu, hidden_boards, learning, psro_family, smax
from benchmarks.contestants import Repetition
from benchmarks.football_cells import CELLS as ACADEMIES
from benchmarks.goofspiel13_run import METHODS as GOOFSPIEL_METHODS
from benchmarks.goofspiel13_run import STEPS as GOOFSPIEL_STEPS
from benchmarks.gpu_store import Store
from benchmarks.harness import Medians
from benchmarks.learning_cells import Run, peer_of
from benchmarks.learning_tasks import TASKS
from benchmarks.machine import ROOT
from benchmarks.psro_family_cells import SEEDS, cell_path
from benchmarks.psro_family_methods import GAMES, METHODS
from benchmarks.results import Outcome

RESULTS = ROOT / "benchmarks" / "results"
MINUS, TIMES = "−", "×"


@cache
def document(name: str) -> dict[str, Any]:
    """Return results/NAME.json, or of a folder the document of its newest cell."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        path = max((RESULTS / name).rglob("*.json"), key=lambda cell: json.loads(cell.read_text("utf-8"))["date"])
    return dict(json.loads(path.read_text(encoding="utf-8")))


@cache
def medians(name: str) -> Medians:
    """Return the medians of results/NAME.json, by contestant and figure; what never came (null) is infinite."""
    measured = document(name)["measured"].items()
    return Medians(
        {
            contestant: [
                Repetition(r["seed"], {k: math.inf if v is None else v for k, v in r["figures"].items()})
                for r in repetitions
            ]
            for contestant, repetitions in measured
        }
    )


def repetition(path: Path) -> Repetition:
    """Return what a cell's file holds."""
    return Repetition(**json.loads(path.read_text(encoding="utf-8"))["repetition"])


@cache
def learning_runs() -> dict[str, list[Repetition]]:
    """Return the measured runs of `benchmarks.learning` by contestant, in the order of seeds."""
    runs: dict[str, list[Repetition]] = {}
    for task in TASKS:
        for seed in range(5):
            for run in (Run(task, seed), *([Run(task, seed, peer=True)] if TASKS[task].peer else [])):
                path = RESULTS / "learning" / run.path
                if path.exists():
                    runs.setdefault(run.contestant, []).append(repetition(path))
    return runs


@cache
def learning_outcomes() -> dict[str, list[Outcome]]:
    """Return the outcomes of the bars of each learning task that has a bar."""
    measured = Medians(learning.judged(learning_runs()))
    return {task: [bar.judge(measured) for bar in learning.bars([task])] for task, each in TASKS.items() if each.wanted}


@cache
def football_runs() -> dict[str, list[Repetition]]:
    """Return the measured runs of each academy, by seed."""
    return {
        name: [repetition(path) for path in sorted((RESULTS / "football" / name).glob("*.json"))] for name in ACADEMIES
    }


SMAX_BUDGETS = {"smax-3m": 3_000_000, "smax-2s3z": 5_000_000, "smax-3m-qmix": 30_000, "smax-2s3z-qmix": 5_000}
"""Of the cells that are compared with JaxMARL: decisions of MAPPO, episodes of QMIX."""


@cache
def smax_runs() -> Medians:
    """Return the runs of Ludus and of JaxMARL with these budgets."""
    runs = {
        name: [repetition(path) for path in sorted((RESULTS / "smax").glob(f"{name}-[0-9]-{budget}.json"))]
        for preset, budget in SMAX_BUDGETS.items()
        for name in (preset, smax.peer_of(preset))
    }
    return Medians({name: many for name, many in runs.items() if many})


@cache
def goofspiel_runs() -> Medians:
    """Return the runs of each method after 19.2 million steps, by seed."""
    runs = {
        method: [
            repetition(path)
            for seed in SEEDS
            if (path := goofspiel13.RESULTS / f"{goofspiel13.cell(method, seed, GOOFSPIEL_STEPS)}.json").exists()
        ]
        for method in GOOFSPIEL_METHODS
    }
    return Medians({method: many for method, many in runs.items() if many})


_FORMER_RESPONDERS = (8, 100_000)
"""Those of results until November 2026, which do not say."""


def goofspiel_responders(method: str) -> tuple[int, int]:
    """Return how many responders measured a method, and the episodes of each."""
    runs = [
        repetition(path)
        for seed in SEEDS
        if (path := goofspiel13.RESULTS / f"{goofspiel13.cell(method, seed, GOOFSPIEL_STEPS)}.json").exists()
    ]
    found = {
        (len(run.curve["round"]), int(run.figures["episodes of a responder"]))
        if "episodes of a responder" in run.figures
        else _FORMER_RESPONDERS
        for run in runs
    }
    if len(found) != 1:
        raise ValueError(f"{method}: seeds were measured by unlike responders {sorted(found)}; measure all alike.")
    return found.pop()


@cache
def hidden_board_runs() -> Medians:
    """Return the runs on hidden boards, as `GAME: METHOD, BUDGET`."""
    return Medians(hidden_boards.by_setting(hidden_boards.load()))


@cache
def family_runs() -> Medians:
    """Return the cells of the PSRO family, as `GAME: METHOD`."""
    runs = {
        f"{game}: {method}": [repetition(path) for seed in SEEDS if (path := cell_path(game, method, seed)).exists()]
        for game in GAMES
        for method in METHODS
    }
    return Medians({name: many for name, many in runs.items() if many})


@cache
def outcomes() -> dict[str, list[Outcome]]:
    """Return the outcome of every bar by benchmark: as stored in a result file, or judged from the cells of a folder."""
    stored = {path.stem: [_outcome(bar) for bar in document(path.stem)["bars"]] for path in files()}
    own = {name: [r for r in many if r.seed in ACADEMIES[name].seeds] for name, many in football_runs().items()}
    return {
        **stored,
        "football": [bar.judge(Medians(own)) for bar in football.bars(list(ACADEMIES))],
        "gpu": [bar.judge(gpu.medians(Store(RESULTS / "gpu"))) for bar in gpu.bars("cuda")],
        "goofspiel13": [goofspiel13.bar(GOOFSPIEL_STEPS).judge(goofspiel_runs())],
        "hidden_boards": [bar.judge(hidden_board_runs()) for bar in hidden_boards.BARS],
        "learning": [outcome for bars in learning_outcomes().values() for outcome in bars],
        "psro_family": [bar.judge(family_runs()) for bar in psro_family.BARS],
        "smax": [smax.bar(preset).judge(smax_runs()) for preset in smax.PRESETS],
    }


def files() -> Iterator[Path]:
    """Yield the result files that are no cells; those of `--quick` are not committed."""
    yield from (path for path in sorted(RESULTS.glob("*.json")) if not path.name.endswith(".quick.json"))


def _outcome(bar: dict[str, Any]) -> Outcome:
    return Outcome(bar["name"], bar["wanted"], bar["unit"], bar["value"], bar["verdict"])


def peer_scores(task: str) -> list[float]:
    """Return the scores of a task's peer."""
    return [r.figures["score"] for r in learning_runs().get(peer_of(task), ())]


# -------------------------------------------------------------------------------------------------- how figures are written


def number(value: float, digits: int | None = None) -> str:
    """Write a figure: with commas from 1,000 on, otherwise with `digits` decimals (None: three significant ones)."""
    if digits is None:
        digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2 if abs(value) >= 0.995 else 3
        if 0 < abs(value) < 0.0095:
            return f"{value:.2g}".replace("-", MINUS)
    return f"{value:,.{digits}f}".replace("-", MINUS)


def score(values: Sequence[float]) -> str:
    """Write the mean with half its 95% interval (Student's t) from three seeds on, otherwise each seed's value."""
    digits = 0 if abs(mean(values)) >= 1000 else 1 if abs(mean(values)) >= 10 else 3
    if len(values) < 3:
        return "; ".join(number(value, digits) for value in values)
    spread = (sum((value - mean(values)) ** 2 for value in values) / (len(values) - 1)) ** 0.5
    half = float(student.ppf(0.975, len(values) - 1)) * spread / len(values) ** 0.5
    return f"{number(mean(values) + 0.0, digits)} ± {number(half, digits)}"


def wanted(text: str) -> str:
    """Write a bar's condition."""
    comparison, _, limit = text.partition(" ")
    sign = {">=": "≥", "<=": "≤"}.get(comparison, comparison)
    value = f"{float(limit):,.10g}".replace("-", MINUS)
    return f"{sign} {value}"


Rows = list[tuple[str, ...]]


def table(*rows: Sequence[str], right: Sequence[int] = ()) -> str:
    """Write rows as Markdown, the heading first; `right`: columns of numbers."""
    heading, *rest = rows
    rule = ["---:" if column in right else "---" for column in range(len(heading))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heading, rule, *rest))
