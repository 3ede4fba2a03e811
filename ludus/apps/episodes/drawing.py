"""Boards as pictures, for films of games that have none of their own. Plain on purpose: the page draws them for people (apps/ui/page)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.packages import optional

_SIZE = 480  # pixels, of the longer side of a grid
_PAPER, _INK, _SOFT, _LINE = (250, 249, 246), (32, 33, 36), (120, 122, 126), (196, 194, 188)
_STONES: Mapping[str, tuple[int, int, int]] = {"0": (36, 87, 165), "1": (204, 92, 44)}
_LAST = (255, 226, 150)
_UNKNOWN = (226, 224, 218)
_RED = (180, 40, 40)
_SUITS: Mapping[str, str] = {"♠": "s", "♥": "h", "♦": "d", "♣": "c"}
_ROW = 64  # of a seat with cards
_LETTER = 18
_LINES = 120  # of a text that are drawn


class BoardDrawer:
    """Draws boards' JSON (`ludus.apps.episodes.schemas`) as images uint8[height, width, 3]. Raises ConfigError without Pillow."""

    def __init__(self) -> None:
        with optional("a film"):
            from PIL import Image, ImageDraw, ImageFont
        self._image, self._pen, self._fonts = Image, ImageDraw, ImageFont

    def draw(self, board: Mapping[str, Any], caption: str = "") -> NDArray[np.uint8]:
        """Return a board that is no picture yet, with a line of text below it."""
        kind = board["kind"]
        if kind == "grid":
            lines, draw = [caption], self._grid
        elif kind == "cards":
            lines, draw = [caption], self._cards
        else:
            text = board["text"].splitlines()[:_LINES] if kind == "text" else _matrix_lines(board)
            lines, draw = [*text, "", caption], None
        width, height = self._extent(board) if draw else (_SIZE, 0)
        image = self._image.new("RGB", (width, height + _LETTER * len(lines) + 16), _PAPER)
        pen = self._pen.Draw(image)
        if draw is not None:
            draw(pen, board)
        for k, line in enumerate(lines):
            pen.text((8, height + 8 + k * _LETTER), line[:70], fill=_INK, font=self._font(14))
        return np.asarray(image)

    def _font(self, size: int) -> Any:
        return self._fonts.load_default(size)

    def _extent(self, board: Mapping[str, Any]) -> tuple[int, int]:
        if board["kind"] == "cards":
            return _SIZE, _ROW * (len(board["seats"]) + 1)
        cell = _cell(board)
        lean = cell * (board["rows"] - 1) // 2 if board["shape"] == "hex" else 0
        return cell * board["columns"] + lean, cell * board["rows"]

    # ------------------------------------------------------------------------------------------ grids

    def _grid(self, pen: Any, board: Mapping[str, Any]) -> None:
        cell, last = _cell(board), {tuple(where) for where in board["last"]}
        for r, row in enumerate(board["cells"]):
            for c, piece in enumerate(row):
                self._cell(pen, board, (r, c), cell, marked=(r, c) in last)
                self._piece(pen, piece, _middle(board, r, c, cell), cell)

    def _cell(self, pen: Any, board: Mapping[str, Any], where: tuple[int, int], cell: int, *, marked: bool) -> None:
        r, c = where
        x, y = _middle(board, r, c, cell)
        half, unknown = cell / 2, board["cells"][r][c] == "?"
        paper = _LAST if marked else _UNKNOWN if unknown else _PAPER
        if board["shape"] == "hex":
            corners = [(x + half * math.sin(k * math.pi / 3), y + half * math.cos(k * math.pi / 3)) for k in range(6)]
            pen.polygon(corners, fill=paper, outline=_LINE)
        elif board["shape"] == "points":
            if marked:
                pen.rectangle((x - half, y - half, x + half, y + half), fill=paper)
            pen.line((x - half * (c > 0), y, x + half * (c < board["columns"] - 1), y), fill=_SOFT)
            pen.line((x, y - half * (r > 0), x, y + half * (r < board["rows"] - 1)), fill=_SOFT)
        else:
            pen.rectangle((x - half, y - half, x + half, y + half), fill=paper, outline=_LINE)

    def _piece(self, pen: Any, piece: str, middle: tuple[float, float], cell: int) -> None:
        x, y = middle
        if piece in _STONES:
            r = cell * 0.36
            pen.ellipse((x - r, y - r, x + r, y + r), fill=_STONES[piece])
        elif piece:
            colour = _SOFT if piece == "?" else _STONES["0" if piece.isupper() else "1"]
            pen.text((x, y), piece.upper(), fill=colour, font=self._font(int(cell * 0.55)), anchor="mm")

    # ------------------------------------------------------------------------------------------ cards

    def _cards(self, pen: Any, board: Mapping[str, Any]) -> None:
        rows = [(seat["name"], seat["cards"], _beside(seat)) for seat in board["seats"]]
        pot = "" if board["pot"] is None else f"pot {board['pot']:g}"
        rows.append(("", board["table"], " ".join([pot, *(board["bids"] or [])[-1:]])))
        for k, (name, cards, caption) in enumerate(rows):
            y = k * _ROW + 8
            pen.text((8, y), f"{name}  {caption}"[:60], fill=_INK, font=self._font(14))
            for place, card in enumerate(cards):
                self._card(pen, card, 8 + place * 34, y + 20)

    def _card(self, pen: Any, card: Mapping[str, Any], x: int, y: int) -> None:
        box = (x, y, x + 28, y + 32)
        if card["hidden"]:
            pen.rounded_rectangle(box, 4, fill=_STONES["0"], outline=_LINE)
            return
        pen.rounded_rectangle(box, 4, fill=(255, 255, 255), outline=_LINE)
        text = f"{card['rank']}{_SUITS.get(card['suit'], card['suit'])}"
        colour = _RED if card["suit"] in ("♥", "♦") else _INK
        pen.text((x + 14, y + 16), text, fill=colour, font=self._font(15), anchor="mm")


def _cell(board: Mapping[str, Any]) -> int:
    wide = board["columns"] + (board["rows"] / 2 if board["shape"] == "hex" else 0)
    return max(12, int(_SIZE / max(wide, board["rows"])))


def _middle(board: Mapping[str, Any], r: int, c: int, cell: int) -> tuple[float, float]:
    lean = r * cell / 2 if board["shape"] == "hex" else 0.0
    return c * cell + cell / 2 + lean, r * cell + cell / 2


def _beside(seat: Mapping[str, Any]) -> str:
    chips = [] if seat["chips"] is None else [f"paid {seat['chips']['paid']:g}"]
    return ", ".join([*chips, *([seat["note"]] if seat["note"] else [])])


def _matrix_lines(board: Mapping[str, Any]) -> Sequence[str]:
    chosen = board["chosen"] or [None] * len(board["actions"])
    return [
        f"player {p}: " + "  ".join(f"[{name}]" if chosen[p] == k else name for k, name in enumerate(names))
        for p, names in enumerate(board["actions"])
    ]
