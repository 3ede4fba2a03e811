"""Where a Ray that Ludus starts keeps its files, without one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from ludus.contrib.ray import ray_session

MIB = 1 << 20


@pytest.mark.parametrize(("free", "expected"), [(8192, 1024), (500, 450)])
def test_the_object_store_fits_into_shared_memory(free: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    there = SimpleNamespace(f_bavail=free, f_frsize=MIB)
    monkeypatch.setattr(os, "statvfs", lambda _: there)
    assert ray_session._store() == expected * MIB


def test_shared_memory_that_is_too_small_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, where Ray would take a slow folder and say nothing."""
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=64, f_frsize=MIB))
    with pytest.warns(UserWarning, match=r"/dev/shm has room for 57 MiB.*--shm-size=8g"):
        ray_session._store()


def test_a_folder_whose_name_is_long_in_bytes_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets count bytes: 20 letters of another alphabet are 40."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/" + 20 * "é")
    made = Path(ray_session._short_folder())
    assert made.parent == Path("/tmp")
    made.rmdir()
