"""Published modes that a learner plays its own episodes in, each with some probability.

The mode of an episode follows from its id alone, so that whoever plays it and whoever learns from it agree without a word, and an episode
keeps its mode for as long as it lasts.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus import seeding

Modes: TypeAlias = tuple[tuple[str, float], ...]
"""(mode, probability), which sum to 1; (): always "explore"."""


def mode_keys(seed: int, players: int) -> NDArray[np.uint64]:
    """uint64[players]: a stream for each player's draws. seed: of the task."""
    return seeding.keys(seed, "modes", count=players)


def drawn(keys: NDArray[np.uint64], episode: NDArray[np.int64], modes: Modes) -> NDArray[np.int8]:
    """Which of `modes`, int8[n], is played in episodes int64[n] by the players whose keys are uint64[n]: independent draws."""
    shares = np.array([share for _, share in modes])
    bounds = np.cumsum(shares / shares.sum())[:-1]
    uniform = seeding.uniforms(keys, np.asarray(episode).astype(np.uint64))
    return np.searchsorted(bounds, uniform, side="right").astype(np.int8)
