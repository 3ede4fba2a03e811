"""Lines of the list of runs, lines of experiments, and settings."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synthetic_run as synthetic

from ludus.apps.common.experiments import Experiment
from ludus.apps.ui.figures import run_lines
from ludus.apps.ui.figures.overview import overview
from ludus.apps.ui.figures.run_lines import (
    MAX_TREND,
    Interval,
    LearnerReturn,
    RunLine,
    experiment_lines,
    listing,
    run_line,
    settings_of,
    setup_of,
)
from ludus.core import recorders
from ludus.core.types import Curve, Match, PolicyRef, PolicySpec, TrainingResult
from ludus.storage.base import GenerationRecord
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import EXPERIMENT, RunLock
from ludus.storage.run_notes import FILE, make_notes, write_notes
from ludus.storage.store import Store


def line_of(run_dir: Path, group: str | None = None) -> RunLine:
    with Reader(run_dir) as reader:
        return run_line(reader, run_dir.name, run_dir.name, group)


def trained(store: Store, population: int, generation: int, value: float | None) -> None:
    task = synthetic.training(population, generation)
    store.task_started(task)
    if value is not None:
        metrics = {"loss": 1.0, "return": value}
        ref, spec = PolicyRef(population, task.policy, 0), PolicySpec("random", {})
        store.task_done(TrainingResult(task, ref, spec, {}, metrics, {}, curve=curve(value)))


def curve(value: float) -> Curve:
    """Sixty iterations of two episodes, whose returns are 1 below and above this value; earlier ones are 5 lower."""
    recorder = recorders.CurveRecorder()
    for k in range(1, 61):
        counts = dict.fromkeys(("iterations", "env_steps", "decisions", "episodes", "samples", "updates"), 2 * k)
        mean = value - 5.0 if k <= 10 else value
        returns, lengths = np.array([mean - 1, mean + 1]), np.array([40, 60], np.int32)
        recorder.add(counts, seconds=float(k), returns=returns, lengths=lengths, metrics={})
    return recorder.curve()


def run(run_dir: Path, *returns: float, players: int = 1, seed: int = 7, text: str = "") -> Path:
    """A run whose populations have trained to these returns in generation 1, and train in generation 2."""
    text = text or f"scenario: psro\nseed: {seed}\nalgorithm:\n  gamma: 0.9\n"
    with Store.create(run_dir, synthetic.info(run_dir, players, seed=seed, text=text)) as store:
        for population in range(players):
            store.policy_added(synthetic.policy(population, 0))
        for population, value in enumerate(returns):
            trained(store, population, 1, value)
            trained(store, population, 2, None)
        store.commit("g1")
    return run_dir


def test_the_return_of_a_single_player_says_whose_it_is(tmp_path: Path) -> None:
    line = line_of(run(tmp_path / "run", 3.5))
    assert (line.return_, line.returns) == (3.5, [LearnerReturn(0, "0-1", 1, 3.5)])
    assert line.return_of == "policy 0-1, the newest 100 episodes of its training"
    assert line.trend is not None  # of the newest training that has a curve
    assert (line.trend.title, line.trend.values[-1]) == ("return of the newest policy in training", 3.5)


def test_several_players_have_no_mean_return(tmp_path: Path) -> None:
    line = line_of(run(tmp_path / "run", -0.279, 0.557, players=2))
    assert (line.return_, line.return_of) == (None, "")  # 0.139 once: the mean of a game whose returns sum to 0
    assert line.returns == [LearnerReturn(0, "0-1", 1, -0.279), LearnerReturn(1, "1-1", 1, 0.557)]


def test_the_trend_is_the_main_measure_in_few_points(tmp_path: Path) -> None:
    trend = line_of(synthetic.write(tmp_path / "many", generations=50)).trend
    assert trend is not None
    assert (trend.title, len(trend.values)) == ("NashConv over generations", MAX_TREND)
    with Reader(tmp_path / "many") as reader:
        records = reader.generations()
    assert trend.values[0] == pytest.approx(records[0].nash_conv, rel=1e-5)
    assert trend.values[-1] == pytest.approx(records[-1].nash_conv, rel=1e-5)
    with Store.create(tmp_path / "single", synthetic.info(tmp_path / "single", 1)) as store:
        trained(store, 0, 1, 89.0)
        store.commit("g1")
    trend = line_of(tmp_path / "single").trend
    assert trend is not None
    assert len(trend.values) <= MAX_TREND
    assert trend.values[-1] == 89.0
    assert line_of(run(tmp_path / "two", 1.0, 2.0, players=2)).trend is None


def games_of(run_dir: Path) -> Path:
    """A run without NashConv, whose newest policy of player 0 wins six of eight games against the first of player 1."""
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        for number in range(2):
            for player in range(2):
                store.policy_added(synthetic.policy(player, number, number))
        for profile, won in (((0, 0), 4), ((1, 0), 6), ((0, 1), 4), ((1, 1), 4)):
            seats = tuple(PolicyRef(player, f"p{place}", 0) for player, place in enumerate(profile))
            mean, m2 = np.array([won / 4 - 1, 1 - won / 4]), np.full(2, 8 - 8 * (won / 4 - 1) ** 2)
            wins = ((won, 0, 8 - won), (8 - won, 0, won))
            store.matches_recorded([Match(f"m{profile}", profile, seats, 8, mean, m2, wins)])
        for number in range(2):
            marginals = tuple((0.0,) * number + (1.0,) for _ in range(2))
            store.generation_done(GenerationRecord(number, 1.0 + number, 100 * number, marginals=marginals))
        store.commit("g1")
    return run_dir


def test_a_run_without_nash_conv_has_its_games_against_the_start(tmp_path: Path) -> None:
    line = line_of(games_of(tmp_path / "games"))
    assert (line.nash_conv, line.gain, line.return_) == (None, None, None)
    assert line.win_rate == pytest.approx((6 / 8 + 4 / 8) / 2)  # of player 0 and of player 1
    assert line.score_of.startswith("of generation 1 against")
    assert "95% interval" in line.score_of
    assert line.trend is not None
    assert line.trend.title == "win rate against the start, over generations"
    assert line.trend.values[-1] == line.win_rate
    known = line_of(synthetic.write(tmp_path / "exact", generations=2))
    assert (known.win_rate, known.gain, known.score_of) == (None, None, "")


def test_the_games_of_a_large_run_are_not_read_for_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lines, "_MAX_POLICIES", 3)
    line = line_of(games_of(tmp_path / "games"))
    assert (line.policies, line.win_rate) == (4, None)


def test_the_machine_s_use_is_over_the_whole_run(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", synthetic.info(tmp_path / "run")) as store:
        for barrier, (wall, steps, cores, memory) in enumerate([(1.0, 100.0, 1.0, 5e8), (3.0, 500.0, 2.0, 4e8)]):
            used = {"wall": wall, "env_steps": steps, "processor": cores, "memory": memory}
            store.metrics_recorded("barriers", barrier, used)
        store.commit("g0")
    usage = line_of(tmp_path / "run").usage
    assert (usage.steps_per_second, usage.processor, usage.memory) == (150.0, 1.75, 5e8)
    empty = line_of(run(tmp_path / "none", 1.0)).usage
    assert (empty.steps_per_second, empty.processor, empty.memory) == (None, None, None)


def test_tags_and_notes_stand_in_the_line(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", 1.0)
    write_notes(folder, make_notes(["final"], "as in the paper"))
    line = line_of(folder)
    assert (line.tags, line.notes, line.notes_problem) == (["final"], "as in the paper", "")
    (folder / FILE).write_text("[]")
    line = line_of(folder)
    assert (line.tags, line.notes) == ([], "")
    assert "cannot be read" in line.notes_problem
    assert str(tmp_path) not in line.notes_problem


def test_an_experiment_is_a_line_over_its_seeds(tmp_path: Path) -> None:
    values = (1.0, 2.0, 4.0)
    lines = [line_of(run(tmp_path / f"seed-{k}", v, seed=k), "cart") for k, v in enumerate(values)]
    other = line_of(run(tmp_path / "alone", 9.0))
    (line,) = experiment_lines([other, *lines])
    assert (line.name, line.runs, line.same) == ("cart", ["seed-0", "seed-1", "seed-2"], True)
    assert line.states == {"interrupted": 3}
    assert line.nash_conv is None
    assert line.return_ is not None
    error = math.sqrt(((1 - 7 / 3) ** 2 + (2 - 7 / 3) ** 2 + (4 - 7 / 3) ** 2) / 2 / 3)
    assert (line.return_.mean, line.return_.n) == (pytest.approx(7 / 3, rel=1e-5), 3)
    assert line.return_.half_width == pytest.approx(4.302653 * error, rel=1e-5)  # Student's t, two degrees of freedom
    (single,) = experiment_lines(lines[:1])
    assert single.return_ == Interval(1.0, None, 1)
    (unknown,) = experiment_lines([replace(one, return_=None) for one in lines])
    assert unknown.return_ is None


def test_an_experiment_counts_the_runs_that_it_lists_and_that_have_not_begun(tmp_path: Path) -> None:
    folder = tmp_path / "cart"
    lines = [line_of(run(folder / f"seed-{k}", 1.0, seed=k), "cart") for k in range(2)]
    runs = {f"seed-{k}": (f"seed={k}",) for k in range(4)}
    Experiment(folder, {"scenario": "psro"}, runs, reasons={"seed-3": "its process was killed"}).save()
    states = {"interrupted": 2, "not begun": 1, "failed": 1}
    (line,) = experiment_lines(lines, {"cart": listing(folder)})
    assert (line.states, line.at_work, len(line.runs)) == (states, False, 2)
    with RunLock(folder):
        (line,) = experiment_lines(lines, {"cart": listing(folder)})
    assert (line.states, line.at_work) == (states, True)
    (folder / EXPERIMENT).write_text("runs: 1", encoding="utf-8")
    (line,) = experiment_lines(lines, {"cart": listing(folder)})
    assert line.states == {"interrupted": 2}, "a list that cannot be read has none"


def test_runs_that_differ_in_more_than_the_seed_have_no_mean(tmp_path: Path) -> None:
    text = "scenario: psro\nseed: 1\nalgorithm:\n  gamma: 0.99\n"
    lines = [line_of(run(tmp_path / "a", 1.0), "grid"), line_of(run(tmp_path / "b", 2.0, text=text), "grid")]
    (line,) = experiment_lines(lines)
    assert (line.same, line.return_) == (False, None)


def test_a_setup_is_the_scenario_without_seed_and_name() -> None:
    one = "name: a\nseed: 1\nalgorithm:\n  seed: 1\n"
    assert setup_of(one) == setup_of(one.replace("name: a\nseed: 1", "name: b\nseed: 22"))
    assert setup_of(one) != setup_of(one.replace("  seed: 1", "  seed: 2"))


def test_settings_have_dotted_names() -> None:
    text = (
        "seed: 3\nalgorithm: {kind: ppo, gamma: 0.5, hidden: [64, 64], clip: null}\noptions: {}\nbound: .inf\n"
        f"about: {'x' * 500}\n"
    )
    settings = dict(settings_of(text))
    assert len(str(settings.pop("about"))) == 120
    assert settings == {
        "seed": 3,
        "algorithm.kind": "ppo",
        "algorithm.gamma": 0.5,
        "algorithm.hidden": "[64, 64]",
        "algorithm.clip": None,
        "options": "{}",
        "bound": "inf",
    }
    assert settings_of("") == {}
    assert settings_of("a: [") == {}
    assert len(settings_of("\n".join(f"k{k}: 1" for k in range(1000)))) == 400


def test_a_run_of_an_experiment_is_called_with_it(tmp_path: Path) -> None:
    folder = run(tmp_path / "cart" / "seed-0", 1.0)
    with Reader(folder) as reader:
        facts = overview(reader).info
    assert (facts.name, facts.experiment) == ("seed-0", None)  # a folder alone is no experiment
    (tmp_path / "cart" / EXPERIMENT).write_text("{}")
    with Reader(folder) as reader:
        facts = overview(reader).info
    assert (facts.name, facts.experiment) == ("cart/seed-0", "cart")
