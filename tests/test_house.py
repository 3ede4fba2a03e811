"""The house: its rooms in one order, no arrow back up, no circle of files; names that are given as strings count as imports. And what a run
calls back up."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from graphlib import CycleError, TopologicalSorter
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import ludus

ROOT = Path(ludus.__file__).parent
ROOMS = (
    "core",
    "runtime",
    "envs",
    "policies",
    "replay",
    "population",
    "solvers",
    "rollout",
    "learners",
    "storage",
    "training",
    "evaluation",
    "schedulers",
    "view",
    "driver",
    "testing",
    "cli",
)
"""Each may use those before it."""
_NAMED = re.compile(rf"ludus\.({'|'.join(ROOMS)})(\.[a-z_0-9]+)*(:\w+)?")


def module_of(path: Path) -> str:
    parts = ("ludus", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Arrow(NamedTuple):
    """From a module to one that it imports anywhere or names as a string."""

    target: str
    line: int
    types: bool
    """Whether it is there for the sake of types."""


MODULES = {module_of(path): path for path in sorted(ROOT.rglob("*.py"))}


@cache
def arrows(path: Path) -> tuple[Arrow, ...]:
    return tuple(_arrows(path))


def _arrows(path: Path) -> Iterator[Arrow]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    typing = {id(inner) for node in nodes if _for_types(node) for inner in ast.walk(node)}
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
    for node in nodes:
        types = id(node) in typing
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ludus"):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield Arrow(inner if inner in MODULES else str(node.module), node.lineno, types)
        elif isinstance(node, ast.Import):
            yield from (
                Arrow(alias.name, node.lineno, types) for alias in node.names if alias.name.startswith("ludus.")
            )
        elif isinstance(node, ast.Constant) and id(node) not in prose and _NAMED.fullmatch(str(node.value)):
            yield Arrow(str(node.value).partition(":")[0], node.lineno, types)


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _room(module: str) -> str:
    return ".".join(module.split(".")[1:2])


def test_the_rooms_are_those_of_the_page() -> None:
    found = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert found == set(ROOMS)
    assert [path.name for path in ROOT.glob("*.py")] == ["__init__.py"]
    page = (ROOT.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = re.findall(r"^  (\w+)/ ", page, re.MULTILINE)
    assert tuple(shown) == ROOMS


def test_no_arrow_runs_back_up() -> None:
    place = {room: k for k, room in enumerate(ROOMS)}
    wrong = [
        f"{module}:{arrow.line} uses {arrow.target}"
        for module, path in MODULES.items()
        for arrow in arrows(path)
        if place.get(_room(arrow.target), -1) > place.get(_room(module), len(ROOMS))
    ]
    assert not wrong, "\n".join(wrong)


def test_names_given_as_strings_are_modules() -> None:
    wrong = [
        f"{module}:{arrow.line} names {arrow.target}"
        for module, path in MODULES.items()
        for arrow in arrows(path)
        if arrow.target not in MODULES and importlib.util.find_spec(arrow.target) is None
    ]
    assert not wrong, "\n".join(wrong)


def test_no_file_imports_another_in_a_circle() -> None:
    graph = {m: {a.target for a in arrows(p) if not a.types} - {m, "ludus"} for m, p in MODULES.items() if m != "ludus"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"files import each other: {' <- '.join(error.args[1])}")


def test_seams_import_no_implementation() -> None:
    """`base` modules import records, other seams, and pure data only."""
    allowed = {"types", "errors", "base", "trajectories", "payoffs", "game_facts", "game_tree", "ranks"}
    for path in ROOT.glob("*/base.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ludus"):
                assert str(node.module).rsplit(".", 1)[-1] in allowed, f"{path} imports {node.module}"


# --------------------------------------------------------------------------------------------------------------------
# What runs. Code in one room calls code in a higher one only where that was handed down to it.

HANDED_DOWN = {
    ("runtime/inprocess", "rollout/host"): "a part, made where the runtime says",
    ("replay/prefetcher", "training/trainer"): "what draws a batch",
    ("population/agent_manager", "storage/policy_files"): "where weights are kept",
    ("population/agent_manager", "storage/store"): "where members and matches are written down",
    ("learners/exact/oracle", "evaluation/exact"): "opponents, as plans on the tree",
    ("storage/base", "training/callbacks"): "an observer",
    ("storage/base", "view/tensorboard"): "an observer",
    ("storage/base", "driver/control"): "an observer",
    ("training/rollout_requests", "driver/assembly"): "a policy, by its name",
    ("training/tasks", "driver/task_runner"): "what makes a task, and what goes on between two iterations",
    ("training/training", "driver/control"): "the clock, which stands still in a pause",
    ("evaluation/matches", "driver/assembly"): "a policy, by its name",
    ("rollout/manager", "driver/task_runner"): "who hears how far a match is",
}
"""(from, to) -> what it is."""


@cache
def _file(name: str) -> str:
    """Of a source of Ludus, room/module; "" of others."""
    path = Path(name)
    return path.relative_to(ROOT).with_suffix("").as_posix() if path.is_relative_to(ROOT) else ""


def _runs(frame: FrameType) -> str:
    """The file of a function that runs; "" of other code, and while a module or class is made."""
    return _file(frame.f_code.co_filename) if frame.f_code.co_flags & CO_OPTIMIZED else ""


@contextmanager
def climbs() -> Iterator[set[tuple[str, str]]]:
    """(from, to) of the calls of this thread from a room into a higher one, whatever of other packages is in between. Those of `core` are
    left out: it makes and checks what a configuration names."""
    found = set[tuple[str, str]]()
    place = {room: k for k, room in enumerate(ROOMS)}

    def floor(name: str) -> int:
        return place.get(name.partition("/")[0], -1)

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not (to := _runs(frame)):
            return
        caller = frame.f_back
        while caller is not None and not _runs(caller):
            caller = caller.f_back
        if caller is not None and 0 < floor(origin := _runs(caller)) < floor(to):
            found.add((origin, to))

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield found
    finally:
        sys.setprofile(before)


def test_a_run_calls_back_up_only_what_was_handed_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in which one player learns, the other's best response is computed, and payoffs are played."""
    monkeypatch.setattr("ludus.rollout.manager._HEARD", 0.0)  # at every step, not only where matches take long
    options = ["env=openspiel/kuhn_poker", "generations=1", "algorithms={0: exact}", "response.episodes=600"]
    with climbs() as found:
        ludus.run(
            "leduc", [*options, "evaluation={payoffs: simulate, episodes: 20}"], run_dir=tmp_path / "run", report=False
        )
    assert found == set(HANDED_DOWN)
