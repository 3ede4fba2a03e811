"""The pages of algorithms have one template, and what they name is in the code: options, metrics, symbols, results."""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pages
import pytest
import reference_tables
import result_tables
import yaml

import ludus
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.algorithms.rewards.registry import LEARNED_REWARDS
from ludus.core.errors import LudusError
from ludus.core.parts import resolve_name
from ludus.runs.scenario_files import list_presets, load_scenario

FOLDERS = ("ludus/algorithms", "ludus/contrib/algorithms")
PAGES = sorted(page for folder in FOLDERS for page in (pages.ROOT / folder).glob("*/*.md"))
SECTIONS = ("Loss", "When to use it", "Options", "Metrics", "Details", "Results")
"""Headings of a page, in this order; "Details" may be left out, and others may stand between."""
TRACES: dict[str, Any] = yaml.safe_load((pages.ROOT / "benchmarks" / "traces.yaml").read_text(encoding="utf-8"))
OVERVIEW = pages.ROOT / "docs" / "algorithms" / "index.md"
CAPABILITIES = ["algorithm", "is", "actions", "recurrent", "critic", "teams", "async", "device"]


def links(text: str) -> list[tuple[str, str]]:
    """Return (path, anchor) of the links in a text that stay in the repository."""
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    return [target.partition("#")[::2] for target in targets if "://" not in target]


@functools.cache
def rows_by_name() -> dict[str, tuple[Path, list[str]]]:
    """Return (page, row of what it can do) of each algorithm of the overview."""
    rows = [row for heading, *rows in pages.tables(OVERVIEW) if heading == CAPABILITIES for row in rows]
    names = [
        (name, (OVERVIEW.parent / path).resolve(), row)
        for row in rows
        for path, _ in links(row[0])
        for name in re.findall(r"`(\w+)`", row[0])
    ]
    assert len({name for name, *_ in names}) == len(names), "two rows describe one algorithm"
    return {name: (page, row) for name, page, row in names}


def algorithm(name: str) -> Any:
    """Return the class of a registered algorithm."""
    return resolve_name("algorithm", name, ALGORITHMS)


def options_of(cls: type) -> set[str]:
    """Return the names of the options."""
    fields: dict[str, Any] = getattr(cls, "model_fields", {})
    return set(fields)


# ---------------------------------------------------------------------------------------------- template


def test_every_registered_algorithm_has_a_page() -> None:
    assert sorted(rows_by_name()) == sorted(ALGORITHMS)
    for name, (page, _) in rows_by_name().items():
        folder = Path(inspect.getfile(algorithm(name))).parent
        others = {(folder / path).resolve() for path, _ in links(pages.text(folder / "README.md"))}
        assert page.parent == folder or page in others, f"{pages.name(folder)} does not lead to the page of {name}"
        assert f"`{name}`" in pages.text(page).partition("\n## ")[0], f"{pages.name(page)} does not introduce {name}"


@pytest.mark.parametrize("page", sorted({page for page, _ in rows_by_name().values()}), ids=pages.name)
def test_page_has_the_sections_of_the_template(page: Path) -> None:
    head, *_ = pages.text(page).split("\n## ")
    headings = re.findall(r"^## (.*)$", pages.without_blocks(page), re.MULTILINE)
    assert [heading for heading in headings if heading in SECTIONS] == [
        heading for heading in SECTIONS if heading != "Details" or "Details" in headings
    ]
    assert "](http" in head, "the paper has no link"
    loss = pages.text(page).partition("\n## Loss\n")[2].partition("\n## ")[0]
    assert "$$" in loss, "the loss is no formula"
    assert any(where.endswith(".py") and anchor for where, anchor in links(loss)), "the loss has no link to its code"


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_capabilities_are_those_of_the_class(name: str) -> None:
    about, (_, row) = algorithm(name).about, rows_by_name()[name]
    actions = {"discrete", "multi_discrete", "box"} if row[2] == "any" else set(row[2].split(", "))
    assert actions == set(about.actions)
    assert about.masks == ("discrete" in actions)
    assert row[3].startswith("yes" if about.recurrent else "no")
    backend = TRACES["algorithms"][name].get("only", "both")
    assert ("PyTorch" in row[7]) == (backend != "kernels")
    assert ("CPU" in row[7] or "kernels" in row[7]) == (backend != "autograd")


def test_pages_show_the_rows_of_their_algorithms() -> None:
    for name, (page, _) in rows_by_name().items():
        table = reference_tables.expand(pages.text(page), pages.name(page))
        assert re.search(rf"^\| [^|]*`{name}`[^|]* \|.* \| .*(?:CPU|PyTorch).* \|$", table, re.MULTILINE), name


@pytest.mark.parametrize("page", PAGES, ids=pages.name)
def test_formulas_are_closed(page: Path) -> None:
    """Display formulas stand between lines of `$$`, inline ones between `$` without spaces inside, and cells of tables have no bare bar."""
    text = pages.prose(page)
    assert len(re.findall(r"^\$\$$", text, re.MULTILINE)) == text.count("$$")
    assert text.count("$$") % 2 == 0
    for line in re.sub(r"^\$\$$.*?^\$\$$", "", text, flags=re.DOTALL | re.MULTILINE).splitlines():
        formulas = line.replace(r"\$", "").split("$")[1::2]
        assert line.replace(r"\$", "").count("$") % 2 == 0, line
        assert all(formula == formula.strip() and formula and "|" not in formula for formula in formulas), line


# ---------------------------------------------------------------------------------------------- options


def configured(page: Path) -> list[type]:
    """Return the classes whose options a page has a table of, by its markers."""
    names = re.findall(r"^<!-- config ([\w.:]+)(?: own)? -->$", pages.text(page), re.MULTILINE)
    known = {**ALGORITHMS, **LEARNED_REWARDS}
    return [
        getattr(ludus, name) if hasattr(ludus, name) else resolve_name("configuration", name, known) for name in names
    ]


@pytest.mark.parametrize("page", PAGES, ids=pages.name)
def test_configuration_markers_name_classes(page: Path) -> None:
    markers = re.findall(r"<!-- config\b.*", pages.text(page))
    classes = configured(page)
    assert len(classes) == len(markers), "a marker is not understood"
    assert all(options_of(cls) for cls in classes)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_options_are_on_the_page(name: str) -> None:
    """A table of its own or of a class that it derives from is on its page; every option of it has a meaning in a docstring."""
    cls, (page, _) = algorithm(name), rows_by_name()[name]
    assert not options_of(cls) or any(issubclass(cls, base) for base in configured(page))
    docs = "\n".join(inspect.getdoc(base) or "" for base in cls.__mro__ if base is not object)
    assert {option for option in options_of(cls) if not re.search(rf"^ +{option}: ", docs, re.MULTILINE)} == set()


# ---------------------------------------------------------------------------------------------- switches

NEEDED = {"algorithm.learned_reward=gail": "a file", "algorithm.learned_reward=module:Class": "a class"}
"""Switches that go on by other options, too."""


def understood(preset: str, overrides: list[str]) -> bool:
    try:
        load_scenario(preset, overrides)
    except LudusError:
        return False
    return True


def switches(page: Path) -> list[str]:
    """Return what a page sets in its tables: `algorithm.dueling=true`."""
    spans = [span for span in pages.spans(page) if re.match(r"algorithm(\.\w+)?=", span)]
    return [span for span in dict.fromkeys(spans) if span not in NEEDED]


@pytest.mark.parametrize("page", [page for page in PAGES if switches(page)], ids=pages.name)
def test_switches_are_understood(page: Path) -> None:
    """With one of the page's commands, or on CartPole, Pendulum or a team."""
    lines = [line for block in pages.blocks(page, "bash") for line in block.splitlines()]
    presets = [match[1] for line in lines if (match := re.match(r"ludus train ([\w-]+)(?: |$)", line))]
    bases = [[preset] for preset in presets if preset in list_presets()]
    bases += [["cartpole"], ["pendulum", "algorithm=ppo"], ["simple-spread-mappo"], ["leduc-mmd"], ["cartpole-dqn"]]
    wrong = [
        switch
        for switch in switches(page)
        if not any(understood(base, [*more, *switch.split()]) for base, *more in bases)
    ]
    assert not wrong


# ---------------------------------------------------------------------------------------------- metrics


def metrics_named(page: Path) -> list[str]:
    """Return the names in the page's tables of metrics, as they stand there."""
    tables = [rows for rows in pages.tables(page) if rows[0] == ["metric", "meaning"]]
    return [name for rows in tables for row in rows[1:] for name in re.findall(r"`(\w+)`", row[0])]


def documented(page: Path, before: tuple[Path, ...] = ()) -> set[str]:
    """Return the metrics of a page and of those to whose metrics its section links."""
    section = pages.text(page).partition("\n## Metrics\n")[2].partition("\n## ")[0]
    others = {(page.parent / path).resolve() for path, anchor in links(section) if anchor == "metrics"}
    named = set(metrics_named(page)).union(*(documented(other, (*before, page)) for other in others - {*before, page}))
    responses = {f"best_response_{name}" for other in others for name in documented(other, (*before, page))}
    return named | (responses if page.parent.name == "nfsp" else set())


@functools.cache
def strings(path: Path) -> tuple[frozenset[str], frozenset[str], frozenset[Path]]:
    """Return (strings, patterns of formatted ones, imported files of algorithms) of a module, docstrings left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    texts, patterns, imports = set[str](), set[str](), set[Path]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs:
            texts.add(node.value)
            imports |= module_files(node.value.partition(":")[0])
        elif isinstance(node, ast.JoinedStr):
            parts = [re.escape(str(v.value)) if isinstance(v, ast.Constant) else r"\w+" for v in node.values]
            if re.fullmatch(r"\w*(?:\\w\+|_|\w)*", "".join(parts)) and any(
                isinstance(v, ast.Constant) for v in node.values
            ):
                patterns.add("".join(parts))
        elif isinstance(node, ast.ImportFrom) and node.module:
            imports |= module_files(node.module)
    return frozenset(texts), frozenset(patterns), frozenset(imports)


def module_files(module: str) -> set[Path]:
    """Return the file of a module of algorithms; none for another module."""
    if not re.fullmatch(r"ludus\.(contrib\.)?algorithms\.[\w.]+", module):
        return set()
    path = pages.ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return {path} if path.exists() else set()


def sources(page: Path) -> set[Path]:
    """Return the files of the algorithms of a page, and those that they import."""
    found, new = set[Path](), set(page.parent.rglob("*.py"))
    if page.parent.name == "rewards":  # whose kinds lie elsewhere
        new |= {path for target in LEARNED_REWARDS.values() for path in module_files(target.partition(":")[0])}
    while new:
        found |= new
        new = {path for each in new for path in strings(each)[2]} - found
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if metrics_named(page)], ids=pages.name)
def test_metrics_that_are_named_are_logged(page: Path) -> None:
    texts, patterns = set[str](), set[str]()
    for path in sources(page):
        texts |= strings(path)[0]
        patterns |= strings(path)[1]
    unknown = {
        name for name in metrics_named(page) if name not in texts and not any(re.fullmatch(p, name) for p in patterns)
    }
    assert not unknown


OF_TASKS = {"return", "truncated_episodes", "lag_mean", "lag_max"}
"""Metrics of a task, whatever its algorithm."""


def by_learner() -> Iterator[Any]:
    """Yield the names of algorithms for tests: the first of a page with its learner and model is slow, all others are long."""
    before = set[tuple[Any, ...]]()
    for name in sorted(ALGORITHMS):
        cls = algorithm(name)
        kind = (rows_by_name()[name][0], getattr(cls, "learner_class", ""), getattr(cls, "model_class", ""))
        yield pytest.param(name, marks=[pytest.mark.slow, *([pytest.mark.long] if kind in before else [])])
        before.add(kind)


@pytest.mark.parametrize("name", list(by_learner()))
def test_metrics_that_are_logged_are_named(name: str, tmp_path: Path) -> None:
    """By the small run of `benchmarks.traces`."""
    small = TRACES["algorithms"][name]
    keys = {**TRACES["everywhere"], **TRACES["tasks"][small["task"]]}
    file = tmp_path / "small.yaml"
    file.write_text(json.dumps({**keys, "algorithm": {"kind": name, **small.get("settings", {})}}))
    ludus.run(str(file), run_dir=tmp_path / "run", observer=ludus.NullObserver(), report=False)
    with sqlite3.connect(f"file:{tmp_path}/run/ludus.db?mode=ro", uri=True) as connection:
        names = [row[0] for row in connection.execute("SELECT DISTINCT name FROM metrics")]
    connection.close()
    logged = {match[1] for each in names if (match := re.fullmatch(r"\w+/\d+/(\w+)", each))}
    assert logged - OF_TASKS, "nothing of the learner was logged"
    assert logged - OF_TASKS - documented(rows_by_name()[name][0]) == set()


# ---------------------------------------------------------------------------------------------- links to code


@pytest.mark.parametrize("page", PAGES, ids=pages.name)
def test_links_to_code_name_symbols_of_their_file(page: Path) -> None:
    marked = re.findall(r"^<!-- code (\S+)(?: body)? -->$", pages.text(page), re.MULTILINE)
    targets = [*links(pages.prose(page)), *(mark.partition("#")[::2] for mark in marked)]
    code = [((page.parent / path).resolve(), name) for path, name in targets if path.endswith(".py") and name]
    wrong = [f"{path}#{name}" for path, name in code if not path.exists() or name not in pages.symbols(path)]
    assert not wrong


# ---------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("page", [page for page in PAGES if "\n## Results\n" in pages.text(page)], ids=pages.name)
def test_results_are_named_or_linked(page: Path) -> None:
    """Tables of results are made from the files of the benchmarks."""
    section = pages.text(page).partition("\n## Results\n")[2]
    assert re.search(r"^<!-- (results|lags) .* -->$", section, re.MULTILINE) or links(section)


def test_rows_of_results() -> None:
    rows = result_tables.results("spread-mappo smax-3m-mappo").splitlines()
    assert rows[0] == "| task | budget | score (seeds) | peer, run here |"
    assert re.fullmatch(
        r"\| `spread-mappo` \| 3,000,000 decisions \| −\d+\.\d ± \d\.\d \(5\) \| EPyMARL −\d+\.\d \|", rows[2]
    )
    assert re.fullmatch(r"\| `smax-3m-mappo` \| 3,000,000 decisions \| \d\.\d{3}, \d\.\d{3} \|  \|", rows[3])
    with pytest.raises(KeyError):
        result_tables.results("no-task")


def test_rows_of_lags() -> None:
    rows = result_tables.lags("CartPole, A2C: a3c").splitlines()
    assert rows[0] == "| lag | while training, a3c | final, a3c |"
    assert [row.split(" | ")[0] for row in rows[2:6]] == ["| 0", "| 2", "| 4", "| 8"]
