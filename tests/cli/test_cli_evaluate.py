"""ludus evaluate: the head-to-head table."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import synthetic_run as synthetic
from rich.console import Console

from ludus.cli import evaluate as command
from ludus.cli import output
from ludus.cli.main import main
from ludus.core.types import Exploitability
from ludus.evaluation import evaluate, exact_exploitability, exploiters
from ludus.evaluation import population_exploitability as run_population
from ludus.evaluation.evaluate import EvaluationReport, HeadToHead
from ludus.evaluation.exact_exploitability import ExactReport
from ludus.evaluation.exploiters import PopulationExploiters
from ludus.evaluation.population_exploitability import PopulationExploitability, PopulationReport


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

    def evaluate_run(
        run_dir: Path, *, episodes: int, policies: list[str], of: str, device: str, tell: Callable[[int, int], None]
    ) -> EvaluationReport:
        tell(1, 100)
        given.update(run_dir=run_dir, episodes=episodes, policies=policies, of=of, device=device)
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
    line = ["evaluate", "mine", "--episodes", "100", "--policies", "@meta", "try2@best"]
    assert main([*line, "--device", "cuda:1"]) == 0
    asked = {"run_dir": Path("runs/mine"), "episodes": 100, "policies": ["@meta", "try2@best"], "of": "@meta"}
    assert given == {**asked, "device": "cuda:1"}
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


def _told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], *line: str) -> list[str]:
    monkeypatch.chdir(tmp_path)
    if not (tmp_path / "runs").exists():
        synthetic.write(tmp_path / "runs" / "mine", generations=1)
    assert main(["evaluate", "mine", *line]) == 0
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


NAMES = (("0-0", "0-1"), ("1-0", "1-1"))
MIXTURES = (np.array([0.25, 0.75]), np.array([1.0, 0.0]))


def test_the_least_exploitable_mixtures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = PopulationExploitability(MIXTURES, np.array([-0.125, -0.25]), 0.375)
    report = PopulationReport(tmp_path, "openspiel/kuhn_poker", 3, NAMES, found)
    monkeypatch.setattr(run_population, "evaluate_population", lambda run_dir, *, device: report)
    lines = _told(monkeypatch, tmp_path, capsys, "--population")
    assert lines[0].startswith("openspiel/kuhn_poker after generation 3: the least exploitable mixture")
    assert lines[3:] == [
        "player 0 0-1 0.7500",
        "player 0 0-0 0.2500",
        "player 1 1-0 1.0000",
        "Populations",
        "NashConv 0.3750",
        "exploitability 0.1875",
        "player 0 earns at least -0.1250",
        "player 1 earns at least -0.2500",
    ]


def test_exact_exploitability(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, object] = {}

    def evaluate_exact(run_dir: Path, *, tell: Callable[..., None], **options: object) -> ExactReport:
        given.update(options)
        tell(0, 90, 12_300_000)
        tell(1, 90, 12_300_000)
        value, best = np.array([0.125, -0.125]), np.array([0.5, 0.25])
        return ExactReport(run_dir, "openspiel/x", 3, "@best", value, best, 0.75, 0.5, 12.0, 12_300_000)

    monkeypatch.setattr(exact_exploitability, "evaluate_exact", evaluate_exact)
    lines = _told(monkeypatch, tmp_path, capsys, "--exact", "--threads", "3")
    assert given == {"of": "@meta", "threads": 3, "device": "auto"}
    assert lines == [
        "openspiel/x after generation 3, computed",
        "@best",
        "NashConv 0.7500",
        "exploitability 0.3750",
        "best response of player 0 earns +0.5000, its policies +0.1250",
        "best response of player 1 earns +0.2500, its policies -0.1250",
        "seconds 12.0, and 0.5 of asking policies",
    ]


def test_progress_of_sweeps(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The memory at once, and nothing else in the first two seconds."""
    now = 0.0
    monkeypatch.setattr(command.time, "monotonic", lambda: now)
    progress = command._SweepProgress()
    for seconds, done in ((0.0, 0), (1.0, 10), (1.5, 20), (3.0, 30), (4.0, 90)):
        now = seconds
        progress(done, 90, 12_300_000)
    assert capsys.readouterr().err.splitlines() == [
        "sweeping takes up to 12.3 MB",
        "30 of 90 tries, about 6.0s left",
    ]


def test_trained_responders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, object] = {}

    def exploit_population(run_dir: Path, *, tell: Callable[..., None], **numbers: object) -> PopulationExploiters:
        given.update(numbers)
        gain, half, least = np.array([0.5, 0.25]), np.array([0.0625, 0.0625]), np.array([0.125, 0.125])
        return PopulationExploiters(
            run_dir, "openspiel/x", 3, MIXTURES, gain, half, least, 50, 2, 400, np.zeros((2, 2)), NAMES
        )

    monkeypatch.setattr(exploiters, "exploit_population", exploit_population)
    line = ["--population", "--exploit", "50", "--rounds", "2", "--episodes", "400", "--seed", "7"]
    lines = _told(monkeypatch, tmp_path, capsys, *line)
    assert given == {"budget": 50, "rounds": 2, "episodes": 400, "checks": 400, "seed": 7, "device": "auto"}
    assert lines[0].endswith("lose least to 2 responders, trained for 50 episodes each, measured in 400")
    assert lines[6:] == [
        "Populations",
        "exploitability, 95% 0.3750 [0.3125, 0.4375] (a better responder gains more)",
        "no mixture has less than 0.1250 (95%)",
        "responder for player 0 gains, 95% +0.5000 ±0.0625",
        "responder for player 1 gains, 95% +0.2500 ±0.0625",
    ]


def test_progress_of_rounds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing in the first two seconds of each part; then a line, with what is left at the same pace."""
    now = 0.0
    monkeypatch.setattr(command.time, "monotonic", lambda: now)
    progress = command._Progress(lambda number, population: f"round {number}, population {population}")
    for seconds, told in ((0.0, (0, 1, 0.1)), (1.0, (0, 1, 0.1)), (3.0, (0, 1, 0.25)), (4.0, (1, 1, 0.5))):
        now = seconds
        progress(*told)
    assert capsys.readouterr().err == "round 0, population 1: 25%, 9.0s left\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--rating", "elo", "--population"], "--rating (of stored results) and --population (of mixtures)"),
        (["--exploit", "5", "--policies", "@meta"], "--exploit (of meta-strategies) and --policies (of policies)"),
        (["--exact", "--exploit", "5"], "--exact (of exploitability) and --exploit (of meta-strategies)"),
        (["--threads", "5"], "--threads was given, which belongs to --exact"),
        (["--exact", "--episodes", "5"], "--exact (of exploitability) plays nothing"),
        (["--rounds", "5", "--population"], "--rounds was given, which belongs to --population with --exploit"),
    ],
)
def test_two_questions(line: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "mine", *line]) == 2
    assert words in capsys.readouterr().err
