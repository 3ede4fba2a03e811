"""The committed survey: its page is made of it, its ids exist, and some are examined again."""

from __future__ import annotations

import pytest

from benchmarks.env_survey import IDS, PAGE, examine, examine_apart, load, page
from ludus.envs.families import FAMILIES
from ludus.envs.registry import list_envs

RESULTS = load()["environments"]


def test_the_page_is_made_of_the_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(load()), "run `python -m benchmarks.env_survey --page`"


def test_results_are_of_ids_that_there_are() -> None:
    assert {id.partition("/")[0] for id in RESULTS} <= set(FAMILIES)
    openspiel = {id for id in RESULTS if id.startswith("openspiel/")}
    assert openspiel
    assert openspiel <= set(list_envs("openspiel"))
    for family, names in IDS.items():
        surveyed = {id for id in RESULTS if id.partition("/")[0] == family}
        assert surveyed <= {f"{family}/{name}" for name in names}


@pytest.mark.parametrize(
    "id",
    ["gymnasium/CartPole-v1", "openspiel/kuhn_poker", pytest.param("mpe2/simple_spread_v3", marks=pytest.mark.slow)],
)
def test_environments_are_as_the_survey_says(id: str) -> None:
    committed, now = RESULTS[id], examine(id, seconds=60.0, episodes=20)
    assert (now["players"], now["agents"]) == (committed["players"], committed["agents"])
    grave = {one["check"] for one in now["findings"] if one["severity"] != "note"}
    assert grave <= {one["check"] for one in committed["findings"]}


@pytest.mark.slow
def test_what_cannot_be_played_has_the_reason() -> None:
    assert "unknown" in examine_apart("gymnasium/NotThere-v0")["failed"]


def test_the_page_has_findings_and_reasons() -> None:
    finding = {"check": "limits", "severity": "error", "sentence": "it ended | there", "evidence": {}}
    played = {
        "players": 2,
        "agents": 3,
        "episodes": 4,
        "terminated": 3,
        "steps": 50,
        "microseconds": 20.0,
        "findings": [finding],
    }
    document = {
        "machine": {"cpu": "a processor"},
        "day": "2030-01-01",
        "seconds": 2.0,
        "families": {"gymnasium": 5},
        "environments": {"gymnasium/A": {**played, "length": [2, 3.0, 9]}, "gymnasium/B": {"failed": "no file"}},
    }
    text = page(document)
    assert "2 installed environments" in text
    assert "errors: 1, warnings: 0, notes: 0; not played: 1." in text
    assert "## gymnasium: 2 of 5 ids" in text
    assert "| `A` | 2 | 3 | 2 – 3 – 9, 25% truncated | 50,000 | **limits** |" in text
    assert "| `B` | | | | | not played: no file |" in text
    assert "| `A` | error | limits: it ended \\| there |" in text
