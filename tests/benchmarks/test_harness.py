"""The measuring code: bar lines, figures of workers, result files, and `--quick` with committed medians."""

import io
import json
import math
import os
import resource
import socket
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from benchmarks import harness, results
from benchmarks.contestants import Contestant, Repetition, measure, read, seconds_to
from benchmarks.harness import Bar, Benchmark, Medians, Missing, ratio
from benchmarks.lines import Lines
from benchmarks.machine import ROOT, Machine, this_machine, today

CORE = min(os.sched_getaffinity(0))
WORKER = "tests.benchmarks.bench_worker"
SPEEDUP = Bar("leduc/0.2", wanted=">= 5", unit="x", value=ratio(slow="slow", fast="fast", figure=seconds_to(0.2)))


def contestant(name: str, how: str, **settings: object) -> Contestant:
    return Contestant(name, module=WORKER, arguments=(how,), targets=(0.2,), **{"seeds": (0,), **settings})


def pair(**slow_settings: object) -> Benchmark:
    contestants = (contestant("fast", "fast", seeds=(0, 1, 2)), contestant("slow", "slow", **slow_settings))
    return Benchmark("pair", contestants, (SPEEDUP,))


def medians(**figures: list[float]) -> Medians:
    return Medians({name: [Repetition(i, {"score": v}) for i, v in enumerate(vs)] for name, vs in figures.items()})


def score_bar(wanted: str, **settings: object) -> Bar:
    return Bar("score", wanted=wanted, value=lambda m: m("a", "score"), **settings)


@pytest.mark.parametrize(
    ("wanted", "verdict"),
    [(">= 3", "met"), (">= 3.5", "short"), ("> 3", "short"), ("<= 3", "met"), ("< 3", "short"), ("<= -1e2", "short")],
)
def test_bars_compare_the_median_with_what_was_wanted(wanted: str, verdict: str) -> None:
    outcome = score_bar(wanted).judge(medians(a=[9.0, 3.0, 1.0]))
    assert (outcome.value, outcome.verdict) == (3.0, verdict)


def test_bar_lines_have_the_agreed_form() -> None:
    assert SPEEDUP.judge(Medians({})).line() == "bar leduc/0.2: - (wanted >= 5x) unjudged"
    assert score_bar(">= 2").judge(medians(a=[3.0])).line() == "bar score: 3 (wanted >= 2) met"
    assert score_bar(">= 2", why="no peer").judge(medians(a=[3.0])).line() == "bar score: 3 (wanted >= 2) met"
    assert score_bar(">= 2", why="no peer").judge(Medians({})).line() == (
        "bar score: - (wanted >= 2) unjudged: no peer"
    )
    assert score_bar("< 2", unit="s").judge(medians(a=[1234.56])).line() == "bar score: 1235s (wanted < 2s) short"


def test_a_bar_is_unjudged_without_its_figures() -> None:
    assert score_bar(">= 0").judge(medians(b=[1.0])).verdict == "unjudged"
    some_failed = Medians({"a": [Repetition(0, {"score": 1.0}), Repetition(1, {}, error="exit status 1")]})
    assert score_bar(">= 0").judge(some_failed).verdict == "unjudged"
    with pytest.raises(Missing, match="no 'score' of 'a'"):
        some_failed("a", "score")
    assert score_bar(">= 0", quick=False).judge(medians(a=[1.0]), quick=True).verdict == "unjudged"
    assert score_bar(">= 0", quick=False).judge(medians(a=[1.0])).verdict == "met"


@pytest.mark.parametrize(
    ("slow", "fast", "verdict"), [(10.0, math.inf, "short"), (math.inf, 1.0, "unjudged"), (10.0, 2.0, "met")]
)
def test_never_reaching_the_target_loses_and_never_wins(slow: float, fast: float, verdict: str) -> None:
    """A peer that never arrives gives no ratio to claim; a Ludus that never arrives is infinitely late."""
    figure = seconds_to(0.2)
    seen = Medians({"slow": [Repetition(0, {figure: slow})], "fast": [Repetition(0, {figure: fast})]})
    assert SPEEDUP.judge(seen).verdict == verdict


@pytest.mark.parametrize("wanted", ["150", "=> 150", ">= fast", ""])
def test_a_bar_must_want_a_comparison(wanted: str) -> None:
    with pytest.raises(ValueError, match="expected a comparison"):
        score_bar(wanted)


def test_a_worker_is_pinned_single_threaded_and_read() -> None:
    run = measure(contestant("fast", "fast"), python=Path(sys.executable), core=CORE, seed=7, quick=False)
    assert run.error is None
    assert run.curve == {"seconds": [8.0, 9.0, 10.0, 11.0], "nash_conv": [0.5, 0.25, 0.125, 0.0625]}
    assert run.versions == {"numpy": "2"}
    expected = {"cold seconds": 0.5, "score": 7.0, "cores": 1.0, "threads": 1.0, "seconds to 0.2": 10.0}
    assert {name: run.figures[name] for name in expected} == expected
    assert 0 < run.figures["cpu seconds"] <= run.figures["wall seconds"] + 0.1
    # Linux counts the memory of the process that forked until the worker's own program starts, and this one may be large.
    forked_from = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert 1 < run.figures["peak MB"] <= max(100, forked_from)


def test_a_crash_leaves_an_error_and_no_figures(capfd: pytest.CaptureFixture[str]) -> None:
    run = measure(contestant("bad", "crash"), python=Path(sys.executable), core=CORE, seed=0, quick=False)
    assert (run.figures, run.error) == ({}, "exit status 1")
    assert "no luck" in capfd.readouterr().err


@pytest.mark.slow
def test_a_timeout_keeps_what_was_seen() -> None:
    stuck = contestant("stuck", "stuck", timeout_s=1)  # long enough to start on a busy core
    run = measure(stuck, python=Path(sys.executable), core=CORE, seed=0, quick=False)
    assert run.error == "stopped after 1 s"
    assert run.curve["nash_conv"] == [0.3]
    assert run.figures["seconds to 0.2"] == math.inf


def test_first_passage_is_the_first_point_at_or_below_the_target() -> None:
    points = "\n".join(
        json.dumps({"kind": "point", "seconds": s, "nash_conv": v}) for s, v in [(1, 0.5), (2, 0.2), (3, 0.4), (4, 0.1)]
    )
    run = read(points, seed=0, measured={}, targets=(0.2, 0.15, 0.01))
    assert run.figures == {"seconds to 0.2": 2.0, "seconds to 0.15": 4.0, "seconds to 0.01": math.inf}


def test_the_clock_stands_still_aside(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([100.0, 103.0, 110.0, 112.0])  # start; aside begins, ends; point
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    lines = Lines()
    with lines.aside():
        pass
    lines.point(nash_conv=1.0)
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed[0]["kind"] == "start"
    assert printed[1] == {"kind": "point", "seconds": 5.0, "nash_conv": 1.0}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """The folder of a whole measurement's result, and what was printed."""
    folder, out, err = tmp_path_factory.mktemp("whole"), io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert pair(quick_seeds=()).main(["--results", str(folder)]) == 0
    return folder, out.getvalue(), err.getvalue()


@pytest.mark.slow
def test_a_whole_measurement(whole: tuple[Path, str, str]) -> None:
    """Medians 4 s (seeds 0, 1, 2: 3, 4, 5 s) and 30 s give 7.5x; every repetition is in the file."""
    folder, out, err = whole
    assert out.splitlines()[-1] == "bar leduc/0.2: 7.5x (wanted >= 5x) met"
    turns = [line.split(":")[0] for line in err.splitlines() if "seed" in line]
    assert turns == ["fast, seed 0", "slow, seed 0", "fast, seed 1", "fast, seed 2"]
    text = (folder / "pair.json").read_text()
    document = json.loads(text)
    assert document["machine"] == this_machine().as_json()
    assert [r["seed"] for r in document["measured"]["fast"]] == [0, 1, 2]
    assert [r["figures"]["seconds to 0.2"] for r in document["measured"]["fast"]] == [3, 4, 5]
    assert document["bars"] == [{"name": "leduc/0.2", "wanted": ">= 5", "unit": "x", "value": 7.5, "verdict": "met"}]
    assert {"date", "commit", "versions", "quick", "from_committed_results"} <= set(document)
    for private in (str(ROOT), str(Path.home()) + "/", str(folder), socket.gethostname() + "."):
        assert private not in text


@pytest.mark.slow
def test_quick_uses_committed_medians_of_slow_peers(
    tmp_path: Path, whole: tuple[Path, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = pair(quick_seeds=())
    assert benchmark.main(["--quick", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "bar leduc/0.2: - (wanted >= 5x) unjudged"
    text = (whole[0] / "pair.json").read_text()
    (tmp_path / "pair.json").write_text(text)
    assert benchmark.main(["--quick", "--results", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == (  # only seed 0: 3 s
        f"bar leduc/0.2: 10x (wanted >= 5x) met (committed result: slow of {today()})"
    )
    assert "slow (committed)" in out
    quick = json.loads((tmp_path / "pair.quick.json").read_text())
    assert quick["from_committed_results"] == ["slow"]
    assert list(quick["measured"]) == ["fast"]
    assert (tmp_path / "pair.json").read_text() == text


def test_results_of_another_kind_of_machine_are_not_compared(whole: tuple[Path, str, str]) -> None:
    assert set(results.committed("pair", this_machine(), folder=whole[0])[1]) == {"fast", "slow"}
    other = Machine(cpu="abacus", cores=1, memory_gb=1, system=this_machine().system, python="3.11")
    assert results.committed("pair", other, folder=whole[0]) == ("", {})
    assert results.committed("nothing", other, folder=whole[0]) == ("", {})


def test_infinity_survives_the_result_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late = Benchmark("late", (contestant("slow", "slow"), contestant("fast", "short")), (SPEEDUP,))
    assert late.main(["--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "bar leduc/0.2: 0x (wanted >= 5x) short"
    _, stored = results.committed("late", this_machine(), folder=tmp_path)
    assert stored["fast"][0].figures["seconds to 0.2"] == math.inf


def test_a_failed_worker_fails_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = Benchmark("broken", (contestant("slow", "slow"), contestant("fast", "crash")), (SPEEDUP,))
    assert broken.main(["--results", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("unjudged")


@pytest.mark.slow
def test_a_peer_without_environment_stops_the_whole_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harness, "PEERS", tmp_path / "peers")
    benchmark = pair(peer="tortoise")
    assert benchmark.main(["--results", str(tmp_path)]) == 2
    assert "benchmarks.harness setup tortoise" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "pair.json").exists()
    assert benchmark.main(["--results", str(tmp_path), "--peer-python", f"tortoise={sys.executable}"]) == 0
    assert benchmark.main(["--quick", "--results", str(tmp_path)]) == 0
    carried = f"(committed result: slow of {today()})"
    assert capsys.readouterr().out.splitlines()[-1] == f"bar leduc/0.2: 10x (wanted >= 5x) met {carried}"


PEERS = {
    "cpprb_replay": "cpprb",
    "epymarl": "mpe2",  # its build.py has EPyMARL's commit
    "jaxmarl_smax": "jaxmarl",
    "openspiel_meta": "open-spiel",
    "openspiel_rnad": "open-spiel",
    "psro_v2_dqn": "open-spiel",
    "psro_v2_exact": "open-spiel",
    "pufferlib_training": "torch",  # its build.py has PufferLib's version
    "pyspiel_loop": "open-spiel",
    "rllib_training": "ray[rllib]",
    "sample_factory_rollout": "sample-factory",
    "sb3_learning": "stable-baselines3",
    "sb3_rollout": "stable-baselines3",
    "tianshou_rollout": "tianshou",
    "torchrl_rollout": "torchrl",
}


def test_every_peer_can_be_set_up() -> None:
    assert sorted(path.parent.name for path in harness.PEERS.glob("*/run.py")) == sorted(PEERS)
    for folder, package in PEERS.items():
        pins = (harness.PEERS / folder / "requirements.txt").read_text().splitlines()
        for_gpu = harness.PEERS / folder / "requirements-cuda.txt"
        assert all("==" in pin for pin in pins + (for_gpu.read_text().splitlines() if for_gpu.exists() else []))
        assert any(pin.startswith(f"{package}==") for pin in pins)


@pytest.mark.parametrize("gpu", [False, True])
def test_a_peer_s_own_build_comes_after_its_requirements(
    gpu: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[list[str]] = []
    monkeypatch.setattr(harness.shutil, "which", lambda name: f"/usr/bin/{name}" if gpu else None)
    monkeypatch.setattr(harness, "PEERS", tmp_path)
    monkeypatch.setattr(harness.venv, "create", lambda *_, **__: None)
    monkeypatch.setattr(harness.subprocess, "run", lambda command, **_: done.append([str(part) for part in command]))
    for name in ("hare", "tortoise"):
        (tmp_path / name).mkdir()
    for name in ("build.py", "requirements-cuda.txt"):
        (tmp_path / "tortoise" / name).touch()
    harness.setup("hare")
    harness.setup("tortoise")
    assert [command[-1] for command in done] == [
        str(tmp_path / "hare" / "requirements.txt"),
        str(tmp_path / "tortoise" / "requirements.txt"),
        *([str(tmp_path / "tortoise" / "requirements-cuda.txt")] if gpu else ()),
        str(tmp_path / "tortoise" / "build.py"),
    ]
    assert done[-1][0] == str(tmp_path / "tortoise" / ".venv" / "bin" / "python")
