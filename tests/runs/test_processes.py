"""The command as a process: kills at random moments, Ctrl-C and other signals, and two drivers at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import run_tools as tools

from ludus.cli.main import main
from ludus.core.errors import RunError
from ludus.runs.runner import run
from ludus.storage.reader import Reader
from ludus.storage.store import Store

START = [sys.executable, "-c", "from ludus.cli.main import script; script()"]
LONG = ["checkpoints.iterations=5", "generations=200", "response.episodes=500"]


def start(*line: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([*START, *line], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def generations(run_dir: Path) -> int:
    with suppress(RunError), Reader(run_dir, check=False) as reader:
        return len(reader.generations())
    return 0


def wait_until(it_is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not it_is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def going(tmp_path: Path) -> subprocess.Popen[str]:
    """A long run in `run`, with a generation behind it."""
    (tmp_path / "mine.yaml").write_text(tools.SCENARIOS["ppo"])
    process = start("train", "mine.yaml", *LONG, "--run-dir", "run", folder=tmp_path)
    wait_until(lambda: generations(tmp_path / "run") >= 2 or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    yield process
    process.kill()
    process.communicate()


def forked(line: list[str]) -> int:
    """The id of a fork of this process, which has imported everything: it runs the command, and writes what is said to `out` and `err`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads; ours only wait
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        with open("out", "w") as sys.stdout, open("err", "w") as sys.stderr:
            os.dup2(sys.stderr.fileno(), 2)  # where the signal's handler writes
            code = main(line)
    finally:
        os._exit(code)


def test_one_ctrl_c_stops_cleanly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(tools.SCENARIOS["ppo"])
    child = forked(["train", "mine.yaml", *LONG, "--run-dir", "run"])
    wait_until(lambda: generations(tmp_path / "run") >= 2)
    assert main(["resume", "run"]) == 2
    out, err = capsys.readouterr()
    in_use = f"run 'run' is in use by another process (pid {child}). Wait for it or stop it, then try again."
    assert (out, err) == ("", f"error: {in_use}\n")
    os.kill(child, signal.SIGINT)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    out = Path("out").read_text()
    assert "stopping cleanly; once more stops at once" in Path("err").read_text()
    assert "stopped by Ctrl-C" in " ".join(out.split())
    assert out.endswith("Continue with: ludus resume run\n")
    with Reader(tmp_path / "run") as reader:
        assert reader.state() == "stopped"
        last = len(reader.generations())  # the generation that it was in
    assert main(["resume", "run", f"generations={last}"]) == 0
    tools.train("ppo", tmp_path / "whole", *LONG, f"generations={last}")
    tools.assert_same_run(tmp_path / "whole", tmp_path / "run")


def test_a_scheduler_that_stops_a_run_is_told_that_it_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = Store.commit

    def terminated(store: Store, checkpoint_id: str) -> None:
        commit(store, checkpoint_id)
        patch.undo()
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(tools.SCENARIOS["ppo"])
    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", terminated)
        assert main(["train", "mine.yaml", "--run-dir", "run"]) == 128 + signal.SIGTERM
    out = capsys.readouterr().out
    assert "stopped by SIGTERM" in " ".join(out.split())
    assert out.endswith("Continue with: ludus resume run\n")
    with Reader(tmp_path / "run") as reader:
        summary = reader.summary()
    assert summary is not None
    assert not summary.complete


@pytest.mark.slow
def test_a_second_ctrl_c_stops_at_once(going: subprocess.Popen[str], tmp_path: Path) -> None:
    stopped = going.pid
    for _ in range(2):
        going.send_signal(signal.SIGINT)
    assert going.wait(timeout=20) in (0, 130)  # 0: the first was served before the second came
    with Reader(tmp_path / "run") as reader:
        assert reader.state() in ("stopped", "interrupted")
    assert stopped


@pytest.mark.slow
def test_a_killed_process_and_the_next(going: subprocess.Popen[str], tmp_path: Path) -> None:
    going.kill()
    going.communicate()
    with Reader(tmp_path / "run") as reader:
        assert reader.state() == "interrupted"
        last = len(reader.generations())  # the generation that it was in
    done = subprocess.run(
        [*START, "resume", "run", f"generations={last}"], cwd=tmp_path, capture_output=True, timeout=60
    )
    assert done.returncode == 0
    assert f"the last session was cut off: its process {going.pid} on " in done.stderr.decode()
    tools.train("ppo", tmp_path / "whole", *LONG, f"generations={last}")
    tools.assert_same_run(tmp_path / "whole", tmp_path / "run")


def test_killed_between_the_last_commit_and_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(run_dir: Path) -> None:
        (run_dir / ".report.html.99").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)

    run_dir = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("ludus.write_report", killed)
        assert tools.dies(lambda: run(tools.scenario("exact"), run_dir=run_dir), run_dir, at=-1) is None
    left = {path.name for path in run_dir.iterdir()}
    assert {"ludus.db-wal", ".report.html.99"} <= left
    assert "report.html" not in left
    assert main(["resume", str(run_dir)]) == 0
    assert (run_dir / "report.html").exists()
    tools.train("exact", tmp_path / "whole")
    tools.assert_same_run(tmp_path / "whole", run_dir)


SLOW_DOWN = ["generations=3", "response.decisions=2000", "checkpoints.iterations=2"]
"""A run of a few seconds, so that kills come at all its moments. What the other scenarios do at a kill, test_kill_and_resume shows."""
KILLS = 2


@pytest.mark.long
def test_run_killed_at_random_moments_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    rng = random.Random("kill dqn")
    (tmp_path / "mine.yaml").write_text(tools.SCENARIOS["dqn"])
    begun = time.monotonic()
    line = ["train", "mine.yaml", *SLOW_DOWN, "--run-dir"]
    subprocess.run([*START, *line, "whole"], cwd=tmp_path, capture_output=True, timeout=120, check=True)
    length = time.monotonic() - begun
    run_dir, kills = tmp_path / "run", 0
    while not finished(run_dir):
        again = ["resume", run_dir.name] if begun_in(run_dir) else [*line, run_dir.name]
        with start(*again, folder=tmp_path) as process:
            if kills < KILLS:
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=rng.uniform(0.2, 0.9) * length)
                process.kill()
                kills += 1
            _, err = process.communicate(timeout=120)
        assert process.returncode in (0, -signal.SIGKILL), err
    assert kills
    if process.returncode:  # killed after its last commit
        subprocess.run([*START, "resume", run_dir.name], cwd=tmp_path, capture_output=True, timeout=60, check=True)
    tools.assert_same_run(tmp_path / "whole", run_dir)


def begun_in(run_dir: Path) -> bool:
    """Whether the run had begun when it was killed."""
    if not (run_dir / "ludus.db").exists():
        return False
    try:
        Reader(run_dir).close()
    except RunError as error:
        if "died before it began" not in str(error):
            raise
        return False
    return True


def finished(run_dir: Path) -> bool:
    if not begun_in(run_dir):
        return False
    with Reader(run_dir) as reader:
        return reader.state() == "finished"
