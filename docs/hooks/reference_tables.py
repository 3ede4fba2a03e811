"""What a marker in a page stands for: `<!-- config PPO -->`, `<!-- code learner.py#PPOLearner.loss -->`, `<!-- generate presets -->`.

Everything comes from the code: options from the models, commands from their parsers, presets from their files, tables of the database
from its schema, metrics from the pages of the algorithms, results from the files of the benchmarks.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import sqlite3
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import site_layout
import site_links
import yaml
from fault_table import fault_table
from option_tables import default_text, fields_of, load_model, markdown_table, option_table, option_tables, own_options
from result_tables import lags, results

if TYPE_CHECKING:
    from ludus.cli.command import Command

READ_ON = re.compile(r";? ?[sS]ee (?:the )?README beside\s+(?:this\s+file|it)\b")
"""What docstrings say of a page that the site links to."""
ONE_ALGORITHM = re.compile(r"\(`\w+`\)$")
"""What ends the meaning of a metric that only one algorithm of its page has."""
MARKER = re.compile(r"^<!-- (config|code|generate) ([^\s>]+)(?: (\w+))? -->[^\S\n]*$", re.MULTILINE)
ROWS = re.compile(r"^<!-- (results|lags|capabilities) ([^>]+) -->[^\S\n]*$", re.MULTILINE)
"""A marker of a table whose rows it names."""
ALGORITHMS_PAGE = "docs/algorithms/index.md"


def expand(text: str, path: str) -> str:
    """Return the page with its markers replaced. path: of the page, in the repository."""
    if path in ("docs/reference/api/algorithms.md", "docs/reference/api/scenarios.md"):
        text = of_algorithms(text, path)
    text = ROWS.sub(lambda match: TABLES_BY_ROWS[match[1]](match[2], path), text)
    return MARKER.sub(lambda match: _expansion(match[1], match[2], match[3] or "", path), text)


def _expansion(kind: str, name: str, option: str, path: str) -> str:
    if kind == "config":
        return own_options(name) if option == "own" else option_tables(name)
    return code(name, path, body=option == "body") if kind == "code" else GENERATORS[name]()


def capabilities(names: str, path: str) -> str:
    """Return the rows of what algorithms can do, from the page that has those of all."""
    table = _page(ALGORITHMS_PAGE).partition("\n| algorithm |")[2].partition("\n\n")[0]
    heading, _, *rows = [
        [cell.strip() for cell in row.strip("|").split(" | ")] for row in f"| algorithm |{table}".splitlines()
    ]
    wanted = set(names.split())
    rows = [row for row in rows if wanted & set(re.findall(r"`(\w+)`", row[0]))]

    def moved(target: str) -> str:
        file, fragment = site_links.resolve(target, ALGORITHMS_PAGE)
        return site_layout.relative(file, path) + (f"#{fragment}" if fragment else "")

    table = markdown_table(tuple(heading), [tuple(row) for row in rows])
    return site_links.rewrite(f"{table}\n[What the words mean](index.md#what-each-can-do).\n", moved)


def code(target: str, path: str, *, body: bool) -> str:
    """Return a folded block with the source of a class or function. body: without its docstring."""
    file, name = site_links.resolve(target, path)
    first, last = site_links.lines_of(file, name)
    lines = (site_layout.ROOT / file).read_text(encoding="utf-8").splitlines()[first - 1 : last]
    source = textwrap.dedent("\n".join(lines))
    if body:
        source = without_docstring(source)
    shown = textwrap.indent(f"````python\n{source}\n````", "    ")
    return f'??? quote "{name}, in {file}"\n\n{shown}\n'


def without_docstring(source: str) -> str:
    """Return a function's source without its docstring."""
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    if ast.get_docstring(definition) is None:
        return source
    lines, doc = source.splitlines(), definition.body[0]
    return "\n".join([*lines[: doc.lineno - 1], *lines[doc.end_lineno :]])


# ---------------------------------------------------------------------------------------------------------- commands


def commands() -> str:
    """Return a section for each command: what it does, its usage, its arguments and its examples."""
    from ludus.cli.main import COMMANDS

    return "\n".join(_command(name, command) for name, command in COMMANDS.items())


def _command(name: str, command: Command) -> str:
    parser = command._parser()
    formatter = argparse.HelpFormatter(prog=parser.prog, width=88)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)
    usage = formatter.format_help().removeprefix("usage: ").strip().replace("\n" + " " * len("usage: "), "\n")
    rows = [
        (f"`{_invocation(action)}`", action.help % {"default": action.default} if action.help else "")
        for action in parser._actions
        if action.dest != "help" and action.help != argparse.SUPPRESS
    ]
    table = markdown_table(("argument", "meaning"), rows) if rows else ""
    examples = "\n".join(f"# {what}\n{line}" for line, what in command.examples)
    return f"## `ludus {name}`\n\n{command.summary}\n\n```text\n{usage}\n```\n\n{table}\n```bash\n{examples}\n```\n"


def _invocation(action: argparse.Action) -> str:
    value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    value = " ".join(value) if isinstance(value, tuple) else str(value)
    if action.choices and not action.metavar:
        value = "|".join(str(choice) for choice in action.choices)
    value = value if action.nargs != 0 else ""
    return f"{', '.join(action.option_strings)} {value}".strip()


# ----------------------------------------------------------------------------------------------------------- presets


def presets() -> str:
    """Return a table of the presets of each family of environments."""
    folder = site_layout.ROOT / "ludus" / "runs" / "presets"
    families: dict[str, list[tuple[str, ...]]] = {}
    for path in sorted(folder.glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        data = yaml.safe_load(text)
        env = data["env"]["id"] if isinstance(data["env"], dict) else data["env"]
        summary = text.partition("\n")[0].removeprefix("# ")
        row = (f"`{path.stem}`", summary, f"`{env}`", f"`{data['scenario']}`", f"`{_kind(data)}`", _budget(data))
        families.setdefault(env.partition("/")[0], []).append(row)
    heading = ("preset", "what it is", "environment", "scenario", "algorithm", "budget")
    return "\n".join(f"## {family}\n\n{markdown_table(heading, rows)}" for family, rows in sorted(families.items()))


def _kind(data: dict[str, object]) -> str:
    algorithm = data.get("algorithm", "ppo")
    return str(algorithm["kind"] if isinstance(algorithm, dict) else algorithm)


def _budget(data: dict[str, object]) -> str:
    """Return the amount of training per response, and the number of generations."""
    response = data.get("response")
    parts = [f"{amount:,} {unit}" for unit, amount in response.items()] if isinstance(response, dict) else []
    count = data.get("generations")
    return ", ".join([*parts, *([f"{count} generation{'s' if count != 1 else ''}"] if count else [])])


# ---------------------------------------------------------------------------------------------------------- database


def database() -> str:
    """Return the columns of each table and view of a run's database, with their meanings (`database_columns.yaml`)."""
    from ludus.storage.database import TABLES

    meanings = yaml.safe_load(Path(__file__).with_name("database_columns.yaml").read_text(encoding="utf-8"))
    connection = sqlite3.connect(":memory:")
    connection.executescript(TABLES)
    sections = []
    names = connection.execute("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
    for name, kind in names:
        if name.startswith("sqlite_"):
            continue
        columns = connection.execute('SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (name,)).fetchall()
        rows = [
            (
                f"`{column}`",
                f"`{type_}`" if type_ else "",
                "" if notnull or key or kind == "view" else "yes",
                "yes" if key else "",
                meanings.get(name, {}).get(column) or meanings["any"].get(column, ""),
            )
            for column, type_, notnull, key in columns
        ]
        sections.append(f"### `{name}`{' (view)' if kind == 'view' else ''}\n\nA row is {meanings[name]['row']}\n")
        sections.append(markdown_table(("column", "type", "may be null", "key", "meaning"), rows))
    connection.close()
    return "\n".join(sections)


# ----------------------------------------------------------------------------------------------------------- metrics


def metrics() -> str:
    """Return the metrics of every algorithm's page, each with the pages that have it."""
    meanings: dict[str, dict[str, list[str]]] = {}
    for path in site_layout.beside_code():
        title = _page(path).partition("\n")[0].removeprefix("# ")
        for name, meaning in _metrics_of(path).items():
            meanings.setdefault(name, {}).setdefault(meaning, []).append(f"[{title}](../../{path})")
    rows = [
        (f"`{name}`", meaning, ", ".join(dict.fromkeys(pages)))
        for name in sorted(meanings)
        for meaning, pages in meanings[name].items()
    ]
    return markdown_table(("metric", "meaning", "reported by"), rows)


def _page(path: str) -> str:
    return (site_layout.ROOT / path).read_text(encoding="utf-8")


def _metrics_of(path: str, known: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the meaning of each metric of a page: of its own, and those of pages to whose metrics its sentences link."""
    section = _page(path).partition("\n## Metrics\n")[2].partition("\n## ")[0]
    sentences = "\n".join(line for line in section.splitlines() if not line.startswith("|"))
    meanings: dict[str, str] = {}
    for target in re.findall(r"\]\(([^)#]+\.md)#metrics\)", sentences):
        other, _ = site_links.resolve(target, path)
        if other not in known:
            inherited = _metrics_of(other, known | {path}).items()
            meanings |= {name: meaning for name, meaning in inherited if not ONE_ALGORITHM.search(meaning)}
    for names, meaning in _metric_rows(section):
        meanings |= dict.fromkeys(names, site_links.rewrite(meaning, lambda target: _moved(target, path)))
    return meanings


def _moved(target: str, path: str) -> str:
    """Return a link of the page `path` as it is written in docs/reference/."""
    file, fragment = site_links.resolve(target, path)
    return f"../../{file}{'#' if fragment else ''}{fragment}"


def _metric_rows(text: str) -> list[tuple[list[str], str]]:
    rows = []
    for table in re.findall(r"^\| metrics? \| meaning \|\n\|[-| :]+\|\n((?:\|.*\n)+)", text, re.MULTILINE):
        for row in table.splitlines():
            first, _, meaning = row.strip().strip("|").partition(" | ")
            rows.append((re.findall(r"`([^`]+)`", first), meaning.strip()))
    return rows


def timings() -> str:
    """Return the parts of a run's time, as `--profile` shows them."""
    from ludus.core.recorders import PARTS

    return markdown_table(("part", "time of"), [(f"`{name}`", meaning) for name, meaning in PARTS.items()])


def scenarios() -> str:
    """Return the options that each kind of scenario adds."""
    from ludus.runs.scenario import SCENARIOS, Scenario

    return _options_of_each(SCENARIOS, set(Scenario.model_fields))


def meta_solvers() -> str:
    """Return the options of each meta-solver."""
    from ludus.metagame.solvers.registry import META_SOLVERS

    return _options_of_each(META_SOLVERS, set())


def meta_solver_defaults() -> str:
    """Return a table of the meta-solvers with the defaults of their options, for the page beside their code."""
    from ludus.metagame.solvers.registry import META_SOLVERS

    rows = []
    for name, target in META_SOLVERS.items():
        fields = fields_of(load_model(target))
        defaults = ", ".join(f"`{field}: {default_text(info).strip('`')}`" for field, info in fields.items())
        rows.append((f"[`{name}`](../../../docs/reference/configuration.md#{name})", defaults or "none"))
    return markdown_table(("name", "options and their defaults"), rows)


def stoppers() -> str:
    """Return the options of each stopper."""
    from ludus.training.stopping import STOPPERS

    return _options_of_each(STOPPERS, set())


def _options_of_each(table: Mapping[str, str], common: set[str]) -> str:
    """Return a section for each name of a table of parts: what it is, and its options but the common ones."""
    sections = []
    for name, target in table.items():
        model = load_model(target)
        summary = inspect.cleandoc(model.__doc__ or "").partition("\n\n")[0]
        own = [field for field in fields_of(model) if field not in common]
        options = option_table(model, own) if own else "No options.\n"
        sections.append(f"### `{name}`\n\n{summary}\n\n{options}")
    return "\n".join(sections)


def names() -> str:
    """Return each public name with the first line of its docstring, and a link to it."""
    import ludus

    rows = []
    for path in sorted((site_layout.ROOT / "docs" / "reference" / "api").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        for name in documented(text):
            public = name.removeprefix("ludus.")
            label = public if public in ludus.__all__ else name.rpartition(".")[2]
            rows.append((f"[`{label}`](api/{path.name}#{name})", first_line(name), title))
    rows.sort(key=lambda row: row[0].lower())
    return markdown_table(("name", "what it is", "page"), rows)


def of_algorithms(text: str, path: str) -> str:
    """Return a page of the reference with what its algorithms need: options by name in place of a signature, and a link to their page."""
    from ludus.algorithms.common.registry import ALGORITHMS

    folders = {target.rpartition(":")[2]: target.rpartition(".")[0].replace(".", "/") for target in ALGORITHMS.values()}

    def replacement(match: re.Match[str]) -> str:
        name = match[1].removeprefix("ludus.")
        options = f"{match[0]}\n    options:\n      merge_init_into_class: false\n      show_source: false\n"
        if name not in folders:
            return options
        link = site_layout.relative(f"{folders[name]}/README.md", path)
        return f"{options}\nLoss, all options and metrics: [its page]({link}).\n"

    return re.sub(r"^::: (ludus\.\w+)$", replacement, text, flags=re.MULTILINE)


def documented(text: str) -> list[str]:
    """Return the names that a page of the reference documents."""
    return re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)


def first_line(name: str) -> str:
    """Return the first sentence of a name's docstring."""
    module, _, attribute = name.rpartition(".")
    doc = inspect.getdoc(getattr(importlib.import_module(module), attribute)) or ""
    text = READ_ON.sub("", doc.partition("\n\n")[0].replace("\n", " "))
    return re.split(r"(?<=[.:])\s+(?=[A-Z])", text)[0]


def parts() -> str:
    """Return the registered parts of each kind, and where they are."""
    from ludus.algorithms.common.registry import ALGORITHMS
    from ludus.algorithms.rewards.registry import LEARNED_REWARDS
    from ludus.envs.families import FAMILIES
    from ludus.envs.wrappers.registry import WRAPPERS
    from ludus.evaluation.run_ratings import RATINGS
    from ludus.metagame.solvers.registry import META_SOLVERS
    from ludus.policies.bots import BOTS
    from ludus.policies.registry import POLICIES
    from ludus.replay.selectors import SELECTORS
    from ludus.runs.scenario import SCENARIOS
    from ludus.runtime.inprocess import RUNTIMES
    from ludus.training.stopping import STOPPERS

    tables = {
        "Scenarios": SCENARIOS,
        "Algorithms": ALGORITHMS,
        "Meta-solvers": META_SOLVERS,
        "Stoppers": STOPPERS,
        "Families of environments": dict.fromkeys(FAMILIES, ""),
        "Wrappers": WRAPPERS,
        "Ratings": RATINGS,
        "Bots": BOTS,
        "Policies": POLICIES,
        "Learned rewards": LEARNED_REWARDS,
        "Selectors of replay": SELECTORS,
        "Runtimes": RUNTIMES,
    }
    return "\n".join(
        f"## {title}\n\n"
        + markdown_table(("name", "class"), [(f"`{name}`", f"`{target}`") for name, target in sorted(table.items())])
        for title, table in tables.items()
    )


def wrappers() -> str:
    """Return the wrappers of environments: their options, and the first paragraph of their docstrings."""
    from ludus.core.parts import resolve_name
    from ludus.envs.wrappers.registry import WRAPPERS

    rows = []
    for name in WRAPPERS:
        wrapper = resolve_name("wrapper", name, WRAPPERS)
        options = ", ".join(f"`{option}`" for option in list(inspect.signature(wrapper).parameters)[1:])
        rows.append((f"`{name}`", options, " ".join((inspect.getdoc(wrapper) or "").partition("\n\n")[0].split())))
    return markdown_table(("wrapper", "options", "effect"), rows)


TABLES_BY_ROWS: dict[str, Callable[[str, str], str]] = {
    "results": lambda names, _: results(names),
    "lags": lambda names, _: lags(names),
    "capabilities": capabilities,
}
GENERATORS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "presets": presets,
    "database": database,
    "metrics": metrics,
    "timings": timings,
    "parts": parts,
    "scenarios": scenarios,
    "meta_solvers": meta_solvers,
    "meta_solver_defaults": meta_solver_defaults,
    "stoppers": stoppers,
    "wrappers": wrappers,
    "names": names,
    "faults": fault_table,
}
