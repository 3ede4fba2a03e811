"""Policies on disk: safetensors, with the spec as JSON in the header. Nothing is unpickled or evaluated."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ludus.core.errors import LudusError, PolicyError
from ludus.core.files import aside_of, replace_file
from ludus.core.types import PolicySpec, Weights
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy

# --------------------------------------------------------------------------------------------------------------------
# What tells one policy from another.


def digest_of(policy: Policy) -> str:
    """SHA-256 of a policy's spec and weights."""
    found = hashlib.sha256(
        json.dumps([policy.spec.kind, dict(policy.spec.config)], sort_keys=True, default=str).encode()
    )
    for name, array in sorted(policy.weights().items()):
        array = np.ascontiguousarray(array)
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


FORMAT = 1


def save_policy(path: str | os.PathLike[str], spec: PolicySpec, weights: Weights, *, sync: bool = True) -> str:
    """Writes a policy and returns the SHA-256 of the file, in hexadecimal; equal policies give equal bytes.

    Written beside `path`, flushed to the disk and renamed, so that a kill leaves the old file or the new one; sync=False leaves the
    flushing to the caller. Raises PolicyError if the weights do not fit the spec, or hold NaN or infinities.
    """
    build_policy(spec, weights)
    header = json.dumps({"format": FORMAT, "kind": spec.kind, "config": dict(spec.config)}, sort_keys=True)
    arrays = {name: np.asarray(weights[name], order="C") for name in sorted(weights)}  # keeps arrays of no axes
    data: bytes = save(arrays, metadata={"ludus": header})
    target = Path(path)
    try:
        replace_file(target, data, durable=sync)
    finally:
        aside_of(target).unlink(missing_ok=True)
    return hashlib.sha256(data).hexdigest()


def load_policy(path: str | os.PathLike[str], sha256: str | None = None) -> Policy:
    """Reads what `save_policy` wrote, and checks it: the digest if one is given, the header, shapes, and that numbers are finite.

    Raises PolicyError, saying what is wrong with which file.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise PolicyError(f"policy file {str(path)!r} cannot be read: {error.strerror}.") from error
    if sha256 is not None and (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise PolicyError(
            f"policy file {str(path)!r} was changed or damaged: its SHA-256 is {found[:12]}…, {sha256[:12]}… was recorded."
        )
    try:
        spec = _spec(data)
        return build_policy(spec, load(data))
    except (SafetensorError, LudusError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise PolicyError(f"policy file {str(path)!r} is not a policy that can be loaded: {error}") from error


def _spec(data: bytes) -> PolicySpec:
    length = int.from_bytes(data[:8], "little")  # safetensors: 8 bytes of length, then a JSON header
    if not 0 < length <= len(data) - 8:
        raise ValueError("it is cut off, or not a safetensors file")
    metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    if "ludus" not in metadata:
        raise ValueError("its header has no 'ludus' entry, so another program wrote it")
    header: dict[str, Any] = json.loads(metadata["ludus"])
    if header.get("format") != FORMAT:
        raise ValueError(f"its format is {header.get('format')!r}; this version reads {FORMAT}")
    return PolicySpec(str(header["kind"]), dict(header["config"]))
