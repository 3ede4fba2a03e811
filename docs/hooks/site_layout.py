"""Which file of the repository is which page of the site. Needs neither MkDocs nor Ludus.

Pages under docs/ keep their places. A page beside the code, `ludus/**/algorithms/ppo/README.md`, is `algorithms/ppo.md` of the site.
Any other file that a page links to becomes a page with its source, below `source/`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = "source"
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing/index.md",
    "CHANGELOG.md": "contributing/changelog.md",
    "ludus/schedulers/README.md": "algorithms/schedulers.md",
    "ludus/metagame/solvers/README.md": "algorithms/meta-solvers.md",
    "ludus/apps/ui/page/README.md": "contributing/page.md",
}
"""Pages outside of docs/ whose place no rule names."""


def beside_code() -> dict[str, str]:
    """Return the place in the site of each page outside of docs/, by its path in the repository."""
    places = {path: place for path, place in ELSEWHERE.items() if path != "README.md" and (ROOT / path).exists()}
    for path in sorted((ROOT / "ludus").glob("**/algorithms/*/*.md")):
        stem = path.parent.name if path.name == "README.md" else path.stem
        places[path.relative_to(ROOT).as_posix()] = f"algorithms/{stem}.md"
    return places


@cache
def places() -> dict[str, str]:
    """Return the place in the site of every page, by its path in the repository."""
    docs = {f"docs/{path}": path for path in docs_pages()}
    return {"README.md": ELSEWHERE["README.md"], **docs, **beside_code()}


def docs_pages() -> Iterator[str]:
    """Yield the pages under docs/, relative to it."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        yield path.relative_to(ROOT / "docs").as_posix()


def origin(place: str) -> str:
    """Return the path in the repository of a page of the site."""
    return next((path for path, page in beside_code().items() if page == place), f"docs/{place}")


def place_of(path: str) -> str:
    """Return the place in the site of a file or folder of the repository: its page, a file under docs/, or a page with its source."""
    if path in places():
        return places()[path]
    if path.startswith("docs/") and not path.startswith("docs/hooks/") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    return f"{SOURCE}/{path}/index.md" if (ROOT / path).is_dir() else f"{SOURCE}/{path}.md"


def relative(place: str, page: str) -> str:
    """Return the link from a page of the site to another place of it."""
    return posixpath.relpath(place, posixpath.dirname(page) or ".")
