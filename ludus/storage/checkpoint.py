"""Checkpoints: nested state of arrays and JSON values on disk, without pickle.

Written aside, fsynced and renamed; a checkpoint's id ends in the hash of its content, and the run's database names the id in the same
transaction as the rows it covers. What the database does not name does not count and is removed by the next `clean`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from ludus.core.errors import RunError
from ludus.core.files import sync, write_file
from ludus.core.types import Array, State

FORMAT = 3
"""Of the state that the driver saves; another one when a part's `state_dict` changes."""
_ARRAY = "$array"


def save(folder: Path, number: int, state: State) -> str:
    """Write `state` below `folder` and return its id, durable when it returns."""
    arrays: dict[str, Array] = {}
    text = json.dumps(_encode(state, arrays), separators=(",", ":")).encode()
    blob = save_arrays(arrays)
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


def load(folder: Path, name: str) -> State:
    """Read a checkpoint back. Raises RunError if it is missing, incomplete or changed."""
    try:
        text = (folder / name / "state.json").read_bytes()
        blob = (folder / name / "arrays.safetensors").read_bytes()
    except OSError as error:
        raise RunError(f"checkpoint {name} cannot be read ({error.strerror}).") from error
    if not name.endswith(_digest(text, blob)):
        raise RunError(f"checkpoint {name} was changed on disk: its content does not match its hash.")
    state: State = _decode(json.loads(text), load_arrays(blob))
    return state


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
