"""`ludus new`: each skeleton is complete, passes its tests and trains; nothing is overwritten."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import ludus
from ludus.apps.skeletons.kinds import KINDS, PARTS
from ludus.apps.skeletons.new import files_of, new_skeleton
from ludus.cli.main import main
from ludus.core.errors import ConfigError, RunError, UnknownName

ROOT = Path(ludus.__file__).parents[1]


def environment(*folders: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*folders, ROOT)))}


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_a_skeleton(kind: str) -> None:
    files = files_of(kind, "my-part")
    assert not [path for path, text in files.items() if "${" in text]
    project = tomllib.loads(files["pyproject.toml"])
    assert project["project"]["name"] == "my-part"
    assert project["tool"]["setuptools"]["packages"] == ["my_part"]
    classes = {
        f"{path.removesuffix('.py').replace('/', '.')}:{node.name}"
        for path, text in files.items()
        if path.startswith("my_part/")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    }
    registered = [name for group in project["project"].get("entry-points", {}).values() for name in group.values()]
    assert set(registered) <= classes
    assert len(registered) == sum(bool(PARTS[part].group) for part in KINDS[kind].parts)
    assert [name for name in classes if name in files["scenario.yaml"]], "the scenario uses what the skeleton has"
    assert yaml.safe_load(files["scenario.yaml"])["env"]


def test_skeletons_have_no_lint(tmp_path: Path) -> None:
    check = "ruff check --isolated --select E,F,W,I,UP,B,RET,SIM,PT,RUF --ignore E501,PT018 ."
    for kind in KINDS:
        folder = new_skeleton(kind, f"own-{kind}", tmp_path)
        for command in (check, "ruff format --isolated --line-length 120 --check ."):
            done = subprocess.run(
                [sys.executable, "-m", *command.split()], cwd=folder, capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, done.stdout


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = new_skeleton("stopper", "my-stopper", tmp_path / "code")
    (folder / "README.md").write_text("mine")
    for kind in ("stopper", "project"):
        with pytest.raises(RunError, match="is there already, and nothing was written"):
            new_skeleton(kind, "my-stopper", tmp_path / "code")
    assert (folder / "README.md").read_text() == "mine"
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RunError, match="is there already"):
        new_skeleton("env", "dangling", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code", "dangling"]


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot be written: .*--dir"):
        new_skeleton("env", "my-game", tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("env", "My Game", "small letters, digits and dashes"),
        ("env", "../my-game", "small letters, digits and dashes"),
        ("env", "2048", "small letters, digits and dashes"),
        ("env", "a" * 51, "small letters, digits and dashes"),
        ("env", "lambda", "is a word of Python"),
        ("env", "match", "is a word of Python"),
        ("env", "print", "is a word of Python"),
        ("env", "random", "there is a Python package 'random' already"),
        ("project", "ludus", "there is a Python package 'ludus' already"),
        ("env", "numpy", "there is a Python package 'numpy' already"),
        ("algorithm", "ppo", "Ludus has the algorithm 'ppo' itself"),
        ("algorithm", "cw-qmix", "Ludus has the algorithm 'cw_qmix' itself"),
        ("solver", "nash", "Ludus has the solver 'nash' itself"),
    ],
)
def test_names_that_are_refused(kind: str, name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        new_skeleton(kind, name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_unknown_kinds(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'algorithm'"):
        new_skeleton("algoritm", "my-ppo", tmp_path)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "env", "my-game", "--dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert str(tmp_path / "my-game") in shown
    assert "my_game/env.py" in shown
    assert "ludus train scenario.yaml" in shown
    assert main(["new", "enf", "other", "--dir", str(tmp_path)]) == 2
    assert "did you mean 'env'" in capsys.readouterr().err


@pytest.mark.slow
def test_tests_of_the_skeletons_pass(tmp_path: Path) -> None:
    """All of them in one process, which loads Ludus once: contracts, rules, and a short training of each scenario."""
    folders = [new_skeleton(kind, f"own-{kind}", tmp_path) for kind in KINDS]
    options = [
        "-q",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        "-c",
        os.devnull,
        "--rootdir",
        ".",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(str(folder / "tests") for folder in folders)],
        cwd=tmp_path,
        env=environment(*folders),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
def test_a_skeleton_is_installed_and_trains(kind: str, tmp_path: Path) -> None:
    """Without the network, into a folder that is on Python's path; then what its README says."""
    folder, site = new_skeleton(kind, f"own-{kind}", tmp_path), tmp_path / "site"
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    install = [sys.executable, "-m", "pip", "install", *options, "--target", str(site), "."]
    subprocess.run(install, cwd=folder, check=True, timeout=600)
    ludus_command = [sys.executable, "-c", "from ludus.cli.start import script; script()"]
    for command in (
        [sys.executable, "-m", "pytest", "-q"],
        [*ludus_command, "train", "scenario.yaml", "--name", "try1"],
        [*ludus_command, "evaluate", "try1", "--episodes", "20"],
    ):
        done = subprocess.run(command, cwd=folder, env=environment(site), capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    stored = yaml.safe_load((folder / "runs/try1/scenario.yaml").read_text())
    if kind in ("algorithm", "project"):
        assert stored["algorithm"]["kind"] == f"own_{kind}"  # by the name that the distribution registers
