"""What is said where the package of a family, or of one of its environments, is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from ludus.core.errors import ConfigError
from ludus.core.packages import missing_package
from ludus.envs.families import FAMILIES, Family
from ludus.envs.registry import list_envs

ENVIRONMENTS = {  # what needs a package besides its family's: id -> the package, what brings it
    "gymnasium/Ant-v5": ("mujoco", "'ludus-rl[mujoco]'"),
    "gymnasium/CarRacing-v3": ("pygame", "pygame-ce"),
    "gymnasium/LunarLander-v3": ("Box2D", "'ludus-rl[box2d]'"),
    "gymnasium/ale_py:ALE/Pong-v5": ("ale_py", "'ludus-rl[atari]'"),
    "gymnasium/gym_super_mario_bros:SuperMarioBros-v0": (
        "gym_super_mario_bros",
        "--ignore-requires-python 'gym-super-mario-bros>=9'",
    ),
    "mpe2/simple_tag_v3": ("pygame", "pygame-ce"),
    "openspiel/python_pig": ("open_spiel", "'ludus-rl[openspiel]'"),
    "pettingzoo/chess_v6": ("chess", "'ludus-rl[classic]'"),
    "pettingzoo/connect_four_v3": ("pygame", "'ludus-rl[classic]'"),
    "pettingzoo/hanabi_v5": ("shimmy", "'ludus-rl[classic]'"),
    "pettingzoo/leduc_holdem_v4": ("rlcard", "'ludus-rl[classic]'"),
    "pettingzoo/multiwalker_v9": ("Box2D", "'ludus-rl[butterfly]'"),
    "pettingzoo/pistonball_v6": ("pymunk", "'ludus-rl[butterfly]'"),
    "pettingzoo/pong_v3": ("multi_agent_ale_py", "'ludus-rl[atari]'"),
}
INSTALLS = {  # family -> the command that brings its package
    "ale": "pip install 'ludus-rl[atari]'",
    "craftax": "pip install 'ludus-rl[craftax]'",
    "dmc": "pip install 'ludus-rl[dmc]'",
    "envpool": "pip install 'ludus-rl[envpool]'",
    "football": "make football",
    "gymnax": "pip install 'ludus-rl[jax]'",
    "highway": "pip install 'ludus-rl[highway]'",
    "jaxmarl": "pip install 'ludus-rl[jax]'",
    "jumanji": "pip install --no-deps jumanji==1.1.0 && pip install 'ludus-rl[jax]' huggingface-hub 'setuptools<81'",
    "kaggle": "pip install --no-deps kaggle-environments==1.33.2",
    "lbf": "pip install 'ludus-rl[lbf]'",
    "magent2": "pip install 'ludus-rl[magent2]'",
    "mamujoco": "pip install 'ludus-rl[mamujoco]'",
    "mlagents": "pip install --no-deps --ignore-requires-python mlagents-envs",
    "momaland": "pip install 'ludus-rl[momaland]'",
    "mpe2": "pip install 'ludus-rl[mpe2]'",
    "openspiel": "pip install 'ludus-rl[openspiel]'",
    "pettingzoo": "pip install 'ludus-rl[pettingzoo]'",
    "pgx": "pip install 'ludus-rl[jax]'",
    "rware": "pip install 'ludus-rl[rware]'",
    "smac": "pip install git+https://github.com/oxwhirl/smac",
    "smacv2": "pip install git+https://github.com/oxwhirl/smacv2",
    "textarena": "pip install 'ludus-rl[textarena]'",
    "vmas": "pip install 'ludus-rl[vmas]'",
    "xland": "pip install 'ludus-rl[xland]'",
}


FORKS = """
import json, os, sys, warnings
import ludus.envs.adapters.single  # what every line would import
from ludus.envs.registry import list_envs, make_env
warnings.simplefilter("ignore")
for line in sys.stdin:
    package, call = json.loads(line)
    if os.fork() == 0:
        sys.modules[package] = None
        try: said = str(eval(call))
        except Exception as error: said = f"{type(error).__name__} {error}"
        print(json.dumps(said), flush=True)
        os._exit(0)
    os.wait()
"""
"""Answers lines on standard input. Whoever has imported a package once cannot forget it, so each line has a process of its own."""


@pytest.fixture(scope="module")
def said_without() -> Iterator[Callable[[str, str], str]]:
    """What a call says in an interpreter that cannot import a package."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as asked:
        assert asked.stdin is not None
        assert asked.stdout is not None

        def said(package: str, call: str) -> str:
            print(json.dumps([package, call]), file=asked.stdin, flush=True)
            return json.loads(asked.stdout.readline())  # type: ignore[union-attr]

        yield said


@pytest.mark.parametrize("id", ENVIRONMENTS)
def test_of_an_environment(id: str, said_without: Callable[[str, str], str]) -> None:
    package, install = ENVIRONMENTS[id]
    assert said_without(package, f"make_env({id!r}, num_envs=1)") == (
        f"ConfigError {id} needs {package}, which cannot be imported; `pip install {install}` brings it."
    )


@pytest.mark.parametrize("family", INSTALLS)
def test_of_a_family(family: str, said_without: Callable[[str, str], str]) -> None:
    package = FAMILIES[family].needs
    sentence = f"environments {family}/… need {package}, which is not installed; `{INSTALLS[family]}` brings it."
    assert said_without(package, f"make_env({FAMILIES[family].example!r}, num_envs=1)") == f"ConfigError {sentence}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, package, None)
        with pytest.raises(ConfigError) as caught:
            list_envs(family)
    assert str(caught.value) == sentence
    assert FAMILIES[family].install == INSTALLS[family]


def test_that_every_family_is_tried() -> None:
    assert {*INSTALLS, "gymnasium"} == set(FAMILIES)  # Ludus cannot be imported without Gymnasium


def test_that_the_other_families_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: FAMILIES[name] for name in ("lbf", "mpe2", "rware")}
    monkeypatch.setattr("ludus.envs.registry.FAMILIES", few)
    monkeypatch.setitem(sys.modules, "mpe2", None)
    assert {id.partition("/")[0] for id in list_envs()} == {"lbf", "rware"}


@pytest.mark.parametrize(("package", "gone"), [("mujoco", "Ant-v5"), ("Box2D", "LunarLander-v3")])
def test_that_gymnasium_lists_what_can_be_made(
    package: str, gone: str, said_without: Callable[[str, str], str]
) -> None:
    listed = said_without(package, "' '.join(list_envs('gymnasium'))").split()
    assert "gymnasium/CartPole-v1" in listed
    assert f"gymnasium/{gone}" not in listed


def test_of_one_that_is_there_and_broken() -> None:
    error = ImportError("cannot import name 'x' from 'gymnasium'.", name="gymnasium")
    assert str(missing_package("a/b", error)) == (
        "a/b needs gymnasium, which is installed and cannot be imported: cannot import name 'x' from 'gymnasium'."
    )
    needed = ImportError("No module named 'gfootball_engine'", name="gfootball_engine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "gfootball_engine", None)
        said = str(missing_package("football/5_vs_5", needed))
    assert said == "football/5_vs_5 needs gfootball_engine, which cannot be imported; `make football` brings it."
    assert str(missing_package("a/b", ImportError("libGL.so.1: no such\nfile"))) == (
        "a/b needs something that cannot be imported: libGL.so.1: no such file."
    )


def test_of_a_family_of_others() -> None:
    assert Family("m", "s", "e/x", needs="far_away", extra="far").install == "pip install 'ludus-rl[far]'"
    assert Family("m", "s", "e/x", needs="far_away").install == "pip install far_away"
