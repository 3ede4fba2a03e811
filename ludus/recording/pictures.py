"""Images kept small: an hour of film as plain arrays would fill a machine's memory."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

_LEVEL = 1  # the quickest


class Pictures(Sequence[NDArray[np.uint8]]):
    """Images uint8[height, width, 3] in order, compressed; each is a fresh array when it is asked for."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, int]] = []
        self.pixels = 0
        self._packed: list[bytes] = []

    def append(self, image: NDArray[np.uint8]) -> None:
        height, width, _ = image.shape
        self.shapes.append((height, width))
        self.pixels += height * width
        self._packed.append(zlib.compress(np.ascontiguousarray(image).data, _LEVEL))

    def __len__(self) -> int:
        return len(self._packed)

    @overload
    def __getitem__(self, k: int) -> NDArray[np.uint8]: ...
    @overload
    def __getitem__(self, k: slice) -> list[NDArray[np.uint8]]: ...
    def __getitem__(self, k: int | slice) -> NDArray[np.uint8] | list[NDArray[np.uint8]]:
        if isinstance(k, slice):
            return [self[i] for i in range(*k.indices(len(self)))]
        return np.frombuffer(bytearray(zlib.decompress(self._packed[k])), np.uint8).reshape(*self.shapes[k], 3)
