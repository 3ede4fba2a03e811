"""ludus train --seeds, compare, runs, status and report of experiments: what they print, refuse and leave alone."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import synthetic_run as synthetic

from ludus.apps.common.experiments import Experiment, RunStanding, read_experiment
from ludus.cli.experiment import ExperimentProgress, data_of, show
from ludus.cli.main import main
from ludus.runs.control import Status, write_live_file
from ludus.runs.runner import run
from ludus.runs.scenario_files import load_scenario
from ludus.storage.base import RunSummary
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import RunLock
from ludus.storage.store import Store


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def experiment(name: str, *, done: int = 2, more: int = 0) -> Experiment:
    path = Path("runs") / name
    path.mkdir(parents=True)
    names = [f"seed-{k}" for k in range(done + more)]
    made = Experiment(path, {"env": "openspiel/leduc_poker"}, {run: (f"seed={run[5:]}",) for run in names})
    made.save()
    for run_name in names[:done]:
        synthetic.write(path / run_name, generations=3)
    return made


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_compare(capsys: pytest.CaptureFixture[str]) -> None:
    experiment("a", more=1).with_reason("seed-2", "its process was killed by SIGKILL").save()
    synthetic.write(Path("runs/b"), generations=2)
    assert main(["compare", "a", "b", "--baseline", "paper=1.5+-0.25"]) == 0
    out = lines(capsys)
    assert out[0] == "NashConv (lower is better), after the last generation"
    assert [line.partition(" [")[0] for line in out[3:6]] == [
        "a 2 of 3 2.205",
        "b 1 2.871 2.871 2.871 4.2s",
        "paper published 1.5 ± 0.25",
    ]
    assert out[6] == "a: seed-2 is left out: failed, its process was killed by SIGKILL"
    assert "Probability of improvement" not in out, "b is a single run"
    assert out[-1] == "Plots: ludus report a b"

    assert main(["compare", "a", "b", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(r["run"], r["counted"], r["generations"]) for r in rows[3:5]] == [
        ("seed-0", "yes", "3.0"),
        ("seed-1", "yes", "0.0"),
    ]
    assert main(["compare", "a", "b", "--json"]) == 0
    assert [group["name"] for group in json.loads(capsys.readouterr().out)["groups"]] == ["a", "b"]


def test_an_experiment_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """As `resume --json` prints it where nothing is left to do."""
    made = experiment("a")
    assert main(["resume", "a", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["experiment"], data["report"]) == ("runs/a", "runs/a/report.html")
    assert data["runs"][1] == {"name": "seed-1", "run_dir": "runs/a/seed-1", "state": "finished", "why": ""}
    assert data["comparison"]["groups"][0]["mean"]["value"] == pytest.approx(2.205, abs=1e-3)
    empty = experiment("none", done=0, more=1)
    assert data_of(empty)["comparison"] is None
    assert [run["state"] for run in data_of(empty)["runs"]] == ["waiting"]
    assert made.folder.is_dir()


def test_report_of_several(capsys: pytest.CaptureFixture[str]) -> None:
    experiment("a")
    synthetic.write(Path("runs/b"), generations=2)
    assert main(["report", "a"]) == 0
    assert capsys.readouterr().out == "runs/a/report.html\n"
    assert main(["report", "a", "b"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert (path.parent, path.name[:11]) == (Path("runs"), "comparison-")
    assert "importmap" in path.read_text()


def test_status_of_an_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    made = experiment("a", done=1, more=1)
    assert main(["status", "a", "--watch"]) == 0
    out = lines(capsys)
    assert out[0] == "a: 1 of 2 runs are done"
    assert out[3].startswith("seed-0 finished generation 3, 5.9s, NashConv 2.")
    assert out[4] == "seed-1 waiting"
    with Store.create(made.folder / "seed-1", synthetic.info(made.folder / "seed-1")):
        assert main(["status", "a"]) == 0
        assert lines(capsys)[4] == "seed-1 running"
        write_live_file(made.folder / "seed-1", Status("x", "here", 1, "0.1.0", 0.0, 0.0, paused=True, generation=2))
        assert main(["status", "a"]) == 0
    assert lines(capsys)[4] == "seed-1 paused generation 2, starting"


def test_runs_are_renamed_with_what_they_are_called(capsys: pytest.CaptureFixture[str]) -> None:
    synthetic.write(Path("runs/a"), generations=1)
    experiment("e")
    assert main(["runs", "rename", "a", "b"]) == 0
    assert main(["runs", "rename", "e", "f"]) == 0
    assert lines(capsys) == ["a is now b", "e is now f"]
    with Reader(Path("runs/b")) as reader:
        assert reader.info().name == "b"
    assert main(["runs"]) == 0
    assert [line.split()[0] for line in lines(capsys)[2:]] == ["b", "f/seed-0", "f/seed-1"]


def test_runs_are_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    synthetic.write(Path("runs/a"), generations=1)
    made = experiment("e")
    made.log("seed-0").write_text("generation 3")
    recorded = ("a/replays/0123456789abcdef.json", "a/episode.txt", "a/.episode.123.part.gif")  # by `ludus record`
    cut_off = ("a/.report.html.123", "a/.status.json.0123abcd", "e/.experiment.yaml.part", "e/study.db-journal")
    for path in (*recorded, *cut_off):
        Path("runs", path).parent.mkdir(exist_ok=True)
        Path("runs", path).touch()
    assert main(["runs", "rm", "e/seed-0", "--yes"]) == 0
    assert [s.state for s in read_experiment(made.folder).standings()] == ["waiting", "finished"]
    assert main(["runs", "rm", "a", "e", "--yes"]) == 0
    assert lines(capsys) == ["deleted runs/e/seed-0", "deleted runs/a", "deleted runs/e"]
    assert list(Path("runs").iterdir()) == []


def test_foreign_files_are_not_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a/.notes", "a/.notes.part", "a/ludus.db.copy", "e/notes.log", "e/seed-9/ludus.db"):
        folder, _, inside = name.partition("/")
        experiment(folder, done=0) if folder == "e" else synthetic.write(Path("runs/a"), generations=0)
        Path("runs", name).parent.mkdir(exist_ok=True)
        Path("runs", name).touch()
        assert main(["runs", "rm", folder, "--yes"]) == 2
        assert f"holds {inside.partition('/')[0]}, which no run of Ludus writes" in capsys.readouterr().err
        assert Path("runs", name).exists()
        shutil.rmtree("runs")


def test_experiments_of_many_runs_are_renamed_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    """Of more than this process may have files open."""
    made = experiment("e", done=0, more=120)
    for run_name in made.runs:
        (made.folder / run_name).mkdir()  # as a run leaves it that died before it began
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, before[1]))
    try:
        assert main(["runs", "rename", "e", "f"]) == 0
        assert main(["runs", "rm", "f", "--yes"]) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert list(Path("runs").iterdir()) == []


def test_an_experiment_says_what_can_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    """A run that failed before it began is begun again; one that has nothing to be measured by is said to be so."""
    made = experiment("e", done=0, more=2).with_reason("seed-1", "the disk is full")
    with Store.create(made.folder / "seed-0", synthetic.info(made.folder / "seed-0")) as store:
        store.generation_done(synthetic.generation(0, (1, 1), nash_conv=None))
        store.commit("last")
        store.run_finished(RunSummary(made.folder / "seed-0", 0, 1.0, 0, None, "the schedule is complete"))
    show(made)
    out, err = capsys.readouterr()
    assert re.search(r"continue +ludus resume e\n", out)
    assert "seed-0: finished, and it has nothing of what runs are measured by" in err


def test_a_folder_is_renamed_and_deleted_from_within(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    synthetic.write(Path("runs/a"), generations=1)
    monkeypatch.chdir("runs/a")
    assert main(["runs", "rename", ".", "b"]) == 0
    monkeypatch.chdir(folder / "runs/b")
    assert main(["runs", "rm", ".", "--yes"]) == 0
    monkeypatch.chdir(folder)
    assert list(Path("runs").iterdir()) == []


def test_progress_counts_what_is_still_to_come() -> None:
    """Of a sweep nobody has listed that."""
    made = experiment("e", done=0)
    with closing(ExperimentProgress(made)) as progress:
        progress.began("seed-0")
        progress.looked(3)
        assert "0 ended, 1 running, 3 waiting" in str(progress._draw())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("runs rm a", "--yes is needed where nobody can be asked"),
        ("runs rm going --yes", "run 'going' is going on; nothing was deleted"),
        ("runs rm a going --yes", "run 'going' is going on; nothing was deleted"),
        ("runs rm noted --yes", "holds notes.txt, which no run of Ludus writes"),
        ("runs rm mine --yes", "there is no run 'mine'"),
        ("runs rm runs/mine --yes", "'runs/mine' is not a run"),
        ("runs rm foreign --yes", "holds a ludus.db that is damaged, or of another program"),
        ("runs rm link --yes", "'link' is a link"),
        ("runs rename a noted", "is there already"),
        ("runs rename e/seed-0 b", "belongs to an experiment"),
        ("runs rename going b", "is in use by another process"),
        ("compare mine", "there is no run 'mine'"),
        ("evaluate e", "'e' is an experiment, and one run was expected. Name one of them: e/seed-0."),
        ("resume e --profile", "--profile is for one run"),
        ("resume odd", "its format is 9, and 1 was expected; upgrade ludus"),
        ("compare wild", "a run is named '../a', which is no name of a folder beside it"),
        ("train kuhn --seeds 2 --run-dir runs/a", "already holds a run"),
        (
            "train kuhn --seeds 2 --run-dir runs/e",
            "holds an experiment. Nothing was written. Continue it with `ludus resume e`",
        ),
        ("runs rm swept/trial-0 --yes", "is a trial of the sweep 'swept', whose study counts it"),
    ],
)
def test_rejected_commands_change_nothing(
    line: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    runs = Path("runs")
    for name in ("a", "noted", "going"):
        synthetic.write(runs / name, generations=1)
    (runs / "noted" / "notes.txt").write_text("mine")
    synthetic.write(runs / "swept" / "trial-0", generations=1)
    (runs / "swept" / "sweep.yaml").touch()
    for name, what in (
        ("mine", "notes.txt"),
        ("foreign", "ludus.db"),
        ("odd", "experiment.yaml"),
        ("wild", "experiment.yaml"),
    ):
        (runs / name).mkdir()
        (runs / name / what).write_text("format: 9" if name == "odd" else "format: 1\nscenario: {}\nruns: {../a: []}")
    (runs / "link").symlink_to(runs.resolve() / "a")
    experiment("e", done=1)
    with RunLock(runs / "going"):
        before = sorted(path for path in Path().rglob("*"))
        assert main(line.split()) == 2
        assert sorted(path for path in Path().rglob("*")) == before
    out, err = capsys.readouterr()
    assert words in err
    assert out == ""


@pytest.mark.slow
def test_seeds_are_the_runs_that_they_are_alone(folder: Path) -> None:
    """Two seeds side by side, one of them killed, and what is gone on with: equal to the runs alone, to the bit."""
    command = [sys.executable, "-c", "from ludus.cli.main import script; script()"]
    options = ["generations=24", "response.episodes=3000"]  # some seconds, so that the kill comes before the end
    short = ["leduc", *options, "--name", "e", "--seeds", "0,4"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [*command, "train", *short], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    log = folder / "runs/e/seed-4.log"
    while process.poll() is None and not (log.exists() and re.search(r"generation [1-9]", log.read_text())):
        time.sleep(0.02)
    os.kill(int((folder / "runs/e/seed-4/driver.lock").read_text()), 9)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 4
    assert "error: 1 of 2 runs failed: seed-4." in err
    assert "its process was killed by SIGKILL" in out
    again = subprocess.run([*command, "resume", "e"], capture_output=True, text=True, env=environment, timeout=200)
    assert again.returncode == 0
    assert (folder / "runs/e/report.html").exists()
    alone = run(load_scenario("leduc", options, 4), name="alone", report=False)
    ours, theirs = (
        sorted((folder / "runs" / name / "policies").rglob("*.safetensors")) for name in ("e/seed-4", "alone")
    )
    assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in theirs]
    with Reader(folder / "runs/e/seed-4") as reader:
        assert [g.nash_conv for g in reader.generations()] == [*alone.nash_conv]


def test_warnings_of_a_run_are_shown_when_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    made = experiment("a", done=1)
    folder = made.folder / "seed-0"
    with Store.open(folder) as store:
        store.event("no_episode", "no episode has ended", level="warning")
        store.event("no_episode", "none of another task", level="info")
        store.commit("later")
    with closing(ExperimentProgress(made)) as progress:
        progress.began("seed-0")
        progress.ended(RunStanding("seed-0", folder, "finished"))
    *_, ended, warning = capsys.readouterr().err.splitlines()
    assert ended.startswith("seed-0: finished after ")
    assert warning == "seed-0: warning: no episode has ended"
