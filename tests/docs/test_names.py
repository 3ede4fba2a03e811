"""What the pages name is there, and what is there the pages name: parts, options, keys, modules, files."""

from __future__ import annotations

import builtins
import dataclasses
import importlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, get_args

import pages
import pytest
from pydantic import BaseModel

from ludus.algorithms.common.registry import ALGORITHMS
from ludus.algorithms.rewards.registry import LEARNED_REWARDS
from ludus.cli.check_env import ELSEWHERE
from ludus.core.packages import EXTRAS
from ludus.core.parts import resolve_name
from ludus.core.recorders import PARTS
from ludus.envs.adapters.openspiel import ARRAYS
from ludus.envs.config import Environment
from ludus.envs.families import FAMILIES
from ludus.evaluation.run_ratings import RATINGS
from ludus.metagame.solvers.registry import META_SOLVERS
from ludus.policies.agents import AGENTS
from ludus.policies.bots import BOTS
from ludus.policies.registry import POLICIES
from ludus.replay.kinds import TABLES
from ludus.replay.selectors import RESERVOIR, SELECTORS
from ludus.reporting.trackers import TRACKERS
from ludus.rollout.opponent_rules import RULES
from ludus.runs.scenario import SCENARIOS, Checkpoints, Evaluation
from ludus.runs.scenario_runtime import RuntimeChoice
from ludus.runtime.inprocess import RUNTIMES
from ludus.schedulers.league import LEAGUE_RULES
from ludus.schedulers.pbt import TUNING_RULES
from ludus.schedulers.psro import WarmStart
from ludus.schedulers.response_diversity import DIVERSITIES
from ludus.schedulers.responses import RESPONSES
from ludus.schedulers.self_play import PAST_OPPONENT_RULES
from ludus.testing.env import ADVICE
from ludus.training.callbacks import Callback
from ludus.training.stopping import STOPPERS

OWN = "module:Class"
GROUPS = [
    table.group
    for table in (
        AGENTS,
        ALGORITHMS,
        ARRAYS,
        BOTS,
        FAMILIES,
        LEARNED_REWARDS,
        META_SOLVERS,
        POLICIES,
        RATINGS,
        RUNTIMES,
        TRACKERS,
    )
]
"""Of entry points."""


def fields(part: Any) -> set[str]:
    """The options of a part's class."""
    if issubclass(part, BaseModel):
        return set(part.model_fields)
    return {field.name for field in dataclasses.fields(part) if field.init} if dataclasses.is_dataclass(part) else set()


def options(table: Mapping[str, str]) -> dict[str, set[str]]:
    return {name: fields(resolve_name("part", name, table)) for name in table}


# ---------------------------------------------------------------------------------------------- tables of names


@pytest.mark.parametrize(
    ("page", "heading", "names"),
    [
        ("docs/environments/index.md", "family", [*FAMILIES, OWN]),
        ("docs/algorithms/index.md", "algorithm", [*ALGORITHMS, OWN]),
        ("docs/guides/plugins.md", "group", GROUPS),
        ("docs/concepts/algorithms.md", "source", get_args(WarmStart.model_fields["source"].annotation)),
        ("docs/concepts/meta-solvers.md", "name", [*META_SOLVERS, OWN]),
        ("ludus/metagame/solvers/README.md", "name", META_SOLVERS),
        ("docs/concepts/schedulers.md", "`scenario:`", SCENARIOS),
        ("ludus/schedulers/README.md", "scenario", SCENARIOS),
        ("docs/concepts/stopping.md", "name", [*STOPPERS, OWN]),
        ("docs/concepts/ratings.md", "rating", RATINGS),
        ("docs/concepts/tables.md", "kind", [*TABLES, OWN]),
        ("docs/concepts/tables.md", "selector", [*SELECTORS, RESERVOIR, OWN]),
        ("docs/guides/callbacks.md", "hook", [name for name in vars(Callback) if name.startswith("on_")]),
        ("docs/guides/check.md", "check", [*ADVICE, ELSEWHERE]),
    ],
)
def test_tables_are_complete(page: str, heading: str, names: Iterable[str]) -> None:
    assert sorted(word.partition("(")[0] for word in pages.first_cells(page, heading)) == sorted(names)


@pytest.mark.parametrize(
    ("part", "table"),
    [
        ("responses", RESPONSES),
        ("diversity", DIVERSITIES),
        ("past", PAST_OPPONENT_RULES),
        ("rules", {**LEAGUE_RULES, **TUNING_RULES}),
        ("rule", RULES),
    ],
)
def test_parts_of_schedules_are_named(part: str, table: Mapping[str, str]) -> None:
    rows = next(rows for rows in pages.tables("ludus/schedulers/README.md") if rows[0][0] == "key")
    named = {word for key, values in rows[1:] if key == f"`{part}`" for word in re.findall(r"`(\w+)`", values)}
    their = set().union(*(fields(resolve_name(part, name, table)) for name in table))
    assert set(table) <= named <= set(table) | their


def test_bots_are_named() -> None:
    page = pages.text("docs/guides/tournament.md")
    assert {name for name in BOTS if name != "registered" and f"bot:{name}" not in page} == set()


def test_parts_of_the_profile_are_named() -> None:
    rows = next(rows for rows in pages.tables("docs/guides/profile.md") if rows[0][0] == "part")
    assert [row[0] for row in rows[1:]] == [*PARTS, "other"]


def test_extras_are_named() -> None:
    project = tomllib.loads(pages.text("pyproject.toml"))["project"]["optional-dependencies"]
    named = {extra for page in pages.PRESENT for extra in re.findall(r"ludus-rl\[(\w+)\]", pages.text(page))}
    assert named - {"all"} == set(EXTRAS) == set(project) - {"all", "dev", "docs"}


def test_every_family_of_environments_has_a_page() -> None:
    for name, family in FAMILIES.items():
        page = pages.text(f"docs/environments/{name}.md")
        assert family.example in page
        assert not family.extra or f"ludus-rl[{family.extra}]" in page


def test_every_shipped_check_has_an_example() -> None:
    sources = [pages.text(path) for path in (pages.ROOT / "ludus" / "testing").glob("*.py")]
    checks = {name for source in sources for name in re.findall(r"^def (check_\w+)", source, re.MULTILINE)}
    page = pages.text("docs/guides/check.md") + pages.text("docs/guides/tournament.md")
    assert {name for name in checks - {"check_spec"} if f"import {name}" not in page} == set()


def test_every_benchmark_is_on_its_page() -> None:
    folder = pages.ROOT / "benchmarks"
    commands = {path.stem for path in folder.glob("*.py") if "BENCHMARK = " in pages.text(path)}
    page = pages.text("docs/benchmarks.md")
    assert commands
    assert {name for name in commands if f"python -m benchmarks.{name}`" not in page} == set()


# ---------------------------------------------------------------------------------------------- options and keys


@pytest.mark.parametrize(("page", "column", "table"), [("meta-solvers", 3, META_SOLVERS), ("stopping", 2, STOPPERS)])
def test_options_are_those_of_the_classes(page: str, column: int, table: Mapping[str, str]) -> None:
    page = f"docs/concepts/{page}.md"
    named = zip(pages.cells(page, "name"), pages.cells(page, "name", column), strict=True)
    for names, words in named:
        known = [options(table)[name] for name in names if name != OWN]
        assert set(words) == set().union(*known), f"{page}: {names}"


def test_options_of_ratings_are_named() -> None:
    named = set(pages.spans(pages.ROOT / "docs" / "concepts" / "ratings.md"))
    assert {name: known - named for name, known in options(RATINGS).items() if known - named} == {}


def known_keys() -> dict[str, Any]:
    """What may follow a key and a dot: models, or sets of names."""
    return {
        "env": Environment,
        "runtime": RuntimeChoice,
        "evaluation": Evaluation,
        "checkpoints": Checkpoints,
        "algorithm": set().union(*options(ALGORITHMS).values(), {"kind"}),
        "meta_solver": set().union(*options(META_SOLVERS).values(), {"kind"}),
        "stop": set(STOPPERS),
        "response": set(STOPPERS),
    }


def test_keys_that_are_named_are_keys() -> None:
    known = known_keys()
    wrong = []
    for page in pages.PRESENT:
        words = [
            word
            for span in pages.spans(page)
            for word in re.findall(r"(?<![\w./])[a-z_]+(?:\.[a-z_]+)+(?!\w*\()", span)
        ]
        for word in words:
            key, *path = word.split(".")
            where = known.get(key)
            for name in path if where is not None else ():
                if isinstance(where, set):
                    right, where = name in where, None
                elif where is None:
                    break
                else:
                    right = name in where.model_fields
                    where = inner(where, name) if right else None
                if not right:
                    wrong.append(f"{pages.name(page)}: {word}")
    assert not wrong, "\n".join(wrong)


def inner(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """The model of a field, if it has one."""
    annotation = model.model_fields[name].annotation
    return next(
        (one for one in (annotation, *get_args(annotation)) if isinstance(one, type) and issubclass(one, BaseModel)),
        None,
    )


def test_defaults_of_the_runtime_are_those_of_the_table() -> None:
    found = re.findall(
        r"^\| `runtime\.(\w+)`[^|]* \| `?(\w+)`? \|", pages.text("docs/guides/processes.md"), re.MULTILINE
    )
    model = RuntimeChoice.model_fields
    for name, value in dict(found).items():
        default = model[name].get_default(call_default_factory=True)
        if isinstance(default, str | int | float):
            assert type(default)(value) == default, name


# ---------------------------------------------------------------------------------------------- modules and files

_FILES = {"db", "sbatch"}  # what may follow `ludus.` in the name of a file


def resolves(path: str) -> bool:
    """Whether `ludus.a.b.C.d` is a module, or something in one."""
    *parents, last = path.split(".")
    if not parents:
        return True
    try:
        importlib.import_module(path)
    except ModuleNotFoundError:
        if not resolves(".".join(parents)):
            return False
        try:
            holder = importlib.import_module(".".join(parents))
        except ModuleNotFoundError:
            return last in fields_and_methods(".".join(parents))
        return hasattr(holder, last)
    return True


def fields_and_methods(path: str) -> set[str]:
    module, _, name = path.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    return set(dir(found)) | set(getattr(found, "__annotations__", ()))


def test_modules_that_are_named_are_there() -> None:
    wrong = []
    for page in pages.PRESENT:
        for word in sorted(set(re.findall(r"\bludus(?:\.[A-Za-z_]\w*)+", pages.text(page)))):
            if word.split(".")[1] not in _FILES and word not in GROUPS and not resolves(word):
                wrong.append(f"{pages.name(page)}: {word}")
    assert not wrong, "\n".join(wrong)


_OTHERS = {"Class", "Dockerfile", "MultiDiscrete", "Python", "ReadWriteMany", "ReadWriteOnce", "SampleToInsertRatio"}
"""What looks like a class of ours in inline code, and is not."""


def test_classes_that_are_named_are_there() -> None:
    sources = [pages.text(path) for folder in ("ludus", "examples") for path in (pages.ROOT / folder).rglob("*.py")]
    known = {word for source in sources for word in re.findall(r"^ *(?:class )?([A-Z]\w+)\b", source, re.MULTILINE)}
    wrong = []
    for page in pages.PRESENT:
        named = {word for span in pages.spans(page) for word in re.findall(r"^([A-Z][a-z][A-Za-z]+)(?=$|[.(])", span)}
        if page.parent.name in ("docs", "design"):  # in the picture too
            named |= set(re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b(?= \(\w+/)", pages.text(page)))
        # These name classes of other systems (`ludus.NAME` on them is looked at above), and ids of environments.
        if not page.stem.startswith("from_") and page.stem != "survey":
            wrong += [f"{pages.name(page)}: {word}" for word in named - known - _OTHERS - set(dir(builtins))]
    assert not wrong, "\n".join(sorted(wrong))


def test_pages_that_the_code_names_are_there() -> None:
    found = (
        path for folder in ("ludus", "tests", "benchmarks", "examples") for path in (pages.ROOT / folder).rglob("*.py")
    )
    sources = [path for path in found if ".venv" not in path.parts]  # of peers
    named = {(path, page) for path in sources for page in re.findall(r"\bdocs/[\w/.-]+\.md\b", pages.text(path))}
    assert len(named) > 5
    assert {f"{pages.name(path)}: {page}" for path, page in named if not (pages.ROOT / page).exists()} == set()


def test_files_that_are_named_are_there() -> None:
    """Python files and folders of the repository, from its root, from `ludus/`, or from the folder of a page beside the code."""
    wrong = []
    for page in pages.PRESENT:
        named = {
            word for span in pages.spans(page) for word in re.findall(r"^(?:[\w.-]+/)*[\w.-]+\.(?:py|md|sbatch)$", span)
        }
        named |= {
            span for span in pages.spans(page) if re.match(r"^(ludus|tests|docs|benchmarks|examples)/[\w./-]+$", span)
        }
        for word in sorted(named):
            if "/" not in word and page not in pages.BESIDE_CODE:
                continue
            if not any((home / word).exists() for home in (pages.ROOT, pages.ROOT / "ludus", page.parent)):
                wrong.append(f"{pages.name(page)}: {word}")
    assert not wrong, "\n".join(wrong)
