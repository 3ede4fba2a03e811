"""The site has every page and every public name, and its tables are made from the code. Only the last test needs MkDocs."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import environment_defaults
import option_tables
import pages
import pytest
import reference_tables
import site_layout
import site_links
import site_markdown
import yaml

import ludus
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.algorithms.rewards.registry import LEARNED_REWARDS
from ludus.cli.main import COMMANDS
from ludus.core import errors
from ludus.envs.wrappers.registry import WRAPPERS
from ludus.metagame.solvers.registry import META_SOLVERS
from ludus.runs.scenario import SCENARIOS
from ludus.runs.scenario_defaults import complete as resolved
from ludus.runs.scenario_files import list_presets
from ludus.storage.database import TABLES
from ludus.training.stopping import STOPPERS

SETTINGS: dict[str, Any] = yaml.safe_load(pages.text("mkdocs.yml"))
API = sorted((pages.ROOT / "docs" / "reference" / "api").glob("*.md"))
DOCUMENTED = [name for path in API for name in reference_tables.documented(pages.text(path))]
SEAMS = (
    "ludus.algorithms.common.base.Algorithm",
    "ludus.algorithms.common.base.Learner",
    "ludus.algorithms.common.base.ComputedOracle",
    "ludus.algorithms.rewards.base.LearnedReward",
    "ludus.envs.base.SupportsRender",
    "ludus.metagame.population.ratings.base.Rater",
    "ludus.policies.base.JointPolicy",
    "ludus.policies.bots.Bot",
    "ludus.replay.base.ProcessesTrajectories",
    "ludus.replay.base.Table",
    "ludus.replay.selectors.Selector",
    "ludus.rollout.base.PolicyBank",
    "ludus.runtime.base.Runtime",
    "ludus.storage.base.Observer",
)
"""Protocols that custom parts implement, beside those that are public names."""
MODELS = [
    *SCENARIOS.values(),
    *ALGORITHMS.values(),
    *LEARNED_REWARDS.values(),
    *META_SOLVERS.values(),
    *STOPPERS.values(),
    *re.findall(r"<!-- config (\S+) -->", pages.text("docs/reference/configuration.md")),
]


def nav(entries: list[Any]) -> Iterator[str]:
    """Yield the pages of a navigation, in order."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for value in entry.values():
                yield from nav(value if isinstance(value, list) else [value])


def test_navigation_has_every_page_once() -> None:
    listed = list(nav(SETTINGS["nav"]))
    wanted = {page for page in site_layout.places().values() if not page.startswith("design/decisions/archive/")}
    assert sorted(listed) == sorted(wanted), "nav of mkdocs.yml"


def test_pages_beside_the_code_have_places_of_their_own() -> None:
    placed = site_layout.beside_code()
    assert len(set(placed.values())) == len(placed)
    assert {pages.name(page) for page in pages.BESIDE_CODE} <= set(placed)


def test_reference_has_every_public_name_once() -> None:
    assert sorted(DOCUMENTED) == sorted(set(DOCUMENTED))
    public = {name for name in DOCUMENTED if name.count(".") == 1}
    assert public == {f"ludus.{name}" for name in ludus.__all__ if name != "__version__"}


def test_reference_has_seams_errors_and_checks() -> None:
    own_errors = {name for name in errors.__all__ if inspect.isclass(getattr(errors, name))}
    last = {name.rpartition(".")[2] for name in DOCUMENTED}
    assert set(SEAMS) <= set(DOCUMENTED)
    assert own_errors <= last
    folder = pages.ROOT / "ludus" / "testing"
    checks = {name for path in folder.glob("*.py") for name in re.findall(r"^def (check_\w+)", pages.text(path), re.M)}
    assert checks - {"check_spec"} <= last


def test_names_in_the_reference_exist_and_say_what_they_are() -> None:
    for name in DOCUMENTED:
        module, _, attribute = name.rpartition(".")
        assert inspect.getdoc(getattr(importlib.import_module(module), attribute)), name


@pytest.mark.parametrize("name", MODELS)
def test_every_option_has_a_meaning(name: str) -> None:
    """The tables of options are made of the docstrings: an `Attributes:` entry of the class or of a base."""
    model = option_tables.load_model(name)
    fields = option_tables.fields_of(model)
    assert [field for field, info in fields.items() if not option_tables.description(model, field, info)] == []


def test_every_marker_is_replaced() -> None:
    for path, place in site_layout.places().items():
        text = reference_tables.expand(pages.text(path), path)
        left = [line for line in text.splitlines() if re.match(r"<!-- (config|code|generate|configuration)\b", line)]
        assert left == [], f"{path} ({place})"


@pytest.mark.slow
def test_generated_tables_are_complete() -> None:
    assert {name for name in list_presets() if f"| `{name}` |" not in reference_tables.presets()} == set()
    assert {name for name in COMMANDS if f"## `ludus {name}`" not in reference_tables.commands()} == set()
    tables = re.findall(r"CREATE (?:TABLE|VIEW) (\w+)", TABLES)
    assert tables
    database = reference_tables.database()
    assert {name for name in tables if f"### `{name}`" not in database} == set()
    assert re.findall(r"^\| `.*\| *\|$", database, re.MULTILINE) == [], "columns without a meaning"
    assert "`policy_loss`" in reference_tables.metrics()


def test_wrappers_have_their_options_and_an_effect() -> None:
    lines = reference_tables.wrappers().splitlines()[2:]
    assert [line.split("`")[1] for line in lines] == list(WRAPPERS)
    assert "| `clip_reward` | `low`, `high` | Clip the reward" in "\n".join(lines)


def test_option_table_has_type_default_and_meaning() -> None:
    table = option_tables.own_options("PPO")
    assert "| `clip` | float > 0 | `0.3`\u00a0† | Range ε" in table
    assert "| `learning_rate` | number or schedule | `0.01\u00a0→\u00a00`\u00a0† |" in table
    assert "| `clip_value` | float or null > 0 | `null` |" in option_tables.option_tables("PPO")
    assert "| `gamma` | float" not in table
    assert "| `gamma` | float" in option_tables.option_tables("PPO")


def test_defaults_by_environment_are_those_of_runs() -> None:
    """The tables' examples have the same defaults as the real environments of their kind."""
    kinds = {
        "compiled tree": "openspiel/leduc_poker",
        "other OpenSpiel": "openspiel/connect_four",
        "several players": "pettingzoo/tictactoe_v3",
        "one agent": "gymnasium/CartPole-v1",
    }
    table = environment_defaults.environment_table(option_tables.load_model("PPO"))
    heading, _, *rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if "|" in line
    ]
    for kind, env in kinds.items():
        column = next(k for k, kinds_of_column in enumerate(heading) if kind in kinds_of_column.split("; "))
        algorithm = resolved(ludus.PSRO(env=env, algorithm="ppo")).algorithm
        shown = {row[0].strip("`"): row[column].strip("`") for row in rows}
        assert shown == {name: option_tables.value_text(getattr(algorithm, name)) for name in shown}, kind
    assert "`clip`" in table


def test_only_algorithms_have_defaults_by_environment() -> None:
    assert environment_defaults.environment_table(ludus.PSRO) == ""
    assert "`best_response.n_step`" in environment_defaults.environment_table(ludus.NFSP)


def test_links_to_names_resolve_to_their_lines() -> None:
    first, last = site_links.lines_of("tests/docs/test_site.py", "test_links_to_names_resolve_to_their_lines")
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert lines[first - 1].startswith("def test_links_to_names")
    assert lines[last - 1].strip().startswith("site_links.lines_of")
    text = site_links.rewrite("[a](x.py#C.f) `[b](y)` [c](https://z.org)", str.upper)
    assert text == "[a](X.PY#C.F) `[b](y)` [c](https://z.org)"
    with pytest.raises(KeyError, match="has no 'nothing'"):
        site_links.lines_of("tests/docs/test_site.py", "nothing")


def test_markdown_of_code_hosts_is_read_as_there() -> None:
    text = "So:\n- a\n  more\n  - inner\n| x |\n| `a\\|b` |\n```text\n- as it is\n```\n"
    lines = site_markdown.code_host_markdown(text).splitlines()
    assert lines[:5] == ["So:", "", "- a", "    more", "    - inner"]
    assert "| `a|b` |" in lines
    assert lines[-2] == "- as it is"


@pytest.mark.slow
@pytest.mark.timeout(1000)  # 20 seconds of a quiet core
def test_site_builds_strictly_and_reads_without_a_network(tmp_path: Path) -> None:
    """Neither a dead link, a page that is not in nav, nor a docstring that cannot be parsed; nothing comes from elsewhere."""
    import subprocess

    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=pages.ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    html = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")]
    loaded = {
        url for text in html for url in re.findall(r"<(?:script|link|img)\b[^>]*?(?:src|href)=\"?(http[^\s\">]+)", text)
    }
    assert loaded == set()
    assert 'id="ludus.PPO"' in (tmp_path / "reference" / "api" / "algorithms.html").read_text(encoding="utf-8")
