"""Table of an algorithm's defaults by kind of environment, computed by the rule itself (`ludus.algorithms.common.defaults`)."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from option_tables import markdown_table, value_text

from ludus.algorithms.common.base import Algorithm
from ludus.algorithms.common.defaults import complete_algorithm
from ludus.core.config import Config
from ludus.core.types import AgentSpec, Enumeration, EnvSpec

MARK = "†"
"""Of the options whose default follows from the environment."""
VECTOR = Box(-1.0, 1.0, (4,), np.float32)


def _env(
    name: str = "gymnasium/example",
    *,
    players: int = 1,
    agents: int = 1,
    observation: Box = VECTOR,
    action: Any = None,
    bound: float = 1.0,
    enumeration: Enumeration | None = None,
) -> EnvSpec:
    """Return the description of an example. agents: of each player; bound: greatest return."""
    action = action or Discrete(3)
    return EnvSpec(
        id=name,
        agents=tuple(AgentSpec(f"{p}_{k}", p, observation, action) for p in range(players) for k in range(agents)),
        utility_range=((-bound, bound),) * players,
        symmetry=tuple((player,) for player in range(players)),
        enumeration=enumeration,
    )


STATES = Enumeration(np.zeros((2, *VECTOR.shape), np.float32), np.ones((2, 3), np.bool_), (0, 1, 2), ("a", "b"))
KINDS: Mapping[str, EnvSpec] = {
    "compiled tree": _env("openspiel/example", players=2, enumeration=STATES),
    "other OpenSpiel": _env("openspiel/example", players=2),
    "several players": _env(players=2),
    "a team": _env(agents=2),
    "one agent": _env(),
}
"""An example of each kind of environment."""
VARIANTS: Mapping[str, EnvSpec] = {
    "box actions": _env(action=VECTOR),
    "images": _env(observation=Box(0, 255, (84, 84, 4), np.uint8)),
    "unbounded returns": _env(bound=np.inf),
}
"""Of one agent, shown only where they differ from the kind."""


def environment_table(model: type) -> str:
    """Return a table of the options whose defaults follow from the environment, with a sentence; "" of other models.

    Kinds with equal defaults share a column.
    """
    columns, names = _columns(model), environment_options(model)
    if not names:
        return ""
    heading = ("option", *("; ".join(kinds) if len(kinds) < len(KINDS) else "all others" for kinds, _ in columns))
    rows = [(f"`{name}`", *(f"`{values[name]}`" for _, values in columns)) for name in names]
    shown = [f"*{kind}*" for kind in VARIANTS if kind in heading]
    variants = f" ({' and '.join(shown)}: of one agent)" if shown else ""
    return f"\n{MARK} Defaults that follow from the environment{variants}:\n\n{markdown_table(heading, rows)}"


@functools.cache
def environment_options(model: type) -> tuple[str, ...]:
    """Return the options whose defaults follow from the environment, those of parts as `part.option`."""
    if not (columns := _columns(model)):
        return ()
    own = dict(_values(model()))
    return tuple(name for name, value in own.items() if any(values[name] != value for _, values in columns))


@functools.cache
def _columns(model: type) -> list[tuple[list[str], dict[str, str]]]:
    """Return the kinds that share defaults, each with its defaults."""
    if not _is_registered(model):
        return []
    algorithm, columns = model(), list[tuple[list[str], dict[str, str]]]()
    for kind, env in {**KINDS, **_variants(algorithm)}.items():
        values = dict(_values(complete_algorithm(algorithm, env)))
        same = next((kinds for kinds, other in columns if other == values), None)
        if same is None:
            columns.append(([kind], values))
        elif kind in KINDS:
            same.append(kind)
    return columns


def _variants(algorithm: Any) -> Mapping[str, EnvSpec]:
    """Return those with actions that the algorithm can take."""
    return {kind: env for kind, env in VARIANTS.items() if "box" in algorithm.about.actions or "box" not in kind}


def _is_registered(model: type) -> bool:
    from ludus.algorithms.common.registry import ALGORITHMS

    return issubclass(model, Config) and f"{model.__module__}:{model.__qualname__}" in ALGORITHMS.values()


def _values(algorithm: Any, before: str = "") -> Iterator[tuple[str, str]]:
    for name in type(algorithm).model_fields:
        value = getattr(algorithm, name)
        if isinstance(value, Config) and isinstance(value, Algorithm):
            yield from _values(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value_text(value)
