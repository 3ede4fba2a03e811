"""What `benchmarks.football` measures: its cells, the curve that a run leaves, and where results lie."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ludus
from benchmarks.contestants import Contestant, Repetition
from benchmarks.machine import ROOT
from benchmarks.results import same_scenario, write_cell
from ludus.core.types import TrainingTask
from ludus.rollout.base import EpisodeResults
from ludus.runs.scenario_files import load_scenario

RESULTS = ROOT / "benchmarks" / "results" / "football"
KEPT = ROOT / "runs" / "benchmarks" / "football"
EPISODES = 500
"""Of the evaluation of a trained policy."""
SCORED = 1.5
"""A return above this is a goal: that pays 1 and all the checkpoints that are left, which together pay 1; without it there is at most 1."""


@dataclass(frozen=True, slots=True)
class Cell:
    """preset: what is trained. agents: of the team. seeds: measured if no others are asked for, and what a bar needs. wanted: of the
    mean share of episodes with a goal; empty: none. published: where others came, in words."""

    preset: str
    agents: int
    seeds: tuple[int, ...]
    wanted: str = ""
    published: str = ""
    timeout_s: float = 24 * 3600.0


CELLS = {
    "empty-goal": Cell("football-empty-goal", 1, (0, 1, 2, 3, 4), ">= 0.98"),
    "run-to-score": Cell("football-run-to-score", 1, (0, 1, 2), ">= 0.9"),
    "pass-and-shoot": Cell("football-pass-and-shoot", 2, (0,)),
    "3-vs-1": Cell("football-3-vs-1", 3, (0,), published="0.88 after 25 M steps"),
}


def scenario(name: str, seed: int, *, changes: Sequence[str] = ()) -> str:
    """A cell's scenario as text, with the callback that writes its curve."""
    curve = "callbacks=[{kind: 'benchmarks.football_cells:Curve'}]"
    return load_scenario(CELLS[name].preset, [f"seed={seed}", curve, *changes]).to_yaml()


# --------------------------------------------------------------------------------------------------------------------
# The curve: how often training episodes end with a goal.


@dataclass
class Curve(ludus.Callback):
    """Appends a line to curve.csv in the run's folder for each iteration: its first episode's number, episodes, goals, steps."""

    def on_run_start(self, info: Any, *, generation: int) -> None:
        del generation
        self._path = Path(info.run_dir) / CURVE

    def on_episodes(self, task: TrainingTask, episodes: EpisodeResults) -> None:
        if len(episodes.length):
            returns = episodes.returns[:, 0]
            row = (int(episodes.index.min()), len(returns), int((returns > SCORED).sum()), int(episodes.length.sum()))
            with self._path.open("a", newline="", encoding="utf-8") as file:
                csv.writer(file).writerow(row)


CURVE = "curve.csv"


def read_curve(path: Path) -> NDArray[np.float64]:
    """float64[n, 3] of a run's curve.csv: environment steps until then, episodes and goals of the iteration. Iterations that a killed
    session wrote, and the next one again, count once, as they were last."""
    rows: dict[int, tuple[int, ...]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.reader(file):
            first, *numbers = map(int, line)
            rows = {number: row for number, row in rows.items() if number < first}
            rows[first] = tuple(numbers)
    table = np.array([rows[number] for number in sorted(rows)], np.float64).reshape(-1, 3)
    return np.column_stack([table[:, 2].cumsum(), table[:, 0], table[:, 1]])


def points(curve: NDArray[np.float64], count: int = 40) -> NDArray[np.float64]:
    """float64[m, 2]: environment steps, share of episodes with a goal, over m ≤ count equal parts of the steps."""
    if not len(curve):
        return np.zeros((0, 2))
    part = np.minimum((curve[:, 0] / curve[-1, 0] * count).astype(int), count - 1)
    episodes, goals = (np.bincount(part, curve[:, column], count) for column in (1, 2))
    ends = np.array([curve[part == k, 0].max() if (part == k).any() else 0.0 for k in range(count)])
    some = episodes > 0
    return np.column_stack([ends[some], goals[some] / episodes[some]])


def slope(curve: NDArray[np.float64], share: float = 0.25) -> float:
    """By how much the share of episodes with a goal rises per million environment steps, at the end: least squares over the last `share` of
    the steps, each iteration weighted by its episodes. NaN where there are fewer than three."""
    last = curve[curve[:, 0] >= (1 - share) * curve[-1, 0]] if len(curve) else curve
    last = last[last[:, 1] > 0]
    if len(last) < 3:
        return float("nan")
    steps, weight = last[:, 0] / 1e6, last[:, 1] / last[:, 1].sum()
    scored = last[:, 2] / last[:, 1]
    away = steps - (weight * steps).sum()
    return float((weight * away * scored).sum() / (weight * away**2).sum())


# --------------------------------------------------------------------------------------------------------------------
# Results: a file for each cell and seed.


def contestant(name: str, *, quick: bool = False) -> Contestant:
    """The worker of a cell, on all cores."""
    arguments = ("--cell", name, *(("--quick",) if quick else ()))
    return Contestant(
        name, "benchmarks.football_run", arguments=arguments, timeout_s=CELLS[name].timeout_s, pinned=False
    )


def stored(name: str, seed: int, folder: Path) -> Repetition | None:
    """What was measured; None if nothing was, or with other settings, which is said. Exits with a sentence for a damaged file."""
    path = folder / name / f"{seed}.json"
    if not path.exists():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        settings, repetition = document["settings"], Repetition(**document["repetition"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(
            f"{path} is no result of a cell ({type(error).__name__}: {error}). Restore it from git, or delete it to measure anew."
        ) from error
    if not same_scenario(settings, scenario(name, seed)):
        print(f"{name}, seed {seed}: measured with other settings, which do not count", file=sys.stderr)
        return None
    return repetition


def write(name: str, repetition: Repetition, folder: Path) -> None:
    """Writes a result, as a whole or not at all."""
    write_cell(folder / name / f"{repetition.seed}.json", repetition, settings=scenario(name, repetition.seed))
