"""Tags and notes of a run, which lie beside its database."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ludus.core.errors import ConfigError, RunError
from ludus.storage import run_notes
from ludus.storage.run_notes import FILE, RunNotes, make_notes, read_notes, write_notes


def test_notes_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read_notes(tmp_path) == RunNotes()
    notes = make_notes(["b ", "a", "b", ""], " one\r\ntwo\t3 ")
    assert notes == RunNotes(("a", "b"), "one\ntwo\t3")
    write_notes(tmp_path, notes)
    assert read_notes(tmp_path) == notes
    assert json.loads((tmp_path / FILE).read_text()) == {"tags": ["a", "b"], "notes": "one\ntwo\t3"}
    assert os.listdir(tmp_path) == [FILE]


@pytest.mark.parametrize(
    ("tags", "notes", "why"),
    [
        ([f"t{k}" for k in range(17)], "", "at most 16"),
        ([41 * "x"], "", "at most 40"),
        (["a,b"], "", "a comma"),
        (["a\x1b[2J"], "", "not shown"),  # a terminal would obey it
        (["a\u202eb"], "", "not shown"),  # text from right to left
        (["a\nb"], "", "not shown"),
        ([], 4001 * "x", "at most 4,000"),
        ([], "a\x00b", "not shown"),
    ],
)
def test_notes_have_bounds(tags: list[str], notes: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_notes(tags, notes)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"tags": [1], "notes": ""}',
        b'{"tags": []}',
        100_000 * b"[",
        b'{"tags": "a", "notes": ""}',
        65_537 * b" ",
    ],
)
def test_a_file_of_something_else_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(RunError, match=r"notes\.json' cannot be read"):
        read_notes(tmp_path)


def test_a_link_or_a_pipe_in_its_place_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"tags": ["secret"], "notes": ""}')
    run = tmp_path / "run"
    run.mkdir()
    (run / FILE).symlink_to(secret)
    with pytest.raises(RunError, match="cannot be read") as error:
        read_notes(run)
    assert "tags" not in str(error.value)
    write_notes(run, make_notes(["own"], ""))
    assert "secret" in secret.read_text()  # the link was replaced, and what it led to is as it was
    assert read_notes(run).tags == ("own",)
    (run / FILE).unlink()
    os.mkfifo(run / FILE)
    with pytest.raises(RunError, match="it is no file"):  # and nothing waits for a writer
        read_notes(run)


def test_a_failure_leaves_the_notes_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_notes(tmp_path, make_notes(["old"], ""))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_notes.os, "fsync", full)
    with pytest.raises(RunError, match="No space left"):
        write_notes(tmp_path, make_notes(["new"], ""))
    assert read_notes(tmp_path).tags == ("old",)
    assert os.listdir(tmp_path) == [FILE]
