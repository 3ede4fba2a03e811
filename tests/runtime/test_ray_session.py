"""Where a Ray that Ludus starts keeps its files, without one."""

from __future__ import annotations

import math
import os
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ludus.cli import main as command
from ludus.contrib.ray import ray_session
from ludus.contrib.ray.ray_session import Session
from ludus.core.errors import ResourceError, RuntimeDied
from ludus.runtime.activity import StartupSilence

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


def test_ray_is_not_started_where_it_cannot_have_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would end this process (`terminate called`), or wait for half a minute and call it a time-out."""
    (tmp_path / "pids.max").write_text("300\n")
    (tmp_path / "pids.current").write_text("290\n")
    monkeypatch.setattr(ray_session, "_CGROUP", tmp_path)
    assert ray_session.threads_allowed() <= 10
    with pytest.raises(ResourceError, match=r"Ray needs 120 at least, and this user may start 10 more .*ulimit -u"):
        ray_session._start(cpus=1, gpus=0, object_store=None, verbose=False)
    with pytest.raises(ResourceError, match="Ray needs 24 at least"):
        ray_session._join("127.0.0.1:1", verbose=False)
    (tmp_path / "pids.max").write_text("max\n")
    assert ray_session.threads_allowed() > 10


def test_ray_is_not_started_without_its_address_space(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = ray_session._address_space() + 700 * MIB
    monkeypatch.setattr(
        resource, "getrlimit", lambda which: (limit, limit) if which == resource.RLIMIT_AS else (-1, -1)
    )
    with pytest.raises(
        ResourceError, match=r"Ray needs 856 MiB of address space at least, and `ulimit -v` leaves (69\d|70\d)"
    ):
        ray_session._start(cpus=1, gpus=0, object_store=256 * MIB, verbose=False)


def test_ray_is_not_started_without_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_session, "files_allowed", lambda: 5)
    with pytest.raises(
        ResourceError, match=r"Ray needs 32 more at least, and this process may open 0 \(`ulimit -Hn`\)"
    ):
        ray_session._join("127.0.0.1:1", verbose=False)


@pytest.mark.parametrize(("user", "capabilities", "unlimited"), [(0, 0, True), (1000, 1 << 24, True), (1000, 0, False)])
def test_limit_of_threads_holds_for_users_without_privileges(
    user: int, capabilities: int, unlimited: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_session, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: user)
    monkeypatch.setattr(ray_session, "_capabilities", lambda: capabilities)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 1))
    assert (ray_session.threads_allowed() == math.inf) is unlimited
    assert unlimited or ray_session.threads_allowed() < 1  # this process has threads


def ray_with(monkeypatch: pytest.MonkeyPatch, dead: list[str]) -> Session:
    entry = SimpleNamespace(process=SimpleNamespace(pid=os.getpid()))
    node = SimpleNamespace(dead_processes=lambda: [(kind, None) for kind in dead], all_processes={"raylet": [entry]})
    monkeypatch.setattr("ray._private.worker._global_node", node)
    monkeypatch.setattr(ray_session, "_LOOK", 0.01)
    monkeypatch.setattr(ray_session, "_OWN_END", 0.01)
    return Session(None, users=1, borrowed=False, janitor=SimpleNamespace())  # type: ignore[arg-type]


def test_death_of_ray_is_an_error_with_an_exit_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = ["log_monitor"]
    session = ray_with(monkeypatch, dead)
    ray_session.require_alive(session)  # Ray does without that one
    dead.append("raylet")
    with pytest.raises(RuntimeDied, match="the Ray of this run has died: its process raylet is gone"):
        ray_session.require_alive(session)
    monkeypatch.setattr(command, "_run", lambda arguments: ray_session.require_alive(session))
    assert command.main([]) == ray_session.DIED == command.RUNTIME_DIED
    assert capsys.readouterr().err.startswith("error: the Ray of this run has died")


def closing(session: Session) -> Callable[[str], str]:
    def death(cause: str) -> str:
        session.over.set()
        return cause

    return death


@pytest.mark.parametrize("ends_itself", [True, False])
def test_driver_that_does_not_end_itself_is_ended(
    ends_itself: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    session = ray_with(monkeypatch, ["gcs_server"])
    ends = []

    def end(code: int) -> None:
        ends.append(code)

    monkeypatch.setattr(os, "_exit", end)
    if ends_itself:
        monkeypatch.setattr(ray_session, "_OWN_END", 60.0)
        monkeypatch.setattr(ray_session, "_death", closing(session))
    ray_session._watch(session)
    assert ends == ([] if ends_itself else [ray_session.DIED])
    assert ("its process gcs_server is gone" in capfd.readouterr().err) is not ends_itself


def test_ray_that_stands_still_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ray_with(monkeypatch, [])
    monkeypatch.setattr(StartupSilence, "look", lambda silence: True)
    monkeypatch.setattr(os, "_exit", lambda code: None)
    ray_session._watch(session)
    with pytest.raises(RuntimeDied, match="its process raylet has not run for 20 seconds"):
        ray_session.require_alive(session)
