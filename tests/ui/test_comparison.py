"""Comparisons: the statistics against rliable's numbers, which runs count, and the page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import synthetic_run as synthetic
from scipy.stats import trim_mean

from ludus.apps.common.experiments import Experiment
from ludus.apps.common.same_games import SAME_NAME, differences
from ludus.apps.ui.comparison import (
    Baseline,
    EfficiencyCurve,
    Estimate,
    aggregate,
    as_json,
    as_rows,
    at,
    compare,
    copies_of,
    interquartile_mean,
    mean,
    probability_of_improvement,
    profile,
    write_comparison,
)
from ludus.apps.ui.run_metrics import AXES, ComparedRun, Group, differing_settings, newest_returns, read_group
from ludus.cli.compare import left_out
from ludus.cli.main import main
from ludus.core.errors import ConfigError, RunError
from ludus.core.types import Curve, PolicySpec
from ludus.envs.families import FAMILIES
from ludus.envs.registry import list_envs
from ludus.storage.base import RunSummary
from ludus.storage.store import Store

# Two algorithms on one task with five seeds, and on two tasks with four. The expected figures are those of rliable 1.2.0, with 100,000
# bootstrap samples (20,000 of the profiles).
X, Y = [np.array([0.9, 0.2, 0.4, 0.7, 0.5])], [np.array([0.1, 0.3, 0.6, 0.2, 0.5])]
XX = [np.array([0.9, 0.2, 0.4, 0.7]), np.array([0.5, 0.6, 0.55, 0.9])]
YY = [np.array([0.1, 0.3, 0.6, 0.5]), np.array([0.25, 0.7, 0.6, 0.45])]


@pytest.mark.parametrize(
    ("scores", "statistic", "value", "low", "high"),
    [
        (X, mean, 0.54, 0.34, 0.76),
        (X, interquartile_mean, 0.533333, 0.266667, 0.833333),
        (XX, mean, 0.59375, 0.44375, 0.74375),
        (YY, interquartile_mean, 0.4625, 0.275, 0.6),
    ],
)
def test_means_are_those_of_rliable(scores: list, statistic, value: float, low: float, high: float) -> None:
    found = aggregate(scores, statistic)
    assert found.value == pytest.approx(value, abs=1e-6)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.011)


@pytest.mark.parametrize(
    ("a", "b", "value", "low", "high"), [(X, Y, 0.72, 0.36, 1.0), (XX, YY, 0.671875, 0.375, 0.921875)]
)
def test_probability_of_improvement_is_that_of_rliable(a: list, b: list, value: float, low: float, high: float) -> None:
    found = probability_of_improvement(a, b)
    assert found.value == pytest.approx(value)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.02)


def test_profiles_are_those_of_rliable() -> None:
    thresholds = np.array([0.2, 0.45, 0.5, 0.7])
    one, two = profile(X, thresholds), profile(YY, thresholds)
    assert [e.value for e in one] == pytest.approx([0.8, 0.6, 0.4, 0.2])
    assert [e.value for e in two] == pytest.approx([0.875, 0.5, 0.375, 0.0])
    assert [(e.low, e.high) for e in one] == [(0.4, 1.0), (0.2, 1.0), (0.0, 0.8), (0.0, 0.6)]


def test_environments_weigh_the_same_whatever_the_number_of_their_runs() -> None:
    """By hand: ones in one environment and zeros in the other are a half, with five runs and four."""
    scores, halves = [np.ones(5), np.zeros(4)], [np.full(5, 0.5), np.full(4, 0.5)]
    for statistic in (mean, interquartile_mean):
        found = aggregate(scores, statistic)
        assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)
    assert [e.value for e in profile(scores, np.array([-0.5, 0.5, 1.5]))] == [1.0, 0.5, 0.0]
    assert probability_of_improvement(scores, halves).value == 0.5


def test_unequal_runs_count_as_copies_of_equally_many() -> None:
    """Against SciPy's trimmed mean of the copies written out, 12 of each environment; equal numbers are taken as they are."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=n).round(1) for n in (3, 4, 6)]
    written_out = np.concatenate([np.repeat(row, 12 // len(row)) for row in rows])
    assert copies_of(rows).tolist() == 3 * [4] + 4 * [3] + 6 * [2]
    assert aggregate(rows, mean).value == pytest.approx(written_out.mean())
    assert aggregate(rows, interquartile_mean).value == pytest.approx(trim_mean(written_out, 0.25))
    assert profile(rows, np.array([0.1]))[0].value == pytest.approx((written_out > 0.1).mean())
    assert copies_of(XX) is None
    low, high = aggregate(rows, mean).low, aggregate(rows, mean).high
    assert low < written_out.mean() < high


def test_the_interquartile_mean_of_three_runs_is_their_mean() -> None:
    """Nothing is left out of fewer than four (docs/guides/compare.md)."""
    assert aggregate([np.array([0.0, 0.0, 9.0])], interquartile_mean).value == 3.0
    assert aggregate([np.array([0.0, 0.0, 0.0, 9.0])], interquartile_mean).value == 0.0


def test_one_run_has_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is drawn for it, which takes long where many are compared."""
    monkeypatch.setattr(np.random, "default_rng", lambda _: None)
    one, two = [np.array([0.5])], [np.array([0.25, 0.75])]
    assert np.isnan(aggregate(one, mean).low)
    assert np.isnan(profile(one, np.array([0.25]))[0].low)
    assert np.isnan(probability_of_improvement(one, two).low)


# ---------------------------------------------------------------------------------------------- of stored runs


def run(
    folder: Path, values: list[float | None], *, complete: bool = True, seconds: float = 10.0, **facts: object
) -> Path:
    """With this NashConv after each generation, 100 episodes and `seconds` apart."""
    with Store.create(folder, synthetic.info(folder, **facts)) as made:
        for number, value in enumerate(values):
            record = synthetic.generation(number, (1, 1), nash_conv=value)
            made.generation_done(replace(record, episodes=100 * number, seconds=seconds * number))
        made.commit("last")
        reason = "the schedule is complete" if complete else "stopped by Ctrl-C"
        made.run_finished(RunSummary(folder, len(values) - 1, 1.0, 100, values[-1], reason, complete=complete))
    return folder


def experiment(folder: Path, finals: list[float], *, waiting: int = 0) -> Path:
    folder.mkdir(parents=True)
    names = {f"seed-{k}": (f"seed={k}",) for k in range(len(finals) + waiting)}
    Experiment(folder, {"env": "openspiel/leduc_poker"}, names, baselines={"paper": (0.5, 0.1)}).save()
    for k, value in enumerate(finals):
        run(folder / f"seed-{k}", [4.0, 2.0, value], seconds=10.0 * (k + 1))
    return folder


def test_experiments_side_by_side(tmp_path: Path) -> None:
    groups = [experiment(tmp_path / "a", [0.1, 0.2, 0.3]), experiment(tmp_path / "b", [0.2, 0.4])]
    found = compare([read_group(str(path)) for path in groups], baselines=[Baseline("own", 1.0, 0.0)])
    assert found.title == "NashConv (lower is better)"
    assert [(g.runs, g.best) for g in found.groups] == [("3", 0.1), ("2", 0.2)]
    assert [g.mean.value for g in found.groups] == pytest.approx([0.2, 0.3])
    # lower is better: 0.1 beats both of b, 0.2 ties with one and beats the other, 0.3 beats one
    assert found.improvement[groups[0].as_posix(), groups[1].as_posix()].value == pytest.approx((2 + 1.5 + 1) / 6)
    # the slowest of a takes 30 seconds a generation, the fastest 10: after 20 seconds one is at 0.1, one at 2, one at 4
    assert at(found.groups[0].curves["seconds"], 20.0).value == pytest.approx((0.1 + 2.0 + 4.0) / 3)
    assert at(found.groups[0].curves["episodes"], 100.0).value == 2.0
    assert [b.name for b in found.baselines] == ["paper", "own"]
    one, other = (found.improvement[pair] for pair in permutations(path.as_posix() for path in groups))
    assert (other.value, other.low, other.high) == pytest.approx((1 - one.value, 1 - one.high, 1 - one.low))


def test_settings_in_which_groups_differ_are_named() -> None:
    def of(algorithm: object, seed: int, **others: object) -> ComparedRun:
        settings = {"scenario": "psro", "env": {"id": "openspiel/kuhn_poker"}, "algorithm": algorithm, "seed": seed}
        return ComparedRun("run", Path("run"), "finished", settings={**settings, "name": f"run-{seed}", **others})

    ppo = {"kind": "ppo", "gamma": 1.0, "learning_rate": {"start": 0.01, "end": 0.0}}
    slow = {**ppo, "learning_rate": {"start": 0.001, "end": 0.0}}
    one, other = [of(ppo, 0), of(ppo, 1)], [of(slow, 0), of(ppo, 1)]
    assert differing_settings([one, one]) == ()
    assert differing_settings([one, other]) == (("algorithm.learning_rate.start", ((0.01,), (0.001, 0.01))),)
    stopped = [of({"kind": "dqn", "gamma": 0.5}, 0, stop={"nash_conv": 0.1})]
    assert differing_settings([one, stopped]) == (
        ("algorithm", (("ppo",), ("dqn",))),
        ("stop", ((None,), ({"nash_conv": 0.1},))),
    )
    assert differing_settings([one]) == ()


def test_runs_that_did_not_end_are_left_out_and_named(tmp_path: Path) -> None:
    folder = experiment(tmp_path / "a", [0.1, 0.3], waiting=2)
    run(folder / "seed-2", [4.0, 2.0], complete=False)
    found = compare([read_group(str(folder))])
    (group,) = found.groups
    assert (group.runs, group.mean.value) == ("2 of 4", pytest.approx(0.2))
    assert [(r.name, r.state, r.why) for r in group.left_out] == [
        ("seed-2", "stopped", "stopped by Ctrl-C"),
        ("seed-3", "waiting", ""),
    ]
    rows = list(as_rows(found))
    assert [row[:5] for row in rows[-2:]] == [
        (group.name, "seed-2", "no", "stopped", "stopped by Ctrl-C"),
        (group.name, "seed-3", "no", "waiting", ""),
    ]
    assert [run["counted"] for run in as_json(found)["groups"][0]["runs"]] == [True, True, False, False]


def test_runs_of_several_lengths_are_told_apart(tmp_path: Path) -> None:
    """Where one was extended alone, say."""
    folder = experiment(tmp_path / "a", [0.1, 0.3])
    (same,) = compare([read_group(str(folder))]).groups
    assert left_out(same) == []
    run(tmp_path / "a" / "seed-2", [4.0, 2.0, 1.0, 0.5])
    (other,) = compare([read_group(str(tmp_path / "a"))]).groups
    assert left_out(other) == []  # an experiment's list does not have it
    (tmp_path / "a" / "experiment.yaml").unlink()
    (group,) = compare([read_group(str(folder))]).groups
    assert left_out(group) == [f"{group.name}: its runs are not of one length; they have 2 to 3 generations."]


def test_a_group_of_which_none_has_ended_is_compared_as_it_is(tmp_path: Path) -> None:
    found = compare([read_group(str(run(tmp_path / "a", [4.0, 1.5], complete=False)))])
    assert (found.groups[0].is_unfinished, found.groups[0].iqm.value) == (True, 1.5)


def test_curves_end_at_the_last_known_generation(tmp_path: Path) -> None:
    """NashConv is not computed where a bot plays a part: that of an earlier generation does not stand for it."""
    for k, values in enumerate([[4.0, 2.0], [4.0, None]]):
        run(tmp_path / "a" / f"{k}", values)
    (group,) = compare([read_group(str(tmp_path / "a"))]).groups
    assert (group.runs, group.mean.value) == ("1 of 2", 2.0)
    assert [run.why for run in group.left_out] == ["it has no NashConv after its last generation"]
    with pytest.raises(ConfigError, match="no measure in common"):
        compare([read_group(str(tmp_path / "a" / "1"))])


def test_several_environments_are_normalised(tmp_path: Path) -> None:
    """0 for the worst run of all on an environment, 1 for the best."""
    for name, finals in (("a", (1.0, 10.0)), ("b", (3.0, 20.0)), ("c", (2.0, 40.0))):
        for env, value in zip(("kuhn", "leduc"), finals, strict=True):
            run(tmp_path / name / env, [4.0, value], env=env)
    found = compare([read_group(str(tmp_path / name)) for name in "abc"])
    assert (found.environments, found.lower_is_better) == (("kuhn", "leduc"), False)
    assert [g.mean.value for g in found.groups] == pytest.approx([1.0, (0 + 2 / 3) / 2, (0.5 + 0) / 2])


LEDUC = ("openspiel/leduc_poker", "pettingzoo/leduc_holdem_v4")
BLINDS = r"2 games are called Leduc hold'em and differ \(openspiel/leduc_poker: antes of 1.*leduc_holdem_v4: blinds of 1 and 2"


def test_games_of_one_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        for k, env in enumerate(LEDUC):
            run(tmp_path / name / str(k), [4.0, 1.0], env=env)
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert re.search("warning: " + BLINDS, " ".join(capsys.readouterr().out.split()))
    groups = [read_group(str(tmp_path / "a" / "0")), read_group(str(tmp_path / "b" / "1"))]
    with pytest.raises(ConfigError, match="has no run on pettingzoo/leduc_holdem_v4, and others have.*" + BLINDS):
        compare(groups)


def test_games_that_are_one_are_not() -> None:
    assert differences([LEDUC[0], "openspiel/leduc_poker(players=2)", "openspiel/kuhn_poker"]) == ""
    assert differences(["openspiel/connect_four", "pettingzoo/connect_four_v3"]) == ""
    assert "robot warehouse" in differences(["rware/rware-small-4ag-v2", "jumanji/RobotWarehouse-v0"])


@pytest.mark.long
def test_games_of_one_name_are_ids() -> None:
    ids = {id for games in SAME_NAME.values() for id in games}
    for family in sorted({id.partition("/")[0] for id in ids}):
        if FAMILIES[family].installed:
            assert {id for id in ids if id.startswith(f"{family}/")} <= set(list_envs(family))


def test_measures_against_random_play(tmp_path: Path) -> None:
    """A mixture of 1/4 and 3/4 over the random policy and one that earns +2 against it, and wins 6 of 8 with one drawn."""
    folder = tmp_path / "a"
    with Store.create(folder, synthetic.info(folder, population=(0, 0))) as made:
        for place in range(2):
            kind = synthetic.policy(0, place)
            made.policy_added(replace(kind, spec=PolicySpec("random" if place == 0 else "actor_critic", {})))
        both = ((6, 1, 1), (1, 1, 6)), ((1, 1, 6), (6, 1, 1))
        for k, (profile_, earned, wins) in enumerate(
            [((0, 0), 0.0, ((2, 4, 2), (2, 4, 2))), ((1, 0), 2.0, both[0]), ((0, 1), -2.0, both[1])]
        ):
            match = synthetic.match(f"m{k}", profile_, 8, [earned, -earned], [1.0, 1.0])
            made.matches_recorded([replace(match, wins=wins)])
        record = synthetic.generation(0, (2, 2), nash_conv=None)
        made.generation_done(replace(record, marginals=((0.25, 0.75), (0.25, 0.75))))
        made.commit("last")
        made.run_finished(RunSummary(folder, 0, 1.0, 0, None, "done"))
    (got,) = read_group(str(folder)).runs
    assert got.final("against_random") == pytest.approx(0.75 * 2.0)
    assert got.final("win_rate") == pytest.approx(0.25 * 0.5 + 0.75 * 6.5 / 8)


def test_who_meets_nobody_is_measured_in_training(tmp_path: Path) -> None:
    """By the newest 100 episodes: k = 11 … 60 of the first task's; then the second's 12, and 88 of the first's."""
    with Store.create(tmp_path / "a", synthetic.info(tmp_path / "a", 1)) as made:
        for number, iterations in enumerate((0, 60, 6)):
            if iterations:
                task = synthetic.training(0, number)
                made.task_started(task)
                made.curve_recorded(task.id, synthetic.curve(iterations))
            made.generation_done(replace(synthetic.generation(number, (1,), nash_conv=None), values=()))
        made.commit("last")
        made.run_finished(RunSummary(tmp_path / "a", 2, 1.0, 132, None, "done"))
    found = compare([read_group(str(tmp_path / "a"))])
    assert (
        found.title
        == found.curve_title + " (higher is better)"
        == "return of the newest 100 episodes of training (higher is better)"
    )
    (got,) = found.groups[0].counted
    assert (got.values or {})["training_return"] == pytest.approx(
        [np.nan, 36.5, (12 * 4.5 + 88 * 39.5) / 100], nan_ok=True
    )
    assert got.series("training_return", "decisions")[0][-1] == 3300


def test_incomparable_runs_are_rejected(tmp_path: Path) -> None:
    kuhn, leduc = run(tmp_path / "kuhn", [1.0], env="kuhn"), run(tmp_path / "leduc", [1.0])
    with pytest.raises(ConfigError, match=r"no run on openspiel/leduc_poker"):
        compare([read_group(str(kuhn)), read_group(str(leduc))])
    with pytest.raises(ConfigError, match=r"--metric return: .* has nash_conv"):
        compare([read_group(str(kuhn))], metric="return")
    with pytest.raises(ConfigError, match="twice"):
        compare([read_group(str(kuhn))] * 2)
    with pytest.raises(RunError, match=r"no run that could be compared .*seed-0: waiting"):
        compare([read_group(str(experiment(tmp_path / "none", [], waiting=1)))])
    with pytest.raises(RunError, match=r"finished, and it has nothing of what runs are measured by"):
        compare([read_group(str(run(tmp_path / "bare", [None])))])


def learner(name: str, returns: list[float], *, env: str = "a", final: float = 1.0) -> Group:
    """A run of one learner, with these returns in training (NaN: no episode ended) and this one in evaluation."""
    n = np.where(np.isnan(returns), 0.0, 100.0)
    curve = Curve(("decisions", "n", "mean"), np.array([np.arange(len(n)), n, returns]).T, np.arange(float(len(n))))
    axes = {axis: np.array([0.0, 10.0]) for axis in AXES}
    values = {"return": np.array([0.0, final])}
    ended = ComparedRun(name, Path(name), "finished", env=env, axes=axes, values=values, learning=curve)
    return Group(name, (ended,), {})


def test_returns_in_training_and_in_evaluation_are_not_mixed() -> None:
    learned, silent = learner("x", [2.0, 3.0, 4.0]), learner("y", [np.nan, np.nan])
    alone, both = compare([learned]), compare([learned, silent])
    assert alone.curve_title == "return of the newest 100 episodes"
    assert alone.groups[0].curves["decisions"].estimates[-1].value == 4.0
    assert both.curve_title == "return"
    assert [g.curves["decisions"].estimates[-1].value for g in both.groups] == [1.0, 1.0]


def test_a_baseline_is_of_one_environment() -> None:
    groups = [
        Group(name, (*learner("k", [1.0], env="a").runs, *learner("l", [1.0], env="b", final=k).runs), {})
        for k, name in enumerate("xy")
    ]
    assert compare(groups).is_normalised
    with pytest.raises(ConfigError, match="the baseline 'paper' cannot stand beside scores of 2 environments"):
        compare(groups, baselines=[Baseline("paper", 1.0, 0.0)])


def test_baselines_stand_beside_what_they_are_of() -> None:
    """Those of a sweep are of what it seeks."""
    (run,) = learner("x", [1.0]).runs
    sweeps = [Group("x", (run,), {"paper": (1.0, 0.5)}, metric) for metric in ("return", "nash_conv", "")]
    assert [[b.mean for b in compare([sweep]).baselines] for sweep in sweeps] == [[1.0], [], [1.0]]
    twice = [sweeps[0], Group("y", (run,), {"paper": (1.0, 0.5)})]
    assert [b.name for b in compare(twice).baselines] == ["paper"]
    with pytest.raises(ConfigError, match=r"'paper' is 1 ± 0.5 in 'x' and 2 ± 0.5 in 'y'"):
        compare([sweeps[0], Group("y", (run,), {"paper": (2.0, 0.5)})])


def test_before_anything_is_known_there_is_no_value() -> None:
    curve = EfficiencyCurve(np.array([10.0, 20.0]), (Estimate(1.0), Estimate(2.0)))
    assert np.isnan(at(curve, 9.0).value)
    assert [at(curve, spent).value for spent in (10.0, 19.0, 20.0, 30.0)] == [1.0, 1.0, 2.0, 2.0]


def test_the_page_holds_the_figures(tmp_path: Path) -> None:
    folder = experiment(tmp_path / "<a>", [0.1, 0.3])
    page = write_comparison(compare([read_group(str(folder))]), tmp_path / "page.html").read_text()
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1])["panels"][
        "compare"
    ]
    assert data["groups"][0]["iqm"]["value"] == 0.2
    assert data["baselines"] == [{"name": "paper", "mean": 0.5, "spread": 0.1}]
    assert "<a>" not in page


def test_one_run_of_each_is_told_apart_from_several(tmp_path: Path) -> None:
    """With n = 1 the page leaves out what needs several runs; the measure's own ends keep a small difference small."""
    run(tmp_path / "a" / "seed-0", [0.951])
    run(tmp_path / "b" / "seed-0", [0.912])
    folder = experiment(tmp_path / "c", [0.1, 0.3])
    data = as_json(compare([read_group(str(each)) for each in (tmp_path / "a", tmp_path / "b", folder)]))
    assert [group["single"] for group in data["groups"]] == [True, True, False]
    assert data["improvement"] == []
    assert data["range"] == [0.0, None]


def test_returns_while_training_are_of_the_newest_episodes() -> None:
    """Points of 60, 0, 60 and 80 episodes: the third reaches back over the first, the last to the one before it."""
    rows = [[60.0, 1.0], [0.0, np.nan], [60.0, 3.0], [80.0, 5.0]]
    curve = Curve(("n", "mean"), np.array([[0.0, np.nan], *rows]), np.arange(5.0))
    expected = [np.nan, 1.0, 1.0, 2.0, (60 * 3 + 80 * 5) / 140]
    np.testing.assert_allclose(newest_returns(curve), expected)
