"""Whether code that a stored file names may be imported: such a file may be somebody else's, and can name any module.

A run, an experiment and an entry of a zoo keep `trust.json`: a mark of each document in them that names code. A mark is an HMAC-SHA256 of
the document with a secret of this user, so no one else can make one, and a document that was edited has none. A document is the scenario,
or the spec of a policy. Names of Ludus itself (`ludus.module:Class`) need no trust. Agents from elsewhere (`command:…`, `sb3:…`) do: they
start programs, unpickle files or call services.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from ludus.core.errors import LudusError, TrustError
from ludus.core.machine import replace_file
from ludus.core.packages import is_known

FILE: Final = "trust.json"
_FORMAT = 1
_KEY = "trust.key"
_LENGTH = 32  # bytes of the secret
_MOST = 1 << 24  # bytes of a file of marks
_SHOWN = 6
_NAME = re.compile(r"(?<![\w.-])(?=([\w.-]+):([A-Za-z_]\w*))")  # each module:name, also of those that overlap
_PERHAPS = re.compile(r":\S|\\|import|python|tracking_uri")
_SCHEME = re.compile(r"""(?<![\w.-])([a-z][a-z0-9_]*)["']?\s*:""")  # in any text, also as the key of a mapping in it
_SCHEMES = frozenset(("cleanrl", "command", "http", "https", "llm", "onnx", "rllib", "sb3", "torch"))
"""Of agents (`ludus.policies.agents`), whether or not they are registered; other distributions may add to them."""
_REGISTRIES = ("gymnasium/", "openspiel/")
"""What ids begin with whose module is imported for what it registers; those of packages that Ludus has extras for need no trust."""

Ask = Callable[[str, Sequence[str]], bool]
"""(what names code, the names) -> whether the user trusts it."""

_grant: ContextVar[bool] = ContextVar("grant", default=False)
_ask: ContextVar[Ask | None] = ContextVar("ask", default=None)
_trusted: set[tuple[str, str]] = set()
"""(folder or file, digest of a document) that this process has marked, checked or been told to trust."""


# --------------------------------------------------------------------------------------------------------------------
# What names code.


def code_names(data: Any) -> tuple[str, ...]:
    """Return what data of a file would have imported.

    Args:
        data: As of JSON or YAML.

    Returns:
        `module:Class` of each string in it, agents (`command:./agent.py`), the modules of `import:` keys, servers and interpreters of
        trackers; sorted, without Ludus's own.
    """
    return tuple(sorted(set(_names(data))))


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from [value] if _has_scheme(value) else _names_in(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key in ("import", "python", "tracking_uri") and isinstance(item, str) and item:
                yield f"{key}: {item}"  # a program would be started, a server would get this user's credentials
            if isinstance(key, str) and isinstance(item, str) and _is_scheme(key):
                yield f"{key}:{item}"
            yield from _names(key)
            yield from _names(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _names(item)


def _names_in(text: str) -> Iterator[str]:
    for module, name in _NAME.findall(text):
        package = module.partition(".")[0]
        if package not in ("ludus", "bot") and not (text.startswith(_REGISTRIES) and is_known(package)):
            yield f"{module}:{name}"


def _has_scheme(text: str) -> bool:
    return any(_is_scheme(scheme) for scheme in _SCHEME.findall(text))


def _is_scheme(name: str) -> bool:
    return name in _SCHEMES or name in _added_schemes()


@cache
def _added_schemes() -> frozenset[str]:
    return frozenset(point.name for point in entry_points(group="ludus.agents"))


def may_name_code(text: str) -> bool:
    """Return whether JSON, as Ludus writes it, may name code: quickly, with a few false alarms."""
    return _NAME.search(text) is not None or '"import"' in text or _has_scheme(text)


def scenario_document(text: str) -> Any:
    """Return the data of a scenario's YAML text; None where it surely names no code, or is no YAML."""
    if not (_PERHAPS.search(text) or _has_scheme(text)):
        return None
    from ludus.core.config import from_yaml  # it imports much, and few texts come here

    with suppress(LudusError):  # its user says what is wrong with it
        return from_yaml(text, what="the scenario")
    return None


def spec_document(kind: str, config: Mapping[str, Any]) -> Any:
    """Return the document of a policy's spec."""
    return {"kind": kind, "config": dict(config)}


def _digest(document: Any) -> str:
    text = json.dumps(json.loads(json.dumps(document, default=repr)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


# --------------------------------------------------------------------------------------------------------------------
# Marks.


def mark(folder: Path, documents: Iterable[Any]) -> None:
    """Mark what this user makes, or trusts. Where there is no secret, or nothing can be written, it holds for this process only.

    Args:
        folder: Of a run, an experiment or an entry of a zoo.
        documents: Those that name no code are passed over.
    """
    place = str(folder.absolute())
    new = [d for document in documents if code_names(document) and (place, d := _digest(document)) not in _trusted]
    if not new:
        return
    _trusted.update((place, digest) for digest in new)
    key = _secret(make=True)
    if isinstance(key, str):
        return
    marks = [*_marks(folder), *(_mark(key, digest) for digest in new)]
    content = json.dumps({"format": _FORMAT, "marks": sorted(set(marks))}) + "\n"
    with suppress(OSError):  # a read-only folder: `require_trust` asks again the next time
        replace_file(folder / FILE, content.encode())


def signature(document: Any) -> str:
    """Return the mark of a document that is kept in its own file; "" where it names no code, or there is no secret."""
    if not code_names(document):
        return ""
    key = _secret(make=True)
    return "" if isinstance(key, str) else _mark(key, _digest(document))


def require_trust(
    place: Path, documents: Iterable[Any], *, folder: Path | None, signatures: Collection[str] = ()
) -> None:
    """Ask for trust in what names code and has no mark of this user.

    Args:
        place: The run, experiment, entry or file that names code.
        documents: Its documents.
        folder: Where marks of it are kept; None: nowhere.
        signatures: Marks that the file itself has.

    Raises:
        TrustError: Neither `trusting` nor the user at the terminal grants it. Nothing was imported.
    """
    unknown = {_digest(document): document for document in documents if code_names(document)}
    where = str((folder or place).absolute())
    unknown = {digest: document for digest, document in unknown.items() if (where, digest) not in _trusted}
    if not unknown:
        return
    key = _secret(make=False)
    if not isinstance(key, str):
        marks = {*signatures, *(() if folder is None else _marks(folder))}
        known = {digest for digest in unknown if _mark(key, digest) in marks}
        _trusted.update((where, digest) for digest in known)
        unknown = {digest: document for digest, document in unknown.items() if digest not in known}
        if not unknown:
            return
    names = sorted({name for document in unknown.values() for name in code_names(document)})
    ask = _ask.get()
    if not (_grant.get() or (ask is not None and ask(str(place), names))):
        raise TrustError(_refusal(place, names, key if isinstance(key, str) else ""))
    if folder is not None:
        mark(folder, unknown.values())
    _trusted.update((where, digest) for digest in unknown)


def _refusal(place: Path, names: Sequence[str], no_key: str) -> str:
    named = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    why = f" ({no_key})" if no_key else ""
    return (
        f"{str(place)!r} names code, {named}, and has no mark that this user made or trusted it{why}: it was made elsewhere, was changed, "
        "or is of a Ludus that made no marks. Nothing of it was imported. Look at what it names, then trust it: --trust, in Python "
        "ludus.load_policy(…, trust=True) or `ludus verify RUN --trust` is kept in the run."
    )


def _mark(key: bytes, digest: str) -> str:
    return hmac.new(key, f"ludus {digest}".encode(), hashlib.sha256).hexdigest()


def _marks(folder: Path) -> list[str]:
    """Return the marks that a folder has, of any user."""
    path = folder / FILE
    try:
        if path.stat().st_size > _MOST:
            return []
        marks = json.loads(path.read_bytes())["marks"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []  # without marks, trust is asked for
    return [one for one in marks if isinstance(one, str)] if isinstance(marks, list) else []


def _secret(*, make: bool) -> bytes | str:
    """Return this user's secret, or why it cannot be used; "" where there is none. make: it, where there is none yet."""
    try:
        base = os.environ.get("XDG_CONFIG_HOME", "")
        folder = (Path(base) if os.path.isabs(base) else Path.home() / ".config") / "ludus"
        path = folder / _KEY
        if make and not path.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_secret(path)
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            key = file.read(_LENGTH + 1)
    except FileNotFoundError:
        return ""
    except (OSError, RuntimeError) as error:  # no home, or one that cannot be written
        return f"{_KEY} of this user cannot be used: {getattr(error, 'strerror', None) or error}"
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        return f"others can read or write {str(path)!r}: delete it, and a new one is made"
    return key if len(key) == _LENGTH else f"{str(path)!r} is damaged: delete it, and a new one is made"


def _write_secret(path: Path) -> None:
    """Make it whole at once: machines that share a home may make it in the same moment, and all read the first one."""
    aside = path.with_name(f".{_KEY}.{secrets.token_hex(8)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_LENGTH))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(aside, path)
    finally:
        aside.unlink(missing_ok=True)


# --------------------------------------------------------------------------------------------------------------------
# Who grants it.


@contextmanager
def trusting(trust: bool = True) -> Iterator[None]:
    """Trust all that is opened meanwhile by this thread.

    Args:
        trust: False: nothing changes.
    """
    token = _grant.set(_grant.get() or trust)
    try:
        yield
    finally:
        _grant.reset(token)


@contextmanager
def asking(ask: Ask | None) -> Iterator[None]:
    """Ask meanwhile, in the main thread only: others cannot wait for an answer. ask: None: do not."""
    token = _ask.set(ask if threading.current_thread() is threading.main_thread() else None)
    try:
        yield
    finally:
        _ask.reset(token)
