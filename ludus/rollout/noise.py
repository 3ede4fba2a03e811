"""The uniforms that policies draw their actions with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 12


class Uniforms:
    """A stream of uniforms in [0, 1), float32, drawn in blocks into one buffer: the same numbers as drawn one by one."""

    def __init__(self) -> None:
        self._block = np.empty(_BLOCK, np.float32)
        self._generator: np.random.Generator | None = None
        self._at = _BLOCK

    def restart(self, generator: np.random.Generator) -> None:
        """Go on with another stream."""
        self._generator, self._at = generator, len(self._block)

    def take(self, rows: int, width: int) -> NDArray[np.float32]:
        """The next rows × width numbers, float32[rows, width]; valid until the next call."""
        needed = rows * width
        end = self._at + needed
        if end > len(self._block):
            self._refill(needed)
            end = needed
        out = self._block[self._at : end].reshape(rows, width)
        self._at = end
        return out

    def _refill(self, needed: int) -> None:
        left = self._block[self._at :].copy()
        if needed > len(self._block):
            self._block = np.empty(needed, np.float32)
        assert self._generator is not None
        self._block[: len(left)] = left
        self._generator.random(dtype=np.float32, out=self._block[len(left) :])
        self._at = 0
