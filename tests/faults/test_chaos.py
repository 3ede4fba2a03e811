"""The campaign of random harm: cases are drawn alike, promises are really checked, and a minute of it is played."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import run_tools as tools

from benchmarks.chaos import promises, table
from benchmarks.chaos.actions import ACTIONS
from benchmarks.chaos.attempt import Verdict
from benchmarks.chaos.campaign import Campaign, row_of, rows
from benchmarks.chaos.damage import damage
from benchmarks.chaos.draw import draw, harms
from benchmarks.chaos.scenarios import scenarios
from ludus.runs.scenario_files import parse_scenario


def test_a_case_is_drawn_from_its_seed_and_index() -> None:
    one, same, other = draw(1, 17), draw(1, 17), draw(2, 17)
    assert one == same
    assert one != other
    assert one.name == "1:17"
    only = draw(1, 3, only=["full disk", "psro"])
    assert (only.harm.name, only.scenario.base) == ("full disk", "psro")


def test_harms_name_actions_and_every_harm_fits_a_scenario() -> None:
    assert {harm.action for harm in harms().values()} == set(ACTIONS)
    for harm in harms().values():
        assert any(harm.fits(scenario) for scenario in scenarios().values()), harm.name


def test_scenarios_are_valid_and_pass_by_every_schedule() -> None:
    kinds = {
        parse_scenario(scenario.text, list(scenario.changes)).kind
        for scenario in scenarios().values()
        if scenario.command == "train" and scenario.runtime == "processes"
    }
    assert {"psro", "pipeline_psro", "self_play", "league", "pbt", "neupl", "pfsp", "fixed_opponents"} <= kinds


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    tools.train("simulate", run_dir)
    return run_dir


@pytest.fixture
def hurt(whole: Path, tmp_path: Path) -> Path:
    run_dir = tmp_path / "run"
    shutil.copytree(whole, run_dir)
    return run_dir


def change(run_dir: Path, statement: str) -> None:
    with closing(sqlite3.connect(run_dir / "ludus.db")) as database, database:
        database.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM matches WHERE rowid = 1",
        "UPDATE generations SET episodes = episodes + 1 WHERE number = 1",
        "UPDATE policies SET sha256 = 'x' WHERE id = '0-1'",
    ],
)
def test_a_changed_row_is_a_difference(statement: str, whole: Path, hurt: Path) -> None:
    assert list(promises.differences(hurt, whole, equal="bits", alone=True)) == []
    before = promises.recorded(hurt)
    change(hurt, statement)
    assert list(promises.differences(hurt, whole, equal="bits", alone=True))
    assert list(promises.lost(before, hurt))


def test_a_damaged_policy_is_a_difference(whole: Path, hurt: Path) -> None:
    (file,) = hurt.glob("policies/0/0-1*")
    damage(file, "flip", random.Random(0))
    assert [flaw for flaw in promises.differences(hurt, whole, equal="bits") if file.name in flaw]


@pytest.mark.parametrize(
    ("errors", "code", "flaws"),
    [
        ("run r: psro\nerror: there is no room. Make room.\n", 5, 0),
        ("run r: psro\n", 5, 1),
        ("error: there is no room.\n", 1, 1),
        ('Traceback (most recent call last):\n  File "a.py", line 1, in f\nerror: no\n', 5, 1),
        ("error: no (a fault of Ludus; LUDUS_DEBUG=1 shows where)\n", 5, 1),
        ("error: \x1b[31mno\n", 5, 1),
        ('error: no.\n  File "own.py", line 1, in step\n    raise\n', 5, 0),
        ('error: no.\n  File "/a/ludus/b.py", line 1, in step\n    raise\n', 5, 2),
    ],
)
def test_an_end_must_have_its_cause_in_one_line(errors: str, code: int, flaws: int) -> None:
    assert len(list(promises.causes(errors, code, [5]))) == flaws


def test_a_table_counts_what_became_of_each_harm(tmp_path: Path) -> None:
    case = draw(1, 0, only=["full disk"])
    verdicts = [
        Verdict("clear", end=2.0, resumed=4.0),
        Verdict("late"),
        Verdict("survived"),
        Verdict("broken", end=40.0),
    ]
    verdicts[0].check("cause", [])
    verdicts[3].check("time", ["it ended after 40 s"])
    played = [row_of(case, verdict, seconds=30.0, slow=1.0) for verdict in verdicts]
    document = table.summary(played, jobs=2)
    assert table.cells(document)[1:] == [
        ("full disk", "1", "1", "1", "1", "", "21.0, 40.0", "4.0, 4.0"),
        ("all", "1", "1", "1", "1", "", "", ""),
    ]
    assert table.promise_cells(document)[1] == ("full disk", "", "", "1 of 1", "0 of 1", "")
    outcomes = {bar.name: (bar.value, bar.verdict) for bar in table.bars(played, hours=1 / 60)}
    assert outcomes["harms in 60 minutes"] == (180.0, "short")
    assert outcomes["broken promises"] == (1.0, "short")
    table.write(document, tmp_path / "chaos.json")
    assert json.loads((tmp_path / "chaos.json").read_text()) == document


def test_a_case_that_was_played_again_has_its_last_row(tmp_path: Path) -> None:
    case, path = draw(1, 0), tmp_path / "rows.jsonl"
    lines = [json.dumps(row_of(case, Verdict(outcome), seconds=1.0, slow=1.0)) for outcome in ("fault", "clear")]
    path.write_text("\n".join(lines) + '\n{"case": "1:')
    assert [row["outcome"] for row in rows(path)] == ["clear"]
    assert rows(tmp_path / "none.jsonl") == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_minute_of_harm(tmp_path: Path) -> None:
    only = [
        "psro/inprocess",
        "psro/processes",
        "kill the driver",
        "kill a child",
        "full disk",
        "damage, then resume",
        "little memory",
    ]
    campaign = Campaign(1, tmp_path, tmp_path / "rows.jsonl", only=only)
    try:
        campaign.run(seconds=60, jobs=2, cases=10)
    finally:
        campaign.close()
    played = rows(tmp_path / "rows.jsonl")
    assert len(played) > 1
    assert [row for row in played if row["outcome"] in ("broken", "fault")] == []
