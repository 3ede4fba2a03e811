"""Rows that were changed by hand are found before a resume changes anything."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ludus.cli.main import main


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE generations SET marginals = x'00' WHERE number = 1",
        "UPDATE generations SET gains = '7' WHERE number = 1",
        "DROP TABLE payoffs",
        "UPDATE payoffs SET mean = x'00'",
        "DROP TABLE ratings",
    ],
)
def test_resume_refuses_first(tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str) -> None:
    run_dir = tmp_path / "run"
    assert main(["train", "kuhn", "generations=2", "stop=null", "--run-dir", str(run_dir)]) == 0
    with sqlite3.connect(run_dir / "ludus.db") as connection:
        connection.execute(change)
    connection.close()
    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main(["resume", str(run_dir), "generations=3"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "ludus.db' cannot be used" in err
    assert {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()} == before
