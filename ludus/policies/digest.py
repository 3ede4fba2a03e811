"""What tells one policy from another."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from ludus.policies.base import Policy


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
