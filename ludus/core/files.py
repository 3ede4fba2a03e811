"""Files that a kill leaves whole: written aside, flushed to the disk, renamed."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ludus.core.errors import ConfigError

_FOLDERS = re.compile(r"""(?<![\w.~@-])~?(?:/[^\s/'",:;()]+)+/(?=[^\s/'",:;()])""")


def redact_paths(text: str) -> str:
    """Return a message with files' names alone, for people on other machines, whom it is not to tell where things lie on this one."""
    return _FOLDERS.sub("", text)


def check_place(path: Path) -> None:
    """Check what can be known of a file before there is anything to write. Raises ConfigError for a folder that there is not, or into which
    nothing can be written, and for a folder in the file's place."""
    if not path.parent.is_dir():
        raise ConfigError(f"{str(path)!r} was given; there is no folder {str(path.parent)!r}.")
    if path.is_dir():
        raise ConfigError(f"{str(path)!r} was given, which is a folder; name a file.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{str(path)!r} cannot be written: nothing can be written into {str(path.parent)!r}. Name a file elsewhere."
        )


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Put new content in the place of a file: a kill leaves the old or the new one. durable=False leaves the flushing to the caller."""
    write_file(temporary_path(path), content, durable=durable)
    atomic_replace(path, durable=durable)


def temporary_path(path: Path) -> Path:
    """Return where the next content of a file waits for `atomic_replace`."""
    return path.with_name(f".{path.name}.part")


def atomic_replace(path: Path, *, durable: bool = True) -> None:
    """Replace the file: the second half of `replace_file`."""
    os.replace(temporary_path(path), path)
    if durable:
        sync(path.parent)


def write_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a new file."""
    with path.open("wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
