"""Half-written, tampered or missing parts of a run directory: one clear line, exit code 2, and the disk as it was. What becomes of damaged
checkpoints is in tests/faults."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import run_tools as tools

from ludus.cli.main import main
from ludus.storage import checkpoint


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that died in its second generation and would go on well."""
    run_dir = tmp_path_factory.mktemp("killed") / "run"
    assert tools.dies(lambda: tools.train("ppo", run_dir), run_dir, at=60) is None
    return run_dir


@pytest.fixture
def run_dir(killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LUDUS_DEBUG", raising=False)
    shutil.copytree(killed, tmp_path / "run")
    return tmp_path / "run"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff\x00these are no numbers" * 300)


def contents(run_dir: Path) -> dict[str, str]:
    """SQLite's index of its log is rebuilt by whoever reads a database whose writer was killed; it holds no facts."""
    return {name: sha for name, sha in tools.files_of(run_dir).items() if name != "ludus.db-shm"}


def refused(run_dir: Path, capfd: pytest.CaptureFixture[str], *line: str) -> str:
    before = contents(run_dir)
    assert main(line or ["resume", str(run_dir)]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert contents(run_dir) == before
    return err


def policy(run_dir: Path) -> Path:
    return run_dir / "policies/1/1-1.safetensors"


def database(run_dir: Path) -> Path:
    with closing(sqlite3.connect(run_dir / "ludus.db")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # so that no log of a killed writer makes up for the damage
    return run_dir / "ludus.db"


def scenario(run_dir: Path) -> Path:
    return run_dir / "scenario.yaml"


def test_undamaged_it_goes_on(run_dir: Path) -> None:
    assert main(["resume", str(run_dir)]) == 0


def test_a_checkpoint_of_another_version_is_refused_before_anything_changes(
    run_dir: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "FORMAT", checkpoint.FORMAT + 1)
    err = refused(run_dir, capfd)
    assert f"another version of Ludus (its format is {checkpoint.FORMAT - 1}, this one's is {checkpoint.FORMAT})" in err


@pytest.mark.parametrize(
    ("part", "damage", "words"),
    [
        (
            policy,
            cut,
            "1-1.safetensors' was changed or damaged. The run cannot go on without it; restore it from a copy.",
        ),
        (policy, flip, "1-1.safetensors' was changed or damaged"),
        (policy, empty, "1-1.safetensors' was changed or damaged"),
        (policy, garbage, "1-1.safetensors' was changed or damaged"),
        (policy, remove, "1-1.safetensors' is missing. The run cannot go on without it"),
        (database, cut, "ludus.db' cannot be used: database disk image is malformed"),
        (database, garbage, "ludus.db' cannot be used: file is not a database"),
        (database, empty, "is empty"),
        (database, remove, "has lost its database: it has no ludus.db"),
        (scenario, cut, "scenario.yaml' "),
        (scenario, garbage, "scenario.yaml' cannot be used"),
        (scenario, empty, "scenario.yaml' cannot be used: a scenario is a mapping"),
        (scenario, remove, "scenario.yaml' cannot be used"),
    ],
)
def test_damage_is_refused_in_one_line(
    run_dir: Path,
    capfd: pytest.CaptureFixture[str],
    part: Callable[[Path], Path],
    damage: Callable[[Path], None],
    words: str,
) -> None:
    damage(part(run_dir))
    assert words in refused(run_dir, capfd)


def test_another_runs_policy(run_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copy(run_dir / "policies/0/0-1.safetensors", policy(run_dir))
    assert "1-1.safetensors' was changed or damaged" in refused(run_dir, capfd)
    assert "1-1.safetensors' was changed or damaged" in refused(run_dir, capfd, "evaluate", str(run_dir))


def test_another_scenario(run_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = scenario(run_dir).read_text()
    scenario(run_dir).write_text(
        text.replace("  batch: 40\n", "  batch: 41\n").replace("generations: 2", "generations: 3")
    )
    err = refused(run_dir, capfd)
    assert "scenario.yaml' was changed since the run began (algorithm, generations). Restore it" in err
    scenario(run_dir).write_text(f"# my notes about this run\n{text}")
    assert main(["resume", str(run_dir)]) == 0
    assert scenario(run_dir).read_text().startswith("# my notes")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("DELETE FROM checkpoints", "table checkpoints, batch "),
        ("DELETE FROM policies", "table policies, batch "),
        ("DELETE FROM run", "table run, batch 0: "),
        ("UPDATE generations SET marginals = x'00' WHERE number = 1", "the row (number 1) was changed"),
        ("UPDATE generations SET gains = '7' WHERE number = 1", "the row (number 1) was changed"),
        ("DROP TABLE payoffs", "ludus.db' cannot be used"),
        ("UPDATE payoffs SET mean = x'00'", "table payoffs, batch "),
        ("DROP TABLE ratings", "ludus.db' cannot be used"),
    ],
)
def test_a_database_that_lacks_rows_or_was_changed_by_hand(
    run_dir: Path, capfd: pytest.CaptureFixture[str], change: str, words: str
) -> None:
    with closing(sqlite3.connect(database(run_dir))) as connection:
        connection.execute(change)
        connection.commit()
    assert words in refused(run_dir, capfd)


@pytest.mark.parametrize(("damage", "command"), [(cut, "evaluate"), (garbage, "report")])
def test_other_commands_refuse_too(
    run_dir: Path, capfd: pytest.CaptureFixture[str], damage: Callable[[Path], None], command: str
) -> None:
    damage(database(run_dir))
    assert "ludus.db'" in refused(run_dir, capfd, command, str(run_dir))
