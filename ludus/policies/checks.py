"""Checks of specs and weights; every failure is a PolicyError that names the policy's kind and the entry."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ludus.core.errors import PolicyError
from ludus.core.types import Array, PolicySpec, Weights
from ludus.policies.base import Policy


def integer(spec: PolicySpec, key: str, *, least: int = 1) -> int:
    """Return the whole number `spec.config[key]`, at least `least`."""
    value = entry(spec, key)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PolicyError(
            f"policy spec {spec.kind!r}: {key} is {value!r}; expected a whole number of at least {least}."
        )
    return value


def integers(spec: PolicySpec, key: str) -> tuple[int, ...]:
    """Return the list `spec.config[key]` of whole numbers of at least 1, such as the widths of layers; possibly empty."""
    value = entry(spec, key)
    if not isinstance(value, (list, tuple)) or not all(isinstance(n, int) and n >= 1 for n in value):
        raise PolicyError(f"policy spec {spec.kind!r}: {key} is {value!r}; expected a list of whole numbers.")
    return tuple(value)


def choice(spec: PolicySpec, key: str, options: tuple[Any, ...]) -> Any:
    """Return `spec.config[key]`, one of `options`; the first of them if the spec has none."""
    value = spec.config.get(key, options[0])
    if value not in options:
        raise PolicyError(
            f"policy spec {spec.kind!r}: {key} is {value!r}; expected one of {', '.join(map(repr, options))}."
        )
    return value


def entry(spec: PolicySpec, key: str) -> Any:
    """Return `spec.config[key]`. Raise PolicyError if it is missing."""
    if key not in spec.config:
        raise PolicyError(f"policy spec {spec.kind!r} lacks {key!r}; it has {sorted(spec.config) or 'nothing'}.")
    return spec.config[key]


def validate_weights(
    spec: PolicySpec, weights: Weights, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, NDArray[np.float32]]:
    """Return float32 copies of `weights`, which must have exactly these names and shapes, and finite numbers only.
    Raise PolicyError."""
    if set(weights) != set(shapes):
        missing, extra = sorted(set(shapes) - set(weights)), sorted(set(weights) - set(shapes))
        raise PolicyError(
            f"weights do not fit the policy spec {spec.kind!r}: missing {missing or 'nothing'}, not expected {extra or 'nothing'}."
        )
    return {name: finite(spec, name, weights[name], shape, np.float32) for name, shape in shapes.items()}


def reject_extra_weights(spec: PolicySpec, weights: Weights, parts: Collection[str], *own: str) -> None:
    """Raise PolicyError for weights of other parts than these, or others of its `own`."""
    extra = sorted(name for name in weights if name not in own and name.partition("/")[0] not in parts)
    if extra:
        raise PolicyError(f"weights do not fit the policy spec {spec.kind!r}: not expected {extra}.")


def one_spec(policies: Sequence[Policy]) -> None:
    """Raise PolicyError unless all policies have the same configuration."""
    if any(dict(policy.spec.config) != dict(policies[0].spec.config) for policy in policies):
        raise PolicyError("only policies of one spec can be stacked; group them by spec first.")


def finite(spec: PolicySpec, name: str, array: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Return a copy as `dtype`, if it has this shape and its numbers are finite in that dtype. Raise PolicyError."""
    array = np.asarray(array)
    if array.shape != shape:
        raise PolicyError(
            f"weights of a {spec.kind!r} policy: {name!r} has shape {array.shape}; its spec asks for {shape}."
        )
    with np.errstate(over="ignore"):
        copy: Array | None = np.array(array, dtype) if array.dtype.kind in "fiu" else None
    if copy is None or not np.isfinite(copy).all():
        raise PolicyError(
            f"weights of a {spec.kind!r} policy: {name!r} holds something that is not a finite number of {np.dtype(dtype)}."
        )
    return copy


def check_mode(policy: Policy, mode: str) -> None:
    """Raise PolicyError for a mode that the policy does not publish."""
    if mode not in policy.modes:
        raise PolicyError(
            f"policy of kind {policy.spec.kind!r} has no mode {mode!r}; it has {', '.join(policy.modes)}."
        )
