"""Checkpoints: exact round trip, tampering, leftovers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from ludus.core.errors import RunError
from ludus.storage import checkpoint

STATE = {
    "a": np.arange(6, dtype=np.uint64).reshape(2, 3)[:, ::-1],
    "nested": {"list": [1, 2.5, None, "x", np.zeros((0, 3), np.float32)], "flag": np.bool_(True)},
    "big": 2**100,
    "scalar": np.array(1.5),
}


def test_round_trip_is_exact(tmp_path: Path) -> None:
    back = checkpoint.load(tmp_path, checkpoint.save(tmp_path, 3, STATE))
    np.testing.assert_array_equal(back["a"], STATE["a"])
    assert back["a"].dtype == np.uint64
    assert back["nested"]["list"][:4] == [1, 2.5, None, "x"]
    assert back["nested"]["list"][4].shape == (0, 3)
    assert back["nested"]["flag"] is True
    assert back["big"] == 2**100
    assert back["scalar"].shape == ()


def test_saving_the_same_state_twice_gives_one_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.save(tmp_path, 1, STATE) == checkpoint.save(tmp_path, 1, STATE)
    assert len(list(tmp_path.iterdir())) == 1


def test_it_is_on_disk_before_its_name_and_the_folders_above_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def seen_fsync(descriptor: int) -> None:
        done.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))
        fsync(descriptor)

    def seen_rename(path: Path, target: Path) -> Path:
        done.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(Path, "rename", seen_rename)
    name = checkpoint.save(tmp_path / "checkpoint", 3, STATE)
    aside = f"checkpoint/.{name}"
    assert done == [f"{aside}/state.json", f"{aside}/arrays.safetensors", aside, "rename", "checkpoint", "."]


@pytest.mark.parametrize("file", ["state.json", "arrays.safetensors"])
def test_a_changed_file_is_refused(tmp_path: Path, file: str) -> None:
    name = checkpoint.save(tmp_path, 1, STATE)
    path = tmp_path / name / file
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(RunError, match="changed on disk"):
        checkpoint.load(tmp_path, name)


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="000009-x cannot be read"):
        checkpoint.load(tmp_path, "000009-x")


def test_clean_keeps_what_the_database_names(tmp_path: Path) -> None:
    names = [
        checkpoint.save(tmp_path, 999_998 + n, {"n": n}) for n in range(4)
    ]  # by number, which is not always by text
    checkpoint.save(tmp_path, 2, {"n": "written before a kill, and never committed"})
    (tmp_path / ".000009-aside").mkdir()
    checkpoint.clean(tmp_path, keep=2, named=names[:3])  # number 3 was never committed either
    assert {p.name for p in tmp_path.iterdir()} == {*names[1:3]}


def test_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="holds object"):
        checkpoint.save(tmp_path, 1, {"x": object()})
