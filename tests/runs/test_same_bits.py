"""Runs by torch's backend, on a CPU: the same bits again where they are asked for; and how far apart the two backends may be."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import run_tools as tools
import torch

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.ppo.config import PPO
from ludus.core.errors import ConfigError
from ludus.core.machine import deterministic_algorithms
from ludus.core.types import DeviceChoice
from ludus.envs.registry import make_env
from ludus.policies.file import load_policy
from ludus.rollout.inference.server import InferenceServer, ServerSpec
from ludus.runs.runner import resume, run
from ludus.runs.scenario_runtime import RuntimeChoice
from ludus.training.remote_trainer import RankSpec, TrainerHost
from ludus.training.trainer import TrainerSpec

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


def settings() -> tuple[bool, bool, bool, str | None]:
    cudnn = torch.backends.cudnn
    return torch.are_deterministic_algorithms_enabled(), cudnn.benchmark, cudnn.deterministic, os.environ.get(WORKSPACE)


def test_torch_is_told_and_told_again_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WORKSPACE, raising=False)
    before = settings()
    with deterministic_algorithms(False):
        assert settings() == before == (False, False, False, None)
    with deterministic_algorithms(True):
        assert settings() == (True, False, True, ":4096:8")
    assert settings() == before
    monkeypatch.setenv(WORKSPACE, ":16:8")
    with deterministic_algorithms(True):
        assert settings()[-1] == ":16:8"
    assert settings()[-1] == ":16:8"


def test_unavailable_determinism_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    before = settings()
    with (
        pytest.raises(ConfigError, match=r"deterministic was given, and put_ has no kernel on this device"),
        deterministic_algorithms(True),
    ):
        torch.zeros(3).put_(torch.tensor([1]), torch.ones(1))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), deterministic_algorithms(True):
        torch.zeros(2, 3) @ torch.zeros(2, 3)
    assert settings() == before
    monkeypatch.delenv(WORKSPACE, raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(ConfigError, match=f"Start Python with {WORKSPACE}=:4096:8"), deterministic_algorithms(True):
        pass


def test_processes_are_told_for_the_time_of_a_task_or_a_server() -> None:
    """Trainers and inference servers, which are processes of their own on Ray."""
    before, device = settings(), DeviceChoice("cpu", deterministic=True)
    server = InferenceServer(ServerSpec(lambda sent: sent, callers=1, device=device))
    assert settings()[0]
    server.close()
    assert settings() == before
    context = LearnerContext(make_env("openspiel/kuhn_poker", num_envs=1).spec, (0,), 0, device=device)
    trainer = TrainerHost(RankSpec(0, 1, 0))
    for task in ("one", "two"):
        trainer.begin(TrainerSpec(task, PPO(hidden=(8,)), context))
        assert settings()[0]
    trainer.end()
    assert settings() == before


@pytest.fixture
def by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """No passes that are written out."""
    choice = property(lambda self: DeviceChoice("cpu", written=False, deterministic=self.deterministic))
    monkeypatch.setattr(RuntimeChoice, "device_choice", choice)


@pytest.mark.slow
@pytest.mark.usefixtures("by_torch")
@pytest.mark.parametrize("name", ["ppo", pytest.param("dqn", marks=pytest.mark.long)])
def test_a_cpu_has_the_same_bits_anyway(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for or not; and a run that is killed and resumed has them, too."""
    seen, real = [], torch.autograd.backward
    monkeypatch.setattr(torch.autograd, "backward", lambda *a, **k: seen.append(settings()[0]) or real(*a, **k))
    policies = []
    for wanted in (False, True):
        run_dir = tmp_path / str(wanted)
        run(tools.scenario(name, f"runtime.deterministic={wanted}"), run_dir=run_dir, report=False)
        policies.append(tools.policies_of(run_dir))
        assert set(seen) == {wanted}
        seen.clear()
    assert policies[0] == policies[1]
    run_dir = tmp_path / "killed"
    assert tools.dies(lambda: tools.train(name, run_dir, "runtime.deterministic=true"), run_dir, at=30) is None
    resume(run_dir, report=False)
    assert tools.policies_of(run_dir) == policies[0]


@pytest.mark.parametrize("name", ["ppo", pytest.param("dqn", marks=pytest.mark.long)])
def test_a_run_goes_on_by_the_other_backend_within_a_tolerance(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Killed in the middle of a response, by the passes that are written out, and resumed by torch: weights within 1e-4."""
    whole, run_dir = tmp_path / "whole", tmp_path / "killed"
    tools.train(name, whole)
    assert tools.dies(lambda: tools.train(name, run_dir), run_dir, at=30) is None
    request.getfixturevalue("by_torch")
    resume(run_dir, report=False)
    ours, theirs = (sorted((folder / "policies").rglob("*.safetensors")) for folder in (whole, run_dir))
    equal = 0
    for one, other in zip(ours, theirs, strict=True):
        equal += one.read_bytes() == other.read_bytes()
        for (key, a), (_, b) in zip(
            *(sorted(load_policy(path).weights().items()) for path in (one, other)), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=0.0, atol=1e-4, err_msg=f"{one.name} {key}")
    assert equal < len(ours), "it has not gone on by the other backend"
