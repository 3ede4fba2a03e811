"""Boards of OpenSpiel's games: what stands where after known moves, and for whom."""

from __future__ import annotations

from typing import Any

import pyspiel
import pytest

from ludus.apps.episodes.schemas import Card, CardsBoard, GridBoard, MatrixBoard, TextBoard
from ludus.apps.play.boards import board_of, chance_label, hides, legal_of, shows_moves
from ludus.core.jsonable import to_builtins


def after(name: str, *actions: int | list[int]) -> Any:
    state = pyspiel.load_game(name).new_initial_state()
    for action in actions:
        if isinstance(action, list):
            state.apply_actions(action)
        else:
            state.apply_action(action)
    return state


def grid(state: Any, *eyes: int) -> GridBoard:
    board = board_of(state, eyes=eyes or range(2))
    assert isinstance(board, GridBoard)
    return board


def cards(state: Any, *eyes: int) -> CardsBoard:
    board = board_of(state, eyes=eyes, names=["Ada", "Bob"])
    assert isinstance(board, CardsBoard)
    return board


def rows(board: GridBoard) -> list[str]:
    return ["".join(cell or "." for cell in row) for row in board.cells]


def test_tic_tac_toe() -> None:
    state = after("tic_tac_toe", 4, 2)
    assert rows(grid(state)) == ["..1", ".0.", "..."]
    assert grid(state).last == [(0, 2)]
    assert [(one.action, one.cell) for one in legal_of(state, 0, [0, 7])] == [(0, (0, 0)), (7, (2, 1))]


def test_connect_four_stones_fall_to_the_lowest_free_cell() -> None:
    state = after("connect_four", 3, 3, 0)
    board = grid(state)
    assert rows(board)[-2:] == ["...1...", "0..0..."]
    assert (board.rows, board.columns, board.drop, board.last) == (6, 7, True, [(5, 0)])
    assert legal_of(state, 1, [3])[0].cell == (3, 3)


def test_hex_lies_aslant_and_has_coordinates() -> None:
    board = grid(after("hex(board_size=4)", 5, 2))  # b2 and c1
    assert (board.shape, board.labels.columns, board.labels.rows) == ("hex", ["a", "b", "c", "d"], ["1", "2", "3", "4"])
    assert rows(board) == ["..1.", ".0..", "....", "...."]


def test_breakthrough_moves_have_a_from_and_a_to() -> None:
    state = after("breakthrough(rows=6,columns=6)")
    board = grid(state)
    assert rows(board)[1:5] == ["000000", "......", "......", "111111"]
    first = legal_of(state, 0, state.legal_actions()[:1])[0]
    assert first.label == "a5a4"
    assert (first.from_, first.cell) == ((1, 0), (2, 0))
    state.apply_action(first.action)
    assert grid(state).last == [(1, 0), (2, 0)]


def test_go_points_skip_the_letter_i_and_a_pass_has_none() -> None:
    state = after("go(board_size=9)", 8)
    board = grid(state)
    assert (board.shape, board.labels.columns[8], board.labels.rows[0]) == ("points", "J", "9")
    assert rows(board)[8] == "........0"
    assert board.last == [(8, 8)]
    assert [one.cell for one in legal_of(state, 1, [0, 81])] == [(8, 0), None]


def test_chess_is_read_from_its_position_and_moves_from_its_board() -> None:
    state = after("chess")
    by_label = {one.label: one for one in legal_of(state, 0, state.legal_actions())}
    assert (by_label["e4"].from_, by_label["e4"].cell) == ((6, 4), (4, 4))
    state.apply_action(by_label["e4"].action)
    board = grid(state)
    assert rows(board)[:1] == ["rnbqkbnr"]
    assert rows(board)[4] == "....P..."
    assert board.last == [(6, 4), (4, 4)]
    assert (board.labels.rows[0], board.labels.columns[0]) == ("8", "a")


def test_othello() -> None:
    state = after("othello")
    assert rows(grid(state))[3:5] == ["...10...", "...01..."]
    assert legal_of(state, 0, [19])[0].cell == (2, 3)  # d3


@pytest.mark.parametrize("name", ["phantom_ttt", "dark_hex(board_size=3)"])
def test_unseen_squares_are_unknown(name: str) -> None:
    state = after(name, 4, 0, 0)  # player 0 in the middle, 1 in the corner, on which 0 then stumbles
    assert rows(grid(state, 0)) == ["1??", "?0?", "???"]
    assert rows(grid(state, 1)) == ["1??", "???", "???"]
    assert rows(grid(state)) == ["1..", ".0.", "..."]
    board = board_of(state, eyes=())
    assert isinstance(board, GridBoard)
    assert rows(board) == ["???"] * 3
    assert not board.last
    assert grid(state, 1).last == [(0, 0)]  # its own, not player 0's later one
    assert hides(state.get_game())
    assert not shows_moves(state.get_game())


def test_kuhn_poker() -> None:
    state = after("kuhn_poker", 2, 0, 1)  # king against jack; a bet
    board = cards(state, 1)
    assert [[card.text for card in seat.cards] for seat in board.seats] == [[""], ["J"]]
    assert [card.hidden for seat in board.seats for card in seat.cards] == [True, False]
    assert [seat.chips.paid for seat in board.seats if seat.chips] == [2, 1]
    assert (board.pot, board.history) == (3, ["Ada: Bet"])
    assert [seat.cards[0].text for seat in cards(state, 0, 1).seats] == ["K", "J"]
    assert all(seat.cards[0].hidden for seat in cards(state).seats)


def test_leduc_poker() -> None:
    state = after("leduc_poker", 1, 2, 2, 1, 5, 1)  # J♥, Q♠; raise, call; K♥ on the table; check
    board = cards(state, 0)
    assert board.seats[0].cards[0] == Card(text="J♥", rank="J", suit="♥")
    assert board.seats[1].cards[0].hidden
    assert [card.text for card in board.table] == ["K♥"]
    assert [(seat.chips.paid, seat.chips.stack) for seat in board.seats if seat.chips] == [(3, 97), (3, 97)]
    assert board.history == ["Ada: Raise", "Bob: Call", "Ada: Check"]
    folded = cards(after("leduc_poker", 1, 2, 2, 0), 0, 1)
    assert [seat.note for seat in folded.seats] == ["", "folded"]
    assert folded.pot == 4  # antes, and a raise of two


def test_liars_dice() -> None:
    board = cards(after("liars_dice(numdice=2)", 0, 5, 2, 2, 3), 0)  # dice 1 6 and 3 3; the bid "1-4"
    assert [card.die for card in board.seats[0].cards] == [1, 6]
    assert [card.hidden for card in board.seats[1].cards] == [True, True]
    assert board.bids == ["1-4"]


def test_goofspiel_shows_hands_only_where_the_game_does() -> None:
    seen = cards(after("goofspiel(num_cards=4,points_order=descending)", [0, 3]), 0)
    assert [[card.text for card in seat.cards] for seat in seen.seats] == [["2", "3", "4"], ["1", "2", "3"]]
    assert [seat.note for seat in seen.seats] == ["0 points", "4 points"]
    assert [card.text for card in seen.table] == ["3"]
    assert seen.history == ["4: Bob"]
    hidden = cards(after("goofspiel(num_cards=4,points_order=descending,imp_info=true)", [0, 3]), 0)
    assert [[card.text for card in seat.cards] for seat in hidden.seats] == [["2", "3", "4"], ["", "", ""]]


def test_matrix_games_and_repeated_ones() -> None:
    board = board_of(after("matrix_pd"), eyes=[0])
    assert board == MatrixBoard(
        actions=[["Cooperate", "Defect"]] * 2, payoffs=[[[5, 0], [10, 1]], [[5, 10], [0, 1]]], chosen=[None, None]
    )
    again = board_of(after("repeated_game(stage_game=matrix_pd(),num_repetitions=3)", [0, 1]), eyes=[0])
    assert isinstance(again, MatrixBoard)
    assert again.chosen == [0, 1]
    three = board_of(after("matching_pennies_3p"), eyes=[0])
    assert isinstance(three, MatrixBoard)
    assert three.payoffs is None
    assert len(three.actions) == 3


def test_other_games_are_text_and_hide_what_they_hide() -> None:
    assert board_of(after("pig"), eyes=[0]) == TextBoard(text=str(after("pig")))
    state = after("tiny_bridge_2p", 0, 27)
    seen = board_of(state, eyes=[0])
    assert isinstance(seen, TextBoard)
    assert seen.text == state.information_state_string(0)
    watched = board_of(state, eyes=[])
    assert isinstance(watched, TextBoard)
    assert "hides" in watched.text


@pytest.mark.parametrize(
    ("game", "actions", "labels"),
    [
        ("goofspiel(num_cards=3,points_order=descending)", [0, 2], ["bid 1", "bid 3"]),
        ("connect_four", [3], ["column 4"]),
        ("phantom_ttt", [5], ["row 2 column 3"]),
        ("go(board_size=9)", [0, 81], ["a1", "pass"]),
        ("hex(board_size=4)", [5], ["b2"]),
    ],
)
def test_moves_are_called_by_words(game: str, actions: list[int], labels: list[str]) -> None:
    assert [one.label for one in legal_of(after(game), 0, actions)] == labels


@pytest.mark.parametrize(
    ("game", "cards"),
    [
        ("kuhn_poker", ["J", "Q", "K"]),
        ("kuhn_poker(players=3)", ["T", "J", "Q", "K"]),
        ("leduc_poker", ["J♠", "J♥", "Q♠", "Q♥", "K♠", "K♥"]),
        ("leduc_poker(suit_isomorphism=True)", ["J", "Q", "K"]),
    ],
)
def test_deals_name_their_cards(game: str, cards: list[str]) -> None:
    state = after(game)
    assert [chance_label(state, action) for action, _ in state.chance_outcomes()] == [f"deals {card}" for card in cards]


def test_json_has_field_names_and_null_for_what_is_no_number() -> None:
    assert to_builtins({"a": float("nan"), "b": (1, 2.5), 3: None}) == {"a": None, "b": [1, 2.5], "3": None}
    assert to_builtins(legal_of(after("breakthrough"), 0, [])) == []
    [legal] = to_builtins(legal_of(after("tic_tac_toe"), 0, [8]))
    assert legal == {"action": 8, "label": "row 3 column 3", "cell": [2, 2], "from": None}
