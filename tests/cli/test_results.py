"""What stands at the end of a run, from what is stored: worked by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import synthetic_run as synthetic

from ludus.cli.main import main
from ludus.cli.run_command import print_next_commands, show_result
from ludus.core.types import PolicySpec
from ludus.metagame.population.base import PolicyRecord
from ludus.runs.runner import Result, read_result
from ludus.storage.base import GenerationRecord, RunSummary
from ludus.storage.store import Store

HALF = (0.5, 0.5)


def policy(player: int, place: int) -> PolicyRecord:
    """The first one plays at random."""
    record = synthetic.policy(player, place)
    return record if place else replace(record, spec=PolicySpec("random", {"actions": 2}))


def result(run_dir: Path, *records: GenerationRecord, matches: list[Any], exploitability: str = "auto") -> Result:
    """Of a run with two policies for each player."""
    players = len(records[-1].marginals)
    with Store.create(run_dir, synthetic.info(run_dir, players)) as store:
        for player in range(players):
            for place in (0, 1):
                store.policy_added(policy(player, place))
        store.matches_recorded(matches)
        for record in records:
            store.generation_done(record)
        store.commit("end")
    scenario: Any = SimpleNamespace(generations=2, evaluation=SimpleNamespace(exploitability=exploitability))
    return read_result(run_dir, scenario, RunSummary(run_dir, 2, 3.0, 60, None, "the schedule is complete"))


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    def told(found: Result) -> dict[str, str]:
        show_result(found)
        print_next_commands(found)
        rows = [line[2:].split("  ", 1) for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
        return {name: value.strip() for name, value in rows}

    return told


def test_train_and_resume_print_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for line, generations in (
        (["train", "kuhn", "algorithm=exact", "generations=1", "--name", "a"], 1),
        (["resume", "a", "generations=2"], 2),
    ):
        assert main([*line, "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert (data["run_dir"], data["env"], data["complete"]) == ("runs/a", "openspiel/kuhn_poker", True)
        assert data["nash_conv"][0] == pytest.approx(11 / 12)
        assert [record["nash_conv"] for record in data["generations"]] == data["nash_conv"]
        assert [record["number"] for record in data["generations"]] == list(range(generations + 1))
        assert data["populations"][1] == [f"1-{g}" for g in range(generations + 1)]
        assert sum(data["meta_strategies"][0]) == pytest.approx(1)
    assert main(["resume", "a", "--json", "--profile"]) == 2
    assert "--json and --profile were both given" in capsys.readouterr().err


def test_the_mixture_against_random_and_the_best_generation(tmp_path: Path, told: Any) -> None:
    matches = []
    for k, profile, mean, wins in (
        ("a", (0, 0), 0.0, ((5, 0, 5), (5, 0, 5))),
        ("b", (1, 0), 0.6, ((9, 0, 1), (1, 0, 9))),
        ("c", (0, 1), -1.0, ((0, 0, 10), (10, 0, 0))),
        ("d", (1, 1), 0.2, ((6, 0, 4), (4, 0, 6))),
    ):
        matches.append(replace(synthetic.match(k, profile, 10, [mean, -mean], [1.0, 1.0]), wins=wins))
    first = GenerationRecord(1, 1.0, 30, 0.5, marginals=(HALF, HALF))
    last = GenerationRecord(2, 2.0, 60, 0.75, marginals=((0.25, 0.75), HALF), responses=(0.84, float("nan")))
    found = told(result(tmp_path / "run", first, last, matches=matches))
    assert found["NashConv"] == "0.7500, what best responses to the mixture gain in all; best 0.5000 after generation 1"
    assert found["best response"] == "payoff against the mixture it was trained against: +0.840 (player 0)"
    # Player 0: 0.75 * 0.6; wins 0.25 * 5/10 + 0.75 * 9/10. Player 1: 0.5 * 1; 0.5 * 5/10 + 0.5 * 10/10.
    assert found["against random"] == (
        "payoff of the mixture against the policy that plays at random: +0.450 (player 0), +0.500 (player 1); "
        "it wins 80% (player 0), 75% (player 1) of the episodes"
    )
    run = tmp_path / "run"
    assert f"ludus tournament {run}@meta {run}@1 {run}@best random --dir tournaments/run-2" in found
    assert f"ludus resume {run} generations=4" in found
    for reached, further in ((0, 2), (5, 10)):  # of none; of more than were asked for at last
        run = tmp_path / str(reached)
        found = told(result(run, replace(last, number=reached), matches=matches))
        assert f"ludus resume {run} generations={further}" in found


def test_missing_result_names_the_command(tmp_path: Path, told: Any) -> None:
    last = GenerationRecord(2, 2.0, 60, marginals=(HALF, HALF))
    large = result(tmp_path / "large", last, matches=[])
    found = told(large)
    assert (
        found["NashConv"]
        == "not computed: the game is not enumerated: not one of OpenSpiel, too large, wrapped, or env.tree is off"
    )
    assert f"ludus evaluate {tmp_path}/large --exploit 10000" in found, "nothing says how long is long in this game"
    found = told(replace(large, summary=replace(large.summary, episodes=5554, trained=4)))
    assert f"ludus evaluate {tmp_path}/large --exploit 1400" in found, "as long as its own responses: 1,388.5"
    assert "against random" not in found  # nothing was played
    with_bot = result(tmp_path / "bots", last, matches=[])
    bot = replace(policy(0, 1), spec=PolicySpec("bot", {"bot": "mcts", "options": {}}))
    found = told(replace(with_bot, populations=((*with_bot.populations[0], bot), with_bot.populations[1])))
    assert found["NashConv"].startswith("not computed: a bot plays a part, whose strategy nobody can read")
    found = told(result(tmp_path / "off", last, matches=[], exploitability="off"))
    assert found["NashConv"] == "not computed: evaluation.exploitability is off"


def test_a_single_player_has_returns(tmp_path: Path, told: Any) -> None:
    matches = [
        synthetic.match("a", (0,), 100, [20.0], [100.0]),
        synthetic.match("b", (1,), 100, [480.0], [9900.0]),  # a standard error of 1, and t = 1.984
    ]
    found = told(result(tmp_path / "run", GenerationRecord(2, 2.0, 60, marginals=((0.0, 1.0),)), matches=matches))
    assert found["return"] == "480.0 ± 1.984 of policy p1 (95% interval, 100 episodes)"
    assert found["random return"] == "20.00 ± 0.199 of the policy that plays at random"
    assert not {"NashConv", "best return", "best response"} & found.keys()
    assert f"ludus record {tmp_path}/run@best" in found
