"""From a run directory to its `report.html`."""

from __future__ import annotations

import html
import json
import os
from dataclasses import asdict
from importlib import resources
from pathlib import Path

from plotly.offline import get_plotlyjs

from ludus.errors import RunError
from ludus.observe.reader import Reader
from ludus.report.data import ReportData, collect

FILE = "report.html"


def write_report(run_dir: Path) -> Path:
    """Writes `<run_dir>/report.html` (aside, then renamed) from the run's database, and returns its path. Works while the run goes on.

    Raises RunError if the directory holds no readable run or cannot be written.
    """
    with Reader(run_dir) as reader:
        page = render(collect(reader))
    target, aside = run_dir / FILE, run_dir / f".{FILE}.{os.getpid()}"
    try:
        aside.write_text(page, encoding="utf-8", errors="replace")  # a folder's name need not be UTF-8
        aside.replace(target)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise RunError(f"the report {str(target)!r} cannot be written: {error.strerror}.") from error
    return target


def render(data: ReportData) -> str:
    """The whole page: styles, script, Plotly and data inline; nothing is fetched when it is opened."""
    assets = resources.files("ludus.report") / "assets"
    parts = {
        "title": html.escape(f"{data.info.name} · Ludus report"),
        "style": (assets / "report.css").read_text(encoding="utf-8"),
        "plotly": get_plotlyjs(),
        "data": _json(data),
        "script": "\n".join((assets / name).read_text(encoding="utf-8") for name in ("charts.js", "page.js")),
    }
    page = (assets / "report.html").read_text(encoding="utf-8")
    pieces = []
    for piece in page.split("{{"):  # one pass, so that what is filled in is never looked at again
        name, closing, rest = piece.partition("}}")
        pieces.append(parts[name] + rest if closing else piece)
    return "".join(pieces)


def _json(data: ReportData) -> str:
    facts = asdict(data)
    facts["info"]["run_dir"] = data.info.run_dir.name
    facts["info"]["utility_range"] = []  # may be infinite, which JSON has no word for; not shown
    summary = facts["summary"]
    if summary is not None:
        summary["run_dir"], summary["report"] = "", ""
    text = json.dumps(facts, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")  # so that no text of a run can end the script element
