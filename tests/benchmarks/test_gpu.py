"""The benchmark of a GPU, where there is none: it says so, and its code runs."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks import gpu
from benchmarks.contestants import Contestant, Repetition
from benchmarks.gpu_runs import ratio_interval
from benchmarks.gpu_store import Store, file_name
from ludus.backend import device

QUICK = {"play", "nash_conv", "compiled", "auto_learning", "auto_acting", "auto_trees", "launches", "nash_conv_core"}
"""The others take longer than a change of what they measure is worth: long tests."""


def bar_lines(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("bar ")]


def test_without_a_card_every_bar_is_unjudged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "gpu_count", lambda: 0)
    assert gpu.main(["--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "there is no GPU: nothing is measured"
    assert len(said) == 1 + len(gpu.bars("cuda"))
    assert all(line.startswith("bar ") and " unjudged" in line for line in said[1:])
    assert not list(tmp_path.iterdir())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, bool]]:
    """What is asked of workers: which, seed, whether small. They answer at once; the stack's second seed fails."""
    seen: list[tuple[str, int, bool]] = []

    def measure(contestant: Contestant, *, python: Path, core: int, seed: int, quick: bool) -> Repetition:
        assert python == Path(sys.executable)
        name = file_name(contestant)
        seen.append((name, seed, quick))
        if (name, seed) == ("stack", 1):
            return Repetition(seed, {}, error="exit status 1")
        return Repetition(seed, {"seconds": 12.5, "nash_conv": 0.5 + seed / 100, "wall seconds": 1.0})

    monkeypatch.setattr(gpu, "measure", measure)
    monkeypatch.setattr(gpu, "commit", lambda: "one")
    return seen


@pytest.fixture
def on_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "gpu_count", lambda: 1)
    monkeypatch.setattr(gpu, "_gpu_name", lambda _: "a card")


def call(tmp_path: Path, *more: str) -> int:
    return gpu.main(["--results", str(tmp_path), "--at-once", "2", *more])


@pytest.mark.usefixtures("on_a_card")
def test_a_measurement_that_was_stopped_is_continued(
    tmp_path: Path, asked: list[tuple[str, int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(tmp_path, "--parts", "stack") == 1
    assert asked == [("stack", seed, False) for seed in (0, 1, 2)]
    stored = json.loads((tmp_path / "stack.json").read_text())
    assert [each["seed"] for each in stored["repetitions"]] == [0, 2]
    assert (stored["gpu"], stored["commit"]) == ("a card", "one")
    assert not list(tmp_path.glob("*.part"))

    asked.clear()
    assert call(tmp_path, "--parts", "stack", "launches") == 1  # what failed is tried again
    assert asked == [("stack", 1, False), *(("launches", seed, False) for seed in (0, 1, 2))]

    asked.clear()
    monkeypatch.setattr(gpu, "commit", lambda: "other")
    call(tmp_path, "--parts", "stack", "launches")  # the launches are all there; the stack is of two commits else
    assert asked == [("stack", seed, False) for seed in (0, 1, 2)]

    asked.clear()
    assert call(tmp_path, "--parts", "launches", "--again") == 0
    assert asked == [("launches", seed, False) for seed in (0, 1, 2)]
    assert json.loads((tmp_path / "launches.json").read_text())["commit"] == "other"

    asked.clear()
    assert call(tmp_path, "--report") == 0
    assert asked == []


@pytest.mark.usefixtures("on_a_card")
def test_results_of_another_card_are_measured_again(
    tmp_path: Path, asked: list[tuple[str, int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    call(tmp_path, "--parts", "launches")
    monkeypatch.setattr(gpu, "_gpu_name", lambda _: "another")
    asked.clear()
    call(tmp_path, "--parts", "launches")
    assert len(asked) == 3


@pytest.mark.usefixtures("on_a_card")
def test_slow_runs_have_few_seeds_and_the_ratio_is_judged(
    tmp_path: Path, asked: list[tuple[str, int, bool]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(tmp_path, "--parts", "leduc", "nash-conv", "nash-conv-core") == 0
    seeds = {name: sorted(seed for each, seed, _ in asked if each == name) for name, _, _ in asked}
    assert seeds["nash_conv_gpu"] == [4, 5, 6, 7, 8, 9]  # a run takes 12.5 s
    assert seeds["nash_conv_core"] == list(range(4, 28))
    said = capsys.readouterr()
    assert "6 seeds, since a run takes more than 10 s" in " ".join(said.err.split())
    found = {line.partition(":")[0]: line for line in bar_lines(said.out)}
    ratio = "bar preset leduc, GPU, NashConv over one core's with the same settings, upper 95% limit"
    assert found[ratio].endswith("met")  # values of 0.54 to 0.59, and of 0.54 to 0.77
    assert found["bar preset leduc, GPU, a whole run"].endswith(": 12.5s (wanted <= 8s) short")


def test_what_needs_no_card_is_measured_without_one(
    tmp_path: Path, asked: list[tuple[str, int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "gpu_count", lambda: 0)
    assert call(tmp_path, "--parts", "nash-conv-core") == 0
    assert len(asked) == 2 * 24
    for name in ("nash_conv_core", "nash_conv_program"):
        assert json.loads((tmp_path / f"{name}.json").read_text())["gpu"] == ""
    monkeypatch.setattr(device, "gpu_count", lambda: 1)
    monkeypatch.setattr(gpu, "_gpu_name", lambda _: "a card")
    assert call(tmp_path, "--parts", "nash-conv-core") == 0  # and counts where there is one
    assert len(asked) == 2 * 24


def test_a_cpu_runs_all_parts_small_and_leaves_the_results_of_cards_alone(
    asked: list[tuple[str, int, bool]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu, "RESULTS", tmp_path)
    monkeypatch.setattr(gpu, "find_spec", lambda package: None if package == "ray" else package)
    ours = Path(sys.executable)
    monkeypatch.setattr(gpu, "interpreter", lambda worker, _: tmp_path / "absent" if worker.peer else ours)
    assert gpu.main(["--device", "cpu", "--at-once", "1"]) == 0
    measured = {name for name, _, _ in asked}
    assert measured == set(gpu.KINDS) - {"server", "copies"}
    assert all(quick for *_, quick in asked)
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.quick"]


def test_the_cheapest_part_runs_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--device", "cpu", "--quick", "--parts", "auto-learning", "--results", str(tmp_path)]) == 0
    stored = json.loads((tmp_path / "auto_learning.json").read_text())
    (repetition,) = stored["repetitions"]
    assert any(name.endswith("times one core") for name in repetition["figures"])
    assert all(" unjudged" in line for line in bar_lines(capsys.readouterr().out))


def test_every_contestant_is_in_one_part() -> None:
    names = [name for many in gpu.PARTS.values() for name in many]
    assert sorted(names) == sorted(gpu.contestants("cuda"))
    assert set(gpu.KINDS) <= set(names)
    assert (set(gpu.NEEDS) | gpu.TOGETHER | gpu.ANYWHERE) <= set(names)


def test_the_interval_of_a_ratio_solves_fieller_s_equation() -> None:
    """At its ends the difference a - r b is t standard errors from 0; t at 4 + 4 - 2 degrees of freedom, where variances are alike."""
    over, under = [2.0, 2.2, 1.8, 2.4], [2.1, 2.3, 1.9, 2.5]
    low, high = ratio_interval(over, under)
    a, b, v = np.mean(over), np.mean(under), np.var(over, ddof=1) / 4
    assert low < a / b < high
    for end in (low, high):
        t = abs(a - end * b) / (v * (1 + end**2)) ** 0.5
        assert t == pytest.approx(2.447, abs=0.01)
    assert ratio_interval([2.0, 2.0], [4.0, 4.0]) == (0.5, 0.5)
    assert ratio_interval(over, [-1.0, 1.2])[1] == float("inf")


def test_intervals_of_ratios_hold_the_ratio_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)

    def holds(over: Sequence[float], under: Sequence[float]) -> bool:
        low, high = ratio_interval(over, under)
        return low <= 1.5 <= high

    hits = sum(holds(rng.normal(0.75, 0.1, 6).tolist(), rng.normal(0.5, 0.05, 24).tolist()) for _ in range(600))
    assert 0.92 <= hits / 600 <= 0.98


def test_what_is_stored_is_read_back(tmp_path: Path) -> None:
    contestant = gpu.contestants("cuda")["launches"]
    store = Store(tmp_path, "a card", "one")
    assert store.repetitions(contestant) == []
    store.add(contestant, Repetition(3, {"x": 2.0}), [Repetition(1, {"x": 1.0})], "a card")
    assert [(each.seed, each.figures) for each in store.repetitions(contestant)] == [(1, {"x": 1.0}), (3, {"x": 2.0})]


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.long) for kind in gpu.KINDS]
)
def test_the_worker_of_each_kind_runs_on_a_cpu(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Both backends of NashConv agree, or the worker fails."""
    for package in gpu.NEEDS.get(kind, ()):
        pytest.importorskip(package)
    assert gpu.work(["--worker", kind, "--device", "cpu", "--quick"]) == 0
    said = json.loads(capfd.readouterr().out.splitlines()[-1])
    figures = {name: value for name, value in said.items() if name != "kind"}
    assert figures
    assert all(value > 0 for value in figures.values())


def test_a_cpu_judges_no_bar_of_a_gpu() -> None:
    assert not any(bar.quick for bar in gpu.bars("cpu") if not bar.why)
    assert all(bar.quick for bar in gpu.bars("cuda"))
