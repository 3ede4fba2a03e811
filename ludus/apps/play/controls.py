"""Names of actions, and keys of a keyboard for them, of environments that number theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ludus.envs.base import HasColumnNames, VectorEnv

_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "Acrobot-v1": ("left", "nothing", "right"),
    "Blackjack-v1": ("stick", "hit"),
    "CartPole-v0": ("left", "right"),
    "CartPole-v1": ("left", "right"),
    "CliffWalking-v1": ("up", "right", "down", "left"),
    "FrozenLake-v1": ("left", "down", "right", "up"),
    "FrozenLake8x8-v1": ("left", "down", "right", "up"),
    "LunarLander-v3": ("nothing", "left engine", "main engine", "right engine"),
    "MountainCar-v0": ("left", "nothing", "right"),
    "Taxi-v3": ("down", "up", "right", "left", "pick up", "drop off"),
    "Taxi-v4": ("down", "up", "right", "left", "pick up", "drop off"),
}
"""As Gymnasium documents them."""
_OF_FAMILIES: Mapping[str, tuple[str, ...]] = {"mpe2": ("nothing", "left", "right", "down", "up")}
_KEYS: Mapping[str, str] = {
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left engine": "ArrowLeft",
    "main engine": "ArrowUp",
    "right engine": "ArrowRight",
    "top": "ArrowUp",
    "bottom": "ArrowDown",
    "fire": " ",
    "shot": " ",
    "short_pass": "s",
    "long_pass": "a",
    "high_pass": "w",
    "sprint": "e",
    "release_sprint": "r",
    "sliding": "d",
    "dribble": "c",
    "release_dribble": "v",
    "release_direction": "x",
    "top_left": "7",
    "top_right": "9",
    "bottom_left": "1",
    "bottom_right": "3",
    "pick up": "p",
    "drop off": "o",
    "stick": "s",
    "hit": "h",
}
"""Name of an action -> `KeyboardEvent.key`."""
_IDLE = ("nothing", "noop", "idle", "no-op", "no_action")
_DIGITS = 10


def action_names_of(env: VectorEnv) -> tuple[str, ...]:
    """Return names of the actions 0, 1, … of the first player; () where nobody knows them, and of OpenSpiel's games, which name what is
    legal. The environment is reset."""
    if env.spec.id.startswith("openspiel/"):
        return ()
    env.reset(np.zeros(env.num_envs, np.uint64))  # many are made only then
    names = tuple(env.action_names(0)) if isinstance(env, HasColumnNames) else ()
    if names:
        return names
    family, _, name = env.spec.id.partition("/")
    if known := _ACTIONS.get(name) or _OF_FAMILIES.get(family):
        return known
    return ()


def keys_of(id: str, names: Sequence[str], actions: int) -> Mapping[str, int] | None:
    """Return keys for an environment's actions: arrows and letters where names say what they do, else digits; None of board games, which
    are clicked."""
    if id.startswith("openspiel/"):
        return None
    keys: dict[str, int] = {}
    for action, name in enumerate(names):
        key = _KEYS.get(name.lower().removeprefix("action_"))
        if key is not None:
            keys.setdefault(key, action)
        elif name.lower() in _IDLE:
            keys.setdefault("Enter", action)
    for action in range(min(actions, _DIGITS)):
        if action not in keys.values() and str(action) not in keys:
            keys[str(action)] = action
    return keys or None
