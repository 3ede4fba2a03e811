"""Writes the tables of docs/benchmarks.md and docs/reproduced.md from the committed result files.

    python -m benchmarks.page             fills the marked blocks of both pages
    python -m benchmarks.page --print     prints the blocks, and writes nothing

A block stands between `<!-- benchmarks.page NAME: begin -->` and `<!-- benchmarks.page NAME: end -->`; NAME is a function of
`benchmarks.page_tables`, or `reproduced`. Run it after a result file has changed; `tests/benchmarks/test_page.py` compares page and files.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.machine import ROOT
from benchmarks.page_reproduced import reproduced
from benchmarks.page_tables import BLOCKS
from benchmarks.psro_family_report import inserted

PAGE = ROOT / "docs" / "benchmarks.md"
REPRODUCED = ROOT / "docs" / "reproduced.md"
PAGES: Mapping[Path, Sequence[Callable[[], str]]] = {PAGE: BLOCKS, REPRODUCED: (reproduced,)}
"""Pages, and the blocks of each."""


def marks(name: str) -> tuple[str, str]:
    """Return the lines that begin and end a block."""
    return f"<!-- benchmarks.page {name}: begin -->", f"<!-- benchmarks.page {name}: end -->"


def filled(text: str, blocks: Sequence[Callable[[], str]] = BLOCKS) -> str:
    """Return a page with each block replaced by its table. Raises ValueError if the page lacks the marks of one."""
    for block in blocks:
        begin, end = marks(block.__name__)
        text = inserted(text, block(), begin=begin, end=end)
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages, or print their blocks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="print the blocks, and write nothing")
    if parser.parse_args(argv).print:
        every = [block for blocks in PAGES.values() for block in blocks]
        print("\n\n".join(f"{block.__name__}\n\n{block()}" for block in every))
    else:
        for path, blocks in PAGES.items():
            path.write_text(filled(path.read_text(encoding="utf-8"), blocks), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
