"""What an error says that the machine is short of."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from ludus.core.errors import RunError, escape_controls, one_line
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
    [PermissionError(13, "Permission denied"), ValueError("unable to allocate"), RuntimeError("a bug"), OSError("odd")],
)
def test_other_errors_say_nothing_of_it(error: Exception) -> None:
    assert shortage(error) is None


def test_limit_of_the_process_is_named() -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, before[1]))
    try:
        assert "(`ulimit -f`: 1,073,741,824)" in (shortage(numbered(errno.EFBIG)) or "")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [150_000, 400_000, 700_000])
def test_little_address_space_is_no_fault_of_ludus(tmp_path: Path, limit: int) -> None:
    """From a start that has no room for Python's own modules to a run that cannot load torch."""
    command = f'ulimit -v {limit}; "{sys.executable}" -c "from ludus.cli.start import script; script()" train kuhn generations=1 --name r'
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 5, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert "not enough memory" in last or "no further thread" in last
    assert "Traceback" not in done.stderr
    assert "fault of Ludus" not in done.stderr


def test_control_characters_are_written_out() -> None:
    assert one_line(ValueError("red \x1b[31m\x07 text\nand more.")) == r"red \x1b[31m\x07 text and more"
    assert escape_controls("a\tb\nc\x9b") == "a\tb\nc\\x9b"
