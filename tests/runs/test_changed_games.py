"""A run knows its game: by what the game's files hold, and by its agents' names and spaces; what changed since is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import ludus
from ludus.apps.episodes.recording import record_run
from ludus.core.errors import ConfigError, EnvError, ScenarioError
from ludus.envs.tree.game_tree import compile_tree
from ludus.evaluation.evaluate import evaluate_run
from ludus.runs.runner import resume
from ludus.storage.database import FILE
from ludus.storage.run_dirs import find_run
from ludus.storage.stored_run import open_run
from ludus.tournament.entrants import read_field


def write_matrix(file: Path, rows: list[list[int]]) -> None:
    """A zero-sum game of two players by what the first one earns."""
    cells = " ".join(
        f"{row[k]} {-row[k]}" for k in range(len(rows[0])) for row in rows
    )  # the first player's choice changes fastest
    file.write_text(f'NFG 1 R "game" {{ "A" "B" }} {{ {len(rows)} {len(rows[0])} }}\n\n{cells}\n')


def train(folder: Path, file: Path) -> ludus.Result:
    scenario = ludus.PSRO(env=f"openspiel/nfg_game(filename={file})", algorithm="exact", generations=3)
    return ludus.run(scenario, run_dir=folder, report=False)


def forget_game(folder: Path) -> None:
    """As a run of an older version has it."""
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute("DELETE FROM run WHERE key = 'game'")
        connection.execute("DROP TABLE batches")
        connection.execute("PRAGMA user_version = 7")
        connection.commit()


@pytest.fixture
def game(tmp_path: Path) -> Path:
    return tmp_path / "game.nfg"


def test_games_of_one_name_are_told_apart_by_their_files(tmp_path: Path, game: Path) -> None:
    """The saddle points are 1, 4 and 1, of three files of one name in one process."""
    values = []
    for k, rows in enumerate(([[3, 1], [2, 0]], [[5, 4], [2, 0]], [[3, 1], [2, 0]])):
        write_matrix(game, rows)
        values.append(train(tmp_path / str(k), game).generations[-1].values[0])
    assert values == pytest.approx([1.0, 4.0, 1.0])
    name = f"nfg_game(filename={game})"
    assert compile_tree(name) is compile_tree(name)


def test_a_changed_file_is_refused(tmp_path: Path, game: Path) -> None:
    write_matrix(game, [[3, 1], [2, 0]])
    train(tmp_path / "run", game)
    stored = open_run(tmp_path / "run").info.game
    assert stored is not None
    assert list(stored.files) == [str(game)]
    write_matrix(game, [[5, 4], [2, 0]])
    refused: list[Callable[[], object]] = [
        lambda: evaluate_run(tmp_path / "run", episodes=2),
        lambda: resume(tmp_path / "run", ["generations=5"]),
        lambda: record_run(tmp_path / "run"),
        lambda: ludus.load_policy(tmp_path / "run@best").play(),
    ]
    for ask in refused:
        with pytest.raises(
            EnvError, match=r"the file '.*game.nfg' has changed since the run began .*Restore the file; or give"
        ):
            ask()
    train(tmp_path / "other", game)
    with pytest.raises(
        ConfigError, match=r"when the run of '.*other' began, the file '.*game.nfg' held something else"
    ):
        read_field([str(tmp_path / "run"), str(tmp_path / "other")], env=None, find_run=find_run)
    with pytest.raises(
        ScenarioError, match=r"plays another game of the same name: the file '.*game.nfg' held something else"
    ):
        evaluate_run(tmp_path / "other", episodes=2, policies=[f"{tmp_path}/run@best"])
    write_matrix(game, [[3, 1], [2, 0]])
    assert evaluate_run(tmp_path / "run", episodes=2).exploitability is not None
    assert resume(tmp_path / "run", ["generations=4", "stop=null"]).nash_conv[-1] < 1e-6


def test_a_run_that_does_not_know_its_game_opens_as_before(tmp_path: Path, game: Path) -> None:
    write_matrix(game, [[3, 1], [2, 0]])
    train(tmp_path / "run", game)
    forget_game(tmp_path / "run")
    assert open_run(tmp_path / "run").info.game is None
    write_matrix(game, [[5, 4], [2, 0]])
    assert evaluate_run(tmp_path / "run", episodes=2).exploitability is not None
    assert resume(tmp_path / "run", ["generations=4", "stop=null"]).nash_conv[-1] < 1e-6
    assert open_run(tmp_path / "run").info.game is None


@pytest.mark.slow
def test_agents_go_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each earns 4 × 1, 10 or 100 in an episode, whatever comes first when the run goes on."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "envs"))
    import unsteady_games as games

    played = [
        "generations=1",
        "response.episodes=8",
        "evaluation.episodes=4",
        "env.num_envs=4",
        "algorithm={kind: ppo, hidden: [4]}",
    ]
    first = ludus.run("unsteady_games:Paid", played, run_dir=tmp_path / "run", report=False)
    assert first.payoffs.mean[:, 1, 1, 1].tolist() == pytest.approx([4.0, 40.0, 400.0])
    monkeypatch.setattr(games, "NAMES", ["carol", "alice", "bob"])
    more = resume(tmp_path / "run", ["generations=2"], report=False)
    assert more.payoffs.mean[:, 2, 2, 2].tolist() == pytest.approx([4.0, 40.0, 400.0])
    report = evaluate_run(tmp_path / "run", episodes=4, policies=["@newest"])
    assert report.matches[0].mean.tolist() == pytest.approx([4.0, 40.0, 400.0])
    monkeypatch.setattr(games, "NAMES", ["carol", "alice", "dave"])
    for ask in (lambda: resume(tmp_path / "run", ["generations=3"]), lambda: evaluate_run(tmp_path / "run")):
        with pytest.raises(
            EnvError, match=r"is another game than in the run: its agents are carol, alice, dave, and alice, bob, carol"
        ):
            ask()
