"""Specs of the built-in policies. Kept apart from the policies, so that a scenario can be read without loading torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ludus.types import Enumeration, PolicySpec

Value = Literal["shared", "separate", "none"]


def mlp_spec(
    *, inputs: int, actions: int, hidden: Sequence[int], activation: str = "tanh", value: Value = "shared"
) -> PolicySpec:
    """The spec of an `MLPPolicy`; `inputs` is the number of entries of one observation."""
    config = {
        "inputs": int(inputs),
        "actions": int(actions),
        "hidden": [int(n) for n in hidden],
        "activation": activation,
        "value": value,
    }
    return PolicySpec("mlp", config)


def q_spec(
    *, inputs: int, actions: int, hidden: Sequence[int], activation: str = "relu", dueling: bool = False
) -> PolicySpec:
    """The spec of a `QPolicy`; `inputs` is the number of entries of one observation."""
    config = {
        "inputs": inputs,
        "actions": actions,
        "hidden": list(hidden),
        "activation": activation,
        "dueling": dueling,
    }
    return PolicySpec("q_network", config)


def gru_spec(*, inputs: int, actions: int, hidden: int) -> PolicySpec:
    """The spec of a `GRUPolicy`."""
    return PolicySpec("gru", {"inputs": int(inputs), "actions": int(actions), "hidden": int(hidden)})


def tabular_spec(enumeration: Enumeration, seats: tuple[int, ...]) -> PolicySpec:
    """The spec of a table that covers the ids of all `seats` (and of the seats between them)."""
    first = enumeration.offset[min(seats)]
    return PolicySpec("tabular", {"offset": int(first), "actions": int(enumeration.mask.shape[1])})


def covered(enumeration: Enumeration, seats: tuple[int, ...]) -> slice:
    """The ids that `tabular_spec(enumeration, seats)` covers."""
    return slice(enumeration.offset[min(seats)], enumeration.offset[max(seats) + 1])
