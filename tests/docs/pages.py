"""The pages of the documentation, and what is in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    """The contents of the fenced blocks in one language, in order."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [str(block) for block in found]


def prose(page: Path) -> str:
    """The page without its fenced blocks and inline code."""
    without = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`]*`", "`code`", without)


def first_cells(page: str, heading: str) -> list[str]:
    """What is in backticks in the first column of the table whose heading's first cell is `heading`."""
    match = re.search(rf"^\| {re.escape(heading)} \|.*?\n\|[ \-|]+\n((?:\|.*\n)+)", text(page), re.MULTILINE)
    assert match is not None, f"{page} has no table that begins with {heading!r}"
    cells = [row.split("|")[1] for row in match[1].splitlines()]
    return [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]
