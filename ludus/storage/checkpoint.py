"""A run's checkpoints, which are nested state of arrays and JSON values, and the weights of its policies, on disk; without pickle.

Written aside, fsynced and renamed; a checkpoint's id ends in the hash of its content, and the run's database names the id in the same
transaction as the rows it covers. What the database does not name does not count and is removed by the next `clean`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from ludus.core import trust
from ludus.core.errors import PolicyError, RunError, reading_state
from ludus.core.jsonable import parse_json
from ludus.core.machine import sync, write_file
from ludus.core.types import Array, PolicyRef, PolicySpec, State, Weights
from ludus.policies.file import load_policy, save_policy
from ludus.storage.store import sha256_of

FORMAT = 3
"""Of the state that the driver saves; another one when a part's `state_dict` changes."""
_ARRAY = "$array"


def save(folder: Path, number: int, state: State) -> str:
    """Write `state` below `folder` and return its id, durable when it returns."""
    arrays: dict[str, Array] = {}
    text = json.dumps(_encode(state, arrays), separators=(",", ":")).encode()
    blob = save_arrays(arrays)
    if trust.may_name_code(text.decode()):
        trust.mark(folder.parent, [state_document(json.loads(text))])
    name = f"{number:06d}-{_digest(text, blob)}"
    aside = folder / f".{name}"
    shutil.rmtree(aside, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    aside.mkdir()
    for file, content in (("state.json", text), ("arrays.safetensors", blob)):
        write_file(aside / file, content)
    sync(aside)
    if (folder / name).exists():  # the same state again, from before a kill
        shutil.rmtree(aside)
    else:
        aside.rename(folder / name)
    sync(folder)
    sync(folder.parent)
    return name


def state_document(state: State) -> Any:
    """Return the document of a state (`ludus.core.trust`): the code that it names, of opponents' rules say."""
    return {"state": trust.code_names(state)}


def load(folder: Path, name: str) -> State:
    """Read a checkpoint back. Raises RunError if it is missing, incomplete, changed, or another program's."""
    try:
        text = (folder / name / "state.json").read_bytes()
        blob = (folder / name / "arrays.safetensors").read_bytes()
    except OSError as error:
        raise RunError(f"checkpoint {name} cannot be read ({error.strerror}).") from error
    if not name.endswith(_digest(text, blob)):
        raise RunError(f"checkpoint {name} was changed on disk: its content does not match its hash.")
    with reading_state(name):
        state: State = _decode(parse_json(text), _arrays(blob))
    return state


def _arrays(blob: bytes) -> dict[str, Array]:
    try:
        return load_arrays(blob)
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def clean(folder: Path, keep: int, named: Sequence[str]) -> None:
    """Remove all but the `keep` newest of the checkpoints that are `named`, oldest first, and everything left over from a kill."""
    if not folder.is_dir():
        return
    newest = named[-keep:]
    for path in folder.iterdir():
        if path.name not in newest:
            shutil.rmtree(path, ignore_errors=True)


def _digest(text: bytes, blob: bytes) -> str:
    return hashlib.sha256(hashlib.sha256(text).digest() + hashlib.sha256(blob).digest()).hexdigest()[:16]


def _encode(value: Any, arrays: dict[str, Array]) -> Any:
    if isinstance(value, np.ndarray):
        name = f"{len(arrays):06d}"
        arrays[name] = np.ascontiguousarray(value).reshape(value.shape)
        return {_ARRAY: name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(k): _encode(v, arrays) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(v, arrays) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"checkpoint state holds {type(value).__name__}; expected arrays, JSON values, mappings or lists")


def _decode(value: Any, arrays: Mapping[str, Array]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_ARRAY}:
            return arrays[value[_ARRAY]].copy()
        return {k: _decode(v, arrays) for k, v in value.items()}
    if isinstance(value, list):
        return [_decode(v, arrays) for v in value]
    return value


_SYNCING = 8  # files flushed at once: file systems commit those together


class PolicyFiles:
    """Implements `WeightsStore`. Files are written aside and renamed at once, and made durable together by `sync`, which a barrier
    calls before the database names them; until then a kill may lose them, and the resumed run makes them again."""

    def __init__(self, run_dir: Path, known: Mapping[PolicyRef, tuple[str, str]] | None = None) -> None:
        """known: (file, SHA-256) per policy, as they were recorded."""
        self.run_dir = run_dir
        self._files = {ref: file for ref, (file, _) in (known or {}).items()}
        self._digests = dict((known or {}).values())
        self._unsynced: list[Path] = []

    def put(self, ref: PolicyRef, spec: PolicySpec, weights: Weights) -> None:
        path = self.run_dir / self.file(ref)
        trust.mark(self.run_dir, [trust.spec_document(spec.kind, spec.config)])
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
        self._digests[self.file(ref)] = save_policy(path, spec, weights, sync=False, sign=False)
        self._unsynced.append(path)

    def get(self, ref: PolicyRef) -> Weights:
        path = self.run_dir / self.file(ref)
        try:
            return load_policy(path, self._digests.get(self.file(ref))).weights()
        except PolicyError as error:
            raise RunError(f"{error} The run cannot go on without it; restore the file from a copy.") from error

    def check(self) -> None:
        """Raise RunError if a policy that the database names is missing or changed."""
        for file, sha256 in self._digests.items():
            digest = sha256_of(self.run_dir / file)
            if digest != sha256:
                what = "was changed or damaged" if digest else "is missing"
                raise RunError(
                    f"policy file {str(self.run_dir / file)!r} {what}. The run cannot go on without it; restore it from a copy."
                )

    def file(self, ref: PolicyRef) -> str:
        """Return the path relative to the run directory."""
        return self._files.get(ref) or os.path.join("policies", str(ref.population), f"{ref.policy}.safetensors")

    def locate(self, ref: PolicyRef) -> tuple[str, str]:
        """Return (file relative to the run directory, SHA-256) for the database."""
        return self.file(ref), self._digests[self.file(ref)]

    def sync(self) -> None:
        """Make all files and folders written since the last call durable."""
        if not self._unsynced:
            return
        folders = {path.parent for path in self._unsynced}
        with ThreadPoolExecutor(_SYNCING) as pool:
            list(pool.map(sync, self._unsynced))
        for folder in [*sorted(folders | {folder.parent for folder in folders}), self.run_dir]:
            sync(folder)
        self._unsynced.clear()

    def remove_unknown(self) -> None:
        """Remove policy files that the database does not name: leftovers from after the last barrier."""
        known = {self.run_dir / file for file in self._digests}
        for path in (self.run_dir / "policies").glob("*/*"):
            if path not in known and not path.is_dir():  # which no policy is
                path.unlink()
