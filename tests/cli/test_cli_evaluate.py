"""ludus evaluate: the head-to-head table."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import synthetic_run as synthetic
from rich.console import Console

from ludus.cli import output
from ludus.cli.main import main
from ludus.evaluation import evaluate
from ludus.evaluation.evaluate import EvaluationReport, HeadToHead
from ludus.types import Exploitability


def _table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int) -> list[str]:
    console = Console(width=width, file=sys.stdout, highlight=False)
    monkeypatch.setattr(output, "_console", lambda: console)
    row = ["meta", "0-20", "+0.5000 ±0.0312", "-0.5000 ±0.0312", "+0.5100", "-0.5100", "60/10/30"]
    columns = [
        "player 0",
        "player 1",
        "return 0, 95%",
        "return 1, 95%",
        "exact 0",
        "exact 1",
        "player 0 won/drawn/lost",
    ]
    output.table(columns, [row], left=(0, 1), spare=[6])
    return capsys.readouterr().out.splitlines()


def test_a_narrow_terminal_goes_without_the_last_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    header, _, row = _table(capsys, monkeypatch, 80)
    assert max(len(header), len(row)) <= 80
    assert row.split() == ["meta", "0-20", "+0.5000", "±0.0312", "-0.5000", "±0.0312", "+0.5100", "-0.5100"]
    assert _table(capsys, monkeypatch, 106)[2].endswith("60/10/30")


def test_table_of_matches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    synthetic.write(tmp_path / "runs" / "mine", generations=1)
    given: dict[str, object] = {}

    def evaluate_run(run_dir: Path, *, episodes: int, policies: list[str]) -> EvaluationReport:
        given.update(run_dir=run_dir, episodes=episodes, policies=policies)
        mean, half = np.array([0.5, -0.5]), np.array([0.03125, 0.03125])
        wins = ((60, 10, 30), (30, 10, 60))
        matches = (
            HeadToHead(("meta", "1-3"), 100, mean, half, wins, np.array([0.51, -0.51])),
            HeadToHead(("0-3", "1-3"), 100, -mean, half, wins, None),
        )
        return EvaluationReport(
            run_dir, "openspiel/kuhn_poker", 3, matches, Exploitability(np.array([0.25, 0.125]), mean)
        )

    monkeypatch.setattr(evaluate, "evaluate_run", evaluate_run)
    assert main(["evaluate", "mine", "--episodes", "100", "--policies", "meta", "0-3", "1-3"]) == 0
    assert given == {"run_dir": Path("runs/mine"), "episodes": 100, "policies": ["meta", "0-3", "1-3"]}
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "openspiel/kuhn_poker after generation 3, 100 episodes per match"
    assert "meta 1-3 +0.5000 ±0.0312 -0.5000 ±0.0312 +0.5100 -0.5100 60/10/30" in lines
    assert "0-3 1-3 -0.5000 ±0.0312 +0.5000 ±0.0312 - - 60/10/30" in lines
    assert lines[-5:] == [
        "Meta-strategies",
        "NashConv 0.3750",
        "exploitability 0.1875",
        "gain of player 0 0.2500",
        "gain of player 1 0.1250",
    ]


def test_a_single_player_wins_against_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    synthetic.write(tmp_path / "runs" / "mine", generations=1)
    match = HeadToHead(("meta",), 100, np.array([0.5]), np.array([0.25]), ((100, 0, 0),), None)
    report = EvaluationReport(tmp_path, "openspiel/catch", 3, (match,), None)
    monkeypatch.setattr(evaluate, "evaluate_run", lambda *_, **__: report)
    assert main(["evaluate", "mine"]) == 0
    title, header, _, row = capsys.readouterr().out.splitlines()
    assert title == "openspiel/catch after generation 3, 100 episodes per match"
    assert header.split() == ["player", "0", "return", "0,", "95%"]
    assert row.split() == ["meta", "+0.5000", "±0.2500"]
