"""Words that `docs/contributing/glossary.yaml` retires stay out of names, and out of prose they only fall: counts are in `words.yaml`.

`python tests/docs/test_words.py --write` writes the present counts there, one line for each package and word: after words were
removed, after a module moved to another package, or where two branches that both did so are merged.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import ludus

ROOT = Path(ludus.__file__).parents[1]
GLOSSARY: dict[str, Any] = yaml.safe_load((ROOT / "docs/contributing/glossary.yaml").read_text(encoding="utf-8"))
COUNTS_FILE = Path(__file__).parent / "words.yaml"
COUNTS: dict[str, Any] = yaml.safe_load(COUNTS_FILE.read_text(encoding="utf-8"))
"""The most uses that there may be: `names` by package and word (none where a word has no line), `prose` by phrase."""
PACKAGES = sorted(path.name for path in (ROOT / "ludus").iterdir() if (path / "__init__.py").exists())
HEAD = """\
# Most uses of a word as a name, by package of ludus/, and of a phrase in sources and pages.
# Written by `python tests/docs/test_words.py --write`; a count may fall and not rise.
"""


def identifiers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg | ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


@cache
def names(package: str) -> Counter[str]:
    """Return the number of uses of each identifier in a package of ludus/."""
    counts: Counter[str] = Counter()
    for path in (ROOT / "ludus" / package).rglob("*.py"):
        counts.update(identifiers(ast.parse(path.read_text(encoding="utf-8"))))
    return counts


@cache
def prose() -> str:
    """Return the text of all sources and pages in lower case; the changelog and decisions tell of the past."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "decisions" not in path.parts]
    files = [ROOT / "README.md", *pages, *(ROOT / "ludus").rglob("*.md"), *(ROOT / "ludus").rglob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in files).lower()


def uses(phrase: str) -> int:
    """Return how often a phrase stands there as words. (A pattern that began with a boundary would be looked for at every letter.)"""
    text = prose()
    starts = (match.start() for match in re.finditer(rf"{phrase.lower()}\b", text))
    return sum(not start or re.match(r"\w", text[start - 1]) is None for start in starts)


@pytest.mark.parametrize("package", PACKAGES)
def test_participles_in_names_only_fall(package: str) -> None:
    most = COUNTS["names"].get(package, {})
    more = {word: names(package)[word] for word in GLOSSARY["participles"] if names(package)[word] > most.get(word, 0)}
    assert not more, (
        f"no names for new code: take a noun (glossary.yaml). More than words.yaml has for {package}: {more}"
    )


def test_renamed_names_do_not_come_back() -> None:
    retired = {entry["old"]: entry["new"] for entry in GLOSSARY["renamed"] if "where" not in entry}
    back = {old: new for old, new in retired.items() if any(names(package)[old] for package in PACKAGES)}
    assert not back, f"names that were retired, and what they are called now: {back}"


@pytest.mark.parametrize("phrase", COUNTS["prose"])
def test_retired_phrases_only_fall(phrase: str) -> None:
    count = uses(phrase)
    assert count <= COUNTS["prose"][phrase], f"{phrase!r}: glossary.yaml has the standard term"


def counted() -> dict[str, Any]:
    """Return what words.yaml has to have."""
    words = GLOSSARY["participles"]
    by_package = {
        package: {word: names(package)[word] for word in words if names(package)[word]} for package in PACKAGES
    }
    return {
        "names": {package: counts for package, counts in by_package.items() if counts},
        "prose": {phrase: uses(phrase) for phrase in COUNTS["prose"]},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", required=True, help="write the present counts to words.yaml")
    parser.parse_args()
    COUNTS_FILE.write_text(HEAD + yaml.safe_dump(counted(), sort_keys=False), encoding="utf-8")
