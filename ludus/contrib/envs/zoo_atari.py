"""Chance in PettingZoo's Atari, which has none: with the same actions, each seed gives the same match."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ludus.core.errors import ConfigError


class Noise(NamedTuple):
    """What makes matches of deterministic policies differ.

    Attributes:
        noop_max: An episode begins with 1 to this many frames without an action (Mnih et al. 2015); 0: none.
        repeat_action_probability: Of each frame and agent, that its last action is played once more (Machado et al. 2018).
    """

    noop_max: int = 0
    repeat_action_probability: float = 0.0


def split_noise(id: str, options: Mapping[str, Any]) -> tuple[Noise | None, dict[str, Any]]:
    """Return (what is ours of an id, None without any; the rest). Raises ConfigError for values that are none."""
    values = {key: value for key, value in options.items() if key in Noise._fields}
    rest = {key: value for key, value in options.items() if key not in values}
    noise = Noise(**values)
    most, probability = noise.noop_max, noise.repeat_action_probability
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise ConfigError(f"noop_max={most!r} was given for {id}; expected a whole number of frames, 0 for none.")
    if isinstance(probability, bool) or not isinstance(probability, int | float) or not 0 <= probability < 1:
        raise ConfigError(f"repeat_action_probability={probability!r} was given for {id}; expected 0 to below 1.")
    return (noise if any(noise) else None), rest


def make_with_noise(make: Callable[[], Any], noise: Noise) -> Any:
    """Make an environment, of either interface, with chance in it; all of it comes from the seed of a reset."""
    env = make()
    game = env.unwrapped
    game.ale.setFloat(b"repeat_action_probability", float(noise.repeat_action_probability))  # from the next seed on
    if noise.noop_max:
        game.reset = partial(_reset_after_noops, game, game.reset, noise.noop_max)
    return env


def _reset_after_noops(game: Any, reset: Any, most: int, seed: int | None = None, options: Any = None) -> Any:
    """Reset, and let some frames pass, which do not count; none in a game that is over by then."""
    observations, infos = reset(seed=seed, options=options)
    nothing = np.full(game.num_players, game.action_mapping[0], np.int32)  # the first action does nothing
    for _ in range(int(np.random.default_rng(seed).integers(1, most + 1))):
        game.ale.act(nothing)
    if game.ale.game_over():
        return reset(seed=seed, options=options)
    return dict.fromkeys(observations, game._observe()), infos
