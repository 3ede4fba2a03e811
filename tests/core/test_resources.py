"""What a run takes of its machine: of its process, of those that it has started, and of a GPU."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from ludus.core.machine import resources_in_use

CHILD = "held = bytearray(b'x') * (64 << 20); sum(k * k for k in range(3_000_000)); print('ready', flush=True); input()"


def test_children_count_while_they_live_and_afterwards() -> None:
    before = resources_in_use()
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        during = resources_in_use()
        child.communicate(b"\n")
    after = resources_in_use()
    assert during["memory"] - before["memory"] > 60 << 20
    assert during["processor_seconds"] - before["processor_seconds"] > 0.02
    assert after["processor_seconds"] >= during["processor_seconds"] - 0.02  # ticks of a hundredth of a second
    assert after["memory"] < during["memory"] - (50 << 20)


def test_gpu_is_asked_where_torch_uses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: False, memory_reserved=lambda: 5 << 30, utilization=lambda: 40)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert "gpu_memory" not in resources_in_use()
    cuda.is_initialized = lambda: True
    usage = resources_in_use()
    assert (usage["gpu_memory"], usage["gpu_share"]) == (5 << 30, 0.4)

    def unknown() -> int:
        raise ModuleNotFoundError("pynvml")

    cuda.utilization = unknown
    assert "gpu_share" not in resources_in_use()
