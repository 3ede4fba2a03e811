"""The short form of `python -m benchmarks.faults`: one kill -9 of a victim of every kind that no other test shows."""

from __future__ import annotations

import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.faults import ELSEWHERE, IN_PROCESS, Loop, undisturbed
from benchmarks.faults_processes import kill
from benchmarks.faults_scene import BACKGROUND, Scene, flaws
from benchmarks.faults_victims import VICTIMS, WORKERS
from ludus.storage.reader import Reader

pytestmark = pytest.mark.slow

SHORT = ("generations=2", "response.episodes=1200")
SHOWN = {
    "worker": "test_hosts_apart: one of several, in processes",
    "workers": "processes; on Ray all parts of a runtime, in test_parts_apart, and a run goes on after its evaluator",
    "process": "test_hosts_apart; here all of them at once",
    "server": "test_servers_and_workers_are_killed[ray]; here in processes",
    "rank": "here in processes; on Ray a shard ends a run just so",
    "async-worker": "with its node, in async-node-large",
    "node": "all workers at once, and a node whose answers are lost with it",
    "last-node": "test_ray_cluster: what is said where nobody has room; a run that ends so is gone on with after raylet and gcs",
    "node-large": "test_weights: what is lost with a node is played again, equal to the bit; a run's, in async-node-large",
    "driver": "test_ray_drivers: killed, and ended by abort; a run goes on with Ray after raylet and gcs",
    "driver-of-processes": "test_run_of_processes_is_stopped_killed_and_resumed, by command",
}
"""Victims that are left to the long form, and what shows the same."""
WORDS = {
    "evaluator": r"evaluator 0 died before it had answered \(its process was killed, crashed or called os._exit",
    "processes": r"rollout worker [01] died before it had answered \(its process was killed by SIGKILL; was memory short\?\); it is",
    "process-server": "inference server 0 died before it had answered",
    "fork-server": r"rollout worker [01] died before it had answered \(its process ended with the fork server, which was killed\)",
}
"""What the user is told, as patterns: of two workers killed at once either is seen first."""
LONG = {"gcs", "shard", "async-node-large", "process-rank", "process-server", "fork-server"}
"""Long tests. That Ray itself dies, `raylet` shows, too; that ranks end each other, test_process_group; that servers are
killed, test_servers_and_workers_are_killed; that all workers are, `processes`."""
HERE = {"gcs", "process-rank"}
"""What ends, and is gone on with in one process rather than on Ray."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A short one: Ray's sockets lie below."""
    made = Path(tempfile.mkdtemp(prefix="lf-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def whole(folder: Path) -> Path:
    return undisturbed(folder / "whole", SHORT)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in sorted(VICTIMS.keys() - SHOWN.keys())],
)
def test_run_recovers_from_a_kill_or_is_resumed(name: str, folder: Path, whole: Path) -> None:
    loop = Loop(
        name,
        VICTIMS[name],
        whole=whole,
        folder=folder / name,
        seed=0,
        changes=SHORT,
        period=1.5,
        elsewhere=ELSEWHERE.index(IN_PROCESS) if name in HERE else 0,
    )
    found = loop.run(1, print)
    assert (found.hung, found.wrong, found.left) == (0, [], [])
    assert found.kills == 1
    assert len(found.recovery) == (VICTIMS[name].expected == "recovers")
    assert re.search(WORDS.get(name, ""), (folder / name / str(found.runs) / "errors").read_text())


@pytest.mark.long
@pytest.mark.timeout(600)
def test_run_goes_on_without_an_evaluator_that_is_worn_out(folder: Path, whole: Path) -> None:
    """Of processes, by the command. With a made-up one: test_background."""
    scene = Scene(folder / "worn-out", folder / "t")
    try:
        scene.begin([*WORKERS, "runtime.kind=processes", *SHORT, BACKGROUND, "runtime.restarts=0"])
        assert scene.wait_for(lambda: len(scene.steps()) > 20, since=time.monotonic()), scene.errors()
        kill(scene.parts("Evaluator"))
        assert not scene.wait_for(lambda: False, since=time.monotonic())
    finally:
        scene.end()
    assert scene.finished, scene.errors()
    assert flaws(scene.folder / "run", whole) == []
    assert scene.left_over() == []
    lines = scene.errors().splitlines()  # as it goes on; once more as a Python warning when it is over
    assert sum(line.startswith("versions are not scored any more: evaluator 0 died") for line in lines) == 1
    with Reader(scene.folder / "run") as reader:
        assert [event.kind for event in reader.events() if event.level == "warning"].count("evaluation") == 1


def test_flaws_of_a_damaged_run_are_reported(folder: Path, whole: Path) -> None:
    """The comparison itself: a lost match, a changed policy."""
    hurt = folder / "hurt"
    shutil.copytree(whole, hurt)
    assert flaws(hurt, whole) == []
    with closing(sqlite3.connect(hurt / "ludus.db")) as db, db:
        db.execute("DELETE FROM matches WHERE rowid = 1")
        changed = "WHERE counter = 'versions' AND name = 'response-1-2/return' AND step = 10"
        db.execute(f"UPDATE metrics SET value = value + 1 {changed}")
        db.execute(f"DELETE FROM metrics {changed.replace('10', '15')}")  # passed over
    (hurt / "policies" / "0" / "0-1.safetensors").write_bytes(b"")
    assert flaws(hurt, whole) == [
        "matches differ",
        "response-1-2/return of version 10 differs",
        "policies/0/0-1.safetensors is not what was published",
    ]
