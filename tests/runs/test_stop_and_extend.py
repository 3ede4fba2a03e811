"""Runs that are stopped by hand, finished, extended or changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import run_tools as tools

from ludus.cli.main import main
from ludus.core.config import as_stored
from ludus.core.errors import ConfigError, RunError, ScenarioError
from ludus.evaluation import run_ratings
from ludus.runs.runner import resume, run
from ludus.runs.scenario_runtime import RuntimeChoice
from ludus.storage.base import GenerationRecord, NullObserver
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import RunLock
from ludus.storage.stored_run import StoredRun


def state(run_dir: Path) -> str:
    with Reader(run_dir) as reader:
        return reader.state()


@pytest.mark.parametrize(("name", "calls"), [("dqn", 9)])
def test_stopped_by_hand_and_resumed(name: str, calls: int, tmp_path: Path) -> None:
    tools.train(name, tmp_path / "whole")
    run_dir, observer = tmp_path / "run", tools.Impatient(calls)
    result = run(tools.scenario(name), run_dir=run_dir, observer=observer, stop=observer.stop, report=False)
    assert result.stopped_by == "stopped by Ctrl-C"
    assert state(run_dir) == "stopped"
    observer = tools.Impatient(3)
    resume(run_dir, observer=observer, stop=observer.stop, report=False)
    resume(run_dir, report=False)
    assert state(run_dir) == "finished"
    tools.assert_same_run(tmp_path / "whole", run_dir)


def test_a_finished_run_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "run"
    done = run(tools.scenario("ppo"), run_dir=run_dir)
    before = tools.files_of(run_dir)
    again = resume(run_dir)
    assert "it was finished before, and nothing was done (a higher generations=N" in again.stopped_by
    assert again.nash_conv == done.nash_conv
    assert again.generations == done.generations
    assert again.populations == done.populations
    assert again.report == done.report == run_dir / "report.html"
    np.testing.assert_array_equal(again.payoffs.mean, done.payoffs.mean)
    assert main(["resume", str(run_dir)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "stopped the schedule is complete; it was finished before, and nothing was done" in out
    assert tools.files_of(run_dir) == before


SAMPLED = (
    "meta_solver=cce",
    "evaluation={payoffs: simulate, episodes: 20}",
)  # NashConv of a joint solution is exact all the same


@pytest.mark.parametrize(("name", "changes"), [("general", ()), ("exact", SAMPLED)], ids=str)
def test_an_extended_run_equals_the_longer_one(name: str, changes: tuple[str, ...], tmp_path: Path) -> None:
    tools.train(name, tmp_path / "short", "generations=1", *changes)
    resume(tmp_path / "short", ["generations=3"], report=False)
    tools.train(name, tmp_path / "long", "generations=3", *changes)
    tools.assert_same_run(tmp_path / "long", tmp_path / "short")
    assert (tmp_path / "short/scenario.yaml").read_text() == (tmp_path / "long/scenario.yaml").read_text()
    with Reader(tmp_path / "short") as short, Reader(tmp_path / "long") as long:
        assert short.info().text == long.info().text
        assert short.info().generations == 3


def test_limits_of_a_run_are_readable(tmp_path: Path) -> None:
    """So that the time left is that until the first limit."""
    tools.train("exact", tmp_path, "generations=9", "stop={generations: 1, seconds: 60}")
    with Reader(tmp_path) as reader:
        assert (reader.info().generations, reader.info().seconds) == (1, 60.0)


def test_a_run_that_goes_on_is_read_as_it_was_when_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools.train("exact", tmp_path / "run", "generations=1")
    before = StoredRun(tmp_path / "run")
    resume(tmp_path / "run", ["generations=2"], report=False)
    assert before.solution_after(2) is None
    monkeypatch.setattr(run_ratings, "open_run", lambda _: before)
    found = run_ratings.rate_run(tmp_path / "run", ["mean_payoff"])
    assert [len(names) for names in found.names] == [len(members) for members in before.members.values()]
    assert len(found.tables["mean_payoff"].rating) == sum(map(len, found.names))


def test_a_finished_run_is_not_made_shorter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tools.train("exact", tmp_path, "generations=3", "stop=null")
    before = tools.files_of(tmp_path)
    assert main(["resume", str(tmp_path), "generations=2"]) == 2
    assert "generations=2 was given, and the run has 3. Give more to extend it." in capsys.readouterr().err
    assert tools.files_of(tmp_path) == before


def test_resume_after_a_stop_names_how_to_extend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "run"
    tools.train("exact", run_dir, "stop={nash_conv: 100}")
    before = tools.files_of(run_dir)
    assert main(["resume", str(run_dir), "generations=9"]) == 2
    assert "there is nothing to go on with: NashConv" in capsys.readouterr().err
    assert tools.files_of(run_dir) == before
    assert len(resume(run_dir, ["generations=2", "stop=null"], report=False).generations) == 3


@pytest.mark.slow
def test_killed_while_it_is_extended(tmp_path: Path) -> None:
    wholes = {}
    for generations in (1, 2):
        wholes[generations] = tmp_path / f"whole{generations}"
        tools.train("exact", wholes[generations], f"generations={generations}")
    for at in (1, 2, 3, 5, 12):
        run_dir = shutil.copytree(wholes[1], tmp_path / str(at))
        assert tools.dies(lambda d=run_dir: resume(d, ["generations=2"], report=False), run_dir, at=at) is None
        resume(run_dir, report=False)  # as it was, or as it was to become: never something between
        with Reader(run_dir) as reader:
            wanted = reader.info().generations
            assert len(reader.generations()) == 1 + wanted
            assert reader.info().text == (run_dir / "scenario.yaml").read_text()
        tools.assert_same_run(wholes[wanted], run_dir)


def test_another_oracle_starts_its_response_anew(tmp_path: Path) -> None:
    observer = tools.Impatient(8)  # inside the first response, after a barrier in it
    run(tools.scenario("ppo"), run_dir=tmp_path, observer=observer, stop=observer.stop, report=False)
    assert tools.state_of(tmp_path)["trainings"]
    resume(tmp_path, ["algorithm.hidden=[5]", "meta_solver=uniform"], report=False)
    with Reader(tmp_path) as reader:
        found = [p.record.spec.config.get("body", {}).get("hidden") for p in reader.policies()]
        assert found == [None, [5], [5]] * 2
        assert reader.generations()[-1].marginals == ((1 / 3,) * 3,) * 2


def test_unchangeable_settings_are_rejected_on_resume(tmp_path: Path) -> None:
    tools.train("exact", tmp_path, "generations=1")
    before = tools.files_of(tmp_path)
    for change, kind, words in (
        ("env=openspiel/leduc_poker", ScenarioError, "the run has 'openspiel/kuhn_poker', which a run cannot change"),
        ("seed=5", ScenarioError, "seed=5 was given; the run has 0"),
        ("share=never", ScenarioError, "share='never' was given"),
        ("env.wrappers=[flatten_observation]", ScenarioError, "env.wrappers=.*; the run has .*, which a run cannot"),
        ("env.tree=off", ScenarioError, "env.tree='off' was given; the run has 'auto'"),
        ("generation=5", ConfigError, "did you mean 'generations'"),
        ("meta_solver=nahs", ConfigError, "unknown meta-solver"),
        ("stop={episodes: 5}", ScenarioError, "could never fire"),
    ):
        with pytest.raises(kind, match=words):
            resume(tmp_path, [change])
    assert tools.files_of(tmp_path) == before


def test_a_run_that_is_there_is_refused_before_a_runtime_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools.train("exact", tmp_path, "generations=1")
    monkeypatch.setattr(RuntimeChoice, "build", lambda self, learns: pytest.fail("the runtime was started"))
    with pytest.raises(RunError, match=r"already holds a run\. Continue it with `ludus resume`"):
        tools.train("exact", tmp_path)


def test_a_folder_that_holds_something_is_refused_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scenario.yaml").write_text("mine")
    monkeypatch.chdir(tmp_path)
    for given in (str(tmp_path), ".", "x/.."):
        assert main(["train", "kuhn", "generations=1", "--run-dir", given]) == 2
        assert "is not empty: it holds scenario.yaml. Nothing was written." in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["scenario.yaml"]
    assert (tmp_path / "scenario.yaml").read_text() == "mine"
    for leftover in ("driver.lock", "ludus.db"):  # of a run that died before it began
        (tmp_path / "new").mkdir(exist_ok=True)
        (tmp_path / "new" / leftover).touch()
    assert main(["train", "kuhn", "generations=1", "--run-dir", "x/../new"]) == 0


@pytest.mark.parametrize(("every", "count"), [(1, 5), (3, 3)])
def test_a_checkpoint_comes_with_every_so_many_generations_and_the_end(every: int, count: int, tmp_path: Path) -> None:
    tools.train("exact", tmp_path, "generations=4", f"checkpoints.generations={every}")
    with Reader(tmp_path) as reader:
        assert len(reader.checkpoints()) == count


def test_a_checkpoint_between_generations_has_each_learner_once(tmp_path: Path) -> None:
    tools.train("self_play", tmp_path)
    assert set(tools.state_of(tmp_path)["kept"]) == {"chunk-0-3", "chunk-1-3"}


def test_one_driver_per_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tools.train("exact", tmp_path, "generations=1")
    with RunLock(tmp_path):
        before = tools.files_of(tmp_path)
        for line in (["resume", str(tmp_path)], ["resume", str(tmp_path), "generations=3"]):
            assert main(line) == 2
            err = capsys.readouterr().err
            assert "is in use by another process (pid " in err
            assert err.count("\n") == 1
        assert tools.files_of(tmp_path) == before


def test_a_run_that_went_on_meanwhile_is_not_rewound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.train("exact", tmp_path, "generations=1")
    from ludus.runs import runner

    read = runner.read_run

    def slowly(folder: Path, overrides: list[str]) -> object:
        stored = read(folder, overrides)
        monkeypatch.setattr(runner, "read_run", read)
        resume(folder, ["generations=2"], report=False)
        return stored

    monkeypatch.setattr(runner, "read_run", slowly)
    with pytest.raises(RunError, match="another process went on with run"):
        resume(tmp_path, ["generations=3"])
    with Reader(tmp_path) as reader:
        assert len(reader.generations()) == 3


def test_a_run_with_an_option_that_is_refused_by_now_goes_on(tmp_path: Path) -> None:
    """It was accepted when the run began, and nothing has ever read it."""
    table = ["algorithm={kind: mmd, network: table, epochs: 3, batch: 40}"]
    with pytest.raises(ConfigError, match="nothing reads epochs"):
        tools.scenario("self_play", *table)
    with as_stored():
        tools.train("self_play", tmp_path, *table, "generations=1")
    with Reader(tmp_path) as reader:
        assert "epochs: 3" in reader.info().text
    assert resume(tmp_path, ["generations=2"], report=False).summary.generations == 2


def test_a_run_whose_folder_is_moved_stops_at_the_next_barrier(tmp_path: Path) -> None:
    """What it wrote from there on would lie beside it, in a folder that nobody removes. It goes on where it is."""

    class Moves(NullObserver):
        def generation_done(self, record: GenerationRecord) -> None:
            if record.number == 1:
                (tmp_path / "run").rename(tmp_path / "moved")

    with pytest.raises(RunError, match="was moved or deleted while it went on"):
        run(tools.scenario("ppo", "generations=4"), run_dir=tmp_path / "run", observer=Moves(), report=False)
    assert not (tmp_path / "run").exists()
    resume(tmp_path / "moved", report=False)
    assert state(tmp_path / "moved") == "finished"
