"""The pages of the documentation, and what is in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BESIDE_CODE = sorted((ROOT / "ludus").rglob("*.md"))
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *BESIDE_CODE,
]
PRESENT = [page for page in PAGES if page.name != "CHANGELOG.md" and "decisions" not in page.parts]
"""Those that say how things are. Records of changes and decisions say how they were."""


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def text(page: str | Path) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    """The contents of the fenced blocks in one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text(page), re.DOTALL | re.MULTILINE)


def without_blocks(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", text(page), flags=re.DOTALL | re.MULTILINE)


def spans(page: Path) -> list[str]:
    """Inline code."""
    return re.findall(r"`([^`\n]+)`", without_blocks(page))


def prose(page: Path) -> str:
    """The page without its fenced blocks and inline code."""
    return re.sub(r"`[^`]*`", "`code`", without_blocks(page))


def tables(page: str | Path) -> Iterator[list[list[str]]]:
    """The rows of each table, its heading first."""
    for table in re.findall(r"^((?:\|.*\n)+)", text(page), re.MULTILINE):
        rows = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()]
        yield [rows[0], *rows[2:]]


def cells(page: str | Path, heading: str, column: int = 0) -> list[list[str]]:
    """What is in backticks in a column of the rows of every table whose heading's first cell is `heading`."""
    found = [rows for rows in tables(page) if rows[0][0] == heading]
    assert found, f"{page} has no table that begins with {heading!r}"
    return [re.findall(r"`([^`]+)`", row[column]) if column < len(row) else [] for rows in found for row in rows[1:]]


def first_cells(page: str | Path, heading: str) -> list[str]:
    return [word for row in cells(page, heading) for word in row]


@cache
def symbols(path: Path) -> set[str]:
    """Return the names of a Python file: functions, classes and constants, and `Class.name` of what is in a class."""
    names = set[str]()

    def add(body: Sequence[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    add(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names.update(prefix + target.id for target in targets if isinstance(target, ast.Name))

    add(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return names
