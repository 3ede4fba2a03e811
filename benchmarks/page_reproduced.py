"""The table of docs/reproduced.md: what was published, what comes out here, by which command, and in what time."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean, median

from benchmarks import hidden_boards as boards
from benchmarks.contestants import Repetition
from benchmarks.football_cells import CELLS as ACADEMIES
from benchmarks.learning_tasks import TASKS
from benchmarks.page_results import (
    football_runs,
    goofspiel_runs,
    hidden_board_runs,
    learning_runs,
    number,
    score,
    table,
)

Row = tuple[str, ...]


def reproduced() -> str:
    """Return a row for each figure that others have published, where Ludus was trained for the same game."""
    heading = ("what", "published, by", "Ludus", "seeds", "minutes a seed", "command: `python -m benchmarks.…`")
    return table(heading, *_hidden_boards(), *_goofspiel(), *_football(), *_learning(), right=(3, 4))


def _hidden_boards() -> Iterator[Row]:
    best: dict[str, str] = {}
    medians = hidden_board_runs()
    for name in medians.names:
        game = name.partition(":")[0]
        if game not in best or medians(name, "exploitability") < medians(best[game], "exploitability"):
            best[game] = name
    for game, name in best.items():
        values = medians.values(name, "exploitability")
        yield (
            f"exploitability in {boards.TITLES[game]}",
            boards.PUBLISHED[game],
            f"{score(values)} ({name.partition(': ')[2]} moves)",
            str(len(values)),
            number(medians(name, "cpu seconds") / 60),
            "hidden_boards",
        )


def _goofspiel() -> Iterator[Row]:
    medians = goofspiel_runs()
    name = min(medians.names, key=lambda name: medians(name, "exploitability"))
    values = medians.values(name, "exploitability")
    yield (
        "population exploitability in Goofspiel with 13 cards after 19.2 M steps",
        "0.244, NeuPL in arXiv 2605.28273, by other responders, cards drawn at random",
        f"{score(values)} ({name})",
        str(len(values)),
        number(medians(name, "seconds") / 60),
        "goofspiel13",
    )


def _football() -> Iterator[Row]:
    for name, runs in football_runs().items():
        if runs and ACADEMIES[name].published:
            scored = "; ".join(f"{run.figures['scored']:.3f}" for run in runs)
            minutes = number(mean(run.figures["seconds"] for run in runs) / 60)
            yield (
                f"football, `{name}`, scored",
                ACADEMIES[name].published,
                scored,
                str(len(runs)),
                minutes,
                f"football {name}",
            )


def _learning() -> Iterator[Row]:
    for name, task in TASKS.items():
        runs = learning_runs().get(name, [])
        if runs and task.published is not None:
            published = number(task.published, 0 if abs(task.published) >= 1000 else 1)
            yield (
                f"`{name}` after {number(task.budget, 0)} {task.unit}",
                f"{published}, {task.source}",
                score([run.figures["score"] for run in runs]),
                str(len(runs)),
                number(_minutes(runs)),
                f"learning {name}",
            )


def _minutes(runs: list[Repetition]) -> float:
    return median(run.figures["seconds"] for run in runs) / 60
