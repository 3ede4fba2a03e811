"""Environments that change what is set for the whole process: the working directory, torch, NumPy. Runs are as if they had not."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv

import ludus
from ludus.core import process_settings
from ludus.envs.adapters.native import native_env
from ludus.envs.adapters.single import single_env

BOX = gymnasium.spaces.Box(0, 9, (1,), np.float32)


class Wide(gymnasium.Env[Any, Any]):
    """Changes everything when it is made, in its second reset, or in a step, and counts on it from then on. Five steps pay what is
    chosen."""

    observation_space = BOX
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, folder: str, when: str) -> None:
        self.folder, self.when, self.resets, self.changed = folder, when, 0, False
        self.change("made")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.resets += 1
        self.change("reset" if self.resets == 2 else "")
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        self.change("step" if self.t == 2 else "")
        if self.changed:  # it finds its settings as it left them
            assert torch.get_default_dtype() is torch.float64
            assert not torch.is_grad_enabled()
            assert Path.cwd() == Path(self.folder)
            assert np.geterr()["under"] == "raise"
        return np.zeros(1, np.float32), float(action), self.t == 5, False, {}

    def change(self, now: str) -> None:
        if now == self.when and not self.changed:
            self.changed = True
            torch.set_default_dtype(torch.float64)
            torch.set_grad_enabled(False)
            np.seterr(all="raise")
            os.chdir(self.folder)


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that environments go to; the program is in another one."""
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(process_settings, "_settings_of_code", {})
    return tmp_path / "there"


def settings() -> Any:
    return torch.get_default_dtype(), torch.is_grad_enabled(), np.geterr(), Path.cwd()


@pytest.mark.parametrize("when", ["made", "reset", "step"])
@pytest.mark.parametrize("kind", ["single", "vector"])
def test_a_vector_puts_back_what_its_environments_set(kind: str, when: str, there: Path) -> None:
    before = settings()
    with process_settings.users_code():  # as `make_env` makes them
        made = Wide(str(there), when)
    if kind == "single":
        env = single_env(lambda: made, 1, id="wide")
    else:
        env = native_env(SyncVectorEnv([lambda: made]), id="wide")
    timestep = env.reset(np.zeros(1, np.uint64))
    for _ in range(14):
        assert settings()[:3] == before[:3]
        timestep = env.step((np.ones(len(timestep.due[0].slot), np.int64),))
    assert made.changed
    env.reset(np.zeros(1, np.uint64))
    if when == "made":  # in a step it is noticed in a run only
        assert settings() == before
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "when"), [("dqn", "made"), ("gru", "step")])
def test_a_run_learns_and_lies_where_it_was_begun(algorithm: str, when: str, there: Path) -> None:
    given: dict[str, Any] = {"kind": "ppo", "memory": "gru", "batch": 20} if algorithm == "gru" else {"kind": algorithm}
    if algorithm == "dqn":
        given["min_size"] = 50
    result = ludus.run(
        ludus.FixedOpponents(env=ludus.Environment(source=lambda: Wide(str(there), when), num_envs=2), algorithm=given),
        response={"decisions": 200},
        generations=1,
        evaluation={"episodes": 4},
        run_dir="runs/a",
    )
    assert len(result.populations[0]) == 2
    assert Path.cwd() == there.parent / "here"
    assert (there.parent / "here/runs/a/report.html").exists()
    assert not list(there.iterdir())
    assert torch.get_default_dtype() is torch.float32
    assert torch.is_grad_enabled()
    if when != "step":
        return
    more = ludus.resume("a", ["generations=2"], env=lambda: Wide(str(there), when))
    assert len(more.populations[0]) == 3
    assert not list(there.iterdir())


@pytest.mark.slow
def test_a_program_that_has_set_something_else(there: Path) -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    try:
        result = ludus.run(
            ludus.FixedOpponents(
                env=ludus.Environment(source=lambda: Wide(str(there), ""), num_envs=2),
                algorithm={"kind": "ppo", "memory": "gru", "batch": 20},
            ),
            response={"decisions": 200},
            generations=1,
            run_dir="runs/b",
        )
        learner = ludus.learner("ppo", env=lambda: Wide(str(there), ""))
        assert np.isfinite(learner.update(learner.collect(40))["loss"])
        action, _ = learner.act(np.zeros((1, 1), np.float32))
        assert action.shape == (1,)
        learner.close()
        assert torch.get_default_dtype() is torch.float64
        assert not torch.is_grad_enabled()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
    assert len(result.populations[0]) == 2


@pytest.mark.parametrize("now", ["reset", "step"])
@pytest.mark.parametrize("kind", ["single", "vector"])
def test_an_environment_that_ends_the_process_is_an_error_of_its_own(kind: str, now: str, there: Path) -> None:
    """A game that quits calls `sys.exit`, which would end a run without a word, as if it had done what it was to do."""

    class Quits(Wide):
        def change(self, now: str) -> None:
            if now == self.when:
                sys.exit(0)

    def make() -> Any:
        return Quits(str(there), now)

    def play() -> None:
        env = single_env(make, 1, id="quits") if kind == "single" else native_env(SyncVectorEnv([make]), id="quits")
        env.reset(np.zeros(1, np.uint64))
        for _ in range(7):
            env.step((np.ones(1, np.int64),))

    with pytest.raises(ludus.EnvError, match=r"SystemExit( in reset)?: 0"):
        play()
