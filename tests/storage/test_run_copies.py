"""Copies of runs that run, and what is damaged in one."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

import ludus
from ludus.apps.hub import copies
from ludus.apps.hub.copies import copy_run, verify_run
from ludus.cli.main import main
from ludus.core.errors import RunError
from ludus.storage.run_notes import make_notes, read_notes, write_notes

SHORT = [
    "generations=3",
    "response.episodes=100",
    "checkpoints.iterations=1",
    "evaluation={payoffs: simulate, episodes: 10}",
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run whose policies have weights."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    ludus.run("kuhn", ["algorithm=ppo", *SHORT], run_dir=folder, report=False)
    return folder


@pytest.fixture
def run_dir(whole: Path, tmp_path: Path) -> Path:
    assert copy_run(whole, tmp_path / "run") == []
    return tmp_path / "run"


def places(run_dir: Path) -> list[str]:
    return [damage.place for damage in verify_run(run_dir)]


def test_a_copy_is_whole_and_can_be_extended(whole: Path, run_dir: Path) -> None:
    assert places(whole) == places(run_dir) == []
    assert ludus.resume(run_dir, ["generations=4"], report=False).generations[-1].number == 4
    assert not list(run_dir.parent.glob(".*"))


def test_nothing_is_copied_over_what_is_there(whole: Path, run_dir: Path) -> None:
    names = sorted(run_dir.iterdir())
    with pytest.raises(RunError, match="is not empty"):
        copy_run(whole, run_dir)
    assert sorted(run_dir.iterdir()) == names


def test_a_copy_has_tags_and_notes(run_dir: Path, tmp_path: Path) -> None:
    notes = make_notes(["final"], "as in the paper")
    write_notes(run_dir, notes)
    assert copy_run(run_dir, tmp_path / "again") == []
    assert read_notes(tmp_path / "again") == notes
    assert places(tmp_path / "again") == []


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_damaged_files_are_named_with_what_they_cost(run_dir: Path) -> None:
    policy = next((run_dir / "policies").rglob("*.safetensors"))
    flip(policy)
    newest = max((run_dir / "checkpoint").iterdir())
    flip(newest / "arrays.safetensors")
    (run_dir / "scenario.yaml").write_text("scenario: psro\n")
    damages = {damage.place: damage for damage in verify_run(run_dir)}
    assert damages.keys() == {str(policy.relative_to(run_dir)), f"checkpoint/{newest.name}", "scenario.yaml"}
    assert damages[f"checkpoint/{newest.name}"].cost.startswith("`ludus resume` continues from ")
    policy.unlink()
    assert "is missing" in {damage.what for damage in verify_run(run_dir)}


def test_rows_that_name_nothing_are_found(run_dir: Path) -> None:
    with closing(sqlite3.connect(run_dir / "ludus.db")) as connection, connection:
        connection.execute("DELETE FROM policies WHERE id = '0-3'")
    damaged = places(run_dir)
    assert "ludus.db, generation 3" in damaged
    assert any(place.startswith("ludus.db, match ") for place in damaged)
    with closing(sqlite3.connect(run_dir / "ludus.db")) as connection, connection:
        connection.execute("UPDATE generations SET marginals = x'00' WHERE number = 2")
    assert "ludus.db, table generations" in places(run_dir)


def change(run_dir: Path, sql: str) -> None:
    with closing(sqlite3.connect(run_dir / "ludus.db")) as connection, connection:
        connection.execute(sql)


def test_a_cell_that_a_run_goes_on_with(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run_dir.parent)
    change(run_dir, "UPDATE generations SET episodes = episodes + 1 WHERE number = 2")
    (damage,) = verify_run(run_dir)
    assert (damage.place, damage.cost[:15]) == ("ludus.db, table generations", "meta-strategies")
    assert "generation 2: the row (number 2) was changed" in damage.what
    content = (run_dir / "ludus.db").read_bytes()
    assert main(["resume", "./run", "generations=4"]) == 2
    error = capsys.readouterr().err
    assert "table generations, batch" in error
    assert "`ludus verify run` lists" in error
    assert (run_dir / "ludus.db").read_bytes() == content
    with pytest.warns(ludus.RunWarning, match="generation 2: the row"):
        assert main(["report", "./run", "--out", "report.html"]) == 0
    assert "the row (number 2) was changed" in Path("report.html").read_text()
    with pytest.warns(ludus.RunWarning, match="generation 2: the row"):
        main(["evaluate", "./run"])
    assert main(["status", "./run"]) == 0
    assert "the row (number 2) was changed" in " ".join(capsys.readouterr().out.split())
    (missing,) = copy_run(run_dir, tmp_path / "other")
    assert "the row (number 2) was changed" in missing


def test_a_cell_that_is_for_people_only(run_dir: Path) -> None:
    change(run_dir, "UPDATE metrics SET value = value + 1 WHERE step = 2")
    assert {damage.place for damage in verify_run(run_dir)} == {"ludus.db, table metrics"}
    with pytest.warns(ludus.RunWarning, match="table metrics"):
        result = ludus.resume(run_dir, ["generations=4"], report=False)
    assert result.generations[-1].number == 4
    assert any("table metrics" in warning.text for warning in result.warnings)


def test_an_index_that_is_damaged(run_dir: Path) -> None:
    with closing(sqlite3.connect(run_dir / "ludus.db")) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_master WHERE name = 'sqlite_autoindex_matches_1'")
    assert verify_run(run_dir)


def test_a_run_without_hashes(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run_dir.parent)
    change(run_dir, "DROP TABLE batches")
    change(run_dir, "PRAGMA user_version = 7")
    assert main(["verify", "./run"]) == 0
    assert "The rows have no hashes" in capsys.readouterr().out
    ludus.resume(run_dir, ["generations=4"], report=False)
    assert main(["verify", "./run"]) == 0
    assert "no hashes" not in capsys.readouterr().out


def test_a_database_that_cannot_be_read(run_dir: Path) -> None:
    (run_dir / "ludus.db").write_bytes(b"SQLite format 3\0" + b"\1" * 4096)
    (damage,) = verify_run(run_dir)
    assert (damage.place, damage.cost) == ("ludus.db", "the run cannot be read, resumed or evaluated")


def test_what_the_original_lacks_is_said(run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_PAUSE", 0.0)
    policy = next((run_dir / "policies").rglob("*.safetensors"))
    flip(policy)
    assert copy_run(run_dir, tmp_path / "other") == [f"{policy.relative_to(run_dir)} is not what the database names"]


def test_commands(run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(run_dir.parent)
    assert main(["verify", "./run"]) == 0
    assert "nothing is damaged" in capsys.readouterr().out
    assert main(["copy", "./run", "again"]) == 0
    assert "ludus resume again" in capsys.readouterr().out
    next((run_dir / "policies").rglob("*.safetensors")).unlink()
    assert main(["verify", "./run"]) == 2
    assert "is missing" in capsys.readouterr().out
    assert main(["verify", "./run", "--json"]) == 2
    ((damage,),) = json.loads(capsys.readouterr().out).values()
    assert damage["what"] == "is missing"
    assert main(["copy", "./run", "./run/inside"]) == 2
    assert "lies in what is to be copied" in capsys.readouterr().err


@pytest.mark.slow
def test_copies_of_a_run_that_runs_are_whole(tmp_path: Path) -> None:
    """Ten copies, taken while policies and checkpoints come and go; each resumes."""
    code = "from ludus.cli.main import script; script()"
    line = ["train", "kuhn", "algorithm=ppo", "generations=200", *SHORT[1:], "--run-dir", "run"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *line], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
    )
    try:
        while not list((tmp_path / "run" / "checkpoint").glob("0*")):
            assert process.poll() is None
            time.sleep(0.05)
        for k in range(10):
            assert copy_run(tmp_path / "run", tmp_path / f"copy{k}") == []
            assert places(tmp_path / f"copy{k}") == []
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    for k in (0, 9):
        assert ludus.resume(tmp_path / f"copy{k}", stop=stopped(), report=False).run_dir.name == f"copy{k}"


def stopped() -> ludus.StopRequest:
    request = ludus.StopRequest()
    request.request("enough")
    return request
