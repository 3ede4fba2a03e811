"""Tables of results, from the files of `benchmarks.learning` and `benchmarks.gradients_lag`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

import site_layout
from option_tables import markdown_table
from scipy.stats import t as student

if TYPE_CHECKING:
    from benchmarks.learning_task import LearningTask

RESULTS = site_layout.ROOT / "benchmarks" / "results"


def learning_tasks() -> dict[str, LearningTask]:
    """Return the tasks of `benchmarks.learning`."""
    if str(site_layout.ROOT) not in sys.path:
        sys.path.insert(0, str(site_layout.ROOT))
    from benchmarks.learning_tasks import TASKS

    return TASKS


def runs(task: str, peer: str = "") -> list[dict[str, float]]:
    """Return the figures of the runs of a task, by Ludus or by its peer.

    Raises:
        FileNotFoundError: There is no result by Ludus.
    """
    files = sorted((RESULTS / "learning" / task).glob(f"{peer}[0-9].json"))
    if not files and not peer:
        raise FileNotFoundError(f"{RESULTS}/learning has no result of {task!r}")
    return [json.loads(file.read_text(encoding="utf-8"))["repetition"]["figures"] for file in files]


def score_text(figures: Sequence[dict[str, float]]) -> str:
    """Return the scores of one or two seeds; of more the mean with its 95% interval (Student's t) and their number."""
    from benchmarks.psro_family_cells import interval

    scores = [run["score"] for run in figures]
    digits = 3 if max(map(abs, scores)) < 10 else 1
    texts = [f"{each:.{digits}f}" for each in scores]
    if len(scores) > 2:
        middle, _, half = interval(scores).partition(" ± ")
        texts = [f"{float(middle):.{digits}f} ± {float(half):.{digits}f} ({len(scores)})"]
    return ", ".join(texts).replace("-", "−")


def results(names: str) -> str:
    """Return a row for each of the named tasks, with a peer's scores where there are runs of one."""
    caption = "Scores by `python -m benchmarks.learning TASK`; ± is the 95% interval over seeds."
    return f"{markdown_table(*_with_heading(_results(names.split())))}\n{caption}\n"


def _results(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    tasks = learning_tasks()
    peers = {name: peer for name in names if (peer := tasks[name].peer) and runs(name, f"{peer.name.lower()}-")}
    yield ("task", "budget", "score (seeds)", *(["peer, run here"] if peers else []))
    for name in names:
        budget = f"{tasks[name].budget:,} {tasks[name].unit}"
        peer = peers.get(name)
        theirs = f"{peer.name} {score_text(runs(name, f'{peer.name.lower()}-'))}" if peer else ""
        yield (f"`{name}`", budget, score_text(runs(name)), *([theirs] if peers else []))


def lags(names: str) -> str:
    """Return the table of one experiment of `benchmarks.gradients_lag`: means and 95% intervals. names: `TASK: KIND KIND`."""
    task, _, kinds = names.partition(": ")
    caption = "Returns by `python -m benchmarks.gradients_lag`, five seeds; ± is the 95% interval over seeds."
    return f"{markdown_table(*_with_heading(_lags(task, kinds.split())))}\n{caption}\n"


def _lags(task: str, kinds: Sequence[str]) -> Iterator[tuple[str, ...]]:
    measured: dict[str, Any] = json.loads((RESULTS / "gradients_lag.json").read_text(encoding="utf-8"))["measured"]
    yield ("lag", *(f"while training, {kind}" for kind in kinds), *(f"final, {kind}" for kind in kinds))
    for lag in (0, 2, 4, 8):
        figures = {kind: [run["figures"] for run in measured[f"{task}, lag {lag}, {kind}"]] for kind in kinds}
        columns = [[run[name] for run in figures[kind]] for name in ("training return", "score") for kind in kinds]
        yield (str(lag), *(f"{mean(values):.3g} ± {half_width(values):.2g}" for values in columns))


def half_width(values: Sequence[float]) -> float:
    """Return half of the 95% interval of the mean (Student's t)."""
    return float(student.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5


def _with_heading(rows: Iterator[tuple[str, ...]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    heading = next(rows)
    return heading, list(rows)
