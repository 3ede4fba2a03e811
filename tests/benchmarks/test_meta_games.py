"""What the benchmark of meta-solvers shares between its workers: games, gaps, the clock; Ludus's worker; the bars."""

import json
import math

import numpy as np
import pytest

from benchmarks import meta_solvers, meta_solvers_worker
from benchmarks.contestants import Repetition
from benchmarks.harness import Medians
from benchmarks.peers import meta_games
from ludus.metagame.solvers.normal_form import deviation_gains


def test_games_are_the_same_everywhere() -> None:
    """Literal entries: both workers, whatever their versions, must play these."""
    mean = meta_games.game("PRD, zero-sum", 0)
    assert mean.shape == (2, 200, 200)
    np.testing.assert_allclose(mean[0, 0, :2], [0.27392337, -0.46042657], atol=1e-8)
    np.testing.assert_array_equal(mean[1], -mean[0])
    general = meta_games.game("Gini CCE", 0)
    assert not np.array_equal(general[1], -general[0])


def test_gaps_by_hand() -> None:
    """Pennies [[2, -1], [-1, 1]] at uniform: rows could earn 1/2 instead of 1/4, columns lose 0 instead of 1/4."""
    row = np.array([[2.0, -1.0], [-1.0, 1.0]])
    half = np.array([0.5, 0.5])
    mean = np.stack([row, -row])
    assert meta_games.nash_conv(mean, half, half) == pytest.approx(0.5)
    assert meta_games.coarse_gap(mean, np.outer(half, half)) == pytest.approx(0.5)
    # all weight on (0, 0): the row player earns 2, its best; the column player would lose -1 with column 1 instead of 2
    assert meta_games.coarse_gap(mean, np.array([[1.0, 0.0], [0.0, 0.0]])) == pytest.approx(3.0)


def test_gaps_agree_with_ludus() -> None:
    mean = meta_games.game("Gini CCE", 3)
    rng = np.random.default_rng(3)
    x, y = rng.dirichlet(np.ones(20)), rng.dirichlet(np.ones(20))
    assert meta_games.nash_conv(mean, x, y) == pytest.approx(deviation_gains(mean, (x, y)).sum())
    assert meta_games.judged(mean, np.outer(x, y), coarse=False)["gap"] == pytest.approx(
        meta_games.nash_conv(mean, x, y)
    )


def test_short_solves_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    durations = iter([0.1, 0.3, 0.2, 0.1, 0.2, 9.0])
    monkeypatch.setattr("time.process_time", lambda: clock[0])

    def solve(_: np.ndarray) -> int:
        clock[0] += next(durations)
        return 7

    assert meta_games.timed(solve, np.zeros((2, 1, 1))) == (pytest.approx(0.2), 7)
    assert meta_games.timed(solve, np.zeros((2, 1, 1))) == (pytest.approx(9.0), 7)


@pytest.mark.parametrize("case", meta_solvers_worker.SOLVERS)
def test_ludus_answers_every_case(case: str) -> None:
    mean = meta_games.game(case, 1, size=6)
    answer = meta_solvers_worker.SOLVERS[case](mean)
    figures = meta_games.judged(mean, answer, coarse=case == "Gini CCE")
    assert 0.0 <= figures["gap"] < 5.0


def test_the_worker_re_solves(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(meta_games.CASES, "Nash, re-solved", (230, True))
    assert meta_solvers_worker.main(["--case", "Nash, re-solved", "--seed", "0"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    figures = lines[-1]
    assert figures["kind"] == "figures"
    assert figures["Nash, re-solved: gap"] <= meta_games.NASH_GAP
    assert figures["Nash, re-solved: warm seconds"] > 0


def measured(case: str, seconds: float, gaps: list[float]) -> list[Repetition]:
    return [Repetition(seed, {f"{case}: seconds": seconds, f"{case}: gap": gap}) for seed, gap in enumerate(gaps)]


def test_bars() -> None:
    """Times are of medians, gaps of the worst seed that both have."""
    case = "Gini CCE"
    medians = Medians(
        {
            f"Ludus, {case}": measured(case, 0.5, [0.1, 0.2, 0.9]),
            f"OpenSpiel, {case}": measured(case, 10.0, [0.1, 0.1]),
        }
    )
    outcomes = {bar.name: bar.judge(medians) for bar in meta_solvers.BENCHMARK.bars}
    assert outcomes["Gini CCE, times OpenSpiel"].value == pytest.approx(20.0)
    assert outcomes["Gini CCE, times OpenSpiel"].verdict == "met"
    relative = outcomes["Gini CCE, gap relative to OpenSpiel's"]
    assert relative.value is not None
    assert math.isclose(relative.value, 2.0, rel_tol=1e-6)
    assert relative.verdict == "short"
    assert outcomes["Nash 1000 x 1000"].verdict == "unjudged"
