"""`ludus record` on runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.cli import record as command
from ludus.cli.main import main

CARTPOLE = """
scenario: psro
env: {id: gymnasium/CartPole-v1, num_envs: 8, wrappers: [{kind: frame_stack, k: 2}, flatten_observation]}
algorithm: {kind: ppo, batch: 200}
meta_solver: uniform
generations: 1
response: {episodes: 20}
evaluation: {episodes: 20}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `k`: Kuhn poker, exactly solved."""
    folder = tmp_path_factory.mktemp("record")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "kuhn", "generations=2", "--name", "k"]) == 0
    (folder / "mine.txt").write_text("precious")
    return folder


@pytest.fixture(autouse=True)
def there(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)


def test_a_run_s_meta_strategies_are_recorded_beside_it(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "k"]) == 0
    out = capsys.readouterr().out
    assert "  file       runs/k/episode.txt\n" in out
    text = (runs / "runs/k/episode.txt").read_text()
    assert text.startswith("kuhn_poker, seed ")
    assert main(["record", "k"]) == 0
    assert (runs / "runs/k/episode.txt").read_text() == text  # the same seed, the same episode


def test_policies_episodes_and_file_can_be_chosen(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["record", "k", "--policies", "@0/0-1", "@meta", "--episodes", "3", "--seed", "7", "--out", "x.txt"]) == 0
    )
    assert (runs / "x.txt").read_text().count("returns: ") == 3
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["episode", "1"],
        ["episode", "2"],
        ["episode", "3"],
    ]


def test_policies_of_a_run_are_named_and_listed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "k@best", "--seed", "3", "--out", "one.txt"]) == 0
    assert main(["record", "k", "--policies", "@best", "--seed", "3", "--out", "two.txt"]) == 0
    assert (runs / "one.txt").read_bytes() == (runs / "two.txt").read_bytes()
    assert main(["evaluate", "k@best", "--episodes", "2"]) == 0
    assert "\n@best\n  NashConv" in capsys.readouterr().out
    assert main(["list", "policies", "k"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    listed = [row for row in rows if row and row[0].startswith("k@")]
    assert [row[:2] for row in listed] == [[f"k@{p}/{p}-{g}", str(p)] for p in (0, 1) for g in range(3)]
    assert sum("best" in (word.strip(",") for word in row) for row in listed) == 2
    for line, words in (
        (["record", "k@best", "--policies", "@meta"], "'k@best' and --policies were given, and both say who plays"),
        (["report", "k@best"], "'k@best' names what run 'k' has, and a whole run is wanted here. Give 'k'"),
        (["evaluate", "k:newest"], "'k:newest' names what run 'k' has, and that is named with @"),
        (["list", "policies"], "of which run? `ludus list policies RUN`"),
        (["train", "kuhn", "--name", "a@b"], "--name 'a@b' cannot name a folder"),
    ):
        assert main(line) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--policies", "@0/0-9", "@meta"], "has no '0/0-9' to be named after the @; did you mean '0/0-"),
        (["--policies", *["@meta"] * 3], "3 policies were given; one for each of 2 players is needed"),
        (["--policies", "@1/1-0", "@meta"], "policy '@1/1-0' cannot play as player 0; @0/0-0 to @0/0-2 can"),
        (["--out", "x.avi"], "a name that ends in .gif, .mp4, .txt, .html or .json is needed"),
        (["--out", "nowhere/x.gif"], "there is no folder 'nowhere'"),
        (
            ["--out", "x.gif", "--episodes", "2"],
            "a .gif of a board is of one episode, and --episodes 2 was given. Leave it out, or name a .txt file",
        ),
        (["--out", ""], "'' was given, a file was expected"),
        (["--out", "runs/k"], "a name that ends in"),
        (["--out", "mine.txt"], "'mine.txt' is there already; --overwrite replaces it"),
        (["--fps", "200"], "200 images a second were given; 1 to 100 can be shown"),
        (["--episodes", "0"], "argument --episodes: 0 was given"),
    ],
)
def test_mistakes(runs: Path, line: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(runs.iterdir())
    assert main(["record", "k", *line]) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert err.count("\n") == 1
    assert out == ""
    assert sorted(runs.iterdir()) == before
    assert (runs / "mine.txt").read_text() == "precious"


def test_a_file_is_replaced_when_that_is_asked_for(runs: Path) -> None:
    (runs / "old.TXT").write_text("old")
    assert main(["record", "k", "--out", "old.TXT", "--overwrite"]) == 0
    assert (runs / "old.TXT").read_text().startswith("kuhn_poker, seed ")


def test_progress_is_told_once_it_takes_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    tell = command._Progress(2)
    for step, now in enumerate([1.0, 2.1, 2.9, 3.2]):
        clock[0] = now
        tell(1, step)
    assert capsys.readouterr().err == "episode 2 of 2, step 1\nepisode 2 of 2, step 3\n"


def test_decisions_are_written_to_learn_from(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    from ludus.replay.parquet import read_trajectories

    line = ["record", "k", "--trajectories", "games.parquet", "--episodes", "30", "--seed", "2"]
    assert main(line) == 0
    out = capsys.readouterr().out
    assert "  file       games.parquet\n" in out
    found = read_trajectories(runs / "games.parquet")
    assert f"  decisions  {sum(t.num_rows for t in found.trajectories)}\n" in out
    assert found.origin.notes["run"] == "k"
    assert found.origin.notes["environment"]["id"] == "openspiel/kuhn_poker"
    assert sum(len(set(t.episode.tolist())) for t in found.trajectories) == 60
    before = (runs / "games.parquet").read_bytes()
    assert main(line) == 2
    assert "--trajectories 'games.parquet' is there already; --overwrite replaces it" in capsys.readouterr().err
    assert main([*line, "--overwrite"]) == 0
    assert (runs / "games.parquet").read_bytes() == before
    chosen = ["--policies", "@0/0-1", "@meta", "--players", "0", "--num-envs", "2", "--overwrite"]
    assert main([*line, *chosen]) == 0
    assert "  player 0   k@0/0-1, 30 episodes\n" in capsys.readouterr().out
    assert [t.policy for t in read_trajectories(runs / "games.parquet").trajectories] == ["k@0/0-1"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--trajectories", "x.csv"], "a name that ends in .parquet is needed"),
        (["--trajectories", "x.parquet", "--out", "x.gif"], "--out is of films; it is of no use with --trajectories"),
        (["--trajectories", "x.parquet", "--fps", "3"], "--fps is of films"),
        (["--players", "0"], "--players is of no use without --trajectories"),
        (["x.html", "--players", "0"], "--players is of no use without --trajectories"),
        (["x.html", "--fps", "3"], "--fps is of films, whose names end in .gif"),
        (["--num-envs", "3"], "--num-envs is of no use without --trajectories"),
        (["--trajectories", "x.parquet", "--players", "2"], "players: 2 is no player"),
        (
            ["--trajectories", "x.parquet", "--policies", "@0/0-9", "@meta"],
            "has no '0/0-9' to be named after the @; did you mean '0/0-",
        ),
    ],
)
def test_mistakes_with_trajectories(
    runs: Path, line: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    before = sorted(runs.iterdir())
    assert main(["record", "k", *line]) == 2
    assert words in capsys.readouterr().err
    assert sorted(runs.iterdir()) == before


@pytest.mark.slow
def test_a_run_of_gymnasium_is_filmed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pygame")
    imageio = pytest.importorskip("imageio.v3")
    (runs / "cart.yaml").write_text(CARTPOLE)
    assert main(["train", "cart.yaml", "--name", "c"]) == 0
    capsys.readouterr()
    assert main(["record", "c", "--steps", "40"]) == 0
    assert " of 600 × 400" in capsys.readouterr().out
    assert imageio.imread(runs / "runs/c/episode.gif").shape[1:] == (400, 600, 3)
