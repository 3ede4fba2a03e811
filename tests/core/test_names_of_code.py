"""What a name in a file may stand for: what it would be called with is written in the file, too."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus.core.errors import ConfigError
from ludus.core.parts import ENVIRONMENTS, build_part, resolve_name
from ludus.envs.adapters.agent_seats import group_agents
from ludus.metagame.solvers.base import MetaSolver

PROBE = """
import json
import pathlib
from functools import partial
from textwrap import dedent

from probe_parts import helper


class Env:
    def reset(self): ...
    def step(self, action): ...


class Called:
    def __init__(self, **options):
        pathlib.Path(__file__).with_name("called").touch()


def make():
    return Env()


again = partial(make)
short = lambda: Env()
number = 3
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "probe.py").write_text(PROBE)
    (tmp_path / "probe_parts.py").write_text("def helper(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("probe", "probe_parts"):
        sys.modules.pop(name, None)


def environment(name: str) -> object:
    return resolve_name("environment", name, {}, expected=ENVIRONMENTS, functions=True)


@pytest.mark.parametrize("name", ["Env", "make", "short"])
def test_an_environment_is_a_class_or_a_function_of_the_module(name: str) -> None:
    assert environment(f"probe:{name}") is getattr(sys.modules["probe"], name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("os:getcwd", "'os' belongs to Python"),
        ("subprocess:Popen", "'subprocess' belongs to Python"),
        ("json.decoder:JSONDecoder", "'json' belongs to Python"),
        ("antigravity:fly", "'antigravity' belongs to Python"),
        ("builtins:print", "'builtins' belongs to Python"),
        ("probe:dedent", "has it from 'textwrap'"),
        ("probe:helper", "has it from 'probe_parts'"),
        ("probe:again", "is no function of 'probe' but a partial"),
        ("probe:number", "is no function of 'probe' but an int"),
        ("probe:json", "is no function of 'probe' but a module"),
        ("probe:Called", r"is not an environment: it lacks reset\(\), step\(\)"),
        ("ludus.core.machine:write_file", "is a function of Ludus, and not an environment"),
        ("bot:mcts", "is no name"),
        ("probe:Env.step", "is no name"),
        ("probe/x:Env", "is no name"),
        (" probe:Env", "is no name"),
    ],
)
def test_what_is_no_environment_is_refused_and_not_called(name: str, message: str, module: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        environment(name)
    assert not (module / "called").exists()
    assert "antigravity" not in sys.modules


def test_a_part_is_not_made_of_a_class_that_lacks_its_methods(module: Path) -> None:
    with pytest.raises(ConfigError, match=r"'probe:Called' is not a meta-solver: it lacks solve\(\)"):
        build_part("meta-solver", {"kind": "probe:Called", "path": "x"}, {}, (MetaSolver,))
    assert not (module / "called").exists()


@pytest.mark.parametrize("name", ["probe:Called", "os:getenv", "probe:dedent", "ludus.core.machine:sync"])
def test_teams_are_functions_only(name: str, module: Path) -> None:
    with pytest.raises(ConfigError, match=r"belongs to Python|no function|has it from|function of Ludus"):
        group_agents(["a_0", "a_1"], name)
    assert not (module / "called").exists()


def test_a_module_of_ones_own_may_have_a_name_of_pythons(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Python's own is not installed, or comes later on the path."""
    monkeypatch.delitem(sys.modules, "this", raising=False)
    (module / "this.py").write_text(PROBE)
    assert environment("this:make") is sys.modules["this"].make
    monkeypatch.delitem(sys.modules, "this")
