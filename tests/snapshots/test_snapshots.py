"""What users and files of theirs depend on, as it was committed: public names, options of commands, presets in full, schemas.

`make snapshots` (LUDUS_REWRITE_SNAPSHOTS=1) writes the present state; the commit then shows what changed. A rename of modules changes
nothing here but `documented.txt`, which has the modules that the documentation imports from.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import ludus
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.algorithms.rewards.registry import LEARNED_REWARDS
from ludus.apps.play import people
from ludus.cli import main as cli
from ludus.core.parts import resolve_name
from ludus.envs.families import FAMILIES
from ludus.envs.wrappers.registry import WRAPPERS
from ludus.evaluation.run_ratings import RATINGS
from ludus.metagame.solvers.registry import META_SOLVERS
from ludus.policies.bots import BOTS
from ludus.policies.registry import POLICIES
from ludus.replay.kinds import TABLES
from ludus.replay.processing import PROCESSING
from ludus.replay.selectors import SELECTORS
from ludus.rollout.opponent_rules import RULES
from ludus.runs.scenario import SCENARIOS, Scenario
from ludus.runs.scenario_files import list_presets, read_scenario
from ludus.runtime.inprocess import RUNTIMES
from ludus.schedulers.response_diversity import DIVERSITIES
from ludus.schedulers.responses import RESPONSES
from ludus.schedulers.self_play import PAST_OPPONENT_RULES
from ludus.storage import database
from ludus.tournament.tournament_store import _TABLES as TOURNAMENT
from ludus.training.stopping import STOPPERS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REWRITE = os.environ.get("LUDUS_REWRITE_SNAPSHOTS", "") not in ("", "0")

KINDS: dict[str, Mapping[str, Any]] = {
    "algorithm": ALGORITHMS,
    "bot": BOTS,
    "diversity": DIVERSITIES,
    "environment family": FAMILIES,
    "learned reward": LEARNED_REWARDS,
    "meta-solver": META_SOLVERS,
    "opponents' rule": RULES,
    "past": PAST_OPPONENT_RULES,
    "policy": POLICIES,
    "processing": PROCESSING,
    "rating": RATINGS,
    "responses": RESPONSES,
    "runtime": RUNTIMES,
    "scenario": SCENARIOS,
    "selector": SELECTORS,
    "stopper": STOPPERS,
    "table": TABLES,
    "wrapper": WRAPPERS,
}


def check(file: Path, text: str) -> None:
    """Compares a text with the committed one, or writes it where a rewrite was asked for."""
    text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    if REWRITE:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    committed = file.read_text(encoding="utf-8") if file.is_file() else ""
    if committed != text:
        changes = difflib.unified_diff(committed.splitlines(), text.splitlines(), "committed", "now", lineterm="", n=1)
        name = file.relative_to(ROOT)
        pytest.fail(
            f"{name} is not what it was. If that is meant: make snapshots, and commit it.\n" + "\n".join(changes)
        )


def check_folder(folder: Path, names: set[str]) -> None:
    """Compares the files of a folder, or removes those that there are none of any more."""
    files = {path.stem: path for path in folder.iterdir()}
    if REWRITE:
        for name in files.keys() - names:
            files.pop(name).unlink()
    assert files.keys() == names, "make snapshots rewrites them"


# ---------------------------------------------------------------------------------------------- public names


def described(path: str, value: Any) -> Iterator[str]:
    """A name, its parameters, and of a class its public methods and fields. Defaults and types may change in spelling, and are left out."""
    if isinstance(value, type) and issubclass(value, BaseModel):
        yield f"{path}({', '.join(sorted(value.model_fields))})"
    elif isinstance(value, type) or callable(value):
        yield f"{path}{parameters(value)}"
    else:
        yield f"{path}: {type(value).__name__}"
    if isinstance(value, type):
        for name in sorted(vars_of(value)):
            member = inspect.getattr_static(value, name)
            function = getattr(member, "__func__", member)
            yield f"  .{name}{parameters(function) if inspect.isfunction(function) else ''}"


def vars_of(cls: type) -> set[str]:
    """Public attributes of a class, and of its bases that are ours."""
    fields = getattr(cls, "model_fields", {})
    ours = [base for base in cls.__mro__ if base.__module__.partition(".")[0] == "ludus"]
    return {name for base in ours for name in vars(base) if not name.startswith("_") and name not in fields} - {
        "model_config"
    }


def parameters(value: Any) -> str:
    """(a, b=, *, c=), with = for those that have a default."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # of C
        return ""
    words, keywords = [], False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not keywords:
            words.append("*")
        keywords = keywords or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        words.append(f"{star}{each.name}{'=' if each.default is not each.empty else ''}")
    return f"({', '.join(words)})"


def test_public_names() -> None:
    lines = [line for name in sorted(ludus.__all__) for line in described(f"ludus.{name}", getattr(ludus, name))]
    check(HERE / "public.txt", "\n".join(lines))


def imports() -> set[tuple[str, str]]:
    """(module, name) of every import from Ludus in the documentation."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "ludus").rglob("*.md")]
    blocks = [block for page in pages for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)]
    lines = [line for page in pages for line in re.findall(r"from ludus\.[\w.]+ import [\w, ]+", page.read_text())]
    trees = [ast.parse(text) for text in (*blocks, *lines) if "import" in text and "ludus." in text]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        (node.module, alias.name)
        for node in nodes
        if node.module and node.module.startswith("ludus.")
        for alias in node.names
    }


def test_documented_seams() -> None:
    """What pages tell their readers to import, beside `ludus` itself."""
    lines = []
    for module, name in sorted(imports()):
        lines += described(f"{module}:{name}", getattr(importlib.import_module(module), name))
    check(HERE / "documented.txt", "\n".join(lines))


def test_names_of_parts() -> None:
    check(HERE / "kinds.txt", "\n".join(f"{kind} {name}" for kind in KINDS for name in sorted(KINDS[kind])))


# ---------------------------------------------------------------------------------------------- commands


def test_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("", *cli.COMMANDS):
        assert cli.main([name, "--help"] if name else ["--help"]) == 0
        check(HERE / "help" / f"{name or 'ludus'}.txt", capsys.readouterr().out)
    check_folder(HERE / "help", {"ludus", *cli.COMMANDS})


# ---------------------------------------------------------------------------------------------- scenarios


def test_presets() -> None:
    """Each as YAML, resolved in full."""
    for name in list_presets():
        check(HERE / "presets" / f"{name}.yaml", read_scenario(name).to_yaml())
    check_folder(HERE / "presets", set(list_presets()))


def inlined(value: Any, definitions: Mapping[str, Any]) -> Any:
    """A JSON schema without what classes are called and what their docstrings say."""
    if isinstance(value, list):
        return [inlined(each, definitions) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        named = definitions[value["$ref"].rpartition("/")[2]]
        return inlined({**named, **{k: v for k, v in value.items() if k != "$ref"}}, definitions)
    words = ("$defs", "title", "description") if isinstance(value.get("type", ""), str) else ()
    return {key: inlined(each, definitions) for key, each in value.items() if key not in words}


def schema(model: type[BaseModel]) -> Any:
    whole = model.model_json_schema()
    return inlined(whole, whole.get("$defs", {}))


def text_of(schema: Any) -> str:
    """A line for each option."""
    own = schema.get("properties", {})
    lines = [f"  {name}: {json.dumps(own[name], sort_keys=True)}" for name in sorted(own)]
    return "\n".join([*lines, f"  required: {sorted(schema.get('required', []))}"])


def parts() -> Iterator[tuple[str, type[BaseModel]]]:
    """The parts that have options which pydantic checks."""
    for kind, table in KINDS.items():
        for name in sorted(table):
            if isinstance(table[name], str):
                part = resolve_name(kind, name, table)
                if isinstance(part, type) and issubclass(part, BaseModel) and not issubclass(part, Scenario):
                    yield f"{kind} {name}", part


@cache
def common() -> Mapping[str, Any]:
    return dict(schema(Scenario)["properties"])


def test_schema_of_scenarios() -> None:
    """Of what every scenario has, of what each kind adds, and of the parts that are named in it."""
    lines = ["scenario", text_of({"properties": common(), "required": schema(Scenario)["required"]})]
    for name in sorted(SCENARIOS):
        whole = schema(resolve_name("scenario", name, SCENARIOS))
        own = {key: value for key, value in whole["properties"].items() if common().get(key) != value}
        lines += [f"scenario {name}", text_of({"properties": own, "required": whole["required"]})]
    lines += [line for name, part in parts() for line in (name, text_of(schema(part)))]
    check(HERE / "scenario.txt", "\n".join(lines))


def test_table_of_completion(tmp_path: Path) -> None:
    """What shells complete is what the parsers and models take. In a process of its own: what other tests import registers environments."""
    code = (
        "import sys; from ludus.cli.main import COMMANDS; from ludus.cli.completion.derive import derive_table, table_text; "
        "open(sys.argv[1], 'w', encoding='utf-8').write(table_text(derive_table(COMMANDS)))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "table")], check=True)
    check(ROOT / "ludus/cli/completion/options.json", (tmp_path / "table").read_text(encoding="utf-8"))


# ---------------------------------------------------------------------------------------------- databases


def dumped(script: str) -> str:
    """The statement of each table, index and view that a script makes."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(script)
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name")
        return "\n".join(re.sub(r"\s+", " ", sql) for (sql,) in rows)


def test_schemas_of_databases() -> None:
    """Of runs, tournaments and people's games, with the versions."""
    texts = []
    for module, script in ((database, database.TABLES), (people, people.TABLES)):
        texts += [f"{module.FILE}: id {module.APPLICATION_ID:#x}, version {module.VERSION}", dumped(script)]
    pragmas = " ".join(re.findall(r"PRAGMA (\w+ = \w+)", TOURNAMENT))
    texts += [f"tournament.db: {pragmas}", dumped(TOURNAMENT + "COMMIT;")]
    check(HERE / "databases.txt", "\n".join(texts))
