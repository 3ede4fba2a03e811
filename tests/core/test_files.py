"""The order in which a file reaches the disk; what a message says of where it lies."""

import os
from pathlib import Path

import pytest

from ludus.core.machine import redact_paths, replace_file


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_on_disk_before_its_name_and_its_folder_after_it(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def seen_fsync(descriptor: int) -> None:
        done.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def seen_replace(source: Path, target: Path) -> None:
        done.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "replace", seen_replace)
    replace_file(tmp_path / "x", b"1", durable=durable)
    assert done == ([str(tmp_path / ".x.part"), "rename", str(tmp_path)] if durable else ["rename"])
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"1")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("'/home/ada/runs/k/policies/0/0-3.safetensors' is not there.", "'0-3.safetensors' is not there."),
        ("fell: RuntimeError (Board.step, /srv/code/own.py:12)", "fell: RuntimeError (Board.step, own.py:12)"),
        ("in ~/own/bot.py:7, and /a/b.", "in bot.py:7, and b."),
        (
            "@0/0-3 plays openspiel/kuhn_poker; 1/2 or 2 / 3 of it",
            "@0/0-3 plays openspiel/kuhn_poker; 1/2 or 2 / 3 of it",
        ),
    ],
)
def test_messages_name_files_without_their_folders(text: str, said: str) -> None:
    assert redact_paths(text) == said
