"""A run as one HTML file, `report.html`: the page of `ludus ui` with what it shows of the run inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ludus.storage.reader import Memory, Reader
from ludus.storage.run_dirs import find_run
from ludus.view import snapshot
from ludus.view.figures.panels import PANELS, to_json
from ludus.view.figures.payoffs import PayoffTable
from ludus.view.snapshot import Snapshot

FILE = "report.html"

MAX_POLICIES = 64
"""Whose own pages a report holds: the newest. Of the others it tells what the population's panels do."""
MAX_SIDE = 400
"""Policies along an axis of a payoff table: the newest."""
MAX_CELLS = 2 * MAX_SIDE * MAX_SIDE
"""Of all payoff tables together; a game of many players has many."""
MAX_EVENTS = 500

_PANELS = (
    "overview",
    "convergence",
    "strategies",
    "ranking",
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


def write_report(run_dir: Path | str) -> Path:
    """Writes `report.html` (aside, then renamed) into a run's directory, from its database, and returns its path. Works while the run goes
    on. run_dir: that directory, or the run's name below ./runs.

    Raises RunError if the directory holds no readable run or cannot be written.
    """
    folder = find_run(run_dir, zoo=False)
    with Reader(folder, memory=Memory()) as reader:
        page = collect(reader)
    return snapshot.write(folder / FILE, page)


def collect(reader: Reader) -> Snapshot:
    """Everything that the report shows. Raises RunError if the database is damaged."""
    panels = {
        panel_key(name, query): to_json(PANELS[name](reader, **query))
        for name, query in _asked(reader)
        if name in PANELS
    }
    panels |= {panel_key("payoffs", query): to_json(table) for query, table in _payoffs(reader)}
    return Snapshot("report", reader.info().name, panels)


def panel_key(name: str, query: Query) -> str:
    """A panel as the page asks for it in a snapshot (`source.js`)."""
    asked = "&".join(f"{key}={value}" for key, value in sorted(query.items()))
    return f"{name}?{asked}" if asked else name


def _asked(reader: Reader) -> Iterator[tuple[str, Query]]:
    yield from ((name, {}) for name in _PANELS)
    yield "events", {"limit": str(MAX_EVENTS)}
    newest = sorted(reader.policies(), key=lambda stored: stored.record.lineage.generation)[-MAX_POLICIES:]
    for ref in (stored.record.ref for stored in newest):
        yield "policy", {"population": str(ref.population), "policy": ref.policy}


def _payoffs(reader: Reader) -> Iterator[tuple[Query, PayoffTable]]:
    """The first table as the page asks for it, and those of the other players as far as there is room."""
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
