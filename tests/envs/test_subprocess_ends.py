"""Subprocesses of vectors: nothing is left behind, however a program ends; what cannot be made there is one clear error."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import subprocess_games as games

from ludus.core.errors import ConfigError
from ludus.envs.processes.vector import SubprocessVectorEnv
from ludus.envs.registry import make_env

Slow = pytest.mark.slow


def started(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    """A Python program with a process group of its own."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        cwd=folder,
        start_new_session=True,
    )


def none_is_left(pids: list[int]) -> None:
    until = time.monotonic() + 30
    while any(games.running(pid) for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
def test_a_vector_that_nobody_holds_ends_its_subprocesses() -> None:
    env = SubprocessVectorEnv(games.turns, 1, workers=1)
    running = [process.pid for process in env._processes]
    del env
    gc.collect()
    assert not any(games.alive(pid) for pid in running)


SCRIPT = """
import sys, time
import numpy as np
from ludus.envs.processes.vector import SubprocessVectorEnv
import subprocess_games as games
print("main", flush=True)  # not guarded: a second run would print it again
env = SubprocessVectorEnv(games.turns, 2, workers=2)
env.reset(np.arange(2, dtype=np.uint64))
print(*[process.pid for process in env._processes], flush=True)
{end}
"""


@Slow
@pytest.mark.parametrize(
    ("end", "kill", "code"),
    [
        ("", None, 0),
        ("raise SystemExit(7)", None, 7),
        ("time.sleep(100)", signal.SIGINT, -signal.SIGINT),
        ("time.sleep(100)", signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_a_script_leaves_nothing_behind(end: str, kill: int | None, code: int, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(end=end))
    script = started(["-W", "error", str(path)], tmp_path)
    assert script.stdout is not None
    lines = [script.stdout.readline() for _ in range(2)]
    if kill is not None:
        os.killpg(script.pid, kill)
    out, errors = script.communicate(timeout=60)
    assert script.returncode == code
    assert out == ""
    assert "leaked" not in errors
    assert "Exception" not in errors
    assert lines[0] == "main\n"
    none_is_left([int(pid) for pid in lines[1].split()])


# ------------------------------------------------------------------------------------------ Ctrl-C

OWN = """
import os, time
from pathlib import Path
import gymnasium, numpy as np

class Own(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, slow, seconds):
        self.slow, self.seconds = slow, seconds

    def pause(self, where):
        if where == self.slow:
            Path(f"{os.getpid()}.pid").touch()
            time.sleep(self.seconds)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.pause("reset")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        self.pause("step")
        return np.zeros(2, np.float32), 1.0, self.t == 5, False, {}
"""
LUDUS = ["-c", "from ludus.cli.main import script; script()"]
PLAYS = "evaluation.episodes=4"  # one in each environment, so that both subprocesses play
SMALL = ["response.decisions=100000", "algorithm.batch=64", "algorithm.minibatches=2", PLAYS]


def at_work(arguments: list[str], folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """The command, and its two subprocesses, which are in a slow reset or step."""
    (folder / "own_slow.py").write_text(OWN)
    program = started([*LUDUS, *arguments], folder)
    found: list[Path] = []
    until = time.monotonic() + 120
    while len(found) < 2:
        if time.monotonic() > until:
            os.killpg(program.pid, signal.SIGKILL)
        if program.poll() is not None:
            raise AssertionError(program.communicate())
        time.sleep(0.02)
        found = list(folder.glob("*.pid"))
    return program, [int(path.stem) for path in found]


def training(slow: str, seconds: float) -> list[str]:
    options = f"{{slow: {slow}, seconds: {seconds}}}"
    return ["train", "cartpole", f"env={{id: own_slow:Own, num_envs: 4, workers: 2, options: {options}}}", *SMALL]


@Slow
def test_ctrl_c_ends_a_check(tmp_path: Path) -> None:
    program, pids = at_work(["check-env", "own_slow:Own", "workers=2", "slow=step", "seconds=1000"], tmp_path)
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert (program.returncode, errors) == (130, "stopped by Ctrl-C\n")
    none_is_left(pids)


@Slow
def test_ctrl_c_stops_a_run_cleanly(tmp_path: Path) -> None:
    program, pids = at_work(training("step", 0.01), tmp_path)
    os.killpg(program.pid, signal.SIGINT)
    out, errors = program.communicate(timeout=60)
    assert program.returncode == 0
    assert "ludus resume runs/" in out
    assert errors.count("stopping cleanly; once more stops at once") == 1
    assert errors.count("stopped by Ctrl-C") == 1
    assert "Traceback" not in errors
    none_is_left(pids)


@Slow
@pytest.mark.parametrize("slow", [pytest.param("reset", marks=pytest.mark.long), "step"])
def test_a_second_ctrl_c_ends_a_run_that_hangs(slow: str, tmp_path: Path) -> None:
    program, pids = at_work(training(slow, 1000), tmp_path)
    os.killpg(program.pid, signal.SIGINT)
    assert program.stderr is not None
    for line in program.stderr:
        if "once more stops at once" in line:
            break
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130
    assert "Traceback" not in errors
    none_is_left(pids)


# ------------------------------------------------------------------------------------------ what cannot be made


@Slow
def test_an_import_that_fails_in_subprocesses_only(tmp_path: Path) -> None:
    first = (
        "import sys\nif sys.argv[0] == '-c' and 'child_process' in ' '.join(sys.orig_argv): import no_such_library\n"
    )
    (tmp_path / "own_import.py").write_text(first + OWN)
    program = started([*LUDUS, "check-env", "own_import:Own", "workers=2", "slow=no", "seconds=0"], tmp_path)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 2
    sentence = "environment 'own_import:Own' could not be imported: No module named 'no_such_library'."
    assert errors.startswith(f"error: {sentence}")
    assert len(errors.splitlines()) == 1


MAIN = """
from ludus.envs.registry import make_env
from ludus.core.errors import ConfigError

class Thing: pass

for id, options in (("__main__:Thing", {}), ("own_slow:Own", {"slow": Thing(), "seconds": 0})):
    try:
        make_env(id, num_envs=2, workers=2, **options)
    except ConfigError as error:
        print(error)
"""


@Slow
def test_classes_of_the_main_module_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "own_slow.py").write_text(OWN)
    (tmp_path / "script.py").write_text(MAIN)
    out, errors = started(["-W", "error", "script.py"], tmp_path).communicate(timeout=60)
    assert errors == ""
    by_name, option = out.splitlines()
    why = "A subprocess does not run the main module (a script, a notebook): put classes and functions into one of their own."
    assert by_name.startswith("environment '__main__:Thing': module '__main__' has no 'Thing'")
    assert by_name.endswith(why)
    assert option.startswith(
        "what the environment is made of cannot be loaded in a subprocess (Can't get attribute 'Thing'"
    )
    assert option.endswith(why)


@Slow
@pytest.mark.parametrize("option", [threading.Lock(), lambda: 0])
def test_options_that_cannot_be_pickled(option: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot be sent to a subprocess .*pickle.*; name it as module:Class, with options"
    ):
        make_env("gymnasium/CartPole-v1", num_envs=2, workers=2, options={"thing": option})
