"""What models of other libraries share: the game that they are given, and chance by an episode's seed."""

from __future__ import annotations

from typing import Any

import numpy as np


class Refused(Exception):
    """The model does not fit the game, or cannot be loaded: the message says what was expected, and what to do."""


def require_box(game: dict[str, Any], shape: tuple[int, ...], dtype: str, *, what: str) -> None:
    """Raise Refused unless all players observe arrays of this shape and kind of numbers."""
    for number, player in enumerate(game["players"]):
        space = player["observation"]
        shape_here = tuple(space["shape"])
        if shape_here != tuple(shape):
            raise Refused(
                f"{what} takes observations of shape {tuple(shape)}, and player {number} of {game['id']} observes shape {shape_here}. "
                "Train it on this game, with the same wrappers (ludus.gymnasium_env)."
            )
        if dtype and np.dtype(dtype).kind != np.dtype(space["dtype"]).kind:
            raise Refused(
                f"{what} takes observations of {dtype}, and those of {game['id']} are {space['dtype']}. Train it on this game, with the "
                "same wrappers (ludus.gymnasium_env)."
            )


def require_actions(game: dict[str, Any], kind: str, size: Any, *, what: str) -> None:
    """Raise Refused unless all players have actions of this kind: discrete, of `size` actions; multi_discrete, of `size` values each;
    multi_binary or box, of the shape `size`."""
    names = {"discrete": "n", "multi_discrete": "nvec", "multi_binary": "shape", "box": "shape"}
    for number, player in enumerate(game["players"]):
        space = player["action"]
        size_here = space[names[space["type"]]]
        wanted = size if kind == "discrete" else list(size)
        if space["type"] != kind or size_here != wanted:
            raise Refused(
                f"{what} chooses among actions {kind} {wanted}, and player {number} of {game['id']} has {space['type']} {size_here}. Train "
                "it on this game."
            )


class Chance:
    """Uniform numbers of each row: by its episode's seed and the number of its decision, so that an episode can be played again."""

    def __init__(self) -> None:
        self._open: dict[Any, list[int]] = {}

    def draws(self, slots: list[Any], seeds: list[int], size: int, *, normal: bool = False) -> Any:
        """Return float64[n, size]. seeds: of the episodes that begin; -1 of others."""
        rows = []
        for slot, seed in zip(slots, seeds, strict=True):
            if seed >= 0:
                self._open[slot] = [seed, 0]
            episode = self._open[slot]
            rng = np.random.default_rng(episode)
            rows.append(rng.standard_normal(size) if normal else rng.random(size))
            episode[1] += 1
        return np.array(rows).reshape(len(slots), size)


def choose(probs: np.ndarray, uniform: np.ndarray | None) -> Any:
    """Return int64[n]: the likeliest entry of each row of probs [n, A]; with uniform [n], one that is drawn."""
    if uniform is None:
        return probs.argmax(axis=1)
    cumulative = probs.astype(np.float64).cumsum(axis=1)
    at = (uniform[:, None] * cumulative[:, -1:] >= cumulative).sum(axis=1)
    last = probs.shape[1] - 1 - (probs[:, ::-1] > 0).argmax(axis=1)  # rounding may lead beyond it
    return np.minimum(at, last)


def restricted(probs: np.ndarray, mask: np.ndarray | None) -> Any:
    """Return distributions over the legal actions, in the same ratios; uniform where they are all 0."""
    if mask is None:
        return probs
    legal = probs * mask
    total = legal.sum(axis=1, keepdims=True)
    return np.where(total > 0, legal / np.where(total > 0, total, 1.0), mask / mask.sum(axis=1, keepdims=True))


def starts(game: dict[str, Any], player: int) -> Any:
    """Return what actions of a player are counted from."""
    return np.asarray(game["players"][player]["action"].get("start", 0))
