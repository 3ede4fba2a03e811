"""Two runs against each other: by hand, by linear programs of the tree's payoffs, and by play."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

import ludus
from ludus.cli.main import main
from ludus.core.errors import ConfigError, ScenarioError
from ludus.envs.tree.game_tree import compile_tree
from ludus.evaluation.population_exploitability import stored_plans
from ludus.metagame.population.base import Payoffs
from ludus.storage.stored_run import StoredRun
from ludus.tournament import cross_play as against
from ludus.tournament.cross_play import population_performance


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kuhn poker: "good" (4 generations of exact responses), "poor" (1); rock, paper, scissors: "hands" and "fists"; three players."""
    folder = tmp_path_factory.mktemp("against") / "runs"
    made = {
        "good": ("kuhn_poker", 4),
        "poor": ("kuhn_poker", 1),
        "hands": ("matrix_rps", 2),
        "fists": ("matrix_rps", 1),
    }
    for name, (game, generations) in {**made, "three": ("kuhn_poker(players=3)", 1)}.items():
        env = ludus.Environment(id=f"openspiel/{game}", num_envs=50)
        solver = "fictitious_play" if name == "three" else "nash"
        ludus.run(
            ludus.PSRO(env=env, algorithm="exact", generations=generations, meta_solver=solver),
            run_dir=folder / name,
            report=False,
        )
    return folder


def value(matrix: np.ndarray) -> float:
    """Of a matrix game, by its linear program: the most that every column leaves."""
    n, m = matrix.shape
    answer = linprog(
        np.r_[np.zeros(n), -1.0],
        A_ub=np.c_[-matrix.T, np.ones(m)],
        b_ub=np.zeros(m),
        A_eq=np.r_[np.ones(n), 0.0][None],
        b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)],
    )
    return float(-answer.fun)


def test_a_tree_gives_the_mean_of_two_games(runs: Path) -> None:
    tree = compile_tree("kuhn_poker")
    good, poor = (stored_plans(StoredRun(runs / name), tree) for name in ("good", "poor"))
    as_first = value(tree.payoffs([good[0], poor[1]])[0])
    as_second = -value(tree.payoffs([poor[0], good[1]])[0])
    found = ludus.evaluate_cross_play(runs / "good", runs / "poor")
    assert [game.value for game in found.seats] == pytest.approx([as_first, as_second], abs=1e-5)
    assert found.value == pytest.approx((as_first + as_second) / 2, abs=1e-5)
    assert found.value > 0.1
    assert (found.exact, found.deals, found.half_width) == (True, 0, 0.0)
    assert found.names[1] == ("0-0", "0-1", "1-0", "1-1")
    turned = ludus.evaluate_cross_play(runs / "poor", runs / "good")
    assert turned.value == pytest.approx(-found.value, abs=1e-5)


def test_play_comes_near_what_the_tree_says(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ludus.evaluate_cross_play(runs / "good", runs / "poor").value
    monkeypatch.setattr(against, "computable", lambda field: False)
    said: list[tuple[int, int]] = []
    found = ludus.evaluate_cross_play(runs / "good", runs / "poor", deals=400, tell=lambda *told: said.append(told))
    assert (found.exact, found.deals) == (False, 400)
    assert 0 < found.half_width < 0.2  # rounding decides between equal responses, and so what is mixed
    assert abs(found.value - wanted) < 2 * found.half_width
    with pytest.raises(
        ConfigError, match=r"device=cuda says where exact values are computed, and this game has no tree"
    ):
        ludus.evaluate_cross_play(runs / "good", runs / "poor", device="cuda")
    good = StoredRun(runs / "good")
    sizes = [len(good.members[p]) for p in (0, 1)]
    games = 400 * 2 * sum(sizes)
    assert said[-1] == (games, games), "the policies of one meet 2 of the other in two pairs of seats, 400 times"


def test_players_of_one_population_play_one_game(runs: Path) -> None:
    """Each has the uniform policy, which earns nothing from anybody, nor pays."""
    found = ludus.evaluate_cross_play(runs / "hands", runs / "fists")
    assert len(found.seats) == 1
    assert found.value == pytest.approx(0.0, abs=1e-6)


def test_the_variance_is_that_of_the_cells_that_are_played() -> None:
    """A saddle point at (0, 1), worth 1: M2 of 12 over 4 episodes is a variance of the mean of 1, with 3 degrees of freedom, so that the
    spread is 1 / 3. The other cells do not count."""
    mean = np.array([[[2.0, 1.0], [3.0, -1.0]]])
    m2 = np.array([[[99.0, 12.0], [99.0, 99.0]]] * 2)
    count = np.full((2, 2), 4)
    payoffs = Payoffs(np.concatenate([mean, -mean]), count, m2, count < 0, ((-9, 9),) * 2, (0, 1), True)
    found = population_performance(payoffs, [0, 1], [0, 1])
    assert (found.value, found.variance) == (pytest.approx(1.0, abs=1e-4), pytest.approx(1.0, abs=1e-3))
    assert found.spread == pytest.approx(1 / 3, abs=1e-3)
    assert found.mixtures[1].tolist() == pytest.approx([0, 1], abs=1e-3)


def test_a_meeting_in_both_orders_of_seats_has_its_own_degrees_of_freedom() -> None:
    """M2 of 6 over 3 deals: variance 1, spread 1 / 2. Tournaments have it in both orders, twice as large in each."""
    count, m2 = np.array([[0, 3], [3, 0]]), np.array([[[0.0, 12.0], [12.0, 0.0]]] * 2)
    mean = np.array([[[np.nan, 0.5], [-0.5, np.nan]], [[np.nan, -0.5], [0.5, np.nan]]])
    payoffs = Payoffs(mean, count, m2, count < 0, ((-1, 1),) * 2, (0, 0), True)
    found = population_performance(payoffs, [0], [1])
    assert (found.value, found.variance, found.spread) == pytest.approx((0.5, 1.0, 0.5))


def test_cross_play_rejects_invalid_arguments(runs: Path) -> None:
    with pytest.raises(ConfigError, match="was given twice; a run is as good as itself"):
        ludus.evaluate_cross_play(runs / "good", runs / ".." / "runs" / "good")
    with pytest.raises(ConfigError, match="is of one game"):
        ludus.evaluate_cross_play(runs / "good", runs / "hands")
    copied = runs.parent / "copied"
    shutil.copytree(runs / "three", copied)
    with pytest.raises(ScenarioError, match=r"has 3 players\. Hold a tournament"):
        ludus.evaluate_cross_play(runs / "three", copied)


def test_the_command(runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(runs.parent)
    assert main(["evaluate", "good", "--against", "poor"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "openspiel/kuhn_poker: good against poor, computed; the best mixtures of their policies"
    assert lines[-4] == "Above 0, good is the better population"
    assert lines[-3].startswith("relative population performance +0.")
    assert lines[-2].startswith("of good as player 0 ")
    told = [line.split()[:3] for line in lines[3:-4]]
    assert {tuple(words) for words in told} == {(run, "player", seat) for run in ("good", "poor") for seat in "01"}
    assert main(["evaluate", "good", "--against", "nobody"]) == 2
    assert "there is no run 'nobody'" in capsys.readouterr().err
