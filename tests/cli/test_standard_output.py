"""Standard output has results only: what code of the user's own prints, in whatever way, goes to standard error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ludus.storage.reader import Reader

_LOUD = '''
import ctypes, os, subprocess, sys
import gymnasium
import numpy as np


def noise(what):
    """By Python, past Python's streams as C extensions do, and by a child process."""
    print(what, "by print")
    os.write(1, f"{what} by write\\n".encode())
    ctypes.CDLL(None).puts(f"{what} by C".encode())
    ctypes.CDLL(None).fflush(None)
    subprocess.run(["echo", what, "by a child"], check=True)
    sys.__stdout__.write(f"{what} by the first stream\\n")


noise("module")


class Loud(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        noise("reset")
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), float(action), True, False, {}


class Bot:
    """Plays the first legal move."""

    def restart(self, player, seed):
        pass

    def act(self, observation, mask):
        noise("bot")
        return int(np.flatnonzero(mask)[0])
'''
_WAYS = ("by print", "by write", "by C", "by a child", "by the first stream")
_COMMAND = "from ludus.cli.main import script; script()"


def _ludus(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "loud.py").write_text(_LOUD)
    command = [sys.executable, "-c", _COMMAND, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_a_scenario_file_of_an_environment_that_prints(tmp_path: Path) -> None:
    done = _ludus(tmp_path, "config", "loud:Loud")
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["env"]["id"] == "loud:Loud"
    for way in _WAYS:
        assert f"module {way}" in done.stderr
        assert f"reset {way}" in done.stderr


@pytest.mark.slow
def test_json_beside_a_bot_that_prints_in_its_own_process(tmp_path: Path) -> None:
    done = _ludus(
        tmp_path, "tournament", "loud:Bot", "random", "--env", "openspiel/kuhn_poker", "--episodes", "2", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert {each["entrant"] for each in json.loads(done.stdout)["standings"]} == {"loud:Bot", "random"}
    for way in _WAYS:
        assert f"bot {way}" in done.stderr


@pytest.mark.slow
def test_a_command_whose_standard_files_are_all_closed(tmp_path: Path) -> None:
    _ludus(tmp_path, "--version")  # writes the module
    command = [sys.executable, "-c", _COMMAND, "train", "kuhn", "generations=1", "--run-dir", "run"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], cwd=tmp_path, check=False, timeout=300
    )
    assert done.returncode == 0
    with Reader(tmp_path / "run") as reader:
        assert reader.sessions()[-1].state == "finished"


def test_help_is_on_standard_output(tmp_path: Path) -> None:
    assert _ludus(tmp_path, "config", "--help").stdout.startswith("usage: ludus config")
