"""Runs with trackers: the key `track`, `--track`, processes of trackers that die, hang or fail, kills of the run, old runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import run_tools as tools
import yaml
from stub_tracker import lines

import ludus
from ludus.cli.main import main
from ludus.core.config import as_stored
from ludus.core.errors import ConfigError, TrustError, UnknownName
from ludus.core.trust import code_names, scenario_document
from ludus.reporting.trackers import TRACKERS, build_tracker, check_trackers, parse_trackers
from ludus.runs.runner import resume, run
from ludus.runs.scenario_files import parse_scenario
from ludus.storage.reader import Reader
from ludus.storage.store import Store

KIND = "stub_tracker:Stub"


def stub(file: Path, **options: Any) -> dict[str, Any]:
    return {"kind": KIND, "file": str(file), **options}


# ---------------------------------------------------------------------------------------------- as data


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ()),
        ("none", ()),
        ([], ()),
        ("mlflow", ({"kind": "mlflow"},)),
        (
            ["tensorboard", {"kind": "mlflow", "experiment": "x"}],
            ({"kind": "tensorboard"}, {"kind": "mlflow", "experiment": "x"}),
        ),
        (
            "wandb,project=leduc,tags=[a,b],mode=offline",
            ({"kind": "wandb", "project": "leduc", "tags": ["a", "b"], "mode": "offline"},),
        ),
        ("mlflow,tracking_uri=sqlite:///a.db", ({"kind": "mlflow", "tracking_uri": "sqlite:///a.db"},)),
    ],
)
def test_trackers_as_data(value: object, expected: tuple[dict[str, object], ...]) -> None:
    assert parse_trackers(value) == expected
    assert parse_trackers(list(expected)) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "a tracker was expected"),
        ("wandb,mlflow", "'mlflow' is no option.*Each tracker has a --track of its own"),
        (["tensorboard", "tensorboard"], "given twice"),
        ([{"project": "x"}], "a tracker"),
    ],
)
def test_what_is_no_tracker_is_refused(value: object, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        [build_tracker(options) for options in parse_trackers(value)]


def test_unknown_names_and_options_name_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'tensorboard'"):
        tools.scenario("exact", "track=tensorbord")
    with pytest.raises(ConfigError, match="unknown key 'direct'; did you mean 'dir'"):
        tools.scenario("exact", "track={kind: tensorboard, direct: x}")


def test_package_that_is_missing_is_refused_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ConfigError, match=r"tracker 'tensorboard' needs tensorboard.*ludus-rl\[tensorboard\]"):
        run(tools.scenario("exact", "track=tensorboard"), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_scenario_keeps_trackers_and_old_ones_have_tensorboard() -> None:
    scenario = tools.scenario("exact", "track=[tensorboard]")
    assert scenario.track == ({"kind": "tensorboard"},)
    text = yaml.safe_load(scenario.to_yaml())
    assert text["track"] == [{"kind": "tensorboard"}]
    assert tools.scenario("exact").track == ()
    del text["track"]
    with as_stored():
        assert parse_scenario(yaml.safe_dump(text)).track == ({"kind": "tensorboard", "history": False},)


def test_server_of_a_strangers_run_needs_trust() -> None:
    """It would get this user's credentials."""
    document = scenario_document("seed: 0\ntrack: [{kind: mlflow, tracking_uri: 'databricks://other'}]\n")
    assert code_names(document) == ("tracking_uri: databricks://other",)
    document = scenario_document("track: [{kind: mlflow, python: /tmp/x}]\n")
    assert code_names(document) == ("python: /tmp/x",)
    assert code_names(scenario_document("track: [{kind: stub:Stub}]\n")) == ("stub:Stub",)
    assert code_names({"track": [{"kind": "mlflow"}, {"kind": "wandb", "project": "x"}]}) == ()


def test_tracker_can_have_an_interpreter_of_its_own(tmp_path: Path) -> None:
    """Which has its own packages first, and Ludus's."""
    program, file = tmp_path / "python", tmp_path / "out"
    program.write_text(f'#!/bin/sh\necho started > {tmp_path}/started\nexec {sys.executable} "$@"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="is no program"):
        check_trackers([stub(file, python=str(program))])
    program.chmod(0o755)
    tools.train("exact", tmp_path / "run", "generations=1")
    (sent,) = ludus.track(tmp_path / "run", [stub(file, python=str(program))])
    assert sent.complete
    assert (tmp_path / "started").exists()
    assert numbers(file)


def test_every_tracker_says_what_it_needs() -> None:
    for name in TRACKERS:
        assert build_tracker({"kind": name}).packages  # type: ignore[attr-defined]
    check_trackers([{"kind": "tensorboard"}])


# ---------------------------------------------------------------------------------------------- runs


def numbers(file: Path) -> list[int]:
    return [line["number"] for line in lines(file, "number")]


def events(run_dir: Path) -> list[str]:
    with Reader(run_dir) as reader:
        return [event.text for event in reader.events() if event.kind == "tracker"]


def test_run_sends_its_records_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "out"
    notes = Notes()
    run(tools.scenario("exact"), run_dir=tmp_path / "run", track=[stub(file)], observer=notes, report=False)
    assert numbers(file) == [*range(len(numbers(file)))]
    assert [line["finish"] for line in lines(file, "finish")] == ["finished"]
    assert events(tmp_path / "run") == []
    (text,) = [text for text in notes.texts if "tracker" in text]
    points = len(lines(file, "axis"))
    assert text.startswith(f"tracker Stub: {points} points, {len(numbers(file)) - points} tables, ")


class Notes(ludus.NullObserver):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"fails": 10**6}, {"hangs": 15.0}], ids=["fails", "hangs"])
def test_tracker_that_fails_or_hangs_stops_no_run(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.apps.tracking.session.WAIT", 200.0 if "fails" in options else 1.0)
    run(tools.scenario("exact"), run_dir=tmp_path / "plain", report=False)
    notes = Notes()
    run(
        tools.scenario("exact"),
        run_dir=tmp_path / "run",
        track=[stub(tmp_path / "out", **options)],
        observer=notes,
        report=False,
    )
    assert tools.policies_of(tmp_path / "run") == tools.policies_of(tmp_path / "plain")
    assert tools.state_of(tmp_path / "run") == tools.state_of(tmp_path / "plain")
    if "fails" in options:
        (text,) = events(tmp_path / "run")
        assert "tracker Stub fails (ConnectionError: the server is not there)" in text
        assert sum("fails (" in note for note in notes.texts) == 1
    last = notes.texts[-1]
    assert "not everything" in last or "in the background" in last


@pytest.mark.slow
def test_process_of_a_tracker_that_dies_is_started_again(tmp_path: Path) -> None:
    file = tmp_path / "out"
    run(tools.scenario("simulate"), run_dir=tmp_path / "run", track=[stub(file, dies=3)], report=False)
    ludus.track(tmp_path / "run", [stub(file, dies=3)])  # where the run was over before it could be started again
    assert sorted(numbers(file)) == [*range(max(numbers(file)) + 1)]


@pytest.mark.slow
def test_killed_and_resumed_run_has_each_point_once(tmp_path: Path) -> None:
    """In the stub and in TensorBoard's files; the last session's processes have time for everything."""
    from test_tensorboard_tracker import scalars

    run_dir, file = tmp_path / "run", tmp_path / "out"
    track = json.dumps([stub(file), "tensorboard"])
    changes = tools.dies(lambda: tools.train("ppo", tmp_path / "whole"), tmp_path / "whole", at=-1)
    assert changes is not None
    assert tools.dies(lambda: tools.train("ppo", run_dir, f"track={track}"), run_dir, at=changes // 2) is None
    resume(run_dir, report=False)
    assert all(sent.complete for sent in ludus.track(run_dir))
    assert sorted(numbers(file)) == [*range(max(numbers(file)) + 1)]
    of_stub: dict[tuple[str, str], list[int]] = {}
    for line in lines(file, "axis"):
        prefix = "" if line["axis"] == "generations" else f"{line['axis']}/"
        for name in line["values"]:
            of_stub.setdefault((line["axis"], f"{prefix}{name}"), []).append(line["step"])
    of_tensorboard = {key: [step for step, _ in points] for key, points in scalars(run_dir).items()}
    assert of_tensorboard.keys() == of_stub.keys()
    for key, steps in of_tensorboard.items():
        assert steps == sorted(set(steps)), key
    generations = of_tensorboard["generations", "seconds"]
    with Reader(run_dir) as reader:
        assert generations == reader.generation_numbers()
    assert tools.policies_of(run_dir) == tools.policies_of(tmp_path / "whole")


@pytest.mark.slow
def test_killed_run_is_closed_as_killed_by_its_trackers_process(tmp_path: Path) -> None:
    """SIGKILL of the driver alone: the tracker's process sends what was committed, and ends."""
    file = tmp_path / "out"
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        tools.scenario("ppo", "generations=1000", f"track={json.dumps([stub(file)])}").to_yaml(), encoding="utf-8"
    )
    code = "from ludus.cli.start import script; script()"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(ludus.__file__).parents[1]), str(Path(__file__).parent)]),
    }
    driver = subprocess.Popen(
        [sys.executable, "-c", code, "train", str(scenario), "--run-dir", "run"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    _until(lambda: len(numbers(file)) > 5)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    _until(lambda: bool(lines(file, "finish")))
    assert [line["finish"] for line in lines(file, "finish")] == ["killed"]
    assert numbers(file) == [*range(len(numbers(file)))]


def _until(condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_run_of_an_older_version_continues_its_files_for_tensorboard(tmp_path: Path) -> None:
    """Its scenario does not say what tracks it."""
    from test_tensorboard_tracker import killed, point, scalars, started

    run_dir = tmp_path / "run"
    tools.train("exact", run_dir, "generations=2")
    with Store.open(run_dir) as store:
        with Reader(run_dir) as reader:
            info = reader.info()
        store.set_info(replace(info, text=info.text.replace("track: []\n", "")))
    (run_dir / "scenario.yaml").write_text(info.text.replace("track: []\n", ""), encoding="utf-8")
    old = started(run_dir)
    old.log([point(k, k, seconds=1.0) for k in range(3)])
    killed(old)
    resume(run_dir, ["generations=4"], report=False)
    ludus.track(run_dir)
    assert [step for step, _ in scalars(run_dir)["generations", "seconds"]] == [0, 1, 2, 3, 4]


def test_command_sends_a_run_that_had_no_tracker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tools.train("exact", tmp_path / "run")
    text = f"{KIND},file={tmp_path / 'out'}"
    assert main(["track", str(tmp_path / "run"), text]) == 0
    assert "tracker Stub: " in capsys.readouterr().out
    assert main(["status", str(tmp_path / "run")]) == 0
    assert "Stub: " in capsys.readouterr().out
    first = numbers(tmp_path / "out")
    assert first == [*range(len(first))]
    assert main(["track", str(tmp_path / "run"), text]) == 0
    assert numbers(tmp_path / "out") == first
    assert len(lines(tmp_path / "out", "start")) == 1, "it need not be opened again"
    assert main(["track", str(tmp_path / "run")]) == 2
    assert "has no trackers" in capsys.readouterr().err


def test_commands_take_trackers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["list", "trackers"]) == 0
    assert "tensorboard" in capsys.readouterr().out
    assert main(["train", "kuhn", "--track", "tensorbord"]) == 2
    assert "did you mean 'tensorboard'" in capsys.readouterr().err
    assert main(["config", "kuhn", "track=[tensorboard]"]) == 0
    assert "kind: tensorboard" in capsys.readouterr().out


def test_stranger_cannot_name_a_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tools.scenario("exact"), run_dir=tmp_path / "run", report=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))  # another user, who has made no marks
    import sqlite3

    from ludus.storage.database import FILE

    with sqlite3.connect(tmp_path / "run" / FILE) as connection:
        ((text,),) = connection.execute("SELECT value FROM run WHERE key = 'info'").fetchall()
        facts = json.loads(text)
        facts["text"] = facts["text"].replace("track: []", "track: [{kind: evil:Tracker}]")
        assert "evil" in facts["text"]
        connection.execute("UPDATE run SET value = ? WHERE key = 'info'", (json.dumps(facts),))
        connection.execute("DELETE FROM batches WHERE name = 'run'")
    connection.close()
    with suppress(ludus.RunWarning), pytest.raises(TrustError, match="evil:Tracker"):
        ludus.track(tmp_path / "run")
