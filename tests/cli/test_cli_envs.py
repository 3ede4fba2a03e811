"""`ludus list envs` and `ludus check-env`."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pytest

from ludus.cli.main import main
from ludus.envs.families import FAMILIES, Family
from ludus.testing.env import measure_speed

SHORT = ("--seconds", "60", "--episodes", "20")


def test_families_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "envs"]) == 0
    out = capsys.readouterr().out
    for name, family in FAMILIES.items():
        line = next(line for line in out.splitlines() if line.startswith(f" {name} "))
        assert family.example in line
        assert f"docs/environments/{name}.md" in line
    assert "module:Class" in out


def test_missing_environment_names_install_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Family("ludus.envs.adapters.away", "gone", "away/x", needs="not_there_at_all", extra="far")
    monkeypatch.setattr("ludus.envs.families.FAMILIES", {**FAMILIES, "away": away})
    assert main(["list", "envs"]) == 0
    assert "pip install 'ludus-rl[far]'" in capsys.readouterr().out


def test_a_family_s_environments_are_listed_and_filtered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "envs", "openspiel"]) == 0
    every = capsys.readouterr().out.split()
    assert {"openspiel/kuhn_poker", "openspiel/leduc_poker", "openspiel/chess"} <= set(every)
    assert main(["list", "envs", "openspiel", "Leduc"]) == 0
    found = capsys.readouterr().out.split()[2:]
    assert "openspiel/leduc_poker" in found
    assert all("leduc" in id for id in found)


def test_check_env_passes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.testing.env.measure_speed", partial(measure_speed, seconds=0.01))
    assert main(["check-env", "openspiel/kuhn_poker", "tree=off", "--steps", "20", "--num-envs", "2", *SHORT]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("openspiel/kuhn_poker: 2 environments, 20 steps")
    assert "✓ passed    description         2 agents of 2 players" in lines
    assert any(line.startswith("speed ") and "decisions/s, in 2 environments" in line for line in lines)
    assert any(line.startswith("searched for faults in 20 random episodes, ") for line in lines)
    assert lines[-1] == "15 passed, 0 left out, 0 failed; 0 errors, 0 warnings, 0 notes"


def test_check_env_fails_and_says_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "testing"))
    assert main(["check-env", "misbehaving:Cheat", "--steps", "30", "--seconds", "0"]) == 1
    out = capsys.readouterr().out
    sys.modules.pop("misbehaving", None)
    failed = [line for line in out.splitlines() if line.startswith("✗ failed")]
    assert len(failed) == 1
    assert failed[0].startswith("✗ failed    rewards             player 0: rewards of slots")
    assert "            what to do:         Pay everything between two decisions into the first of them" in out
    assert "speed" not in out
    assert out.endswith("15 passed, 0 left out, 1 failed\n")


def test_check_env_finds_a_fault_that_keeps_the_contract(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.testing.env.measure_speed", partial(measure_speed, seconds=0.01))
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "testing"))
    monkeypatch.setattr("ludus.cli.check_env._elsewhere", lambda environment: iter(()))  # it starts a process
    line = ["check-env", "faulty_environments:NotZeroSum", "zero_sum=true", "--steps", "5", *SHORT]
    assert main([*line, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert {check["result"] for check in data["checks"]} == {"passed", "left out"}
    finding = next(one for one in data["findings"] if one["severity"] == "error")
    assert finding["check"] == "zero sum"
    assert "declared zero-sum, and returns sum to " in finding["sentence"]
    assert finding["evidence"].keys() == {"seed", "environment", "episode", "returns", "others"}
    assert data["counts"]["error"] == 1
    assert data["play"]["players"] == 2
    assert main(line) == 1
    out = capsys.readouterr().out
    sys.modules.pop("faulty_environments", None)
    assert "✗ error     zero sum            it is declared zero-sum" in out
    assert "            where:              seed " in out
    assert "; 1 error, 0 warnings, " in out.splitlines()[-1]


@pytest.mark.slow
def test_a_fault_that_the_checks_did_not_meet_ends_the_measurement(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "testing"))
    assert main(["check-env", "misbehaving:Tires", "--steps", "4", "--num-envs", "2", "--seconds", "0"]) == 0
    sys.modules.pop("misbehaving", None)
    lines = capsys.readouterr().out.splitlines()
    speed = next(line for line in lines if line.startswith("speed "))
    assert "not measured: misbehaving:Tires raised RuntimeError: tired" in speed
    assert lines[-1].endswith("0 failed")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["openspiel/kuhn_pokr"], "unknown OpenSpiel game 'kuhn_pokr'; did you mean 'kuhn_poker'"),
        (["openspiel/kuhn_poker", "tree=maybe"], "tree: "),
        (["openspiel/kuhn_poker", "size=3"], "unknown option 'size' for openspiel/kuhn_poker"),
        (["openspiel/kuhn_poker", "wrokers=1"], "Did you mean 'workers' by 'wrokers'?"),
        (["openspiel/kuhn_poker", "num_envs=64"], "num_envs=64 was given among the settings; give --num-envs."),
        (["openspiel/kuhn_poker", "size"], "'size' is not an override"),
    ],
)
def test_check_env_of_what_cannot_be_made(line: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", *line]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert words in err
    assert err.count("\n") == 1
