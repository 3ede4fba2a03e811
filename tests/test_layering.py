"""Packages in layers: each imports those below it only, and no file imports another in a circle, not even for types. Names in strings
("module:Class") count as imports, but for circles: a configuration names its learner so. And what a run calls in a package above."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from graphlib import CycleError, TopologicalSorter
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

import pytest

import ludus
from ludus.testing import rounding_noise

ROOT = Path(ludus.__file__).parent
LIBRARY = (
    "core",
    "backend",
    "runtime",
    "envs",
    "policies",
    "replay",
    "metagame",
    "rollout",
    "algorithms",
    "storage",
    "training",
    "evaluation",
    "schedulers",
    "tournament",
    "reporting",
    "runs",
)
APPS = (
    "common",
    "tracking",
    "episodes",
    "play",
    "ui",
    "hub",
    "experiments",
    "export",
    "options",
    "skeletons",
    "interfaces",
)
"""Each imports those before it only, too."""
LAYERS = (*LIBRARY, "contrib", "testing", "apps", "cli")
"""Each imports those before it only. `ludus/__init__.py` is in none: it resolves public names when they are first used. What lies in
`contrib` is found by entry points of the distribution, and named nowhere else."""
_IN_A_STRING = re.compile(rf"ludus\.({'|'.join(LAYERS)})(\.[a-z_0-9]+)*(:\w+)?")


def module_of(path: Path) -> str:
    parts = ("ludus", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Import(NamedTuple):
    """A module that another one imports anywhere, or names in a string."""

    target: str
    line: int
    how: Literal["code", "types", "string"]


MODULES = {module_of(path): path for path in sorted(ROOT.rglob("*.py"))}


@cache
def imports(path: Path) -> tuple[Import, ...]:
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[Import]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    typing = {id(inner) for node in nodes if _for_types(node) for inner in ast.walk(node)}
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
    for node in nodes:
        how: Literal["code", "types"] = "types" if id(node) in typing else "code"
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ludus"):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield Import(inner if inner in MODULES else str(node.module), node.lineno, how)
        elif isinstance(node, ast.Import):
            yield from (Import(a.name, node.lineno, how) for a in node.names if a.name.startswith("ludus."))
        elif isinstance(node, ast.Constant) and id(node) not in prose and _IN_A_STRING.fullmatch(str(node.value)):
            yield Import(str(node.value).partition(":")[0], node.lineno, "string")


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _package(module: str) -> str:
    return ".".join(module.split(".")[1:2])


def _application(module: str) -> int:
    """Which of `APPS` it is in; -1: none."""
    parts = module.split(".")
    return APPS.index(parts[2]) if parts[1:2] == ["apps"] and len(parts) > 2 else -1


def test_the_packages_are_those_of_the_architecture_page() -> None:
    packages = {path.relative_to(ROOT).parts[0] for path in ROOT.glob("*/**/*.py")}  # a folder of caches alone is none
    assert packages == set(LAYERS)
    assert [path.name for path in ROOT.glob("*.py")] == ["__init__.py"]
    page = (ROOT.parent / "docs" / "design" / "architecture.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^  (\w+)/ ", page, re.MULTILINE)) == LAYERS


def test_no_package_imports_one_above_it() -> None:
    place = {package: k for k, package in enumerate(LAYERS)}
    wrong = [
        f"{module}:{one.line} imports {one.target}"
        for module, path in MODULES.items()
        for one in imports(path)
        if place.get(_package(one.target), -1) > place.get(_package(module), len(LAYERS))
    ]
    assert not wrong, "\n".join(wrong)


def test_no_application_imports_one_above_it() -> None:
    apps = ROOT / "apps"
    assert {path.relative_to(apps).parts[0] for path in apps.glob("*/**/*.py")} == set(APPS)
    wrong = [
        f"{module}:{one.line} imports {one.target}"
        for module, path in MODULES.items()
        for one in imports(path)
        if _application(one.target) > _application(module) >= 0
    ]
    assert not wrong, "\n".join(wrong)


def test_names_in_strings_are_modules() -> None:
    wrong = [
        f"{module}:{one.line} names {one.target}"
        for module, path in MODULES.items()
        for one in imports(path)
        if one.target not in MODULES and importlib.util.find_spec(one.target) is None
    ]
    assert not wrong, "\n".join(wrong)


def test_no_file_imports_another_in_a_circle() -> None:
    graph = {
        module: {one.target for one in imports(path) if one.how != "string"} - {module, "ludus"}
        for module, path in MODULES.items()
        if module != "ludus"
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"files import each other: {' <- '.join(error.args[1])}")


def test_configurations_load_no_torch() -> None:
    modules = sorted(
        module for module in MODULES if module.endswith((".config", ".options")) and module != "ludus.cli.config"
    )
    script = f"import importlib, sys\nfor name in {modules}: importlib.import_module(name)\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_seams_import_no_implementation() -> None:
    """`base` modules import records, other seams, and pure data only."""
    allowed = {"types", "errors", "base", "trajectories", "seeding", "game_facts", "game_tree", "ranks"}
    for path in ROOT.glob("*/base.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ludus"):
                assert str(node.module).rsplit(".", 1)[-1] in allowed, f"{path} imports {node.module}"


# --------------------------------------------------------------------------------------------------------------------
# What runs. Code in one package calls code in a package above it only where that was handed down to it.

HANDED_DOWN = {
    ("backend/device", "algorithms/on_policy/kernels"): "what is done again and again on a device",
    ("metagame/population/agent_manager", "storage/checkpoint"): "where weights are kept",
    ("metagame/population/agent_manager", "storage/store"): "where members and matches are written down",
    ("metagame/population/payoff_table", "storage/store"): "where matches are read again",
    ("algorithms/exact/oracle", "evaluation/exact"): "opponents, as plans on the tree",
    ("storage/base", "runs/control"): "an observer",
    ("training/collecting", "runs/assembly"): "a policy, by its name",
    ("training/training", "runs/task_runner"): "what makes a task, and what goes on between two iterations",
    ("training/training", "runs/control"): "the clock, which stands still in a pause",
    ("reporting/rates", "runs/control"): "the same clock",
    ("evaluation/matches", "runs/assembly"): "a policy, by its name",
    ("rollout/host", "runs/task_runner"): "who hears how far a match is",
}
"""(from, to) -> what it is."""


@cache
def _file(name: str) -> str:
    """Of a source of Ludus, package/module; "" of others, and of the rounding noise, which stands around functions of every package."""
    path = Path(name)
    if not path.is_relative_to(ROOT) or path == Path(rounding_noise.__file__):
        return ""
    return path.relative_to(ROOT).with_suffix("").as_posix()


def _runs(frame: FrameType) -> str:
    """The file of a function that runs; "" of other code, and while a module or class is made."""
    return _file(frame.f_code.co_filename) if frame.f_code.co_flags & CO_OPTIMIZED else ""


@contextmanager
def calls_upward() -> Iterator[set[tuple[str, str]]]:
    """(from, to) of the calls of this thread from a package into one above it, whatever of other packages is in between. Those of `core`
    are left out: it makes and checks what a configuration names."""
    calls = set[tuple[str, str]]()
    place = {package: k for k, package in enumerate(LAYERS)}

    def layer(name: str) -> int:
        return place.get(name.partition("/")[0], -1)

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not (to := _runs(frame)):
            return
        caller = frame.f_back
        while caller is not None and not _runs(caller):
            caller = caller.f_back
        if caller is not None and 0 < layer(origin := _runs(caller)) < layer(to):
            calls.add((origin, to))

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def test_a_run_calls_back_up_only_what_was_handed_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in which one player learns, the other's best response is computed, and payoffs are played."""
    monkeypatch.setattr("ludus.rollout.rollouts.REPORT_SECONDS", 0.0)  # at every step, not only where matches take long
    options = ["env=openspiel/kuhn_poker", "generations=1", "algorithms={0: exact}", "response.episodes=600"]
    with calls_upward() as calls:
        ludus.run(
            "leduc", [*options, "evaluation={payoffs: simulate, episodes: 20}"], run_dir=tmp_path / "run", report=False
        )
    assert calls == set(HANDED_DOWN)
