"""`ludus push`, `ludus pull` and `ludus list zoo`: what they say, and what is there afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import synthetic_run as synthetic

import ludus
from ludus.apps.hub.zoo import _returns
from ludus.apps.ui.server.known_runs import entry_id
from ludus.cli import play
from ludus.cli.main import main
from ludus.cli.zoo import _result
from ludus.core.recorders import EMPTY
from ludus.policies.actor_critic import initial_weights
from ludus.policies.file import save_policy
from ludus.policies.specs import mlp_spec
from ludus.storage.manifest import read_manifest
from ludus.storage.run_dirs import MANIFEST
from ludus.storage.stored_run import open_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the run "mine"."""
    folder = tmp_path_factory.mktemp("zoo")
    kuhn = ludus.PSRO(env="openspiel/kuhn_poker", algorithm="exact", generations=2)
    ludus.run(kuhn, run_dir=folder / "runs" / "mine", report=False)
    return folder


def test_nothing_is_minus_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    manifest = ludus.push("mine@best", "signs").manifest
    results = manifest.results.model_copy(update={"values": (0.5, -0.0)})
    assert _result(manifest.model_copy(update={"results": results})) == "returns 0.5, 0"


def test_push_list_pull_and_use(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)

    def says(*line: str, code: int = 0) -> str:
        assert main(list(line)) == code
        out, err = capsys.readouterr()
        return out if code == 0 else err

    assert "`ludus pull zoo/best` fetches it" in says("push", "mine@best", "zoo", "--name", "best", "--note", "CC0")
    pushed = says("push", "mine", "zoo", "--name", "all", "--members")
    assert "run mine, ExactBestResponse, after generation 2, seed 0" in pushed
    assert "6, " in pushed
    listed = says("pull", "zoo")
    assert listed == says("list", "zoo", "zoo")
    first, second = (line.split() for line in listed.splitlines()[2:4])
    assert first[:5] == ["all", "openspiel/kuhn_poker", "ExactBestResponse", "6", "NashConv"]
    assert (second[0], second[3:5], second[-1]) == ("best", ["2", "returns"], "CC0")
    assert "pulled runs/all" in says("pull", "zoo/all")
    assert "all@0/0-2" in says("list", "policies", "all")
    opened: list[str] = []
    monkeypatch.setattr(play, "server_of", lambda options, folders: folders)
    monkeypatch.setattr(play, "serve_until_ctrl_c", lambda server, *, to, browser: opened.append(to) or 0)
    says("play", "all", "--no-open")
    assert opened == [f"#/run/{entry_id(Path('runs/all'))}/play?seats=person%2C%40meta&rated=0&start=1"]
    assert "`ludus pull 'my zoo/best'` fetches it" in says("push", "mine@best", "my zoo", "--name", "best")
    assert "all" not in says("runs")
    assert "is an entry of a zoo" in says("resume", "all", code=2)
    assert "is an entry of a zoo" in says("report", "zoo/all", code=2)
    assert "there is an entry 'runs/all' already" in says("pull", "zoo/all", code=2)
    assert "pulled runs/all" in says("pull", "zoo/all", "--replace", "--no-check-env")
    assert "is a folder of entries, and one was expected: zoo/NAME" in says("pull", "zoo", "there", code=2)
    assert "'zoo' is a zoo, and one of its entries was expected: zoo/all, zoo/best" in says("evaluate", "zoo", code=2)
    assert "relative population performance" in says("evaluate", "mine", "--against", "zoo/best")
    path = Path("zoo/best") / MANIFEST
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "note": "mine"}))
    listed = says("pull", "zoo")
    assert "cannot be used: best: 'zoo/best/manifest.json' was changed since it was signed" in listed
    assert listed.splitlines()[2].startswith("all ") or listed.splitlines()[2].strip().startswith("all")
    assert "was changed since it was signed" in says("evaluate", "zoo/best", code=2)


def test_a_file_is_pushed_with_the_game_of_a_scenario(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As matches are played: without the openings that its training has."""
    monkeypatch.chdir(folder)
    spec = mlp_spec(inputs=27, actions=9, hidden=[2])
    save_policy("clone.safetensors", spec, initial_weights(spec, np.random.default_rng(0)))
    doubled = "env.wrappers=[{kind: scale_reward, factor: 2}]"
    assert main(["push", "clone.safetensors", "games", doubled]) == 2
    assert "was given without --env, which it changes" in capsys.readouterr().err
    assert main(["push", "clone.safetensors", "games", "--env", "tic-tac-toe-muzero", doubled]) == 0
    manifest = read_manifest(Path("games/clone"))
    assert (manifest.game.id, manifest.game.options, manifest.utility_range[0]) == (
        "openspiel/tic_tac_toe",
        {},
        (-2, 2),
    )
    assert open_run(Path("games/clone")).env.tree == "off"


def test_an_entry_that_plays_one_seat(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(["push", "mine@1/1-2", "seats", "--name", "one"]) == 0
    assert main(["pull", "seats/one", "one-seat"]) == 0
    assert "`ludus tournament one-seat random` plays it" in capsys.readouterr().out
    assert main(["list", "policies", "one-seat"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "one-seat@1/1-2" in line)
    assert line.split()[1] == "1"
    assert line.split()[-2:] == ["best,", "strongest"]


def test_a_warning_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The package had another version where the entry was pushed."""
    monkeypatch.chdir(folder)
    with monkeypatch.context() as older:
        older.setattr("ludus.apps.hub.zoo.version", lambda name: "0.9")
        assert main(["push", "mine@best", "old"]) == 0
    assert main(["pull", "old/mine-best", "from-old"]) == 0
    out = capsys.readouterr().out
    assert "warning: It was pushed with open-spiel 0.9, and " in out


def test_returns_of_a_training_curve() -> None:
    """Six episodes, of the returns 1, 3, 2, 4, 3 and 5."""
    found = _returns(synthetic.curve(3))
    assert found is not None
    assert (found.n, found.mean, found.m2) == (6, 3.0, pytest.approx(10.0))
    assert _returns(EMPTY) is None
