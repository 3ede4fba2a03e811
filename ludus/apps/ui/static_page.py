"""A page of `ludus ui` and its data as one HTML file: a report, a comparison, a replay.

The same modules, charts and look as the served page, which finds its data in the file instead of asking a server for it. Nothing is
fetched when it is opened; it opens from a folder as from anywhere. Links within it (`#/…`) work.

    index.html ── style and modules inline (one module of `bundle.bundle`, by an import map as a data: address) ── panels as JSON
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from ludus import __version__
from ludus.apps.ui.bundle import ENTRY, bundle, closure, modules, read_files, style
from ludus.core.errors import RunError

Kind = Literal["report", "comparison", "replay"]

REPORT = "report.html"
"""In the directory of its run or experiment."""
RUN = "this"
"""The id of a report's only run, as addresses name it."""

_KICKERS: dict[Kind, str] = {"report": "Ludus report", "comparison": "Ludus comparison", "replay": "Ludus replay"}
_HOMES: dict[Kind, str] = {"report": f"run/{RUN}", "comparison": "compare", "replay": "replay"}
_PAGES: dict[Kind, tuple[str, ...]] = {
    "report": (
        "run.js",
        "overview.js",
        "population.js",
        "policy.js",
        "learning.js",
        "log.js",
        "replay.js",
    ),
    "comparison": ("compare.js",),
    "replay": ("replay.js",),
}
"""The modules that make sense without a server; what these import comes along."""

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
_IN_ADDRESS = " !$&'()*+,-./:;=?@[]^_`{|}~"  # that a data: address may hold as they are


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Content of a file. title: of the file. panels: JSON by name, as the page asks for it ("overview", "events?limit=500"; the keys of a
    query sorted)."""

    kind: Kind
    title: str
    panels: Mapping[str, bytes]


def render(snapshot: Snapshot) -> str:
    """Return the whole file."""
    files = read_files()
    page, texts = files["index.html"].decode(), modules(files)
    imports = {f"ludus/{ENTRY}": _address(bundle(texts, closure(texts, (ENTRY, *_PAGES[snapshot.kind]))))}
    inside = {
        "title": html.escape(f"{snapshot.title} · {_KICKERS[snapshot.kind]}"),
        "style": style(files),
        "imports": _inline(json.dumps({"imports": imports}, ensure_ascii=False, separators=(",", ":"))),
        "data": _inline(_data(snapshot)),
    }
    head, _, rest = page.partition("<title>")
    _, _, rest = rest.partition("</title>\n")
    icon, _, rest = rest.partition('<link rel="stylesheet"')
    _, _, rest = rest.partition("</head>")
    return "".join(
        (
            f'{head}<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n',
            f"<title>{inside['title']}</title>\n{icon}",
            f"<style>\n{inside['style']}</style>\n",
            f'<script type="importmap">{inside["imports"]}</script>\n',
            f'<script type="application/json" id="data">{inside["data"]}</script>\n',
            '<script type="module">import "ludus/app.js";</script>\n</head>',
            rest,
        )
    )


def write(target: Path, snapshot: Snapshot) -> Path:
    """Write the file (aside, then renamed) and return its path. Raises RunError if it cannot be written."""
    page = render(snapshot)
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        aside.write_text(page, encoding="utf-8", errors="replace")  # a folder's name need not be UTF-8
        aside.replace(target)
    except OSError as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise RunError(
            f"the page {str(target)!r} cannot be written: {error.strerror}. `ludus report … --out FILE` writes it elsewhere."
        ) from error
    return target


def replay_file(content: bytes, suffix: str, *, fps: int | None = None) -> bytes:
    """Return a replay, which is JSON, as a file: .json, .html, which needs no server, .gif or .mp4. Raises as `film`."""
    from ludus.apps.play.replays import film, title_of

    if suffix == ".json":
        return content
    replay = json.loads(content)
    if suffix == ".html":
        page = render(Snapshot("replay", title_of(replay), {"replay": content}))
        return page.encode(errors="replace")  # a folder's name need not be UTF-8
    return film(replay, suffix, fps)


def _data(snapshot: Snapshot) -> str:
    facts = {
        "kind": snapshot.kind,
        "title": snapshot.title,
        "kicker": _KICKERS[snapshot.kind],
        "home": _HOMES[snapshot.kind],
        "run": RUN,
        "version": __version__,
    }
    panels = ",".join(f"{json.dumps(name)}:{text.decode()}" for name, text in snapshot.panels.items())
    return f'{json.dumps(facts, ensure_ascii=False)[:-1]},"panels":{{{panels}}}}}'


def _inline(text: str) -> str:
    """Return JSON in a script element: no text of a run may end the element."""
    return text.replace("<", "\\u003c")


def _address(text: str) -> str:
    """Return a module as a data: address."""
    return f"data:text/javascript;charset=utf-8,{quote(text, safe=_IN_ADDRESS)}"
