"""Links lead somewhere, code on the pages works, and tables name all that there is."""

from __future__ import annotations

import re
import shlex
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pages
import pytest
import yaml

from ludus.cli.main import COMMANDS
from ludus.core import errors
from ludus.driver.scenario_files import list_presets, load_scenario
from ludus.driver.scenario_kinds import SCENARIOS
from ludus.envs.families import FAMILIES
from ludus.evaluation.ratings import RATINGS
from ludus.learners.registry import ALGORITHMS
from ludus.policies.registry import POLICIES
from ludus.replay.kinds import TABLES
from ludus.solvers.registry import META_SOLVERS
from ludus.storage.database import TABLES as SCHEMA
from ludus.training.stopping import STOPPERS

OWN = "module:Class"
BLOCKS = [
    pytest.param(block, id=f"{pages.name(page)}-{k}")
    for page in pages.PAGES
    for k, block in enumerate(pages.blocks(page, "python"))
    if page.name != "README.md"  # that one is an example, tested as such
]


def anchors(page: Path) -> set[str]:
    """GitHub's names of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_relative_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", pages.prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        where = (page.parent / path).resolve() if path else page
        assert where.exists(), f"{pages.name(page)} links to {target}, which is not there"
        assert where.is_relative_to(pages.ROOT), f"{pages.name(page)} links out of the repository: {target}"
        assert not anchor or anchor in anchors(where), f"{pages.name(page)} links to {target}: no such heading"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [pages.ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        for target in re.findall(r"\]\(([^)\s#]+\.md)", pages.prose(page)):
            linked = (page.parent / target).resolve()
            if linked not in reached and linked in pages.PAGES:
                waiting.append(linked)
    assert reached == set(pages.PAGES)


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_fences_and_code_spans_are_closed(page: Path) -> None:
    inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = not inside
        else:
            assert inside or line.count("`") % 2 == 0, f"{pages.name(page)}: {line}"
    assert not inside


# ---------------------------------------------------------------------------------------------- code


@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize("block", BLOCKS)
def test_python_runs(block: str, try1: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(try1)
    exec(compile(block, "page", "exec", dont_inherit=True), {"__name__": "page"})


def test_sql_runs(try1: Path) -> None:
    page = pages.ROOT / "docs" / "how-to" / "sql.md"
    with sqlite3.connect(f"file:{try1}/runs/try1/ludus.db?mode=ro", uri=True) as connection:
        statements = [s for block in pages.blocks(page, "sql") for s in block.split(";") if s.strip()]
        rows = [connection.execute(statement).fetchall() for statement in statements]
    connection.close()
    assert len(rows) == 8
    assert [row[0] for row in rows[0]] == list(range(9)), "generations 0 to 8"
    assert rows[1][0][0] == next(number for number, *_, nash_conv in rows[0] if nash_conv <= 0.5)
    assert {row[1] for row in rows[3]} == {f"{p}-{g}" for p in range(2) for g in range(9)}


@pytest.mark.usefixtures("examples")
def test_yaml_is_understood(tmp_path: Path) -> None:
    seen = [block for page in pages.PAGES for block in pages.blocks(page, "yaml")]
    for block in seen:
        if block.startswith("stop:"):
            for line in block.splitlines():
                load_scenario("kuhn", [f"stop={yaml.safe_dump(yaml.safe_load(line)['stop'], default_flow_style=True)}"])
        else:
            (tmp_path / "my.yaml").write_text(block)
            load_scenario(str(tmp_path / "my.yaml"))
    assert len(seen) >= 2


@pytest.mark.usefixtures("examples")
def test_commands_are_understood() -> None:
    lines = [line for page in pages.PAGES for block in pages.blocks(page, "bash") for line in block.splitlines()]
    calls = [found[1] for line in lines if (found := re.match(r"(?:PYTHONPATH=\S+ |\.venv/bin/)*ludus (.*)", line))]
    assert len(calls) > 15
    for call in calls:
        name, *words = shlex.split(call.partition(" >")[0].replace("$seed", "0"), comments=True)
        options = COMMANDS[name].parse(words)
        if name in ("train", "config") and options.scenario in list_presets():
            load_scenario(options.scenario, options.overrides, options.seed)


# ---------------------------------------------------------------------------------------------- what tables name


def classes(module: object) -> Iterable[str]:
    return [name for name in vars(module) if isinstance(getattr(module, name), type) and name.endswith("Error")]


@pytest.mark.parametrize(
    ("page", "heading", "names"),
    [
        ("README.md", "preset", list_presets()),
        ("docs/concepts/oracles.md", "name", [*ALGORITHMS, OWN]),
        ("docs/concepts/meta-solvers.md", "name", [*META_SOLVERS, OWN]),
        ("docs/concepts/stopping.md", "name", [*STOPPERS, OWN]),
        ("docs/concepts/policies.md", "kind", POLICIES),
        ("docs/concepts/ratings.md", "rating", RATINGS),
        ("docs/concepts/tables.md", "kind", [*TABLES, OWN]),
        (
            "docs/concepts/errors.md",
            "class",
            [name for name in errors.__all__ if name not in ("LudusError", "article", "either", "nearest")],
        ),
        ("docs/concepts/runs.md", "table", re.findall(r"CREATE TABLE (\w+)", SCHEMA)),
    ],
)
def test_tables_are_complete(page: str, heading: str, names: Iterable[str]) -> None:
    assert sorted(pages.first_cells(page, heading)) == sorted(names)


def test_schedulers_and_commands_are_named() -> None:
    assert all(f"`{name}`" in pages.text("docs/concepts/schedulers.md") for name in SCENARIOS)
    assert all(f"ludus {name}" in pages.text("README.md") for name in COMMANDS)


def test_readme_presets_say_what_the_files_say() -> None:
    rows = [row.split("|")[1:-1] for row in pages.text("README.md").splitlines() if row.startswith("| `")]
    for cell, _, oracle, _, ends in rows:
        scenario = load_scenario(cell.strip().strip("`"))
        assert f"{scenario.generations} generation" in ends
        assert ("exact" in oracle) == (type(scenario.oracle).__name__ == "ExactBestResponse")
        if scenario.stop is not None:
            assert f"NashConv {scenario.stop.at_most:g}".replace("1e-06", "1e-6") in ends


def test_every_family_of_environments_has_a_page() -> None:
    table = pages.text("docs/concepts/environments.md")
    for name, family in FAMILIES.items():
        page = pages.text(f"docs/envs/{name}.md")
        assert f"`{name}`](../envs/{name}.md)" in table
        assert family.example in page
        assert not family.extra or f"ludus[{family.extra}]" in page


def test_every_shipped_check_is_named() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (pages.ROOT / "ludus" / "testing").glob("*.py")]
    checks = {name for source in sources for name in re.findall(r"^def (check_\w+)", source, re.MULTILINE)}
    page = pages.text("docs/architecture.md")
    assert {name for name in checks - {"check_spec"} if f"`{name}`" not in page} == set()


def test_benchmarks_page_names_every_benchmark() -> None:
    folder = pages.ROOT / "benchmarks"
    commands = {path.stem for path in folder.glob("*.py") if "BENCHMARK = " in path.read_text(encoding="utf-8")}
    page = pages.text("docs/benchmarks.md")
    assert commands
    assert {name for name in commands if f"python -m benchmarks.{name}`" not in page} == set()
