"""Specs of action-value policies that are torch modules. Kept apart from them, so that a scenario can be read without loading torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ludus.types import PolicySpec

Distribution = Literal["none", "c51", "quantile", "implicit"]
Core = Literal["gru", "lstm"]


@dataclass(frozen=True, slots=True)
class Head:
    """What comes after the body.

    dueling: a state's value beside the actions' advantages. noisy: layers with parametric noise, of the initial size noise_scale.
    distribution: what is learned of the return: its mean ("none"), chances of `atoms` evenly spaced values from low to high ("c51"), its
    quantiles at the middles of `atoms` equal shares ("quantile"), or at any level ("implicit"; acting takes `atoms` levels).
    """

    dueling: bool = False
    noisy: bool = False
    noise_scale: float = 0.5
    distribution: Distribution = "none"
    atoms: int = 1
    low: float = 0.0
    high: float = 0.0


def q_module_spec(
    *,
    shape: Sequence[int],
    actions: int,
    body: Mapping[str, Any],
    head: Head | None = None,
    image: bool = False,
    agents: int = 1,
) -> PolicySpec:
    """The spec of a `QModulePolicy`. body: as `body_config` makes it. image: observations are bytes, and scaled by 1/255. agents: above 1,
    each of so many has a network of its own, and flat observations end in its id, one-hot."""
    config = {"shape": [int(n) for n in shape], "actions": int(actions), "body": dict(body), "image": bool(image)}
    team = {"agents": int(agents)} if agents > 1 else {}
    return PolicySpec("q_module", {**config, "head": asdict(head or Head()), **team})


def q_recurrent_spec(
    *,
    shape: Sequence[int],
    actions: int,
    body: Mapping[str, Any],
    core: Core = "lstm",
    memory: int = 64,
    dueling: bool = True,
    image: bool = False,
) -> PolicySpec:
    """The spec of a `QRecurrentPolicy`: the body's features go through a cell of `memory` units."""
    config = {"shape": [int(n) for n in shape], "actions": int(actions), "body": dict(body), "image": bool(image)}
    return PolicySpec("q_recurrent", {**config, "core": core, "memory": int(memory), "dueling": bool(dueling)})
