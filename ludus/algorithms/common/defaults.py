"""Default options of an algorithm that follow from the environment.

The fields' own defaults suit the information states of a small card game, and hold for games whose tree is in memory.
Elsewhere the table below has values that usually work, by the kind of environment, measured by
`benchmarks/learning.py`. It holds however the algorithm was written: by name, as data, as an object, for one player or
for one role. A user's values stay, as do the defaults of a custom class.

γ is 1 only where the rules end every episode; elsewhere it is 0.99, the value of the environment's family
(`Family.discount`), or less where the algorithm's own default is. Images (bytes,
`ludus.algorithms.common.space_checks.is_image`) get convolutions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from gymnasium.spaces import Box

from ludus.algorithms.common.base import Algorithm
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.algorithms.common.space_checks import is_image, players_of
from ludus.core.config import Config
from ludus.core.errors import ConfigError, LudusError
from ludus.core.types import EnvSpec
from ludus.envs.families import FAMILIES
from ludus.policies.specs import tabulates

EnvKind: TypeAlias = Literal["tree", "board", "players", "team", "agent"]
"""tree: a game whose tree is in memory, and that the algorithm's policies are tables of. board: another of OpenSpiel's games. players:
several players elsewhere. team: one player with several agents. agent: one with one."""

Row: TypeAlias = Mapping[str, Any]


def kind_of_env(env: EnvSpec, algorithm: Any = None, player: int = 0) -> EnvKind:
    """Return the table's column for an environment. algorithm: whose policies of this player may not be tables of the
    tree (recurrent ones, say)."""
    if env.enumeration is not None and _tabulates(env, algorithm, player):
        return "tree"
    if env.num_players > 1:
        return "board" if _ends_by_rules(env) else "players"
    return "team" if len(env.agents) > 1 else "agent"


def _tabulates(env: EnvSpec, algorithm: Any, player: int) -> bool:
    if not isinstance(algorithm, Algorithm):
        return True
    with suppress(LudusError):  # which is raised when the parts are checked
        return tabulates(algorithm.policy(env, (player,)), mode="greedy")
    return True


def _family(env: EnvSpec) -> str:
    return env.id.partition("/")[0]


def _ends_by_rules(env: EnvSpec) -> bool:
    """Return whether every episode ends by the rules of the game, and none is cut."""
    return env.enumeration is not None or _family(env) == "openspiel"


# --------------------------------------------------------------------------------------------------------------------
# The table: by algorithm and kind of environment, what is not the field's own default.

_Q: Final[Row] = {
    "rollout_unit": "decisions",
    "rollout": 128,
    "hidden": (256, 256),
    "n_step": 5,
    "updates_per_decision": 0.5,
    "batch": 128,
    "learning_rate": {"start": 1e-3, "end": 0.0},
    "epsilon": {"start": 1.0, "end": 0.1, "over": 0.16},
    "target_period": 256,
}
"""For one agent, from the preset cartpole-dqn."""
_Q_PLAYERS: Final[Row] = {
    **_Q,
    "rollout": 256,
    "hidden": (128, 128),
    "updates_per_decision": 0.1,
    "epsilon": {"start": 1.0, "end": 0.05, "over": 0.3},
}
_Q_BOARD: Final[Row] = {
    "rollout": 256,
    "hidden": (128, 128),
    "n_step": 3,
    "batch": 256,
    "learning_rate": {"start": 1e-3, "end": 0.0},
    "epsilon": {"start": 1.0, "end": 0.05, "over": 0.3},
    "target_period": 200,
}
_Q_TEAM: Final[Row] = {
    "rollout_unit": "decisions",
    "rollout": 512,
    "n_step": 5,
    "learning_rate": 5e-4,
    "capacity": 300_000,
    "epsilon": {"start": 1.0, "end": 0.05, "over": 0.3},
    "target_period": 200,
}
"""From the preset simple-spread-iql."""
_Q_ROWS: Final[Mapping[str, Row]] = {"agent": _Q, "players": _Q_PLAYERS, "board": _Q_BOARD, "team": _Q_TEAM}

_PPO: Final[Row] = {
    "batch_unit": "decisions",
    "batch": 2048,
    "epochs": 10,
    "minibatches": 32,
    "activation": "tanh",
    "value_network": "separate",
    "learning_rate": {"start": 3e-4, "end": 0.0},
    "entropy": 0.0,
    "clip": 0.2,
    "max_gradient_norm": 0.5,
}
"""For one agent: the values of Stable-Baselines3 and CleanRL for continuous control."""
_PPO_BOARD: Final[Row] = {
    "batch": 256,
    "epochs": 4,
    "minibatches": 8,
    "hidden": (128, 128),
    "learning_rate": {"start": 1e-3, "end": 0.0},
    "entropy": 0.01,
    "clip": 0.2,
    "max_gradient_norm": 0.5,
}
"""From the preset connect-four."""
_PPO_PLAYERS: Final[Row] = {**_PPO_BOARD, "batch_unit": "decisions", "batch": 2048}
_MIRROR: Final[Row] = {"batch_unit": "decisions", "batch": 2048, "minibatches": 8, "max_gradient_norm": 0.5}
_OWN: Final[Row] = {"batch_unit": "decisions", "batch": 2048, "learning_rate": 1e-3}
_R2D2: Final[Row] = {
    "rollout_unit": "decisions",
    "rollout": 640,
    "batch": 32,
    "updates_per_decision": 0.1,
    "epsilon": {"start": 1.0, "end": 0.05, "over": 0.3},
}

_R2D2_BOARD: Final[Row] = {"rollout": 64, "batch": 32, "updates_per_decision": 0.1}
_MIRROR_BOARD: Final[Row] = {"batch": 256, "epochs": 4, "minibatches": 8}
_NFSP: Final[Row] = {
    "best_response": {"epsilon": {"start": 0.06, "end": 0.0}}
}  # the reservoir is to hold no random play

TABLE: Final[Mapping[str, Mapping[str, Row]]] = {
    "ppo": {"agent": _PPO, "team": _PPO, "players": _PPO_PLAYERS, "board": _PPO_BOARD},
    "dqn": _Q_ROWS,
    "iqn": _Q_ROWS,
    "qr_dqn": _Q_ROWS,
    "munchausen_dqn": _Q_ROWS,
    "rainbow": {**_Q_ROWS, "agent": {**_Q, "batch": 64}},
    "apex": {
        "agent": {
            "rollout": 128,
            "hidden": (256, 256),
            "batch": 128,
            "updates_per_decision": 0.5,
            "target_period": 64,
            "learning_rate": {"start": 1e-3, "end": 0.0},
            "epsilon_spread": 2.0,
        }
    },
    "r2d2": {"agent": _R2D2, "team": _R2D2, "players": _R2D2, "board": _R2D2_BOARD},
    "mmd": {"agent": _MIRROR, "team": _MIRROR, "players": _MIRROR, "board": _MIRROR_BOARD},
    "rnad": {"agent": _MIRROR, "team": _MIRROR, "players": _MIRROR},
    "reinforce": {"agent": {"batch": 16}, "team": {"batch": 32}, "players": {"batch": 32}},
    "nfsp": dict.fromkeys(("agent", "team", "players", "board"), _NFSP),
    "on_policy": {"agent": _OWN, "team": _OWN, "players": _OWN},
}
"""By registered name; on_policy is the base of a user's own. A part's row (NFSP's best response) goes on top of the row of what it is."""
_IMAGES: Final[Mapping[str, Row]] = {
    "ppo": {
        "value_network": "shared",
        "batch": 1024,
        "epochs": 4,
        "minibatches": 4,
        "learning_rate": {"start": 4e-4, "end": 0.0},
        "entropy": {"start": 0.01, "end": 0.0},
        "clip": 0.1,
    }
}
"""On top, for one agent that sees images: from the preset pong."""
_BOXES: Final[Mapping[str, Row]] = {"ppo": {"normalise_observations": True, "normalise_returns": True}}
"""On top, for actions in a box: bodies and motors, whose observations and rewards have scales of their own."""
_UNKNOWN_RANGE: Final[Mapping[str, Row]] = {"rainbow": {"distribution": "implicit", "atoms": 8}}
"""On top, where the range of returns, which C51 has to know, is not given."""
_CONVOLUTIONS: Final = ("network", "body")
"""Options that say which network looks at observations."""
_SIZES: Final[Mapping[str, Mapping[str, int]]] = {
    "batch": {"episodes": 16, "decisions": 2048},
    "rollout": {"episodes": 4, "decisions": 256},
}
"""What is collected at once, where only the unit is given, and is not the row's."""


# --------------------------------------------------------------------------------------------------------------------
# The rule.


@cache
def governed(cls: type) -> frozenset[str]:
    """Return the options of a class of algorithms that follow from the environment where they are not given: those of
    its rows, γ, and its network; except those whose default is the class's own, and not that of the algorithm it
    derives from."""
    name, base = _registered(cls)
    fields: Mapping[str, Any] = getattr(cls, "model_fields", {})
    rows = [*TABLE.get(name, {}).values(), *(extra.get(name, {}) for extra in (_IMAGES, _BOXES, _UNKNOWN_RANGE))]
    keys = {"gamma", *_CONVOLUTIONS, *(key for row in rows for key in row)}
    known: Mapping[str, Any] = {} if base is None else base.model_fields
    own = {key for key in known if fields[key].default != known[key].default}
    return frozenset(keys & fields.keys() - own)


@cache
def _registered(cls: type) -> tuple[str, Any]:
    """Return (name, class) of the algorithm that a class is or derives from; ("", None) of none."""
    for base in cls.__mro__:
        path = f"{base.__module__}:{base.__qualname__}"
        if path == "ludus.algorithms.on_policy.config:OnPolicy":
            return "on_policy", base
        if (name := next((known for known, target in ALGORITHMS.items() if target == path), None)) is not None:
            return name, base
    return "", None


def missing_options(algorithm: Any) -> Iterator[tuple[str, ...]]:
    """Yield the paths of options that follow from the environment and are still to be filled in."""
    if not isinstance(algorithm, Config):
        return
    for key in sorted(governed(type(algorithm))):
        if key not in algorithm.model_fields_set:
            yield (key,)
        elif isinstance(part := getattr(algorithm, key), Algorithm):
            yield from ((key, *path) for path in missing_options(part))


def complete_algorithm(algorithm: Any, env: EnvSpec, players: tuple[int, ...] = ()) -> Any:
    """Fill in the options that were not given, for an environment.

    Args:
        algorithm: An algorithm's configuration; anything else is returned unchanged.
        env: The environment.
        players: Players whose policies it trains; (): all.

    Returns:
        The same kind of configuration. A value of the table that does not fit the given ones (n_step 5 where a rollout
        has 4 decisions) is left out: the field's own default stays.
    """
    if not isinstance(algorithm, Config):
        return algorithm
    players = tuple(players_of(env, players))
    kind = kind_of_env(env, algorithm, players[0])
    return _complete(algorithm, env, players, kind, _row(type(algorithm), env, players, kind))


def _complete(algorithm: Config, env: EnvSpec, players: tuple[int, ...], kind: EnvKind, row: Row) -> Config:
    cls = type(algorithm)
    keys, values = governed(cls), {key: getattr(algorithm, key) for key in algorithm.model_fields_set}
    row = {key: value for key, value in row.items() if key in keys}
    for key in keys:
        part = getattr(algorithm, key)
        if isinstance(part, Config) and isinstance(part, Algorithm):
            values[key] = _complete_part(algorithm, key, env, players, kind, row.pop(key, {}))
    config = _fitted(cls, values, _scaled(row, algorithm))
    return cls(**{key: getattr(config, key) for key in (*values, *keys)})


def _complete_part(
    algorithm: Config, key: str, env: EnvSpec, players: tuple[int, ...], kind: EnvKind, row: Row
) -> Config:
    """Return complete an algorithm inside another one: the outer one's default for it takes precedence over the table's row of
    a tree, which is empty."""
    default: Any = type(algorithm).model_fields[key].get_default(call_default_factory=True)
    part: Config = getattr(algorithm, key) if key in algorithm.model_fields_set else type(default)()
    usual = {name: getattr(default, name) for name in default.model_fields_set}
    return _complete(part, env, players, kind, {**usual, **_row(type(part), env, players, kind), **row})


def _row(cls: type, env: EnvSpec, players: tuple[int, ...], kind: EnvKind) -> dict[str, Any]:
    name, _ = _registered(cls)
    row = dict(TABLE.get(name, {}).get(kind, {}))
    agents = [agent for player in players for agent in env.agents_of(player)]
    images = any(is_image(agent.observation) for agent in agents)
    if kind == "agent" and images:
        row |= _IMAGES.get(name, {})
    if kind != "tree" and any(isinstance(agent.action, Box) for agent in agents):
        row |= _BOXES.get(name, {})
    if not np.isfinite(env.utility_range).all():
        row |= _UNKNOWN_RANGE.get(name, {})
    if images:
        row |= dict.fromkeys(_CONVOLUTIONS, "nature")
    fields: Mapping[str, Any] = getattr(cls, "model_fields", {})
    if "gamma" in fields:
        row["gamma"] = _discount(env, usual=fields["gamma"].default)
    return row


def _discount(env: EnvSpec, *, usual: float) -> float:
    """Return γ. usual: the algorithm's default."""
    family = FAMILIES.get(_family(env))
    if family is not None and family.discount is not None:
        return family.discount
    return usual if usual < 1.0 or _ends_by_rules(env) else 0.99


def _scaled(row: Row, algorithm: Config) -> Row:
    """Return the row, adapted to how much is collected: steps of as many rows, and sizes in the given unit."""
    out = dict(row)
    for size, amounts in _SIZES.items():
        unit = f"{size}_unit"
        if unit not in type(algorithm).model_fields or size not in row:
            continue
        default = type(algorithm).model_fields[unit].default
        wanted = getattr(algorithm, unit) if unit in algorithm.model_fields_set else row.get(unit, default)
        if any(part.whole_episodes for part in getattr(algorithm, "processing", ())):  # hindsight, say
            wanted = "episodes"
        if wanted != row.get(unit, default):
            out |= {unit: wanted, size: amounts[wanted], "minibatches": 8}
        elif size in algorithm.model_fields_set and "minibatches" in row:
            out["minibatches"] = max(1, getattr(algorithm, size) * row["minibatches"] // row[size])
    return {key: value for key, value in out.items() if key in governed(type(algorithm))}


def _fitted(cls: type[Config], values: Row, row: Row) -> Config:
    """Return the configuration with the given values and the entries of the row that are valid with them."""
    row = {key: value for key, value in row.items() if key not in values}
    with suppress(ConfigError):
        return cls(**{**row, **values})
    out = dict(values)
    for key, value in row.items():
        with suppress(ConfigError):
            cls(**{**out, key: value})
            out[key] = value
    return cls(**out)
