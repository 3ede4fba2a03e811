"""What an environment counts of its players, through whole runs: the same from one process, subprocesses, Ray and after a resume; and
shown by what shows results."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import run_tools as tools

from ludus.apps.ui.figures.panels import PANELS
from ludus.cli.main import main
from ludus.cli.output import statistics_table
from ludus.core.types import Match
from ludus.evaluation.evaluate import evaluate_run
from ludus.evaluation.run_ratings import rate_run
from ludus.metagame.population.match_log import same_match, statistics_by_policy, statistics_of
from ludus.runs.runner import Result, resume, run
from ludus.runs.scenario_files import parse_scenario
from ludus.storage.reader import Reader
from ludus.storage.records import policy_key
from ludus.testing.fakes import COINS

PSRO = """
env: {id: "ludus.testing.fakes:coins", num_envs: 6}
algorithm: {kind: ppo, batch: 24, hidden: [8]}
response: {episodes: 72}
evaluation: {payoffs: simulate, episodes: 20}
generations: 2
checkpoints: {iterations: 2}
runtime: {shards: 3}
"""


def play(folder: Path, *changes: str) -> Result:
    return run(parse_scenario(PSRO, [*changes]), run_dir=folder, report=False)


def log(folder: Path) -> list[Match]:
    with Reader(folder) as reader:
        return [stored.match for stored in reader.matches()]


def same_log(a: list[Match], b: list[Match]) -> bool:
    return len(a) == len(b) > 0 and all(map(same_match, a, b))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return play(tmp_path_factory.mktemp("runs") / "whole")


def test_every_match_has_them_and_they_agree_with_returns(whole: Result) -> None:
    for match in log(whole.run_dir):
        counted = match.statistics
        assert counted is not None
        assert counted.names == COINS
        assert counted.n.tolist() == [[match.n] * 3] * 2
        alone = counted.mean[:, COINS.index("alone")]
        np.testing.assert_allclose(alone - alone[::-1], match.mean)  # who takes alone is paid 1 by the other
        rounds = counted.mean[:, COINS.index("taken")] + counted.mean[:, COINS.index("left")]
        assert rounds[0] == pytest.approx(rounds[1])


def test_means_of_a_policy_are_over_all_of_its_matches(whole: Result) -> None:
    matches = log(whole.run_dir)
    for population, found in enumerate(whole.statistics):
        assert found is not None
        for k, member in enumerate(whole.populations[population]):
            mine = [(m.statistics, policy_key(m.seats[population])) for m in matches]
            parts = [(c.n[population], c.mean[population]) for c, who in mine if c and who == policy_key(member.ref)]
            n = sum(part[0] for part in parts)
            assert found.n[k].tolist() == n.tolist()
            np.testing.assert_allclose(found.mean[k], sum(a * b for a, b in parts) / n)


def test_a_curve_has_those_of_its_episodes(whole: Result) -> None:
    with Reader(whole.run_dir) as reader:
        (curve, *_) = [stored.curve for stored in reader.curves()]
    taken, left = curve["statistics/taken"], curve["statistics/left"]
    np.testing.assert_allclose(taken + left, curve["length"], rtol=1e-5)
    assert (curve["n"] > 0).all()


def test_a_resumed_run_has_the_same_to_the_bit(whole: Result, tmp_path: Path) -> None:
    observer = tools.Impatient(9)
    run(parse_scenario(PSRO), run_dir=tmp_path / "cut", report=False, observer=observer, stop=observer.stop)
    assert observer.stop.requested
    resume(tmp_path / "cut", report=False)
    assert same_log(log(tmp_path / "cut"), log(whole.run_dir))


@pytest.mark.long
def test_subprocesses_bring_the_same(whole: Result, tmp_path: Path) -> None:
    assert same_log(log(play(tmp_path / "apart", "env.workers=2").run_dir), log(whole.run_dir))


@pytest.mark.slow
def test_workers_elsewhere_bring_the_same(whole: Result, tmp_path: Path) -> None:
    folder = play(tmp_path / "workers", "runtime.kind=processes", "runtime.workers=2").run_dir
    assert same_log(log(folder), log(whole.run_dir))


# ---------------------------------------------------------------------------------------------- what shows them


def test_the_report_has_them_by_policy_and_by_opponent(whole: Result) -> None:
    with Reader(whole.run_dir) as reader:
        tables = PANELS["statistics"](reader)
        matches = reader.counted()
    assert [table.names for table in tables] == [[*COINS]] * 2
    newest = tables[0].rows[-1]
    assert newest.policy == whole.populations[0][-1].ref.policy
    found = whole.statistics[0]
    assert found is not None
    assert newest.means == pytest.approx(found.mean[-1].tolist(), rel=1e-5)
    others = dict(newest.against)
    assert list(others) == [member.ref.policy for member in whole.populations[1]]
    first = [m for m in matches if m.profile == (len(whole.populations[0]) - 1, 0)]
    alone = statistics_by_policy([(["me", ""], m.statistics) for m in first], ["me"])
    assert alone is not None
    assert others[whole.populations[1][0].ref.policy] == pytest.approx(alone.mean[0].tolist(), rel=1e-5)


def test_ratings_have_them_beside(whole: Result, capsys: pytest.CaptureFixture[str]) -> None:
    rated = rate_run(whole.run_dir, ["mean_payoff"])
    assert rated.statistics[1] is not None
    assert main(["evaluate", str(whole.run_dir), "--rating", "mean_payoff"]) == 0
    heads = [line.split() for line in capsys.readouterr().out.splitlines() if line.lstrip().startswith("policy")]
    assert [line[-3:] for line in heads] == [[*COINS]] * 2


def test_evaluate_says_them_of_each_seat(whole: Result, capsys: pytest.CaptureFixture[str]) -> None:
    report = evaluate_run(whole.run_dir, episodes=10)
    counted = report.matches[0].statistics
    assert counted is not None
    assert counted.n.tolist() == [[10] * 3] * 2
    assert main(["evaluate", str(whole.run_dir), "--episodes", "10"]) == 0
    assert "Statistics, means per episode" in capsys.readouterr().out


def test_a_tournament_says_them_as_table_json_and_csv(
    whole: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tournament", f"{whole.run_dir}@newest", "random", "--episodes", "10", "--dir", str(tmp_path / "t")]
    assert main(command) == 0
    assert "statistics, means per episode" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["standings"]
    assert main([*command, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["entrant"] for row in rows] == [standing["entrant"] for standing in told]
    for row, standing in zip(rows, told, strict=True):
        assert {name: float(row[name]) for name in COINS} == standing["statistics"]
        assert float(row["mean"]) == standing["mean"]


def test_the_end_of_a_run_shows_the_newest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "coins.yaml").write_text(PSRO.replace("generations: 2", "generations: 1"))
    assert main(["train", str(tmp_path / "coins.yaml"), "--run-dir", str(tmp_path / "run")]) == 0
    assert "Statistics of the newest policies, means per episode" in capsys.readouterr().out


def test_a_table_that_is_too_wide_has_a_line_for_each_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names, rows = ("goals", "passes_completed"), [["0", "new", "1", "2.5"], ["0", "old", "3", "4.5"]]

    def told(width: int) -> list[list[str]]:
        monkeypatch.setattr("ludus.cli.output._PIPE_WIDTH", width)
        statistics_table(("population", "policy"), rows, names, title="Counted", left=(0, 1))
        lines = [line.split() for line in capsys.readouterr().out.splitlines() if "─" not in line]
        assert lines[0] == ["Counted"]
        return lines[1:]

    assert told(80) == [["population", "policy", *names], *rows]
    one, other = ([[head, row[k]] for k, head in enumerate(("population", "policy", *names))] for row in rows)
    assert told(40) == [[*a, b[1]] for a, b in zip(one, other, strict=True)]
    assert told(30) == one + other  # as many columns as there is room for


def test_status_says_those_of_the_newest_policies(whole: Result, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(whole.run_dir)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if "counted" in line]
    newest = [members[-1].ref.policy for members in whole.populations]
    assert [line[1] for line in lines] == [f"{name}:" for name in newest]
    found = whole.statistics[0]
    assert found is not None
    assert float(lines[0][3].rstrip(",")) == pytest.approx(found.mean[-1, 0], abs=5e-3)
    with Reader(whole.run_dir) as reader:
        assert len(reader.counted(last=3)) == 3
        assert same_log(list(reader.counted(last=3)), log(whole.run_dir)[-3:])


def test_status_of_a_run_of_which_nothing_is_known(
    whole: Result, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where every episode was cut off."""
    nothing = tuple(statistics_of(COINS, np.full((1, len(members), 3), np.nan)) for members in whole.populations)
    monkeypatch.setattr(Reader, "statistics", lambda self, last: nothing)
    assert main(["status", str(whole.run_dir)]) == 0
    assert "counted" not in capsys.readouterr().out
