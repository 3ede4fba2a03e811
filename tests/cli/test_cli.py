"""Commands, called in-process: what they print, what they refuse, and that refusing changes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import synthetic_run as synthetic
from rich.console import Console

import ludus.storage.reader
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.cli import output
from ludus.cli.config import _plays
from ludus.cli.main import COMMANDS, main
from ludus.core.errors import ConfigError, RunError
from ludus.runs.control import StopRequest
from ludus.runs.scenario_files import load_scenario, parse_scenario
from ludus.storage.base import GenerationRecord, RunSummary
from ludus.storage.store import Store


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LUDUS_DEBUG", raising=False)
    return tmp_path


class Called:
    """Stands for what loads and runs scenarios; remembers what it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, stops: bool = False) -> None:
        self.given: dict[str, object] = {}
        self.stops = stops
        self.populations = 2
        monkeypatch.setattr("ludus.runs.scenario_files.load_scenario", self.load)
        monkeypatch.setattr("ludus.runs.scenario_files.list_presets", lambda: {"leduc": "PSRO on Leduc poker"})
        monkeypatch.setattr("ludus.runs.runner.run", self.run)
        monkeypatch.setattr("ludus.runs.runner.resume", self.resume)
        monkeypatch.setattr("ludus.cli.run_command._in_training", lambda *_: "")  # which looks into the run's database

    def load(self, name: str, overrides: list[str], seed: int | None) -> SimpleNamespace:
        if name != "leduc":
            raise ConfigError("unknown preset 'ledcu';\ndid you mean 'leduc'?")
        self.given |= {"name": name, "overrides": overrides, "seed": seed}
        return SimpleNamespace(
            to_yaml=lambda: f"scenario: psro\nseed: {seed}\n",
            runtime=SimpleNamespace(kind="inprocess", mode="sync", threads=1, prepare=Mock()),
            learns=True,
            algorithm=None,
            algorithms={},
        )

    def run(self, scenario: object, *, run_dir: Path | None, name: str | None, observer: object, stop: StopRequest):
        self.given |= {"run_dir": run_dir, "run_name": name}
        return self.result(Path("runs/demo"), stop)

    def resume(self, run_dir: Path, overrides: list[str], *, observer: object, stop: StopRequest) -> SimpleNamespace:
        self.given |= {"run_dir": run_dir, "overrides": overrides}
        return self.result(run_dir, stop)

    def result(self, run_dir: Path, stop: StopRequest) -> SimpleNamespace:
        if self.stops:
            stop.request("stopped by Ctrl-C")
        last = GenerationRecord(20, 61.5, 2_400_000, 1.25, (0.5, 0.75), (0.0, 0.0), ((0.5, 0.5), (1.0,)))
        return SimpleNamespace(
            run_dir=run_dir,
            scenario=SimpleNamespace(generations=20),
            populations=((synthetic.policy(0, 0), synthetic.policy(0, 1)), (synthetic.policy(1, 0),))[
                : self.populations
            ],
            generations=(last,),
            nash_conv=(4.7, 1.2, 1.25),
            seconds=61.5,
            stopped_by=stop.reason or "the schedule is complete",
            report=None if self.stops else run_dir / "report.html",
            statistics=(),
            warnings=(),
            summary=RunSummary(run_dir, 20, 61.5, 2_400_000, 1.25, "the schedule is complete"),
        )


def test_train_passes_its_arguments_in_any_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called = Called(monkeypatch)
    line = ["train", "leduc", "generations=3", "--seed", "5", "algorithm.learning_rate=-1e-3", "--name", "try1"]
    assert main(line) == 0
    assert called.given == {
        "name": "leduc",
        "overrides": ["generations=3", "algorithm.learning_rate=-1e-3"],
        "seed": 5,
        "run_dir": None,
        "run_name": "try1",
    }
    assert [" ".join(row.split()) for row in capsys.readouterr().out.splitlines()] == [
        "Results",
        "generations 20",
        "NashConv 1.2500, what best responses to the mixture gain in all",
        "exploitability 0.6250, the mean of both players",
        "policies 2 + 1",
        "episodes 2,400,000 of training",
        "time 1m01s",
        "stopped the schedule is complete",
        "run runs/demo",
        "report runs/demo/report.html",
        "Next",
        "ludus tournament demo@meta demo@best random --dir tournaments/demo-20 a tournament of its policies",
        "ludus record demo@best record an episode",
        "ludus resume demo generations=40 continue",
    ]


def test_a_stopped_run_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Called(monkeypatch, stops=True)
    assert main(["train", "leduc", "--run-dir", "elsewhere"]) == 0
    out = capsys.readouterr().out
    assert "stopped by Ctrl-C" in out
    assert out.endswith("Continue with: ludus resume runs/demo\n")
    assert "report" not in out


def test_a_path_to_go_on_with_can_be_pasted(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Called(monkeypatch, stops=True)
    synthetic.write(folder / "my runs" / "ü", generations=1)
    assert main(["resume", "my runs/ü"]) == 0
    assert capsys.readouterr().out.endswith("Continue with: ludus resume 'my runs/ü'\n")


def test_a_shared_population_is_counted_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Called(monkeypatch).populations = 1
    assert main(["train", "leduc"]) == 0
    assert "policies        2, shared by the players\n" in capsys.readouterr().out


def test_resume_finds_runs_by_name_and_path(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    called = Called(monkeypatch)
    synthetic.write(folder / "runs" / "mine", generations=1)
    for given in ("mine", "runs/mine", str(folder / "runs" / "mine")):
        assert main(["resume", given, "generations=40"]) == 0
        assert Path(str(called.given["run_dir"])).resolve() == folder / "runs" / "mine"
        assert called.given["overrides"] == ["generations=40"]


def test_config_prints_the_scenario_and_where_it_learns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ludus.backend.device.gpu_count", lambda: 0)
    assert main(["config", "kuhn", "--algorithm", "ppo", "--seed", "3"]) == 0
    text = capsys.readouterr().out
    scenario = load_scenario("kuhn", ["algorithm=ppo"], 3)
    assert text.startswith(scenario.to_yaml())
    assert parse_scenario(text, [], source="here") == scenario
    plays, rule, place = text.splitlines()[-3:]
    assert plays == "# plays in this process"
    assert rule.startswith(
        "# device auto: a GPU, where there is one, for steps of 4e+06 multiplications or more (5e+07 where"
    )
    assert place == "# learns on cpu (CPU kernels): there is no GPU"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["share=never", "algorithm=ppo", "algorithms={1: tabular_q}"], ["cpu (CPU kernels", "cpu: TabularQLearner computes"]),
        (["algorithm=exact"], ["no device: its answers are computed"]),
        (["algorithm=ppo", "runtime.compile=true"], ["cpu (CPU kernels): there is no GPU; not compiled: there is"]),
        (["algorithm=nfsp"], ["cpu (CPU kernels): there is no GPU; its best response on cpu (CPU kernels"]),
    ],
)  # fmt: skip
def test_config_says_it_of_each(
    changes: list[str], told: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ludus.backend.device.gpu_count", lambda: 0)
    assert main(["config", "kuhn", *changes]) == 0
    places = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# learns on ")]
    assert len(places) == len(told)
    assert all(line.startswith(f"# learns on {start}") for line, start in zip(places, told, strict=True))
    assert len(told) == 1 or [line.rpartition("(")[2] for line in places] == [
        "ppo of player 0)",
        "tabular_q of player 1)",
    ]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["runtime=processes", "runtime.workers=2"], "2 processes of this machine"),
        (["runtime=ray"], "1 process of a Ray that is started here"),
        (["runtime=ray", "runtime.address=10.0.0.5:6379"], "1 process of the Ray at 10.0.0.5:6379"),
        (["runtime=my:Own", "runtime.workers=3"], "3 processes of my:Own"),
    ],
)
def test_config_says_where_it_plays(changes: list[str], told: str) -> None:
    assert _plays(load_scenario("kuhn", changes).runtime) == f"plays in {told}"


def test_config_of_an_environment_that_is_not_here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("env: nowhere/at_all\n")
    assert main(["config", str(file)]) == 0
    assert "# where it learns cannot be said here: " in capsys.readouterr().out


def test_report_is_written(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic.write(folder / "runs" / "mine", generations=2)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main(["report", "mine", "--open"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("runs/mine/report.html\n", "No browser was found on this machine; open the file yourself.\n")
    assert (folder / "runs/mine/report.html").stat().st_size > 1e5
    assert opened == [(folder / "runs/mine/report.html").as_uri()]
    assert main(["report", "mine", "--out", "elsewhere.html"]) == 0
    assert capsys.readouterr().out == "elsewhere.html\n"
    assert (folder / "elsewhere.html").read_bytes() == (folder / "runs/mine/report.html").read_bytes()


def test_list_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs"]) == 0
    assert "no runs in ./runs" in capsys.readouterr().out
    synthetic.write(folder / "runs" / "done", generations=3)
    synthetic.write(folder / "runs" / "killed", generations=0, finished=False)
    broken = folder / "runs" / "odd"
    broken.mkdir()
    (broken / "ludus.db").write_text("no database")
    going = folder / "runs" / "going"
    with Store.create(going, synthetic.info(going)):
        assert main(["runs"]) == 0
    *rows, odd, cut = [row.split() for row in capsys.readouterr().out.splitlines() if row.strip()]
    assert rows[0] == ["run", "scenario", "generations", "NashConv", "time", "state"]
    assert rows[2:] == [
        ["done", "leduc", "3", rows[2][3], "5.9s", "finished"],
        ["going", "leduc", "0", "-", "-", "running"],
        ["killed", "leduc", "0", "-", "-", "interrupted"],
        ["odd", "-", "-", "-", "-", "unreadable"],
    ]
    assert " ".join(odd).startswith(
        "Unreadable: odd: the database 'runs/odd/ludus.db' cannot be used: file is not a database"
    )
    assert " ".join(cut) == "Interrupted: the process of the run is gone. `ludus resume killed` resumes it."
    assert 2.0 < float(rows[2][3]) < 2.3  # 4.7 exp(-0.84) + 0.15 … 0.2


def test_a_run_without_its_database_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("gone", "emptied"):
        synthetic.write(folder / "runs" / name, generations=1)
        (folder / "runs" / name / "checkpoint").mkdir()
    (folder / "runs" / "gone" / "ludus.db").unlink()
    (folder / "runs" / "emptied" / "ludus.db").write_bytes(b"")
    assert main(["runs"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[2:4] == ["emptied - - - - unreadable", "gone - - - - unreadable"]
    assert lines[4].startswith("Unreadable: emptied: the database of run 'runs/emptied', ludus.db, is empty: it, or")
    assert lines[5].startswith("Unreadable: gone: run 'runs/gone' has lost its database: it has no ludus.db.")
    for command in ("status", "report", "resume", "verify"):
        assert main([command, "gone"]) == 2
        assert "has lost its database" in capsys.readouterr().err
        assert main([command, "emptied"]) == 2
        assert "is empty" in "".join(capsys.readouterr())


def test_list_everything(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Called(monkeypatch)
    monkeypatch.setattr("ludus.algorithms.common.registry.ALGORITHMS", {"ppo": "ludus.algorithms.ppo.config:PPO"})
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    for expected in (
        "PSRO on Leduc poker",
        "Schulman et al. 2017",
        "on-policy",
        "nash",
        "psro",
        "ludus list envs",
    ):
        assert expected in out


@pytest.mark.parametrize("width", [80, 100, 240])
def test_every_algorithm_on_any_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "_console", lambda: Console(width=width, file=sys.stdout, highlight=False))
    assert main(["list", "algorithms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    words = {word for line in lines for word in line.split()}
    assert words >= {*ALGORITHMS, "mask", "memory", "paper", "multi_discrete", "off-policy"}, "no name is folded"
    said = "Too narrow for the columns: class. `ludus list algorithms | cat` has them all."
    assert (said in lines) == ("class" not in words and not any("ludus.algorithms.ppo" in word for word in words))
    assert (said in lines) == (width < 240)


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDUS_DEBUG", "1")
    with pytest.raises(RunError):
        main(["report", "nowhere"])


def test_a_fault_of_ours_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    synthetic.write(folder / "runs" / "mine", generations=0)
    monkeypatch.setattr(ludus.storage.reader.Reader, "info", Mock(side_effect=ZeroDivisionError("division by zero")))
    assert main(["report", "mine"]) == 1
    err = capsys.readouterr().err
    assert err == "error: ZeroDivisionError: division by zero (a fault of Ludus; LUDUS_DEBUG=1 shows where)\n"


def test_memory_and_files_are_the_machines_refusal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def raising(error: Exception):
        def execute(options: object) -> int:
            raise error

        return execute

    for error, expected in (
        (MemoryError("Unable to allocate 3.6 TiB"), "there is not enough memory: Unable to allocate 3.6 TiB"),
        (
            OSError(28, "No space left on device"),
            "the disk, or a quota on it, is full: No space left on device. Make room.",
        ),
        (PermissionError(13, "Permission denied", "runs/x"), "Permission denied: 'runs/x'"),
    ):
        monkeypatch.setitem(COMMANDS, "list", replace(COMMANDS["list"], execute=raising(error)))
        assert main(["list"]) == (2 if isinstance(error, PermissionError) else 5)
        err = capsys.readouterr().err
        assert expected in err
        assert "fault of Ludus" not in err


_STREAMS = """
import sys
from ludus.cli.main import main
code = main(sys.argv[1:])
sys.stderr and sys.stderr.flush()
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("redirect", "code", "said"),
    [
        (">&-", 0, ""),
        ("2>&-", 0, "nash"),
        (">/dev/full", 5, "error: the disk, or a quota on it, is full: No space left on device. Make room."),
        ("| head -1", 0, "meta-solver"),
    ],
)
def test_output_that_cannot_be_written(redirect: str, code: int, said: str) -> None:
    line = f'"{sys.executable}" -c "$CODE" list meta-solvers {redirect}'
    found = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        env={**os.environ, "CODE": _STREAMS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == code
    assert said in found.stdout + found.stderr
    assert "Traceback" not in found.stderr
    assert len(found.stderr.splitlines()) <= 1


def test_nobody_reads_the_results(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """ludus train … | head -1: the run is done, and that is what the exit code says."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        assert main(["train", "kuhn", "generations=0", "--run-dir", "run"]) == 0
    assert capsys.readouterr().err.endswith("stopped: the schedule is complete\n")


_SCRIPT = (
    "import sys; from ludus.cli.main import script; sys.path.remove(''); sys.argv = ['ludus', *sys.argv[1:]]; script()"
)


def _script(folder: Path, *line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _SCRIPT, *line], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_working_directory_hides_no_library(folder: Path) -> None:
    (folder / "yaml.py").write_text("raise SystemExit('not this one')\n")
    (folder / "mine.py").write_text("from ludus.metagame.solvers.fixed import Uniform as Solver\n")
    found = _script(folder, "config", "kuhn", "meta_solver=mine:Solver")
    assert (found.returncode, found.stderr) == (0, "")
    assert "kind: uniform" in found.stdout


def test_a_working_directory_that_is_gone(folder: Path) -> None:
    code = f"import os; os.rmdir(os.getcwd()); {_SCRIPT}"
    gone = folder / "gone"
    gone.mkdir()
    found = subprocess.run(
        [sys.executable, "-c", code, "list", "meta-solvers"], cwd=gone, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")


def test_an_encoding_without_our_signs() -> None:
    code = "from ludus.cli.main import main; from ludus.cli.output import write; main(['--version']); write('a ± b')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout.splitlines()[1], found.stderr) == (0, "a ? b", "")


def test_help_has_every_command_and_an_example_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ([], ["--help"], ["help"]):
        assert main(line) == 0
        out = capsys.readouterr().out
        assert all(f"\n  {name} " in out for name in COMMANDS), line
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        assert f"examples:\n  ludus {name} " in (own := capsys.readouterr().out)
        assert main(["help", name]) == 0
        assert capsys.readouterr().out == own


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("ludus 0.")


@pytest.mark.slow
def test_light_commands_do_not_import_torch(folder: Path) -> None:
    synthetic.write(folder / "runs" / "mine", generations=1)
    code = (
        "import sys; from ludus.cli.main import main\n"
        "for line in (['--help'], ['train', '--help'], ['runs'], ['list', 'meta-solvers'], ['report', 'mine'], ['compare', 'mine']):\n"
        "    assert main(line) == 0, line\n"
        "    assert 'torch' not in sys.modules, line\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_where_it_runs_is_part_of_the_scenario(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    called = Called(monkeypatch)
    where = ["--runtime", "ray", "--workers", "8", "--mode", "async", "--address", "10.0.0.5:6379"]
    keys = ["runtime.kind=ray", "runtime.workers=8", "runtime.mode=async", "runtime.address=10.0.0.5:6379"]
    assert main(["train", "leduc", *where, "generations=3"]) == 0
    assert called.given["overrides"] == [*keys, "generations=3"]
    synthetic.write(folder / "runs" / "mine", generations=1)
    assert main(["resume", "mine", "--workers", "2", "--mode", "sync"]) == 0
    assert called.given["overrides"] == ["runtime.workers=2", "runtime.mode=sync"]
