"""A run as one HTML file, `report.html`: the page of `ludus ui` with what it shows of the run inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ludus.apps.ui import static_page
from ludus.apps.ui.figures.panels import PANELS
from ludus.apps.ui.figures.payoff_heat_map import PayoffTable
from ludus.apps.ui.static_page import REPORT, Snapshot
from ludus.core.jsonable import to_json
from ludus.storage.database import HASHED
from ludus.storage.reader import Memory, Reader
from ludus.storage.run_dirs import find_run

MAX_OF_POLICIES = 400_000
"""Bytes of policies' own pages: of the newest, as far as there is room. Of the others the report tells what the population's panels do."""
MAX_OF_REPLAYS = 400_000
"""Bytes of the replays that are kept beside the run: the newest, as far as there is room."""
MAX_SIDE = 300
"""Policies along an axis of a payoff table: the newest."""
MAX_CELLS = 2 * MAX_SIDE * MAX_SIDE
"""Of all payoff tables together; a game of many players has many."""
MAX_EVENTS = 500

_PANELS = (
    "overview",
    "answers",
    "convergence",
    "strategies",
    "ranking",
    "alpha_rank",
    "statistics",
    "learning",
    "throughput",
    "parts",
    "lineage",
    "responses",
    "embedding",
    "diversity",
)

Query = Mapping[str, str]


def write_report(run_dir: Path | str, *, out: Path | str | None = None) -> Path:
    """Write `report.html` of a run from its database (aside, then renamed). This works while the run is still running.

    Args:
        run_dir: Directory of the run, or its name below ./runs.
        out: Another output file, for a run in a read-only place.

    Returns:
        Path of the file.

    Raises:
        RunError: If the directory holds no readable run, or cannot be written.
    """
    folder = find_run(run_dir, zoo=False)
    with Reader(folder, memory=Memory()) as reader:
        reader.warn_of_damage(HASHED)
        page = collect(reader)
    return static_page.write(folder / REPORT if out is None else Path(out), page)


def collect(reader: Reader) -> Snapshot:
    """Return everything that the report shows. Raises RunError if the database is damaged."""
    queries: list[tuple[str, Query]] = [*((name, {}) for name in _PANELS), ("events", {"limit": str(MAX_EVENTS)})]
    panels = {panel_key(name, query): to_json(PANELS[name](reader, **query)) for name, query in queries}
    panels |= {panel_key("payoffs", query): to_json(table) for query, table in _payoffs(reader)}
    panels |= _policies(reader)
    panels |= _replays(reader.run_dir)
    return Snapshot("report", reader.info().name, panels)


def panel_key(name: str, query: Query) -> str:
    """Return a panel as the page asks for it in a snapshot (`source.js`)."""
    arguments = "&".join(f"{key}={value}" for key, value in sorted(query.items()))
    return f"{name}?{arguments}" if arguments else name


def _replays(run_dir: Path) -> dict[str, bytes]:
    from ludus.apps.play.replays import list_replays, read  # only a report needs it, and the driver imports this module

    panels, lines, room = {}, [], MAX_OF_REPLAYS
    for line in list_replays(run_dir):  # the newest first
        replay = to_json(read(run_dir, line.id))
        room -= len(replay)
        if room < 0:
            break
        lines.append(line)
        panels[f"replays/{line.id}"] = replay
    return {"replays": to_json(lines), **panels}


def _policies(reader: Reader) -> dict[str, bytes]:
    panels, room = {}, MAX_OF_POLICIES
    for stored in sorted(reader.policies(), key=lambda stored: stored.record.lineage.generation, reverse=True):
        ref = stored.record.ref
        query = {"population": str(ref.population), "policy": ref.policy}
        panel = to_json(PANELS["policy"](reader, **query))
        room -= len(panel)
        if room < 0:
            break
        panels[panel_key("policy", query)] = panel
    return panels


def _payoffs(reader: Reader) -> Iterator[tuple[Query, PayoffTable]]:
    """Yield the first table as the page asks for it, and those of the other players as far as there is room."""
    first = _newest(reader, {})
    yield {}, first
    cells = len(first.rows) * len(first.columns)
    for of, row, column in first.choices:
        query = {"of": str(of), "row": str(row), "column": str(column)}
        if (of, row, column) == (first.of, first.row_player, first.column_player):
            continue
        table = _newest(reader, query)
        cells += len(table.rows) * len(table.columns)
        if cells > MAX_CELLS:
            return
        yield query, table


def _newest(reader: Reader, query: Query) -> PayoffTable:
    table: PayoffTable = PANELS["payoffs"](reader, **query)
    if max(table.rows_in_all, table.columns_in_all) <= MAX_SIDE:
        return table
    sides = {"rows": table.rows_in_all, "columns": table.columns_in_all}
    parts = {side: f"{max(0, size - MAX_SIDE)}:{size}" for side, size in sides.items()}
    newest: PayoffTable = PANELS["payoffs"](reader, **query, **parts, order="age")
    return newest
