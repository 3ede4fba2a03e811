"""The pitch as a picture, drawn from what a side sees: no display, no engine that renders, no package but NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.football.view import GOAL_HALF, LEFT, METRES, Mode, SideView, opposite

__all__ = ["draw"]

_Picture = NDArray[np.uint8]
_Color = tuple[int, int, int]

# Metres: half a pitch, what is around it, and its markings.
_HALF_X, _HALF_Y = 55.0, 36.0  # the ball is out a little beyond x = 1 and y = 0.42
_MARGIN = 5.0
_BOX, _BOX_HALF, _SMALL, _SMALL_HALF, _SPOT, _CIRCLE = 16.5, 20.16, 5.5, 9.16, 11.0, 9.15
_GOAL_DEPTH = 2.2
_BODY, _BALL = 1.6, 0.7
_LEFT_COLOR: _Color = (225, 85, 30)  # red and blue are the colours of players 0 and 1 on the page
_RIGHT_COLOR: _Color = (40, 100, 220)
_LEFT_KEEPER: _Color = (125, 40, 10)
_RIGHT_KEEPER: _Color = (20, 50, 120)
_WHITE, _BLACK, _YELLOW = (255, 255, 255), (20, 20, 20), (255, 220, 40)
_GRASS = ((58, 128, 58), (52, 118, 52))
_HEADER: _Color = (28, 30, 34)


def draw(views: Sequence[SideView], *, scale: int = 6) -> _Picture:
    """Draw a moment: both sides, the ball and what the referee calls.

    The left side is red and its goal on the left, whichever side sees it. Numbers are the indices of bodies; keepers are darker; a white
    ring marks the body that has the ball; dots show where a body runs; a small card is a yellow card. The ball rises from its shadow by its
    height.

    Args:
        views: What the sides see, one of them at least; each adds a yellow ring to the bodies that it steers.
        scale: Pixels per metre, 2 at least.

    Returns:
        uint8[height, width, 3]; heights and widths are even, as films need them.
    """
    first = views[0] if views[0].side == LEFT else opposite(views[0])
    picture = _empty_pitch(scale).copy()
    steered = {view.side: view.controlled.tolist() for view in views}
    owner = (first.ball_side, first.ball_body)
    for side, at, moves, active, yellow, role in (
        (0, first.own_position, first.own_velocity, first.own_active, first.own_yellow, first.own_role),
        (1, first.their_position, first.their_velocity, first.their_active, first.their_yellow, first.their_role),
    ):
        points, ticks = (at * METRES).tolist(), (moves * METRES).tolist()
        for body, ((x, y), (dx, dy)) in enumerate(zip(points, ticks, strict=True)):
            if not active[body]:
                continue
            ring = _WHITE if owner == (side, body) else _YELLOW if body in steered.get(side, ()) else _BLACK
            center = _pixel(x, y, scale)
            _tick(picture, center, (dx, dy), scale=scale)
            _disc(picture, center, _BODY * scale, ring)
            keeper = role[body] == 0
            colors = (_LEFT_KEEPER, _RIGHT_KEEPER) if keeper else (_LEFT_COLOR, _RIGHT_COLOR)
            _disc(picture, center, _BODY * scale * 0.78, colors[side])
            _text(picture, str(body), center, _WHITE, size=max(1, round(scale / 3.5)))
            if yellow[body]:
                _fill(
                    picture,
                    center[0] + int(1.2 * scale),
                    center[1] - int(2.4 * scale),
                    scale,
                    int(1.4 * scale),
                    _YELLOW,
                )
    _ball(picture, first, scale)
    _header(picture, first, scale)
    return picture


def _pixel(x: float, y: float, scale: int) -> tuple[int, int]:
    """Return (column, row) of a place in metres from the middle."""
    return round((x + _HALF_X + _MARGIN) * scale), round((y + _HALF_Y + _MARGIN) * scale) + _header_height(scale)


def _header_height(scale: int) -> int:
    return 2 * ((7 * scale) // 2)


# --------------------------------------------------------------------------------------------------------------------
# The empty pitch, drawn once for each scale


@lru_cache(maxsize=4)
def _empty_pitch(scale: int) -> _Picture:
    width = 2 * round((_HALF_X + _MARGIN) * scale)
    height = 2 * round((_HALF_Y + _MARGIN) * scale)
    x = (np.arange(width) + 0.5) / scale - _HALF_X - _MARGIN
    y = ((np.arange(height) + 0.5) / scale - _HALF_Y - _MARGIN)[:, None]
    stripes = (np.floor((x + _HALF_X) / 10).astype(np.int64) % 2)[None].repeat(height, axis=0)
    grass = np.array(_GRASS, np.float64)[stripes]
    paint = np.clip(1.0 - (_to_markings(np.abs(x)[None], np.abs(y)) * scale - 0.5), 0, 1)
    field = grass + paint[:, :, None] * (np.array(_WHITE) - grass) * 0.85
    header = np.full((_header_height(scale), width, 3), _HEADER, np.uint8)
    picture = np.concatenate([header, field.astype(np.uint8)])
    picture.setflags(write=False)
    return picture


def _to_markings(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return metres to the nearest marking; x, y: metres from the middle, without signs: the pitch is four equal quarters."""
    post = GOAL_HALF * float(METRES[1])
    from_center, from_spot = np.hypot(x, y), np.hypot(x - (_HALF_X - _SPOT), y)
    arc = np.where(x < _HALF_X - _BOX, np.abs(from_spot - _CIRCLE), np.inf)
    distances = [
        _to_box(x, y, _HALF_X, _HALF_Y),
        np.where(y <= _HALF_Y, x, np.inf),
        np.abs(from_center - _CIRCLE),
        np.maximum(np.minimum(from_center, from_spot) - 0.2, 0),
        arc,
        _to_box(_HALF_X - x, y, _BOX, _BOX_HALF, only=x <= _HALF_X),
        _to_box(_HALF_X - x, y, _SMALL, _SMALL_HALF, only=x <= _HALF_X),
        _to_box(x - _HALF_X, y, _GOAL_DEPTH, post, only=x >= _HALF_X),
    ]
    nearest: NDArray[np.float64] = np.minimum.reduce(np.broadcast_arrays(*distances))
    return nearest


def _to_box(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    to_x: float,
    to_y: float,
    *,
    only: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """Return metres to the lines x = to_x (up to to_y) and y = to_y (up to to_x)."""
    upright = np.where(y <= to_y, np.abs(x - to_x), np.inf)
    level = np.where(x <= to_x, np.abs(y - to_y), np.inf)
    distance = np.minimum(upright, level)
    return distance if only is None else np.where(only, distance, np.inf)


# --------------------------------------------------------------------------------------------------------------------
# What moves


def _ball(picture: _Picture, view: SideView, scale: int) -> None:
    x, y, z = view.ball.tolist()
    column, row = _pixel(x * float(METRES[0]), y * float(METRES[1]), scale)
    size = _BALL * (1 + min(z, 10.0) / 10) * scale
    _disc(picture, (column, row), _BALL * scale, _BLACK, strength=0.45)
    above = row - round(max(z - 0.11, 0.0) * 0.6 * scale)
    _disc(picture, (column, above), size + 1, _BLACK)
    _disc(picture, (column, above), size, _WHITE)


def _tick(picture: _Picture, center: tuple[int, int], moves: tuple[float, float], *, scale: int) -> None:
    """Draw dots from a body to where it will be in half a second."""
    for share in (0.6, 0.8, 1.0):
        ahead = (center[0] + round(moves[0] * 5 * share * scale), center[1] + round(moves[1] * 5 * share * scale))
        _disc(picture, ahead, 0.35 * scale, _WHITE, strength=0.7)


def _header(picture: _Picture, view: SideView, scale: int) -> None:
    width, middle = picture.shape[1], _header_height(scale) // 2
    large, small = max(1, round(scale * 0.7)), max(1, scale // 2)
    _text(picture, f"{view.score[0]}:{view.score[1]}", (width // 2, middle), _WHITE, size=large)
    for x, way, color, name, side in (
        (width * 3 // 8, -1, _LEFT_COLOR, "LEFT", 0),
        (width * 5 // 8, 1, _RIGHT_COLOR, "RIGHT", 1),
    ):
        _text(picture, name, (x, middle), _WHITE, size=small)
        beside = (x + way * 15 * small, middle)
        _disc(picture, beside, 1.2 * scale, _WHITE if view.ball_side == side else _HEADER)
        _disc(picture, beside, 0.9 * scale, color)
    mode = "" if view.mode == Mode.NORMAL else Mode(view.mode).name.replace("_", " ")
    _text(picture, mode, (width * 7 // 8, middle), _YELLOW, size=small)
    _text(picture, str(view.steps_left), (width // 8, middle), _WHITE, size=small)


# --------------------------------------------------------------------------------------------------------------------
# Ink


def _disc(picture: _Picture, center: tuple[int, int], radius: float, color: _Color, *, strength: float = 1.0) -> None:
    """Draw a filled circle with soft edges, cut off at the border."""
    ink = _disc_ink(round(radius * 4))
    reach = ink.shape[0] // 2
    column, row = center
    top, left = max(row - reach, 0), max(column - reach, 0)
    target = picture[top : max(row + reach + 1, 0), left : max(column + reach + 1, 0)]
    if not target.size:
        return
    down, right = top - row + reach, left - column + reach
    part = ink[down : down + target.shape[0], right : right + target.shape[1], None] * strength
    target[:] = (target * (1 - part) + np.array(color) * part).astype(np.uint8)


@lru_cache(maxsize=64)
def _disc_ink(quarters: int) -> NDArray[np.float64]:
    """Return how much of each pixel a disc covers; quarters: its radius in quarters of a pixel."""
    radius = quarters / 4
    reach = int(radius) + 1
    away = np.arange(-reach, reach + 1)
    return np.clip(radius + 0.5 - np.hypot(away, away[:, None]), 0, 1)


def _fill(picture: _Picture, left: int, top: int, width: int, height: int, color: _Color) -> None:
    picture[max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0)] = color


def _text(picture: _Picture, text: str, center: tuple[int, int], color: _Color, *, size: int) -> None:
    """Draw digits and capitals of 3 by 5 dots, each `size` pixels wide, about a place; cut off at the border."""
    ink = _text_ink(text, size)
    top, left = center[1] - ink.shape[0] // 2, center[0] - ink.shape[1] // 2
    if top < 0 or left < 0:
        ink, top, left = ink[max(-top, 0) :, max(-left, 0) :], max(top, 0), max(left, 0)
    target = picture[top : top + ink.shape[0], left : left + ink.shape[1]]
    target[ink[: target.shape[0], : target.shape[1]]] = color


@lru_cache(maxsize=256)
def _text_ink(text: str, size: int) -> NDArray[np.bool_]:
    letters = [np.array([[dot == "#" for dot in line] for line in _FONT[letter].split()]) for letter in text]
    if not letters:
        return np.zeros((1, 1), np.bool_)
    gap = np.zeros((5, 1), np.bool_)
    spaced = [part for letter in letters for part in (letter, gap)][:-1]
    return np.concatenate(spaced, axis=1).repeat(size, axis=0).repeat(size, axis=1)


_FONT = {
    "0": "### #.# #.# #.# ###",
    "1": ".#. ##. .#. .#. ###",
    "2": "### ..# ### #.. ###",
    "3": "### ..# ### ..# ###",
    "4": "#.# #.# ### ..# ..#",
    "5": "### #.. ### ..# ###",
    "6": "### #.. ### #.# ###",
    "7": "### ..# ..# .#. .#.",
    "8": "### #.# ### #.# ###",
    "9": "### #.# ### ..# ###",
    ":": "... .#. ... .#. ...",
    "-": "... ... ### ... ...",
    " ": "... ... ... ... ...",
    "A": ".#. #.# ### #.# #.#",
    "C": ".## #.. #.. #.. .##",
    "E": "### #.. ##. #.. ###",
    "F": "### #.. ##. #.. #..",
    "G": ".## #.. #.# #.# .##",
    "H": "#.# #.# ### #.# #.#",
    "I": "### .#. .#. .#. ###",
    "K": "#.# #.# ##. #.# #.#",
    "L": "#.. #.. #.. #.. ###",
    "N": "##. #.# #.# #.# #.#",
    "O": "### #.# #.# #.# ###",
    "P": "##. #.# ##. #.. #..",
    "R": "##. #.# ##. #.# #.#",
    "T": "### .#. .#. .#. .#.",
    "W": "#.# #.# #.# ### #.#",
    "Y": "#.# #.# .#. .#. .#.",
}
