"""Python and SQL on the pages run, YAML is a scenario."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pages
import pytest
import yaml

import ludus
from ludus.apps.experiments.sweep import load_sweep
from ludus.runs.scenario_files import load_scenario, read_scenario

BLOCKS = [
    pytest.param(block, id=f"{pages.name(page)}-{k}", marks=[pytest.mark.slow] if '"processes"' in block else [])
    for page in pages.PAGES
    for k, block in enumerate(pages.blocks(page, "python"))
    if page.name != "README.md"  # that one is an example, tested as such
    and page.parent.name != "tutorials"  # whose code is their scripts'
]


@pytest.mark.filterwarnings("ignore:the environment object/lambda was given")  # as one of the pages says
@pytest.mark.filterwarnings("ignore:.*has stopped to change:ludus.RunWarning")  # as docs/start/own-game.md says
@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize("block", BLOCKS)
def test_python_runs(block: str, try1: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What names a preset or an environment, and no number of generations, is played for one."""
    run = ludus.run

    def shorter(scenario: Any, *arguments: Any, **keys: Any) -> ludus.Result:
        return run(scenario, *arguments, **({"generations": 1, **keys} if isinstance(scenario, str) else keys))

    monkeypatch.setattr(ludus, "run", shorter)
    monkeypatch.chdir(try1)
    exec(compile(block, "page", "exec", dont_inherit=True), {"__name__": "page"})


def test_sql_runs(try1: Path) -> None:
    page = pages.ROOT / "docs" / "guides" / "sql.md"
    with sqlite3.connect(f"file:{try1}/runs/try1/ludus.db?mode=ro", uri=True) as connection:
        statements = [s for block in pages.blocks(page, "sql") for s in block.split(";") if s.strip()]
        rows = [connection.execute(statement).fetchall() for statement in statements]
    connection.close()
    assert len(rows) == 14
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
            if "trials:" in block:
                load_sweep(tmp_path / "my.yaml").check()
            else:
                read_scenario(tmp_path / "my.yaml")  # whose environment may be the reader's own
    assert len(seen) > 10
