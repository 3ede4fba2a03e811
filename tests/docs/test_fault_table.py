"""The table of what is replaced has the facts of the code, and those that kills show."""

from __future__ import annotations

import fault_table
import pages
import pytest
import reference_tables

from benchmarks.faults_victims import VICTIMS

KILLED = {
    "worker": "rollout worker",
    "process": "rollout worker",
    "server": "inference server",
    "process-server": "inference server",
    "evaluator": "process of `evaluation.workers` or `evaluation.background`",
    "rank": "trainer",
    "process-rank": "trainer",
    "shard": "table shard",
    "fork-server": "fork server",
    "raylet": "Ray's raylet or GCS",
    "gcs": "Ray's raylet or GCS",
    "driver": "the driver",
    "driver-of-processes": "the driver",
}
"""Rows by the victims that are killed for them (tests/faults, benchmarks.faults)."""


@pytest.fixture(scope="module")
def rows() -> dict[str, fault_table.Row]:
    return {row.process: row for row in fault_table.rows()}


def test_what_kills_show_is_what_the_table_says(rows: dict[str, fault_table.Row]) -> None:
    assert {name: VICTIMS[name].expected == "recovers" for name in KILLED} == {
        name: bool(rows[process].restarts) for name, process in KILLED.items()
    }


def test_rows_without_a_kill_of_their_own_are_shown_elsewhere(rows: dict[str, fault_table.Row]) -> None:
    """By tests/rollout/test_bot_restarts.py and tests/envs/test_subprocess_faults.py."""
    assert set(rows) - set(KILLED.values()) == {"process of bots", "subprocess of environments"}


def test_ends_have_the_exit_codes_of_the_commands(rows: dict[str, fault_table.Row]) -> None:
    assert rows["trainer"].end == "ends with exit code 2"
    assert rows["Ray's raylet or GCS"].end == "ends with exit code 7"


def test_the_page_has_the_table() -> None:
    page = "docs/guides/faults.md"
    assert "| trainer | processes, ray | no | – | ends with exit code 2 |" in reference_tables.expand(
        pages.text(page), page
    )
