"""A zoo's entries on disk: written whole or not at all, read, listed.

ZOO/NAME/manifest.json   what makes it an entry: it comes last, in one step, and names all files
ZOO/NAME/policies/…      files whose names have their digests in them: those of a new version lie beside those of the old one

So whoever is killed leaves the entry as it was, and perhaps files that nothing names, which the next push of that name removes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ludus.core.errors import ConfigError, LudusError, PolicyError, RunError, nearest
from ludus.core.machine import sync, write_file
from ludus.core.user_code import code_in
from ludus.policies.file import spec_in
from ludus.storage.database import FILE
from ludus.storage.manifest import Manifest, Member, read_manifest
from ludus.storage.run_dirs import MANIFEST, RUNS, holds_policies, is_entry, zoo_entries

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_POLICIES = "policies"


def check_name(name: str) -> None:
    """Raise ConfigError for what cannot name an entry: it is a folder's name, and stands before an @ in the names of policies."""
    if not _NAME.fullmatch(name) or name.endswith((".safetensors", ".")):
        raise ConfigError(
            f"{name!r} cannot name an entry of a zoo. Use letters, digits, - and _, 100 at most; it is no path."
        )


def check_zoo(directory: Path) -> None:
    """Raise RunError for a path at which no zoo can be."""
    if holds_policies(directory):
        raise RunError(
            f"{str(directory)!r} is a run or an entry, and a zoo was expected: a folder that entries lie in. Give another."
        )
    existing = next(path for path in (directory.absolute(), *directory.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = (
            f"{str(existing)!r} is not a folder"
            if not existing.is_dir()
            else f"nothing can be written into {str(existing)!r}"
        )
        raise RunError(f"{str(directory)!r} cannot be written: {why}. Give another directory.")


def find_entry(text: str) -> Path:
    """Return the folder of the entry ZOO/NAME. Raises RunError with the nearest names."""
    folder = Path(text)
    if is_entry(folder):
        return folder
    _refuse_run(text)
    if entries := [path.name for path in zoo_entries(folder.parent)]:
        raise RunError(
            f"there is no entry {folder.name!r} in the zoo {str(folder.parent)!r}{nearest(folder.name, entries)}"
        )
    raise RunError(
        f"there is no entry of a zoo at {text!r}. `ludus pull ZOO` lists those of a folder, `ludus push RUN ZOO` makes one."
    )


def _refuse_run(text: str) -> None:
    for folder in (Path(text), RUNS / text):
        if (folder / FILE).is_file():
            raise RunError(
                f"{text!r} is a run, and a zoo or an entry of one was expected. `ludus push {text} ZOO` makes one of it."
            )


def list_entries(directory: Path) -> list[tuple[Path, Manifest | LudusError]]:
    """Return the entries of a zoo, by name, with what is wrong with those that cannot be read. Raises RunError where there are none."""
    entries = zoo_entries(directory)
    if not entries:
        _refuse_run(str(directory))
        raise RunError(
            f"there is no zoo in {str(directory)!r}: nothing was pushed there. `ludus push RUN {directory}` makes one."
        )
    manifests: list[tuple[Path, Manifest | LudusError]] = []
    for folder in entries:
        try:
            manifests.append((folder, read_manifest(folder)))
        except LudusError as error:  # one broken entry must not hide the others
            manifests.append((folder, error))
    return manifests


def read_content(folder: Path, member: Member) -> bytes:
    """Return a policy's file, as it was signed. Raises RunError if it is missing or was changed, or would run code of somebody's own."""
    path = folder / member.file
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(
            f"policy file {str(path)!r} cannot be read ({error.strerror}), and the manifest names it. Push it again."
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != member.sha256:
        raise RunError(
            f"policy file {str(path)!r} was changed or damaged: its SHA-256 is {digest[:12]}…, {member.sha256[:12]}… was signed. Push it "
            "again."
        )
    try:
        code = code_in(spec_in(content))
    except PolicyError as error:
        raise RunError(f"policy file {str(path)!r}: {error}") from error
    if code:
        raise RunError(f"policy file {str(path)!r} names code, {code!r}, which is not run from a zoo.")
    return content


def write_entry(folder: Path, manifest: Manifest, content: Callable[[Member], bytes], *, replace: bool) -> None:
    """Make an entry, durably: a kill leaves what was there. content: of each policy's file.

    Raises RunError where there is an entry already and it is not to be replaced, where something else is, while another process writes
    it, and where nothing can be written; whatever `content` raises.
    """
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder) as locked:
            _require_place(folder, replace)
            try:
                _write(folder, manifest, content, replace)
            finally:
                _sweep(folder, locked)
    except OSError as error:
        raise RunError(f"{str(folder)!r} cannot be written: {error.strerror}. What was there is as it was.") from error
    finally:
        for path in new_folders:
            with suppress(OSError):  # not empty: it was written
                path.rmdir()


def _require_place(folder: Path, replace: bool) -> None:
    for path in (folder, folder / _POLICIES, *(folder / _POLICIES).glob("*")):
        if path.is_symlink():  # what is behind it belongs to somebody else
            raise RunError(
                f"{str(path)!r} is a link, to {os.readlink(path)!r}. Nothing was written. Give another name, or another target."
            )
    known = (MANIFEST, _POLICIES)
    strange = sorted(path.name for path in folder.iterdir() if path.name not in known and not _is_part(path))
    if strange and (not replace or not (folder / MANIFEST).exists()):
        raise RunError(
            f"{str(folder)!r} is not empty: it holds {strange[0]}. Nothing was written. Give another name, or another target."
        )
    if (folder / MANIFEST).exists() and not replace:
        raise _taken(folder)


def _taken(folder: Path) -> RunError:
    return RunError(
        f"there is an entry {str(folder)!r} already, and nothing was changed. Give another name or target, or --replace it."
    )


def _write(folder: Path, manifest: Manifest, content: Callable[[Member], bytes], replace: bool) -> None:
    for member in manifest.policies:
        path = folder / member.file
        path.parent.mkdir(parents=True, exist_ok=True)
        part = _part(path)
        write_file(part, content(member))
        os.replace(part, path)
    for path in {(folder / member.file).parent for member in manifest.policies} | {folder / _POLICIES}:
        sync(path)
    part = _part(folder / MANIFEST)
    write_file(part, manifest.signed())
    _commit(part, folder / MANIFEST, replace)
    sync(folder)
    sync(folder.parent)


def _commit(part: Path, path: Path, replace: bool) -> None:
    """The step that makes it an entry. Where it is not to be replaced, a link: of two that come at once one fails, also where file systems
    have no locks."""
    if replace:
        os.replace(part, path)
        return
    try:
        os.link(part, path)
    except FileExistsError:
        raise _taken(path.parent) from None
    except OSError:  # a file system without links
        os.replace(part, path)
        return
    part.unlink()


def _part(path: Path) -> Path:
    """Return a name that nobody else takes, on another machine neither."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def _is_part(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".part")


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Hold the folder's lock, which ends with the process; False where the file system has no locks. Raises RunError if another has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"another process is writing {str(folder)!r}. Wait for it, then try again.") from None
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _sweep(folder: Path, locked: bool) -> None:
    """Remove what the manifest does not name: an older version's files, and what was left by a kill. Without a lock it could be another's
    that is being written; then it stays."""
    if not locked:
        return
    named = set[str]()
    if (folder / MANIFEST).exists():
        try:
            named = {member.file for member in read_manifest(folder).policies}
        except LudusError:  # it is not known what belongs to it
            return
    for path in sorted((folder / _POLICIES).rglob("*"), reverse=True):
        if path.is_dir():
            with suppress(OSError):  # not empty
                path.rmdir()
        elif str(path.relative_to(folder)) not in named:
            path.unlink()
    for path in folder.iterdir():
        if _is_part(path):
            path.unlink()
    with suppress(OSError):
        (folder / _POLICIES).rmdir()
