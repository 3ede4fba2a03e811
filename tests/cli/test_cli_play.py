"""`ludus play`, and replays by `ludus record`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import ludus
from ludus.cli.main import main
from ludus.cli.play import board_lines, numbers_of


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `k`: Kuhn poker, exactly solved."""
    folder = tmp_path_factory.mktemp("play")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "kuhn", "generations=2", "--name", "k"]) == 0
    return folder


@pytest.fixture(autouse=True)
def there(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)


def typed(monkeypatch: pytest.MonkeyPatch, lines: Sequence[str]) -> None:
    left = iter(lines)

    def answer(_: str = "") -> str:
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", answer)


def test_a_game_in_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    typed(monkeypatch, ["nonsense", "7", "Bet", "1", "n"])
    assert main(["play", "k@best", "--text", "--hints", "--name", "Ada"]) == 0
    out = capsys.readouterr().out
    assert "@best: ??  1 in the pot" in out
    assert "  2  Bet  (@meta " in out
    assert ", value " in out
    assert "'nonsense' is no move" in out
    assert "'7' is no move" in out
    assert "The game is over (terminated): Ada " in out
    assert "??" not in out.rpartition("in the pot\n")[0].rpartition("\n\n")[2]  # in the end all is shown


def test_a_slip_for_one_of_two_agents_does_not_move_the_others_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    """One player holds both of the game's, in a wrapper: each is asked in its turn, and again after the slip."""
    env = {
        "id": "openspiel/goofspiel(num_cards=3,points_order=descending)",
        "num_envs": 2,
        "tree": "off",
        "wrappers": [{"kind": "group_players", "mapping": {"*": 0}}],
    }
    scenario = ludus.FixedOpponents(env=env, algorithm="a2c", generations=1, response={"episodes": 2})
    ludus.run(scenario, run_dir=runs / "runs/team", report=False)
    typed(monkeypatch, ["nonsense", "3", "1", "2", "1"])
    assert main(["play", "team", "--text", "--name", "Ada"]) == 0
    out = capsys.readouterr().out
    assert re.findall("'.*' is no move", out) == ["'nonsense' is no move"]
    assert re.findall("Ada: bid .", out) == ["Ada: bid 1", "Ada: bid 3", "Ada: bid 2", "Ada: bid 1"]
    assert "The game is over (terminated): Ada " in out
    assert main(["record", "team", "team.json"]) == 0
    assert main(["debug", "team", "--script", "see"]) == 0


def test_one_leaves_with_q(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    typed(monkeypatch, ["q"])
    assert main(["play", "k", "--text"]) == 0
    assert "over" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["k", "--text", "--seat", "2"], "has the players 0 to 1"),
        (["k", "--text", "--against", "random", "random"], "2 opponents were given; the game has 1"),
        (["k@best", "--text", "--against", "random"], "both say who plays"),
        (["k", "--text", "--against", "person"], "has one seat for a person"),
        (["k", "--text", "--against", "nobody"], "was given for a seat"),
        (["k", "--against", "bot:mcts,simulations=9"], "bot:NAME without options, such as bot:mcts-1000"),
        (["k", "--watch-only"], "with which nobody may play"),
        (
            ["k", "--text", "--port", "1", "--no-steering"],
            "--text was given with --port, --no-steering: in the terminal nothing",
        ),
        (["nope"], "nope"),
    ],
)
def test_play_rejects_bad_arguments(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_replays_are_written_and_kept(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "k@best", "game.json", "--seed", "3", "--keep"]) == 0
    out = capsys.readouterr().out
    replay = json.loads((runs / "game.json").read_text())
    assert [seat["name"][:2] for seat in replay["seats"]] == ["@0", "@1"]
    [kept] = (runs / "runs/k/replays").glob("*.json")
    assert json.loads(kept.read_text()) == replay
    assert f"runs/k/replays/{kept.name}" in out
    assert main(["debug", "k@best", "--seed", "3", "--script", "save e.jsonl"]) == 0
    assert main(["record", "e.jsonl", "again.json"]) == 0
    again = json.loads((runs / "again.json").read_text())
    assert [frame["board"]["seats"][0]["cards"] for frame in again["frames"]] == [
        frame["board"]["seats"][0]["cards"] for frame in replay["frames"]
    ]


def test_a_replay_is_one_page(runs: Path) -> None:
    assert main(["record", "k@best", "game.html", "--seed", "3"]) == 0
    page = (runs / "game.html").read_text()
    assert '"kicker": "Ludus replay"' in page
    assert '"replay":{"game":"openspiel/kuhn_poker"' in page
    assert main(["record", "k@best", "game.html"]) == 2  # it is there
    assert main(["record", "k@best", "game.gif"]) == 0
    assert (runs / "game.gif").read_bytes()[:6] == b"GIF89a"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["e.jsonl"], "say where its replay is to go"),
        (["k", "x.json", "--episodes", "2"], "a replay is of one episode"),
        (["k", "x.json", "--out", "y.json"], "Leave one out"),
        (["k", "x.txt", "--keep"], "a name that ends in .html, .json, .gif or .mp4"),
        (["k", "nowhere/x.json"], "there is no folder 'nowhere'"),
    ],
)
def test_replays_that_are_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_numbers_of_choices_are_those_in_their_names() -> None:
    assert numbers_of(["column 1", "column 4", "column 7"]) == ["1", "4", "7"]
    assert numbers_of(["pass", "bet"]) == ["1", "2"]
    assert numbers_of(["row 1 column 3", "row 2 column 3"]) == ["1", "2"]


def test_boards_as_text() -> None:
    labels = {"rows": ["1", "2"], "columns": ["a", "b"]}
    grid = {"kind": "grid", "shape": "square", "rows": 2, "cells": [["0", ""], ["?", "1"]], "labels": labels}
    assert list(board_lines(grid)) == ["1 x .", "2 ? o", "  a b"]
    assert list(board_lines({**grid, "shape": "hex"})) == ["1 x .", " 2 ? o", "    a b"]
    assert list(board_lines({"kind": "matrix", "actions": [["L", "R"], ["U"]]})) == ["player 0: L, R", "player 1: U"]
    [picture] = board_lines({"kind": "frame", "width": 4, "height": 3})
    assert "4 × 3" in picture
