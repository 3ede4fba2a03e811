"""Agents as opponents in training and in tournaments: killed, resumed, and not started for a stranger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.core import trust
from ludus.core.errors import TrustError
from ludus.envs.config import Environment
from ludus.policies.agents import count_faults
from ludus.testing.bot import check_bot
from tests.agents.agent_games import EXAMPLES, stub
from tests.runs import run_tools as tools

SHORT = """
scenario: psro
env: {id: openspiel/kuhn_poker, num_envs: 8}
algorithm: {kind: ppo, batch: 32, epochs: 1, hidden: [4], batch_unit: decisions}
response: {decisions: 150}
generations: 1
evaluation: {payoffs: simulate, episodes: 8}
checkpoints: {iterations: 2}
"""


def scenario(agent: str) -> Any:
    return tools.parse_scenario(SHORT, [f"opponents=[{{policy: {agent!r}}}]"])


@pytest.mark.slow
def test_a_killed_and_resumed_run_and_one_whose_agent_dies_are_equal(tmp_path: Path) -> None:
    died = tmp_path / "died"
    agent = stub("many", "once", died)  # which dies once, unless this file is there
    ludus.run(scenario(agent), run_dir=tmp_path / "disturbed", report=False)
    assert died.exists()
    ludus.run(scenario(agent), run_dir=tmp_path / "whole", report=False)
    impatient = tools.Impatient(5)
    ludus.run(scenario(agent), run_dir=tmp_path / "stopped", observer=impatient, stop=impatient.stop, report=False)
    ludus.resume(tmp_path / "stopped", report=False)
    tools.assert_same_run(tmp_path / "whole", tmp_path / "stopped")
    assert tools.policies_of(tmp_path / "whole") == tools.policies_of(tmp_path / "disturbed")
    (log,) = (tmp_path / "disturbed" / "agents").glob("*.log")
    assert "log line" in log.read_text(encoding="utf-8")
    assert count_faults(tmp_path / "disturbed") == {}


@pytest.mark.slow
def test_a_run_of_somebody_else_does_not_start_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "seen"
    ludus.run(scenario(stub("many", "pids", seen)), run_dir=tmp_path / "run", report=False)
    assert seen.exists()
    seen.unlink()
    (tmp_path / "run" / trust.FILE).unlink()
    monkeypatch.setattr(trust, "_trusted", set())
    with pytest.raises(TrustError, match=r"command:.*agent_stub\.py many pids"):
        ludus.resume(tmp_path / "run", ["generations=2"], report=False)
    assert not seen.exists()


@pytest.mark.slow
def test_a_tournament_counts_faults_and_plays_what_a_death_has_cut_short(tmp_path: Path) -> None:
    died = tmp_path / "died"
    env = Environment(id="openspiel/leduc_poker", num_envs=8)
    entrants = [stub("batch", "once", died), stub("many", "illegal"), f"command:{EXAMPLES / 'agent.py'}"]
    options = ludus.TournamentOptions(episodes=10, num_envs=4)
    report = ludus.play_tournament(entrants, tmp_path / "cup", env=env, options=options)
    again = ludus.play_tournament(entrants, tmp_path / "again", env=env, options=options)
    assert died.exists()
    assert [(s.name, s.mean) for s in report.standings] == [(s.name, s.mean) for s in again.standings]
    (note,) = [note for note in report.notes if "answers were not played" in note]
    assert note.startswith(entrants[1])
    counts = count_faults(tmp_path / "cup")
    assert counts == count_faults(tmp_path / "again")
    assert list(counts) == [entrants[1]]


@pytest.mark.slow
def test_the_check_of_bots_is_one_of_agents(tmp_path: Path) -> None:
    check_bot(f"command:{EXAMPLES / 'agent.py'}", "openspiel/kuhn_poker", episodes=4)
    text = (EXAMPLES / "agent.py").read_text(encoding="utf-8")
    bad = tmp_path / "bad.py"
    bad.write_text(text.replace('random.Random(message["seed"])', "random.Random()"))
    with pytest.raises(AssertionError, match="plays other moves in the same episodes"):
        check_bot(f"command:{bad}", "openspiel/leduc_poker")
