"""Whether JSON is a replay that can be shown and drawn: files beside a run may be damaged, or come from somebody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.apps.episodes.schemas import FORMAT

_MOST_SEATS, _MOST_FRAMES = 64, 100_000
_MOST_SIDE = 64  # rows or columns of a grid
_LATEST = 2**40  # Unix time, in seconds: what is later counts something else, and no calendar has it
_PREFIX = "data:image/png;base64,"


def checked(replay: Any) -> Mapping[str, Any]:
    """Return the same. Raises ValueError for what is no replay."""
    _need(isinstance(replay, dict) and replay.get("format") == FORMAT, f"it is no replay of format {FORMAT}")
    seats, frames = replay.get("seats"), replay.get("frames")
    _need(
        _is_list(seats, _MOST_SEATS) and bool(seats) and all(_is_text(_of(seat, "name")) for seat in seats), "its seats"
    )
    _need(_is_list(frames, _MOST_FRAMES) and bool(frames), "its frames")
    own = replay.get("board_seats", [])
    _need(_is_list(own, _MOST_SEATS) and all(_is_text(_of(seat, "name")) for seat in own), "its board's seats")
    created = replay.get("created", 0.0)
    _need(_is_text(replay.get("game")) and _is_number(created) and 0 <= created < _LATEST, "its game or its time")
    for frame in frames:
        _check_frame(frame, len(seats))
    valid: Mapping[str, Any] = replay
    return valid


def _need(right: bool, what: str) -> None:
    if not right:
        raise ValueError(what if what.startswith("it ") else f"{what} cannot be understood")


def _check_frame(frame: Any, players: int) -> None:
    _need(isinstance(frame, dict) and _is_text(frame.get("over")), "one of its frames")
    returns, last, others = frame.get("returns"), frame.get("last"), frame.get("board_of")
    _need(
        _is_list(returns, players)
        and len(returns) == players
        and all(one is None or _is_number(one) for one in returns),
        "the returns of a frame",
    )
    _need(_is_list(last) and all(_is_move(move, players) for move in last), "the moves of a frame")
    _need(others is None or isinstance(others, dict), "the boards of a frame")
    for board in (frame.get("board"), *(others or {}).values()):
        kind = _of(board, "kind")
        check = _BOARDS.get(kind) if isinstance(kind, str) else None
        _need(check is not None and check(board), "one of its boards")


def _is_move(move: Any, players: int) -> bool:
    return _is_count(_of(move, "player"), players - 1) and _is_text(move.get("label"))


def _is_grid(board: Any) -> bool:
    rows, columns, cells = board.get("rows"), board.get("columns"), board.get("cells")
    if not (_is_count(rows, _MOST_SIDE) and _is_count(columns, _MOST_SIDE) and rows and columns):
        return False
    if not (_is_list(cells, rows) and len(cells) == rows and _is_text(board.get("shape"))):
        return False
    full = all(_is_list(row, columns) and len(row) == columns and all(map(_is_text, row)) for row in cells)
    last = board.get("last")
    return full and _is_list(last) and all(_is_list(where) and all(map(_is_number, where)) for where in last)


def _is_cards(board: Any) -> bool:
    seats, table, pot, bids = (board.get(key) for key in ("seats", "table", "pot", "bids"))
    bids_valid = bids is None or (_is_list(bids) and all(map(_is_text, bids)))
    laid = {"pot", "bids"} <= board.keys() and _is_list(seats, _MOST_SEATS) and all(map(_is_card_seat, seats))
    return laid and bids_valid and _are_cards(table) and (pot is None or _is_number(pot))


def _is_card_seat(seat: Any) -> bool:
    if not isinstance(seat, dict) or "chips" not in seat:
        return False
    chips = seat["chips"]
    texts = _is_text(_of(seat, "name")) and _is_text(_of(seat, "note"))
    return texts and _are_cards(seat.get("cards")) and (chips is None or _is_number(_of(chips, "paid")))


def _are_cards(cards: Any) -> bool:
    return _is_list(cards) and all(
        isinstance(_of(card, "hidden"), bool) and _is_text(card.get("rank")) and _is_text(card.get("suit"))
        for card in cards
    )


def _is_matrix(board: Any) -> bool:
    actions, chosen = board.get("actions"), board.get("chosen")
    if not (
        _is_list(actions, _MOST_SEATS) and all(_is_list(labels) and all(map(_is_text, labels)) for labels in actions)
    ):
        return False
    return _is_list(chosen) and len(chosen) in (0, len(actions))


_BOARDS: Mapping[Any, Any] = {
    "grid": _is_grid,
    "cards": _is_cards,
    "matrix": _is_matrix,
    "frame": lambda board: _is_text(board.get("image")) and board["image"].startswith(_PREFIX),
    "text": lambda board: _is_text(board.get("text")),
}


def _of(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _is_list(value: Any, most: int = _MOST_FRAMES) -> bool:
    return isinstance(value, list) and len(value) <= most


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _is_count(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
