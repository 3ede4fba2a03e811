"""A device whose memory is not enough for a task ends that task, with the last good weights, and says what to make smaller. The run goes
on. PyTorch's error is raised where a GPU would raise it: its builds for CPUs have it, too."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run_tools as tools
import torch

from ludus.algorithms.on_policy.learner import ActorCriticModel
from ludus.core.errors import PolicyError, RunError, TrainingError
from ludus.core.machine import out_of_memory
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.inference.policy_cache import PolicyCache, RequestRows
from ludus.rollout.inference.server import InferenceServer, ServerSpec
from ludus.runs.runner import run
from ludus.storage.reader import Reader

TOLD = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.31 GiB is free. Including "
    "non-PyTorch memory, this process has 77.78 GiB memory in use. Of the allocated memory 65.00 GiB is allocated by PyTorch."
)
SHORT = "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.31 GiB is free."
SETTINGS = ["algorithm={kind: a2c, batch: 40, hidden: [8], learning_rate: {start: 0.01}, entropy: {start: 0.0}}"]
A2C = tools.scenario("ppo", *SETTINGS)


def fails_at(monkeypatch: pytest.MonkeyPatch, place: type, method: str, *, at: int) -> None:
    """The `at`-th call, and no other, finds no memory."""
    real: Callable[..., Any] = getattr(place, method)
    calls = 0

    def small(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise torch.OutOfMemoryError(TOLD)
        return real(*arguments, **named)

    monkeypatch.setattr(place, method, small)


def failure_of(run_dir: Path) -> str:
    """Of the one response of four that failed."""
    with Reader(run_dir) as reader:
        trained = [task for task in reader.tasks() if task.kind == "train"]
    (failed,) = [task for task in trained if task.state == "failed"]
    assert len(trained) == 4
    assert failed.failure is not None
    return failed.failure


def test_a_learner_without_memory_fails_with_the_last_good_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = tools.scenario("ppo", *SETTINGS, "response={episodes: 80}", "generations=1")
    run(short, run_dir=tmp_path / "short", report=False)
    fails_at(monkeypatch, ActorCriticModel, "loss", at=4)
    result = run(A2C, run_dir=tmp_path / "run", report=False)
    assert (len(result.generations), result.stopped_by) == (3, "the schedule is complete")
    failure = failure_of(tmp_path / "run")
    assert re.match(
        "A2C: there was not enough memory to learn from [0-9]+ new decisions with [0-9]+ numbers of w", failure
    )
    assert SHORT in failure
    assert "more algorithm.minibatches (it is 1), a smaller algorithm.batch (it is 40)" in failure
    assert failure.endswith("or device=cpu. (task response-0-1, iteration 4)")
    good, kept = tools.policies_of(tmp_path / "short"), tools.policies_of(tmp_path / "run")
    assert kept["policies/0/0-1.safetensors"] == good["policies/0/0-1.safetensors"]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_acting_without_memory_fails_the_task(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_at(monkeypatch, LocalBank, "act", at=40)
    run(tools.scenario("ppo", *SETTINGS, f"runtime.mode={mode}"), run_dir=tmp_path, report=False)
    assert failure_of(tmp_path).startswith(
        f"there was not enough memory to act in 16 environments: CUDA out of memory. {SHORT}"
    )


def test_a_server_without_memory_for_all_asks_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two requests are too many together, and fit one by one; one that is too large for itself is told."""
    rows, sizes = (
        [RequestRows(0, np.zeros((n, 3)), None, None, np.zeros((n, 1), np.float32)) for n in (5, 9)],
        list[int](),
    )

    def answer(self: PolicyCache, requests: Any) -> list[int]:
        sizes.append(sum(len(part.noise) for parts, _ in requests for part in parts))
        time.sleep(0.02)  # in which the other comes
        if sizes[-1] > 8:
            raise torch.OutOfMemoryError(TOLD)
        return [len(parts) for parts, _ in requests]

    monkeypatch.setattr(PolicyCache, "answer", answer)
    server = InferenceServer(ServerSpec(lambda sent: sent, callers=2, max_wait=0.2))
    with ThreadPoolExecutor(2) as pool:  # who was in the last batch is waited for
        told = pool.map(lambda client: [server.act(client, rows[0]) for _ in range(3)], ("a", "b"))
        assert [*told] == [[1] * 3] * 2
    assert 10 in sizes
    alone = InferenceServer(ServerSpec(lambda sent: sent, callers=1))
    with pytest.raises(TrainingError, match=r"inference server has not enough memory for 9 rows: .*\.max_batch"):
        alone.act("a", rows[1])


def test_outside_of_a_task_it_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_at(monkeypatch, ActorCriticModel, "__init__", at=2)
    with pytest.raises(
        RunError, match=r"there was not enough memory on its device: CUDA out of memory. Tried .* `ludus resume`"
    ):
        run(A2C, run_dir=tmp_path, report=False)


def test_out_of_memory_detection() -> None:
    assert out_of_memory(torch.OutOfMemoryError(TOLD)) == f"CUDA out of memory. {SHORT}"[:-1]
    assert (
        out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"))
        is not None
    )
    with pytest.raises(RuntimeError) as here:
        torch.empty(1 << 46)  # of this machine
    assert "tried to allocate" in (out_of_memory(here.value) or "")
    assert out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None
    wrapped = PolicyError("mine: loss() of 3 rows raised …")
    wrapped.__cause__ = torch.OutOfMemoryError(TOLD)
    assert out_of_memory(wrapped) is not None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_says_how_much_was_free() -> None:
    with pytest.raises(torch.OutOfMemoryError) as there:
        torch.empty(1 << 46, device="cuda")
    assert re.search("Tried to allocate .* total capacity of .* is free$", out_of_memory(there.value) or "")
