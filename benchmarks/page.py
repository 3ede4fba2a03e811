"""Writes the tables of docs/benchmarks.md from the committed result files.

    python -m benchmarks.page             fills the marked blocks of the page
    python -m benchmarks.page --print     prints the blocks, and writes nothing

A block stands between `<!-- benchmarks.page NAME: begin -->` and `<!-- benchmarks.page NAME: end -->`; NAME is a function of
`benchmarks.page_tables`. Run it after a result file has changed; `tests/benchmarks/test_page.py` compares page and files.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.machine import ROOT
from benchmarks.page_tables import BLOCKS
from benchmarks.psro_family_report import inserted

PAGE = ROOT / "docs" / "benchmarks.md"


def marks(name: str) -> tuple[str, str]:
    """Return the lines that begin and end a block."""
    return f"<!-- benchmarks.page {name}: begin -->", f"<!-- benchmarks.page {name}: end -->"


def filled(text: str) -> str:
    """Return a page with each block replaced by its table. Raises ValueError if the page lacks the marks of one."""
    for block in BLOCKS:
        begin, end = marks(block.__name__)
        text = inserted(text, block(), begin=begin, end=end)
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page, or print its blocks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="print the blocks, and write nothing")
    if parser.parse_args(argv).print:
        print("\n\n".join(f"{block.__name__}\n\n{block()}" for block in BLOCKS))
    else:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
