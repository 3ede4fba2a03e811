"""A payoff table as a PNG picture, by NumPy alone."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from ludus.reporting.trackers import Table

_SIDE = 400  # pixels of the longer side, at least
_MOST = 400  # policies along a side; of more, none
_LOW, _MIDDLE, _HIGH = np.array([33, 102, 172.0]), np.array([247, 247, 247.0]), np.array([178, 24, 43.0])
_UNKNOWN = 128  # grey


def draw_payoffs(table: Table) -> bytes | None:
    """Return a heat map of the first player's payoffs.

    Args:
        table: "payoffs" of a generation.

    Returns:
        A PNG file, the first player's policies downward, the second's to the right: blue below 0, red above it, grey where nothing is
        known. None for a game of other than two players, and for too many policies.
    """
    if "player 2" in table.columns or "player 1" not in table.columns or not table.rows:
        return None
    value = table.columns.index("payoff 0")
    rows, columns = (
        {name: k for k, name in enumerate(dict.fromkeys(str(row[side]) for row in table.rows))} for side in (0, 1)
    )
    if max(len(rows), len(columns)) > _MOST:
        return None
    cells = np.full((len(rows), len(columns)), np.nan)
    for row in table.rows:
        number = row[value]
        if isinstance(number, float | int):
            cells[rows[str(row[0])], columns[str(row[1])]] = number
    pixels = _colours(cells)
    size = max(1, -(-_SIDE // max(cells.shape)))
    return _png(pixels.repeat(size, axis=0).repeat(size, axis=1))


def _colours(cells: NDArray[np.float64]) -> NDArray[np.uint8]:
    """cells: float64[h, w]; uint8[h, w, 3]."""
    known = np.isfinite(cells)
    largest = np.abs(cells[known]).max(initial=0.0) or 1.0
    share = np.where(known, cells, 0.0)[..., None] / largest
    colours = np.where(share < 0, _MIDDLE + (_LOW - _MIDDLE) * -share, _MIDDLE + (_HIGH - _MIDDLE) * share)
    return np.where(known[..., None], colours, _UNKNOWN).round().astype(np.uint8)


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """pixels: uint8[h, w, 3]; PNG (ISO/IEC 15948) of one strip, without filters."""
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
