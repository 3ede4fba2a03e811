"""What a result says of the code that it was measured with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import machine


def test_results_are_no_changes_and_code_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, code = tmp_path / "benchmarks" / "results" / "0.json", tmp_path / "code.py"
    result.parent.mkdir(parents=True)
    result.write_text("1")
    code.write_text("1")
    for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@b commit -q -m one"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    clean = machine.commit()
    assert len(clean) == 40
    result.write_text("2")  # the seed before has written it
    (tmp_path / "new").write_text("not tracked")
    assert machine.commit() == clean
    code.write_text("2")
    assert machine.commit() == f"{clean}+changes"
