"""A damaged checkpoint: the run goes on from the one before it, and ends equal to the bit to one that nobody touched."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import run_tools as tools

from ludus.cli.main import main
from ludus.core.errors import RunError
from ludus.runs.runner import resume
from ludus.storage.base import NullObserver
from ludus.storage.reader import Reader


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    tools.train("ppo", run_dir)
    return run_dir


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that died in its second generation, with two checkpoints that are whole."""
    run_dir = tmp_path_factory.mktemp("killed") / "run"
    assert tools.dies(lambda: tools.train("ppo", run_dir), run_dir, at=60) is None
    assert len(ids(run_dir)) > 2
    return run_dir


@pytest.fixture
def run_dir(killed: Path, tmp_path: Path) -> Path:
    shutil.copytree(killed, tmp_path / "run")
    return tmp_path / "run"


def ids(run_dir: Path) -> list[str]:
    """Of the committed checkpoints, oldest first."""
    with closing(sqlite3.connect(run_dir / "ludus.db")) as db:
        return [name for (name,) in db.execute("SELECT id FROM checkpoints ORDER BY barrier")]


def damage(path: Path, content: Callable[[bytes], bytes]) -> None:
    path.write_bytes(content(path.read_bytes()))


class Told(NullObserver):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


CHANGED = "was changed on disk: its content does not match its hash."
GONE = "cannot be read (No such file or directory)."
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (
        lambda p: damage(p / "state.json", lambda data: data[: len(data) // 2]),
        CHANGED,
    ),
    "changed": (
        lambda p: damage(p / "arrays.safetensors", lambda data: data[:-1] + b"?"),
        CHANGED,
    ),
    "a file is gone": (lambda p: (p / "state.json").unlink(), GONE),
    "gone": (shutil.rmtree, GONE),
}


@pytest.mark.parametrize("kind", sorted(DAMAGES))
def test_a_damaged_newest_checkpoint_costs_one_barrier(run_dir: Path, whole: Path, kind: str) -> None:
    hurt, words = DAMAGES[kind]
    before, newest = ids(run_dir)[-2:]
    hurt(run_dir / "checkpoint" / newest)
    told = Told()
    resume(run_dir, report=False, observer=told)
    cut_off, message = (text for text in told.messages if not text.startswith("warning: "))
    assert cut_off.endswith(" is gone."), "and the other one says from where it goes on"
    assert message == (
        f"checkpoint {newest} {words} The run goes on from {before}, and what came after that is done again."
    )
    with Reader(run_dir) as reader:
        (event,) = [event for event in reader.events() if event.kind == "checkpoint"]
    assert (event.level, event.text) == ("warning", message)
    with closing(sqlite3.connect(run_dir / "ludus.db")) as db, db:
        db.execute("DELETE FROM events WHERE kind = 'checkpoint'")
        db.execute(
            "UPDATE events SET seq = (SELECT count(*) FROM events AS e WHERE e.seq <= events.seq)"
        )  # no gap is left
    tools.assert_same_run(whole, run_dir)


def test_one_that_cannot_be_read_just_now_is_not_passed_over(
    run_dir: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of a network file system, say: to go on from an earlier one would remove what is whole."""
    newest, before, read = ids(run_dir)[-1], tools.files_of(run_dir), Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path.parent.name == newest:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", read_bytes)
        with pytest.raises(RunError) as caught:
            resume(run_dir, report=False)
    assert str(caught.value) == (
        f"checkpoint {newest} cannot be read (Input/output error). Nothing was changed. Try again once its files can be read, or remove "
        f"{str(run_dir / 'checkpoint' / newest)!r} to go on from the checkpoint before it."
    )
    assert before.items() <= tools.files_of(run_dir).items(), "only SQLite's files have come"
    resume(run_dir, report=False)
    tools.assert_same_run(whole, run_dir)


def test_a_policy_that_came_after_it_is_made_again(run_dir: Path, whole: Path) -> None:
    """Even where its file is damaged too, as after a power failure of a disk that lies."""
    resume(run_dir, report=False)
    before, newest = ids(run_dir)[-2:]
    with closing(sqlite3.connect(run_dir / "ludus.db")) as db:
        (barrier,) = db.execute("SELECT barrier FROM checkpoints WHERE id = ?", (before,)).fetchone()
        (file,) = db.execute("SELECT file FROM policies WHERE barrier > ? LIMIT 1", (barrier,)).fetchone()
    (run_dir / file).write_bytes(b"")
    shutil.rmtree(run_dir / "checkpoint" / newest)
    resume(run_dir, ["generations=3"], report=False)
    tools.train("ppo", whole.parent / "longer", "generations=3")
    assert tools.policies_of(run_dir) == tools.policies_of(whole.parent / "longer")
    assert tools.rows_of(run_dir)["matches"] == tools.rows_of(whole.parent / "longer")["matches"]


def test_a_finished_run_needs_none(whole: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(whole, run_dir)
    shutil.rmtree(run_dir / "checkpoint" / ids(run_dir)[-1])
    before = tools.files_of(run_dir)
    assert "it was finished before" in resume(run_dir, report=False).stopped_by
    assert tools.files_of(run_dir) == before


def test_with_no_checkpoint_left_it_says_so(run_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(run_dir / "checkpoint")
    before = tools.files_of(run_dir)
    assert main(["resume", str(run_dir)]) == 2
    _, err = capfd.readouterr()
    assert err.startswith(f"error: checkpoint {ids(run_dir)[-1]} cannot be read (No such file or directory).")
    assert f"start it anew with `ludus train {run_dir / 'scenario.yaml'}`" in err
    assert err.count("\n") == 1
    assert tools.policies_of(run_dir) == {
        name: sha for name, sha in before.items() if name.startswith("policies") and sha
    }


@pytest.mark.slow
def test_a_run_killed_while_it_goes_back(run_dir: Path, whole: Path) -> None:
    damage(run_dir / "checkpoint" / ids(run_dir)[-1] / "state.json", lambda data: b"")
    for at in range(1, 40, 9):
        if tools.dies(lambda: resume(run_dir, report=False), run_dir, at=at) is not None:
            break
    else:
        resume(run_dir, report=False)
    assert tools.policies_of(run_dir) == tools.policies_of(whole)
    assert tools.rows_of(run_dir)["matches"] == tools.rows_of(whole)["matches"]
    assert tools.state_of(run_dir) == tools.state_of(whole)


def test_an_older_one_that_is_damaged_does_no_harm(run_dir: Path, whole: Path) -> None:
    shutil.rmtree(run_dir / "checkpoint" / ids(run_dir)[-2])
    resume(run_dir, report=False)
    tools.assert_same_run(whole, run_dir)


def test_a_policy_that_the_checkpoint_needs_is_not_made_up(run_dir: Path) -> None:
    (run_dir / "policies" / "1" / "1-1.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match=r"1-1\.safetensors' was changed or damaged"):
        resume(run_dir, report=False)
