"""ludus tournament: the tables, JSON, progress, and one line for what is refused."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from run_tools import always

import ludus
from ludus.cli import tournament
from ludus.cli.main import main
from ludus.cli.progress_line import EpisodesProgress

BOTS = Path(__file__).parents[1] / "evaluation"


TWO = ["own_bots:First", "own_bots:First,last=true", "--env", "openspiel/kuhn_poker"]
BY_HAND = ["tournament", *TWO, "--episodes", "10", "--dir", "played"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run "mine", and with what BY_HAND plays."""
    folder = tmp_path_factory.mktemp("made")
    kuhn = ludus.Environment(id="openspiel/kuhn_poker", num_envs=16)
    ludus.run(ludus.PSRO(env=kuhn, algorithm="exact", generations=2), run_dir=folder / "runs" / "mine", report=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path, str(BOTS)])
        assert main(BY_HAND) == 0
    return folder


@pytest.fixture(autouse=True)
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(BOTS)])


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["tournament", "mine", "mine@newest", "bot:random", "--episodes", "50"]
    assert main(line) == 0
    found = lines(capsys)
    assert found[0] == "openspiel/kuhn_poker, 3 entrants, 300 episodes; ordered by mean return"
    assert found[1].split() == [
        "entrant",
        "bradley_terry,",
        "95%",
        "mean",
        "return,",
        "95%",
        "won/drawn/lost",
        "episodes",
    ]
    places = {row.split()[1]: row.split() for row in found[3:6]}
    assert set(places) == {"mine", "mine@newest", "bot:random"}
    assert places["bot:random"][-1] == "200"
    assert sum(map(int, places["bot:random"][-2].split("/"))) == 200
    assert "mean return of the row's entrant against the column's, over all seats" in found
    assert found[-1] == "results: tournaments/kuhn_poker"
    assert Path("tournaments/kuhn_poker/tournament.db").is_file()
    assert main(line) == 0
    assert lines(capsys) == found


def test_computed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tournament", "mine", "bot:random", "--exact"]) == 0
    found = lines(capsys)
    assert found[0] == "openspiel/kuhn_poker, 2 entrants, computed; ordered by mean return"
    assert found[1] == "entrant mean return"
    assert found[3].startswith("1 mine +0.")
    assert len(found) == 5
    assert main(["tournament", "mine", "bot:random", "--exact", "--csv"]) == 0
    heading, first, _ = (line.split(",") for line in capsys.readouterr().out.splitlines())
    unknown = [name for name, cell in zip(heading, first, strict=True) if not cell]
    assert unknown == ["rating", "low", "high", "won", "drawn", "lost"], "nothing was played"
    assert not Path("tournaments").exists()


def test_ratings_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """One bets always, the other passes always: every episode pays 1. Shares and payoffs are those of the better one, and its copy."""
    assert main([*BY_HAND, "--rating", "mean_payoff,alpha_rank", "--rating", "elo,prior=2"]) == 0
    found = lines(capsys)
    assert found[0] == "openspiel/kuhn_poker, 2 entrants, 20 episodes; ordered by mean_payoff"
    assert found[1].split()[:6] == ["entrant", "mean_payoff,", "95%", "alpha_rank", "elo,prior=2,", "95%"]
    assert found[3].startswith("1 own_bots:First,last=true 1.0000 [1.0000, 1.0000] 1.0000 ")
    assert found[4].startswith("2 own_bots:First -1.0000 [-1.0000, -1.0000] 0.0000 ")
    assert "note: mean_payoff: 2 of 4 profiles were never played, and are left out" in found
    computed = ["tournament", "mine", "mine@newest", "bot:random", "--exact", "--rating"]
    assert main([*computed, "nash_average", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rating"], told["order"]) == ("nash_average", "nash_average")
    best = told["standings"][0]
    assert best["ratings"] == {"nash_average": {"rating": best["rating"], "low": None, "high": None}}
    assert told["standings"][-1]["entrant"] == "bot:random"
    assert main([*computed, "elo"]) == 2
    assert "error: elo rates by episodes that were played" in capsys.readouterr().err


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The numbers of a game that can be counted: one passes always, the other bets always."""
    assert main([*BY_HAND, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["env"], found["rating"], found["episodes"]) == ("openspiel/kuhn_poker", "bradley_terry", 20)
    assert found["order"] == "mean return"
    best, worst = found["standings"]
    assert (best["entrant"], best["mean"], best["won"], worst["lost"]) == ("own_bots:First,last=true", 1.0, 20, 20)
    (meeting,) = found["meetings"]
    assert (meeting["deals"], meeting["mean"], meeting["half_width"]) == (10, [-1.0, 1.0], [0.0, 0.0])
    assert meeting["orders"][1] == {
        "seats": ["own_bots:First,last=true", "own_bots:First"],
        "mean": [1.0, -1.0],
        "wins": [[10, 0, 0], [0, 0, 10]],
    }


def test_a_budget(capsys: pytest.CaptureFixture[str]) -> None:
    """Who passes always loses every deal to who bets always, so 44 deals decide; two that are one are never told apart."""
    for action, name in enumerate(("passes", "bets")):
        always(action, Path(f"{name}.safetensors"))
    shutil.copy("bets.safetensors", "too.safetensors")
    line = ["tournament", "passes.safetensors", "bets.safetensors", *TWO[2:], "--budget", "500"]
    assert main(line) == 0
    assert lines(capsys)[-2] == "orders: 1 of 1 decided with confidence 0.95, by 88 episodes of 500"
    assert main([*line, "--confidence", "0.999", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["episodes"] > 88
    assert told["orders"] == {"confidence": 0.999, "budget": 500, "number": 1, "undecided": []}
    alike = ["tournament", "too.safetensors", "bets.safetensors", *TWO[2:], "--dir", "alike", "--budget", "50"]
    assert main(alike) == 0
    assert lines(capsys)[-3:-1] == [
        "orders: 0 of 1 decided with confidence 0.95, by 50 episodes of 50",
        "undecided: bets.safetensors or too.safetensors",
    ]
    assert main([*alike, "--json"]) == 0
    pair = {"entrants": ["bets.safetensors", "too.safetensors"], "company": []}
    assert json.loads(capsys.readouterr().out)["orders"]["undecided"] == [pair]


def test_games_of_one_name_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tournament", "mine", "random", "--env", "pgx/kuhn_poker"]) == 2
    error = capsys.readouterr().err
    assert "a tournament is of one game" in error
    assert "pgx/kuhn_poker: the first player is drawn, 0 is bet" in error


def test_many_entrants_have_no_cross_table_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["tournament", "mine", "mine@newest", "random", "--episodes", "2"]
    tournament_cross = "mean return of the row's entrant against the column's, over all seats"
    assert main(line) == 0
    assert tournament_cross in lines(capsys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tournament, "_CROSS", 2)
        assert main(line) == 0
        assert tournament_cross not in lines(capsys)
        assert main([*line, "--cross"]) == 0
        assert tournament_cross in lines(capsys)


def test_progress_says_how_long(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    progress = EpisodesProgress()
    now = 100.0  # that starting took
    progress(5, 100)
    now = 110.0
    progress(25, 100)
    now = 110.5
    progress(50, 100)
    progress.close()
    assert capsys.readouterr().err == "5 of 100 episodes\n25 of 100 episodes, about 37.5s left\n"
