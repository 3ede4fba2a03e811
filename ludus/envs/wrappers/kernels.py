"""The compiled parts of wrappers."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def push(slot, first, zeros, frames, ring, head):  # type: ignore[no-untyped-def]
    """Write frames [n, F] into the rings [S, k, F] of their slots; head int32[S] is where the next one goes, the oldest's place. A slot's
    first frame fills its ring, or follows zeros."""
    k, size = ring.shape[1], ring.shape[2]
    for i in range(len(slot)):
        s = slot[i]
        if first[i]:
            for j in range(k):
                for f in range(size):
                    ring[s, j, f] = 0 if zeros else frames[i, f]
        h = head[s]
        for f in range(size):
            ring[s, h, f] = frames[i, f]
        head[s] = (h + 1) % k


@njit(cache=True)
def show(slot, ring, head, out):  # type: ignore[no-untyped-def]
    """Copy the rings of slots to out [n, k, F], the oldest frame first."""
    k, size = ring.shape[1], ring.shape[2]
    for i in range(len(slot)):
        s = slot[i]
        for j in range(k):
            place = (head[s] + j) % k
            for f in range(size):
                out[i, j, f] = ring[s, place, f]


@njit(cache=True)
def show_final(slot, frames, ring, head, out):  # type: ignore[no-untyped-def]
    """As if frames [n, F] had been pushed, with the rings left as they are."""
    k, size = ring.shape[1], ring.shape[2]
    for i in range(len(slot)):
        s = slot[i]
        for j in range(1, k):
            place = (head[s] + j) % k
            for f in range(size):
                out[i, j - 1, f] = ring[s, place, f]
        for f in range(size):
            out[i, k - 1, f] = frames[i, f]


@njit(cache=True)
def luminance(images, out):  # type: ignore[no-untyped-def]
    """uint8[pixels, 3] -> uint8[pixels]: 0.299 R + 0.587 G + 0.114 B in 14-bit fixed point, rounded (ITU-R BT.601, as OpenCV does it)."""
    for i in range(len(out)):
        r, g, b = np.int32(images[i, 0]), np.int32(images[i, 1]), np.int32(images[i, 2])
        out[i] = (4899 * r + 9617 * g + 1868 * b + 8192) >> 14
