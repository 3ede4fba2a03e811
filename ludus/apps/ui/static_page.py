"""A page of `ludus ui` and its data as one HTML file: a report, a comparison, a replay.

The same modules, charts and look as the served page, which finds its data in the file instead of asking a server for it. Nothing is
fetched when it is opened; it opens from a folder as from anywhere. Links within it (`#/…`) work.

    index.html ── style and modules inline (an import map of data: addresses) ── panels as JSON
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from ludus import __version__
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
_IMPORT = re.compile(r"""(\bfrom\s+|\bimport\s*\(\s*|\bimport\s+)"\./([a-z_]+\.js)\"""")
_STATIC = re.compile(r"""(?:\bfrom\s+|\bimport\s+)"\./([a-z_]+\.js)\"""")
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
    page = _text("index.html")
    imports = {f"ludus/{name}": _address(_text(name)) for name in _modules(snapshot.kind)}
    inside = {
        "title": html.escape(f"{snapshot.title} · {_KICKERS[snapshot.kind]}"),
        "style": f"{_text('uplot.css')}\n{_text('style.css')}",
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


def _modules(kind: Kind) -> list[str]:
    """Those of the frame, those of the pages, and all that they import at once."""
    modules: list[str] = []
    wanted: list[str] = ["app.js", *_PAGES[kind]]
    while wanted:
        name = wanted.pop(0)
        if name not in modules:
            modules.append(name)
            wanted += imported(_text(name))
    return modules


def imported(text: str) -> Iterable[str]:
    """Return the modules of the page that one imports when it is loaded."""
    return _STATIC.findall(text)


def _address(text: str) -> str:
    """Return a module as a data: address. A relative import means nothing there, so its imports go by names of the import map."""
    named = _IMPORT.sub(r'\1"ludus/\2"', text)
    return f"data:text/javascript;charset=utf-8,{quote(named, safe=_IN_ADDRESS)}"


def _text(name: str) -> str:
    return (resources.files("ludus.apps.ui") / "page" / name).read_text(encoding="utf-8")
