"""The benchmark of a GPU, where there is none: it says so, and its code runs."""

import json
from pathlib import Path

import pytest

from benchmarks import gpu
from ludus.backend import device

QUICK = {"play", "nash_conv", "compiled", "auto_learning", "auto_acting", "auto_trees"}
"""The others take longer than a change of what they measure is worth: long tests."""


def test_without_a_card_every_bar_is_unjudged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "gpu_count", lambda: 0)
    assert gpu.main(["--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "there is no GPU: nothing is measured"
    assert len(said) == 1 + len(gpu.benchmark("cuda").bars)
    assert all(line.startswith("bar ") and line.endswith("unjudged") for line in said[1:])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.long) for kind in gpu.KINDS]
)
def test_the_worker_of_each_kind_runs_on_a_cpu(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Both backends of NashConv agree, or the worker fails."""
    if kind.startswith("vmas"):
        pytest.importorskip("vmas")
    assert gpu.work(["--worker", kind, "--device", "cpu", "--quick"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    figures = {name: value for name, value in said.items() if name != "kind"}
    assert figures
    assert all(value > 0 for value in figures.values())


def test_a_cpu_judges_no_bar_of_a_gpu() -> None:
    assert not any(bar.quick for bar in gpu.benchmark("cpu").bars)
    assert all(bar.quick for bar in gpu.benchmark("cuda").bars)
