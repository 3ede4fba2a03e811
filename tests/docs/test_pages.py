"""Pages hang together: links lead somewhere, the index has them all, fences are closed."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pages

from ludus.algorithms.common.registry import ALGORITHMS

ALGORITHM_FOLDERS = (pages.ROOT / "ludus" / "algorithms", pages.ROOT / "ludus" / "contrib" / "algorithms")


@cache
def anchors(page: Path) -> set[str]:
    """GitHub's names of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", pages.text(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def linked(page: Path) -> list[tuple[Path, str, str]]:
    """(file, anchor, as it is written) of each link that stays in the repository."""
    targets = re.findall(r"\]\(([^)\s]+)\)", pages.prose(page))
    parts = [(target, *target.partition("#")) for target in targets if not target.startswith(("http://", "https://"))]
    return [((page.parent / path).resolve() if path else page, anchor, target) for target, path, _, anchor in parts]


def test_links_lead_somewhere() -> None:
    wrong = []
    for page in pages.PAGES:
        for where, anchor, target in linked(page):
            if not where.exists() or not where.is_relative_to(pages.ROOT):
                wrong.append(f"{pages.name(page)} links to {target}, which is not in the repository")
            elif anchor and anchor not in (pages.symbols(where) if where.suffix == ".py" else anchors(where)):
                wrong.append(f"{pages.name(page)} links to {target}: no such heading, or no such name in the code")
    assert not wrong, "\n".join(wrong)


def test_every_algorithm_has_a_page_beside_its_code() -> None:
    families = {path.parent for folder in ALGORITHM_FOLDERS for path in folder.glob("*/__init__.py")}
    assert {family.name for family in families if not list(family.glob("*.md"))} == {"common", "learned_rewards"}
    for name, target in ALGORITHMS.items():
        family = pages.ROOT.joinpath(*target.partition(":")[0].split(".")).parent
        assert any(f"`{name}`" in pages.text(page) for page in family.glob("*.md")), (
            f"no page of {family} names `{name}`"
        )


def test_fences_and_code_spans_are_closed() -> None:
    for page in pages.PAGES:
        inside = False
        for line in pages.text(page).splitlines():
            if line.startswith("```"):
                inside = not inside
            else:
                assert inside or line.count("`") % 2 == 0, f"{pages.name(page)}: {line}"
        assert not inside, pages.name(page)
