"""Standard output, and tables on it."""

from __future__ import annotations

import fcntl
import io
import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ludus.core.errors import escape_controls
from ludus.core.types import NamedStatistics

_GAP = 3  # between columns, as Rich draws them
_PIPE_WIDTH = 240  # nobody's screen: lines are not to be cut there


_results: TextIO | None = None
"""Where results go; None: `sys.stdout`."""


def separate() -> None:
    """Keep standard output for results, for the rest of this process: whatever else is printed (by environments, bots, parts, C extensions,
    child processes) goes to standard error, so that nothing comes between the lines that other programs read."""
    global _results
    stdout = sys.stdout
    if _results is not None or not isinstance(stdout, io.TextIOWrapper) or stdout.fileno() != 1:
        return  # a process without standard output, or a test that reads it
    stdout.flush()
    descriptor = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)  # 2 may be free: a process can be started without it
    _results = io.TextIOWrapper(
        open(descriptor, "wb", buffering=io.DEFAULT_BUFFER_SIZE),  # noqa: SIM115  for the rest of the process
        encoding=stdout.encoding,
        errors="replace" if stdout.errors == "strict" else stdout.errors,
        line_buffering=stdout.line_buffering,
        write_through=stdout.write_through,
    )
    try:
        os.dup2(2, 1)
    except OSError:  # without standard error
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    stdout.reconfigure(line_buffering=True)  # in the order in which it is printed


def stream() -> TextIO:
    """Return standard output as commands write to it."""
    return sys.stdout if _results is None else _results


def write_json(data: object) -> None:
    """For programs: what is not finite must be None already."""
    write(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def write(text: str) -> None:
    stream().write(text if text.endswith("\n") else text + "\n")


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    left: Sequence[int] = (0,),
    spare: Sequence[int] = (),
) -> list[str]:
    """Return columns whose index is in `left` are text, the others are numbers. A terminal that is too narrow goes without columns of
    `spare`, the first one first, and answers which; what still does not fit is folded."""
    console, rows = _console(), [columns, *rows]
    visible = _fitting(rows, spare, console.width)
    left_out = [name for k, name in enumerate(columns) if k not in visible]
    columns, *rows = [[row[k] for k in visible] for row in rows]
    left = [place for place, k in enumerate(visible) if k in left]
    if title:
        console.print(Text(title, style="bold"), soft_wrap=True)
    grid = Table(box=SIMPLE_HEAD, pad_edge=False)
    for k, name in enumerate(columns):
        grid.add_column(name, justify="left" if k in left else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(escape_controls(cell)) for cell in row))
    with console.capture() as capture:
        console.print(grid)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    write("\n".join(line for line in lines if line) + "\n")
    return left_out


def _fitting(rows: Sequence[Sequence[str]], spare: Sequence[int], width: int) -> list[int]:
    visible = list(range(len(rows[0])))
    for column in spare:
        if sum(_GAP + max(len(row[k]) for row in rows) for k in visible) > width:
            visible.remove(column)
    return visible


def aligned(rows: Iterable[Sequence[str]], *, gap: int = 2) -> list[str]:
    """Return a line for each row, two spaces in, whose cells begin below each other, `gap` spaces after the widest one to their left."""
    rows = list(rows)
    widths = [max(map(len, cells)) + gap for cells in zip(*rows, strict=True)]
    return [
        "  " + "".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def statistics_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], names: Sequence[str], *, title: str, left: Sequence[int]
) -> None:
    """What environments count. rows: cells of `columns`, whose numbers in `left` are text, then one for each name. Where that is too wide,
    a name has a line and a row a column; as many of them stand beside each other as fit."""
    rows, width = [list(row) for row in rows], _console().width
    if sum(_GAP + max(map(len, cells)) for cells in zip([*columns, *names], *rows, strict=True)) <= width:
        table([*columns, *names], rows, title=title, left=left)
        return
    heads = ["", *columns, *names]
    while rows:
        count = len(rows)
        while count > 1 and sum(_GAP + max(map(len, cells)) for cells in [heads, *rows[:count]]) > width:
            count -= 1
        lines = list(zip([*columns, *names], *rows[:count], strict=True))
        table(lines[0], lines[1:], title=title)
        rows, title = rows[count:], ""


def facts(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair per line, never wrapped, so that paths can be copied."""
    console = _console()
    pairs = list(pairs)
    width = max(len(name) for name, _ in pairs)
    console.print(Text(title, style="bold"))
    for name, value in pairs:
        console.print(
            Text(f"  {name:<{width}}  ", style="dim").append(escape_controls(value), style="not dim"), soft_wrap=True
        )


_DIGITS = {"Elo points": 0, "skill": 2}  # of units; others have four


def rating_column(name: str, low: Sequence[float]) -> str:
    """Return a heading, which says whether there are intervals."""
    return f"{name}, 95%" if any(map(math.isfinite, low)) else name


def rating_cell(unit: str, rating: float, low: float, high: float) -> str:
    """Return a rating with its interval, where it has one."""
    if math.isnan(rating):
        return "-"
    digits = _DIGITS.get(unit, 4)
    text = f"{rating:.{digits}f}"
    return text if math.isnan(low) else f"{text} [{low:.{digits}f}, {high:.{digits}f}]"


def mean_cells(statistics: NamedStatistics | None, row: int) -> list[str]:
    """Return the means of one row of statistics; nothing where there are none."""
    from ludus.reporting.curves import short

    if statistics is None:
        return []
    return ["-" if math.isnan(mean) else short(mean) for mean in statistics.mean[row].tolist()]


class _Console(Console):
    """Leaves a reader that went away to `ludus.cli.main`; Rich would end the process with exit code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _console() -> Console:
    return _Console(file=stream(), width=None if stream().isatty() else _PIPE_WIDTH, highlight=False)
