"""What people see of a run."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import synthetic_run as synthetic
from rich.console import Console

from ludus.apps.common.progress import (
    PlainProgress,
    RichProgress,
    duration,
    number,
    progress_for,
    remaining,
    report_compilation,
    signed,
)
from ludus.core.compilation import Compilation
from ludus.core.types import EvaluationTask, Mixture, PolicyRef, PolicySpec, TrainingResult, TrainingTask
from ludus.reporting.curves import compact
from ludus.reporting.rates import Rates
from ludus.storage.base import GenerationRecord, NullObserver, Observer, Observers, RunInfo, RunSummary

INFO = synthetic.info(Path("runs/demo"), generations=10)
SUMMARY = RunSummary(INFO.run_dir, 3, 6.0, 300, 0.5, "reached generations=3")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(number: int, *, seconds: float, nash_conv: float | None = 1.5) -> GenerationRecord:
    return GenerationRecord(
        number, seconds, 100 * number, nash_conv, marginals=((1.0,), (0.5, 0.5)), responses=(0.25, float("nan"))
    )


def plain(clock: Clock) -> tuple[PlainProgress, io.StringIO]:
    stream = io.StringIO()
    return PlainProgress(stream, every=1.0, clock=clock), stream


def test_plain_line_says_where_the_run_is() -> None:
    progress, stream = plain(clock := Clock())
    progress.run_started(INFO)
    progress.generation_done(record(1, seconds=2.0))
    clock.now = 2.0
    progress.generation_done(record(2, seconds=4.0))
    first, *lines = stream.getvalue().splitlines()
    assert first == "run demo: leduc on openspiel/leduc_poker, ppo, seed 7"
    assert lines == [
        "generation 1  NashConv 1.5000  best response +0.250 -  100 episodes  2.0s",
        "generation 2  NashConv 1.5000  best response +0.250 -  200 episodes (50/s)  4.0s  about 16.0s left",
    ]


def test_a_long_training_has_plain_lines() -> None:
    progress, stream = plain(clock := Clock())
    progress.run_started(INFO)
    task = synthetic.training(0, 1)
    progress.task_started(task)
    for k in range(1, 301):
        clock.now = float(k)
        progress.learned(task, partial(synthetic.curve, min(k, 4)))
        progress.task_progress(k / 300, {})
    _, first, *others = stream.getvalue().splitlines()
    # Returns 1, 3, 2, 4 of the first two iterations: mean 2.5, deviation 1.29.
    assert first == (
        "population 0, generation 1  0%, about 9m58s left  100 decisions  return 2.500 ± 1.291  length 50.00  "
        "100 steps/s  policy loss 0.500"
    )
    assert others[0].startswith("population 0, generation 1  1%, about 6m36s left  200 decisions")
    assert 60 < len(others) < 110  # every other second, and ever fewer


def test_long_matches_have_plain_lines() -> None:
    progress, stream = plain(clock := Clock())
    progress.run_started(INFO)
    progress.task_started(EvaluationTask("e", 3))
    for clock.now in (0.5, 1.5, 2.5, 3.5, 5.0, 8.0, 11.0):
        progress.task_progress(min(clock.now, 5.0) / 10, {})  # the last match of some is a long one
    assert stream.getvalue().splitlines()[1:] == ["payoffs, generation 3  25%", "payoffs, generation 3  50%"]


def test_fast_generations_are_thinned_but_the_last_is_shown() -> None:
    progress, stream = plain(clock := Clock())
    progress.run_started(INFO)
    for k in range(100):
        clock.now = 0.025 * k
        progress.generation_done(record(k, seconds=0.025 * k, nash_conv=None))
    progress.run_finished(SUMMARY)
    shown = [line.split()[1] for line in stream.getvalue().splitlines() if line.startswith("generation")]
    assert shown == ["0", "40", "80", "99"]
    assert stream.getvalue().splitlines()[-1] == "stopped: reached generations=3"
    assert "NashConv" not in stream.getvalue()


def test_a_bound_is_not_shown_as_a_value() -> None:
    progress, stream = plain(Clock())
    progress.generation_done(GenerationRecord(1, 2.0, 0, 0.75, exact=False))
    assert stream.getvalue() == "generation 1  NashConv 0.7500 (at least)  2.0s\n"


def test_time_left_follows_the_nearest_limit() -> None:
    rates = Rates(Clock())
    assert rates.seconds_left() is None
    rates.started(synthetic.info(Path("r"), generations=10, seconds=12.0))
    rates.generation(record(1, seconds=3.0))
    assert rates.seconds_left() == 9.0  # one generation gives no pace yet
    rates.generation(record(2, seconds=4.0))
    assert rates.seconds_left() == 8.0  # both limits: 12 - 4 and 8 generations of 1 s
    rates.generation(record(6, seconds=5.0))
    assert rates.seconds_left() == pytest.approx(4 * 2 / 5)


def test_what_torch_compiled_is_no_part_of_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first generation, eight of whose ten seconds went into it, and which takes three more: then nine of five seconds."""
    compilation = Compilation()
    monkeypatch.setattr("ludus.reporting.rates.COMPILATION", compilation)
    rates = Rates(clock := Clock())
    rates.started(synthetic.info(Path("r"), generations=10))
    clock.now, compilation.seconds = 10.0, 8.0
    assert rates.seconds_left(tasks=3.0) == 9 * 5.0 + 3.0


def test_it_is_said_once_what_torch_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    compilation, lines = Compilation(), list[str]()
    monkeypatch.setattr("ludus.apps.common.progress.COMPILATION", compilation)
    with report_compilation(lines.append):
        for what in ("games on the device", "steps of a learner", "games on the device"):
            with compilation.of(what):
                compilation._begin()
                compilation._end()
    compilation._begin()
    assert lines == [
        "torch compiles games on the device, once in each process: seconds to minutes",
        "torch compiles steps of a learner, once in each process: seconds to minutes",
    ]


def test_terminal_shows_table_and_bar() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    progress = RichProgress(console)
    progress.run_started(INFO)
    progress.task_started(TrainingTask("t", 2, 1, (1,), "p2", Mixture(())))
    progress.task_progress(0.25, {})
    for k in range(1, 12):
        progress.generation_done(record(k, seconds=2.0 * k))
    progress._live.refresh()  # type: ignore[union-attr]
    progress.task_started(EvaluationTask("e", 3))
    progress.message("policy [p2] kept its last good weights")
    progress.run_finished(SUMMARY)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for expected in (
        "NashConv",
        "1.5000",
        "25%",
        "11/10",
        "50",
        "policy [p2] kept",
        "stopped: reached",
    ):
        assert expected in text
    assert progress._live is None


def test_terminal_draws_a_long_training() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=40)
    progress = RichProgress(console, clock=(clock := Clock()))
    progress.run_started(INFO)
    task, other = synthetic.training(0, 1), synthetic.training(0, 2)
    progress.task_started(task)
    progress.learned(task, partial(synthetic.curve, 1))  # nobody looks so soon
    clock.now = 1.0
    progress.learned(task, partial(synthetic.curve, 2))
    assert progress._render().plain.splitlines()[0].startswith("population 0  100 decisions  return 2.500 ± 1.291")
    assert "│" not in progress._render().plain  # not yet
    clock.now = 2.0
    progress.learned(task, partial(synthetic.curve, 60))
    lines = progress._render().plain.splitlines()[2:8]
    assert [line[:10] for line in lines] == ["   61.00 │", *["         │"] * 4, "   2.000 │"]
    assert (lines[0][-1], lines[-1][10]) == ("\u2809", "\u2880")  # from the lower left to the upper right
    assert max(map(len, lines)) <= 64
    done = TrainingResult(task, PolicyRef(0, "0-1"), PolicySpec("random"), {}, {}, {}, curve=synthetic.curve(60))
    progress.task_done(done)
    assert "│" in progress._render().plain  # it stays until another one begins
    progress.task_started(other)
    assert "│" not in progress._render().plain
    progress.close()


def test_the_first_generation_has_a_time_left_too() -> None:
    progress = RichProgress(
        Console(file=io.StringIO(), force_terminal=True, width=80, height=30), clock=(clock := Clock())
    )
    progress.run_started(INFO)
    progress.task_started(task := synthetic.training(0, 1))
    for clock.now in (1.0, 4.0):
        progress.learned(task, partial(synthetic.curve, 4))
    progress.task_progress(0.5, {})
    assert "50%, about 4.0s left" in (shown := progress._render().plain)
    assert shown.endswith("4.0s elapsed, about 1m16s left")  # nine generations of eight seconds more
    progress.close()


def test_the_pace_stands_in_the_line() -> None:
    progress = RichProgress(Console(file=io.StringIO(), force_terminal=True, width=80))
    progress.run_started(INFO)
    progress.task_started(TrainingTask("t", 2, 1, (1,), "p2", Mixture(())))
    progress.task_progress(0.25, {})
    progress.pace_changed("paused")
    assert "population 1  25%  paused\n" in progress._render().plain
    progress.pace_changed("")
    assert "population 1  25%\n" in progress._render().plain
    progress.close()


def test_the_pace_is_a_plain_line() -> None:
    progress, stream = plain(Clock())
    progress.pace_changed("at 50% of full speed")
    progress.pace_changed("")
    assert stream.getvalue() == "at 50% of full speed\nat full speed again\n"


def test_eighty_columns_are_enough() -> None:
    progress = RichProgress(Console(file=io.StringIO(), force_terminal=True, width=80))
    progress.run_started(INFO)
    progress.task_started(TrainingTask("t", 120, 1, (1,), "p2", Mixture(())))
    progress.task_progress(0.25, {})
    progress.generation_done(record(119, seconds=7384.0))
    lines = progress._render().plain.splitlines()
    progress.close()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["119/10", "1.5000", "+0.250", "-", "1+2", "11.9k", "2h03m"]


def _lines(width: int, entry: GenerationRecord, info: RunInfo = INFO) -> list[str]:
    progress = RichProgress(Console(file=io.StringIO(), force_terminal=True, width=width))
    progress.run_started(info)
    progress.generation_done(entry)
    lines = progress._render().plain.splitlines()
    progress.close()
    return lines


def test_a_narrow_terminal_keeps_what_matters() -> None:
    header, row, *_ = _lines(50, record(4, seconds=7.0))
    assert header.split() == ["generation", "NashConv", "best", "response", "time"]
    assert row.split() == ["4/10", "1.5000", "+0.250", "-", "7.0s"]
    assert len(header) == len(row) <= 50
    assert _lines(20, record(4, seconds=7.0))[0].split() == ["generation", "NashConv"]


def test_columns_stay_apart_with_three_players() -> None:
    entry = GenerationRecord(4, 7.0, 100, 0.0426, marginals=((1.0,),) * 3, responses=(-0.02, 0.004, -13.067))
    header, row, *_ = _lines(120, entry, replace(INFO, population=(0, 1, 2)))
    assert row.split() == ["4/10", "0.0426", "-0.020", "+0.004", "-13.067", "1+1+1", "100", "7.0s"]
    assert row.index("-13.067") + len("-13.067") == header.index("best response") + len("best response")


def test_a_shared_population_is_shown_once() -> None:
    progress = RichProgress(Console(file=io.StringIO(), force_terminal=True, width=120))
    progress.run_started(replace(INFO, population=(0, 0)))
    progress.generation_done(GenerationRecord(4, 7.0, 0, 1.5, marginals=((0.5, 0.5), (0.5, 0.5)), responses=(0.0, 0.0)))
    row = progress._render().plain.splitlines()[1]
    progress.close()
    assert row.split() == ["4/10", "1.5000", "+0.000", "+0.000", "2", "0", "7.0s"]


def test_nothing_is_left_when_it_is_over() -> None:
    progress, stream = plain(clock := Clock())
    progress.run_started(synthetic.info(Path("r"), generations=2))
    for k in (1, 2):
        clock.now = 2.0 * k
        progress.generation_done(record(k, seconds=2.0 * k))
    assert "left" not in stream.getvalue()


def test_stopped_is_said_once() -> None:
    progress, stream = plain(Clock())
    progress.run_finished(replace(SUMMARY, stopped_by="stopped by Ctrl-C"))
    progress.run_finished(SUMMARY)
    assert stream.getvalue().splitlines() == ["stopped by Ctrl-C", "stopped: reached generations=3"]


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_run_goes_on_when_nobody_listens() -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (Broken(), closed):
        progress = PlainProgress(stream)
        progress.run_started(INFO)
        progress.generation_done(record(1, seconds=2.0))
        progress.run_finished(SUMMARY)


def test_a_process_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    progress = progress_for()
    progress.run_started(INFO)
    assert isinstance(progress, PlainProgress)


def test_a_stop_that_is_asked_for_is_part_of_the_picture(capfd: pytest.CaptureFixture[str]) -> None:
    progress = RichProgress(Console(file=io.StringIO(), force_terminal=True, width=60))
    progress.stopping("stopping cleanly")
    assert capfd.readouterr().err == "\nstopping cleanly\n"  # nothing is drawn yet
    progress.run_started(INFO)
    progress.stopping("stopping cleanly")
    assert progress._render().plain.splitlines()[-1] == "stopping cleanly"
    progress.run_finished(SUMMARY)
    assert "stopping" not in progress._render().plain
    assert capfd.readouterr().err == ""
    plain(Clock())[0].stopping("stopping cleanly")
    assert capfd.readouterr().err == "\nstopping cleanly\n"


def test_an_error_gives_the_terminal_back() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    progress = RichProgress(console)
    progress.run_started(INFO)
    progress.close()
    progress.close()
    assert console.file.getvalue().count("\x1b[?25h") == 1  # type: ignore[attr-defined]


def test_pipes_get_plain_lines() -> None:
    assert isinstance(progress_for(io.StringIO()), PlainProgress)


def test_numbers_as_they_are_written() -> None:
    signs = {0.0: "+0.000", -1e-9: "+0.000", -0.0005001: "-0.001", 2.5: "+2.500"}
    assert {value: signed(value, 3) for value in signs} == signs
    counts = {0.0: "0", 2.5: "2.5", 9999: "9999", 12_345: "12.3k", 2_400_000: "2.4M", 3e9: "3G"}
    assert {value: compact(value) for value in counts} == counts
    times = {4.25: "4.2s", 65.9: "1m05s", 7384: "2h03m", 200_000: "2d07h", 1e30: "over 1000 days"}
    assert {value: duration(value) for value in times} == times
    assert (remaining(7384), remaining(1e30)) == ("about 2h03m left", "over 1000 days left")
    numbers = {None: "-", float("nan"): "-", 0.0: "0.0000", 1.23456: "1.2346", 3.2e-6: "3.2e-06"}
    assert {value: number(value) for value in numbers} == numbers


def test_observers_are_told_in_order() -> None:
    told: list[tuple[str, str]] = []

    class Named(NullObserver):
        def __init__(self, name: str) -> None:
            self.name = name

        def message(self, text: str) -> None:
            told.append((self.name, text))

        def generation_done(self, record: GenerationRecord) -> None:
            told.append((self.name, str(record.number)))

    both = Observers(Named("a"), Named("b"))
    assert isinstance(both, Observer)
    both.run_started(INFO)
    both.task_started(EvaluationTask("e", 0))
    both.task_progress(None, {})
    both.generation_done(record(4, seconds=1.0))
    both.message("hello")
    both.run_finished(SUMMARY)
    assert told == [("a", "4"), ("b", "4"), ("a", "hello"), ("b", "hello")]
