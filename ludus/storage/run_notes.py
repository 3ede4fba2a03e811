"""Tags and notes of a run: `notes.json` in its directory, apart from the database, which the driver alone writes.

{"tags": ["baseline"], "notes": "…"}
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ludus.core.errors import ConfigError, RunError
from ludus.core.jsonable import parse_json
from ludus.core.machine import sync

FILE = "notes.json"
MAX_TAGS, MAX_TAG, MAX_NOTES = 16, 40, 4000
"""Tags of a run; characters of a tag, and of the notes."""
_MAX_BYTES = 64 * 1024  # of the file


@dataclass(frozen=True, slots=True)
class RunNotes:
    """Tags and notes of a run. tags: sorted, each once."""

    tags: tuple[str, ...] = ()
    notes: str = ""


def make_notes(tags: Sequence[str], notes: str) -> RunNotes:
    """Return notes as they are stored.

    Args:
        tags: At most 16, of at most 40 characters each, without commas and without characters that are not shown.
        notes: At most 4,000 characters; of those that are not shown only line breaks and tabs.

    Raises:
        ConfigError: They are not such.
    """
    stripped = sorted({tag.strip() for tag in tags} - {""})
    if len(stripped) > MAX_TAGS:
        raise ConfigError(f"{len(stripped)} tags were given; a run has at most {MAX_TAGS}.")
    for tag in stripped:
        if len(tag) > MAX_TAG:
            raise ConfigError(f"the tag {tag[:MAX_TAG]!r} … has {len(tag)} characters; at most {MAX_TAG} are allowed.")
        if "," in tag or _hidden(tag):
            raise ConfigError(f"the tag {tag!r} has a comma or a character that is not shown. Use letters and digits.")
    text = notes.replace("\r\n", "\n").strip()
    if len(text) > MAX_NOTES:
        raise ConfigError(f"the notes have {len(text):,} characters; at most {MAX_NOTES:,} are allowed.")
    if hidden := _hidden(text.replace("\n", "").replace("\t", "")):
        raise ConfigError(f"the notes have the character {hidden!r}, which is not shown. Delete it.")
    return RunNotes(tuple(stripped), text)


def _hidden(text: str) -> str:
    """Return the first character that is a control, turns the direction of text, or is no character; "" if there is none."""
    return next((one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")), "")


def read_notes(run_dir: Path) -> RunNotes:
    """Return the notes of a run; empty ones where it has none. Raises RunError for a file that is not `write_notes`'."""
    try:
        content = _content(run_dir / FILE)
        if content is None:
            return RunNotes()
        stored = parse_json(content)
        tags, notes = stored["tags"], stored["notes"]
        if not (isinstance(notes, str) and isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
            raise ValueError("its tags or notes are not text")
        return make_notes(tags, notes)
    except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise RunError(f"{str(run_dir / FILE)!r} cannot be read: {why}. Delete it, or correct it.") from error


def _content(path: Path) -> bytes | None:
    """Return what a regular file holds; None where there is none. A link, a pipe or a device in its place is not opened for its content:
    a run's directory may come from somebody else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no file")
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES:,} bytes")
    return content


def write_notes(run_dir: Path, notes: RunNotes) -> None:
    """Put a run's notes in place of those before: a kill leaves the old or the new ones, and a link in the file's place is replaced, not
    followed. Raises RunError where the directory cannot be written."""
    content = json.dumps({"tags": list(notes.tags), "notes": notes.notes}, ensure_ascii=False, indent=1) + "\n"
    new = run_dir / f".{FILE}.{secrets.token_hex(4)}"  # a name that cannot be foreseen
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content.encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, run_dir / FILE)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise
        sync(run_dir)
    except OSError as error:
        raise RunError(f"the notes of {str(run_dir)!r} cannot be written: {error.strerror or error}.") from error
