"""What an error says that the machine is short of."""

from __future__ import annotations

import errno
import os
import resource
import sys

import pytest

from ludus.cli import start
from ludus.core.errors import PartDied, RunError, escape_controls, one_line
from ludus.core.machine import files_allowed
from ludus.core.shortages import shortage


def numbered(number: int, filename: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), filename)


@pytest.mark.parametrize(
    ("error", "beginning"),
    [
        (MemoryError("Unable to allocate 3.6 TiB"), "there is not enough memory: Unable to allocate 3.6 TiB"),
        (MemoryError(), "there is not enough memory. Lower env.num_envs"),
        (
            ImportError("libtorch_cpu.so: failed to map segment from shared object"),
            "there is not enough memory: libtorch",
        ),
        (numbered(errno.ENOMEM), "there is not enough memory: Cannot allocate memory"),
        (RuntimeError("can't start new thread"), "no further thread or process can be started: can't start new thread"),
        (numbered(errno.EAGAIN), "no further thread or process can be started: Resource temporarily unavailable"),
        (numbered(errno.EMFILE), f"too many files are open: Too many open files (`ulimit -Hn`: {files_allowed():,})"),
        (numbered(errno.EFBIG, "a.bin"), "a file would be larger than it may be: File too large: 'a.bin'"),
        (
            PartDied("worker 1 died (no process could be made: Resource temporarily unavailable)"),
            "no further thread or process can be started: worker 1 died",
        ),
        (numbered(errno.ENOSPC), "the disk, or a quota on it, is full: No space left on device. Make room"),
        (numbered(errno.EDQUOT), "the disk, or a quota on it, is full: Disk quota exceeded. Make room"),
    ],
)
def test_what_is_short(error: Exception, beginning: str) -> None:
    text = shortage(error)
    assert text is not None
    assert text.startswith(beginning)
    wrapped = RunError("a worker could not be started")
    wrapped.__cause__ = error
    assert shortage(wrapped) == text


@pytest.mark.parametrize(
    "error",
    [
        PartDied("its process was killed by SIGKILL; was memory short?"),
        PermissionError(13, "Permission denied"),
        ValueError("unable to allocate"),
        RuntimeError("a bug"),
        OSError("odd"),
    ],
)
def test_other_errors_say_nothing_of_it(error: Exception) -> None:
    assert shortage(error) is None


@pytest.mark.parametrize(
    "error",
    [
        OSError("Could not find/load shared object file 'libllvmlite.so' from resource location: 'llvmlite.binding'."),
        RuntimeError("could not create a primitive"),
    ],
)
def test_what_packages_cannot_make_is_for_want_of_memory_where_that_is_limited(error: Exception) -> None:
    assert shortage(error) is None
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 45, before[1]))
    try:
        text = shortage(error)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    assert text is not None
    assert text.startswith(f"there is not enough memory: {str(error).removesuffix(chr(46))}")


def test_limit_of_the_process_is_named() -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, before[1]))
    try:
        assert "(`ulimit -f`: 1,073,741,824)" in (shortage(numbered(errno.EFBIG)) or "")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class NoRoom:
    """A finder that has no room for one module."""

    def __init__(self, name: str, error: Exception) -> None:
        self.name, self.error = name, error

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self.name:
            raise self.error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            ImportError("lib.so: failed to map segment from shared object"),
            "there is not enough memory: lib.so: failed to map",
        ),
        (MemoryError(), "there is not enough memory. Lower"),
        (RuntimeError("can't start new thread"), "no further thread or process can be started: can't start new thread"),
    ],
)
@pytest.mark.parametrize("module", ["ludus.cli.main", "ludus.core.shortages"])
def test_no_room_to_load_the_command_is_no_fault_of_ludus(
    error: Exception, line: str, module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not by a limit of the process: libraries that have too little may wait for memory for ever."""
    for name in {"ludus.cli.main", module}:
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setattr(sys, "meta_path", [NoRoom(name, error), *sys.meta_path])
    codes: list[int] = []

    def leave(code: int) -> None:
        codes.append(code)
        raise SystemExit

    monkeypatch.setattr(start.os, "_exit", leave)
    with pytest.raises(SystemExit):
        start.script()
    assert codes == [5]
    begins = line if module == "ludus.cli.main" else "there is not enough memory to load Ludus: "
    assert capsys.readouterr().err.startswith(f"error: {begins}")


def test_another_error_of_an_import_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ludus.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [NoRoom("ludus.cli.main", ImportError("no module")), *sys.meta_path])
    with pytest.raises(ImportError, match="no module"):
        start.script()


def test_control_characters_are_written_out() -> None:
    assert one_line(ValueError("red \x1b[31m\x07 text\nand more.")) == r"red \x1b[31m\x07 text and more"
    assert escape_controls("a\tb\nc\x9b") == "a\tb\nc\\x9b"
