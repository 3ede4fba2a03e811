"""Policies on disk: safetensors, with the spec as JSON in the header. Nothing is unpickled or evaluated."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ludus.core import trust
from ludus.core.errors import LudusError, PolicyError, TrustError
from ludus.core.jsonable import parse_json
from ludus.core.machine import replace_file, temporary_path
from ludus.core.types import Array, PolicySpec, Weights
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import (
    QHeadSpec,
    action_values_spec,
    actor_critic_spec,
    body_config,
    joined,
    part_of,
    spec_of,
)

# --------------------------------------------------------------------------------------------------------------------
# What tells one policy from another.


def digest_of(policy: Policy) -> str:
    """Return the SHA-256 of a policy's spec and weights."""
    digest = hashlib.sha256(
        json.dumps([policy.spec.kind, dict(policy.spec.config)], sort_keys=True, default=str).encode()
    )
    for name, array in sorted(policy.weights().items()):
        array = np.ascontiguousarray(array)
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


FORMAT = 2
_DAMAGED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError)
"""What a header raises that no Ludus wrote; torch raises RuntimeError for sizes."""


def save_policy(
    path: str | os.PathLike[str], spec: PolicySpec, weights: Weights, *, sync: bool = True, sign: bool = True
) -> str:
    """Write a policy. Return the SHA-256 of the file, in hexadecimal; equal policies give equal bytes.

    It is written to a temporary file, flushed and renamed, so that a kill leaves the old file or the new one.

    Args:
        path: The file.
        spec: Kind and configuration.
        weights: Arrays by name.
        sync: Whether the file is flushed to the disk; False leaves that to the caller.
        sign: Whether a spec that names code gets a mark of this user (`ludus.core.trust`); False: its run keeps one.

    Raises:
        PolicyError: The weights do not fit the spec, or hold NaN or infinities.
    """
    build_policy(spec, weights)
    facts = {"format": FORMAT, "kind": spec.kind, "config": dict(spec.config)}
    if sign and (signature := trust.signature(trust.spec_document(spec.kind, spec.config))):
        facts["mark"] = signature
    header = json.dumps(facts, sort_keys=True)
    arrays = {name: np.asarray(weights[name], order="C") for name in sorted(weights)}  # keeps arrays of no axes
    data: bytes = save(arrays, metadata={"ludus": header})
    target = Path(path)
    try:
        replace_file(target, data, durable=sync)
    finally:
        temporary_path(target).unlink(missing_ok=True)
    return hashlib.sha256(data).hexdigest()


def load_policy(path: str | os.PathLike[str], sha256: str | None = None) -> Policy:
    """Return the policy in a file that `save_policy` wrote, after checking digest, header, shapes, and that numbers are
    finite.

    Args:
        path: The file.
        sha256: Expected digest; None: not checked.

    Raises:
        PolicyError: With the file and what is wrong with it.
        TrustError: It names code, and lies in no run that this user made or trusts.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise PolicyError(f"policy file {str(path)!r} cannot be read: {error.strerror}.") from error
    if sha256 is not None and (digest := hashlib.sha256(data).hexdigest()) != sha256:
        raise PolicyError(
            f"policy file {str(path)!r} was changed or damaged: its SHA-256 is {digest[:12]}…, {sha256[:12]}… was recorded."
        )
    try:
        form, spec, mark = _spec(data)
        _require_trust(Path(path), spec, mark)
        return build_policy(*(_modern(spec, load(data)) if form == 1 else (spec, load(data))))
    except TrustError:
        raise
    except (SafetensorError, LudusError, *_DAMAGED) as error:
        raise PolicyError(f"policy file {str(path)!r} is not a policy that can be loaded: {error}") from error


def _require_trust(path: Path, spec: PolicySpec, mark: str) -> None:
    """Raise TrustError for code of somebody else's. A run, whose file RUN/policies/POPULATION/NAME.safetensors is, keeps marks of it."""
    absolute = path.absolute()
    run = absolute.parents[2] if absolute.parent.parent.name == "policies" else None
    trust.require_trust(path, [trust.spec_document(spec.kind, spec.config)], folder=run, signatures=[mark])


def spec_in(data: bytes) -> PolicySpec:
    """Return the spec in a file's content, without building the policy. Raise PolicyError for content that is no
    policy's file."""
    try:
        return _spec(data)[1]
    except _DAMAGED as error:
        raise PolicyError(f"it is not a policy that can be loaded: {error}") from error


def _spec(data: bytes) -> tuple[int, PolicySpec, str]:
    """Return (the file's format, the spec in it, its mark)."""
    length = int.from_bytes(data[:8], "little")  # safetensors: 8 bytes of length, then a JSON header
    if not 0 < length <= len(data) - 8:
        raise ValueError("it is cut off, or not a safetensors file")
    metadata = parse_json(data[8 : 8 + length]).get("__metadata__", {})
    if "ludus" not in metadata:
        raise ValueError("its header has no 'ludus' entry, so another program wrote it")
    header: dict[str, Any] = parse_json(metadata["ludus"])
    form = header.get("format")
    if form not in (1, FORMAT):
        raise ValueError(f"its format is {form!r}; this version reads 1 to {FORMAT}")
    return form, PolicySpec(str(header["kind"]), dict(header["config"])), str(header.get("mark", ""))


# --------------------------------------------------------------------------------------------------------------------
# Format 1 had a kind for each way to compute a network, and perceptrons' weights were [in, out].

_PERCEPTRONS = {"mlp": "policy", "q_network": "q", "deterministic": "actor", "squashed_gaussian": "actor"}


def _modern(spec: PolicySpec, weights: Weights) -> tuple[PolicySpec, Weights]:
    """Return a policy of format 1 as one of format 2 that plays the same."""
    kind, config = spec.kind, spec.config
    if kind in ("nfsp", "averaged"):
        parts = {name: _modern(spec_of(spec, name), part_of(weights, name)) for name in config}
        entries = {name: {"kind": part.kind, "config": dict(part.config)} for name, (part, _) in parts.items()}
        return PolicySpec(kind, entries), joined({name: arrays for name, (_, arrays) in parts.items()})
    if kind == "actor_critic_team":
        return PolicySpec("actor_critic", config), weights
    if kind in ("q_module", "q_recurrent"):
        scale = 1.0 / 255.0 if config.get("image") else 1.0
        head = QHeadSpec(**config["head"]) if kind == "q_module" else QHeadSpec(dueling=config["dueling"])
        memory = {"core": config["core"], "width": config["memory"]} if kind == "q_recurrent" else {}
        input_options = {
            "shape": config["shape"],
            "body": config["body"],
            "scale": scale,
            "agents": config.get("agents", 1),
        }
        return action_values_spec(actions=config["actions"], head=head, **input_options, **memory), weights
    if kind not in _PERCEPTRONS:
        return spec, weights
    input_options = {
        "shape": (config["inputs"],),
        "body": body_config(hidden=config["hidden"], activation=config["activation"]),
    }
    prefix = _PERCEPTRONS[kind]
    arrays = {name: array for name, array in weights.items() if "." not in name}  # of one number each
    if kind == "q_network":
        split = {"head.advantage": config["actions"], **({"head.value": 1} if config["dueling"] else {})}
        arrays |= _renamed(weights, prefix, "body", split)
        return action_values_spec(
            actions=config["actions"], head=QHeadSpec(dueling=config["dueling"]), **input_options
        ), arrays
    if kind == "mlp":
        action: dict[str, Any] = {"kind": "categorical", "actions": config["actions"]}
        split = {"head": config["actions"], **({"value": 1} if config["value"] == "shared" else {})}
        if config["value"] == "separate":
            arrays |= _renamed(weights, "value", "critic.body", {"value": 1})
    else:
        action = (
            {"kind": "point"} if kind == "deterministic" else {"kind": "tanh", "log_std": [-20.0, 2.0], "warm_up": True}
        )
        action |= {key: config[key] for key in ("shape", "low", "high")}
        split = {"head": len(weights[f"{prefix}.{len(config['hidden'])}.bias"])}
    arrays |= _renamed(weights, prefix, "actor.body", split)
    return actor_critic_spec(action=action, value=config.get("value", "none"), **input_options), arrays


def _renamed(weights: Weights, old: str, body: str, split: Mapping[str, int]) -> dict[str, Array]:
    """Return the layers `old.K` of a perceptron, transposed: hidden ones as those of a body, the last one split into
    modules by their outputs."""
    last = sum(name.startswith(f"{old}.") and name.endswith(".bias") for name in weights) - 1
    out: dict[str, Array] = {}
    for k in range(last):
        out[f"{body}.{2 * k + 1}.weight"] = np.ascontiguousarray(weights[f"{old}.{k}.weight"].T)
        out[f"{body}.{2 * k + 1}.bias"] = weights[f"{old}.{k}.bias"]
    begin = 0
    for name, outputs in split.items():
        end = begin + outputs
        out[f"{name}.weight"] = np.ascontiguousarray(weights[f"{old}.{last}.weight"].T[begin:end])
        out[f"{name}.bias"] = weights[f"{old}.{last}.bias"][begin:end]
        begin = end
    return out
