"""Images: grey, and smaller (Mnih et al. 2015 play Atari on 84 × 84 grey ones)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.envs.base import VectorEnv
from ludus.envs.wrappers import kernels
from ludus.envs.wrappers.base import RowWrapper, boxes, whole
from ludus.errors import ConfigError
from ludus.types import Array


def grayscale(env: VectorEnv, *, players: Sequence[int] | None = None) -> VectorEnv:
    """Images uint8[height, width, 3] (red, green, blue) become uint8[height, width], their luminance. Raises ConfigError for other
    observations."""
    old = boxes(env, players, "grayscale")
    for p, box in old.items():
        if box.dtype != np.uint8 or len(box.shape) != 3 or box.shape[2] != 3:
            raise ConfigError(
                f"grayscale takes images uint8[height, width, 3]; player {p} of {env.spec.id} sees {_brief(box)}. "
                "Choose others with `players`."
            )
    return RowWrapper(env, {p: Box(0, 255, box.shape[:2], np.uint8) for p, box in old.items()}, _grey)


def _grey(_player: int, _slot: NDArray[np.int32], rows: Array, out: Array) -> Array:
    kernels.luminance(np.ascontiguousarray(rows).reshape(-1, 3), out.reshape(-1))
    return out


def resize(env: VectorEnv, height: int = 84, width: int = 84, *, players: Sequence[int] | None = None) -> VectorEnv:
    """Images [h, w] or [h, w, channels] of uint8 or float32 become [height, width, …]: each pixel is the mean of the area that it covers
    (OpenCV's INTER_AREA). Raises ConfigError for other observations, those with the channels or frames first included, or if OpenCV is not
    installed."""
    whole(height, least=1, what="resize: height")
    whole(width, least=1, what="resize: width")
    old = boxes(env, players, "resize")
    for p, box in old.items():
        if box.dtype not in (np.uint8, np.float32) or len(box.shape) not in (2, 3):
            raise ConfigError(
                f"resize takes images [height, width] or [height, width, channels] of uint8 or float32; player {p} of "
                f"{env.spec.id} sees {_brief(box)}. Choose others with `players`."
            )
        if len(box.shape) == 3 and box.shape[2] > min(box.shape[:2]):
            raise ConfigError(
                f"resize takes channels last; player {p} of {env.spec.id} sees {_brief(box)}, which has something else there. "
                "Put resize before frame_stack."
            )
    cv2 = _opencv()

    def change(_player: int, _slot: NDArray[np.int32], rows: Array, out: Array) -> Array:
        for row, small in zip(rows, out, strict=True):  # OpenCV takes one image at a time
            cv2.resize(row, (width, height), dst=small, interpolation=cv2.INTER_AREA)
        return out

    return RowWrapper(env, {p: _resized(box, height, width) for p, box in old.items()}, change)


def _resized(box: Box, height: int, width: int) -> Box:
    shape = (height, width, *box.shape[2:])
    axes = (0, 1)  # bounds of a mean: the widest of its channel
    low, high = box.low.min(axis=axes), box.high.max(axis=axes)
    return Box(np.broadcast_to(low, shape).copy(), np.broadcast_to(high, shape).copy(), shape, box.dtype)


def _opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise ConfigError(
            f"resize needs OpenCV, which cannot be imported ({error}); `pip install 'ludus[video]'` brings it."
        ) from error
    return cv2


def _brief(box: Box) -> str:
    return f"{box.dtype}{list(box.shape)}"
