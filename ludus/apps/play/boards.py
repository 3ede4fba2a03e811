"""Boards of OpenSpiel's games, as some players see them.

    board_of(state, eyes=…)   eyes: the players whose information is shown; all of them: the whole state; none: what everybody knows

What a board shows of a game with hidden information is read from what OpenSpiel writes for the players with eyes, and from nothing else:
what a player cannot tell apart looks the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import pyspiel

from ludus.apps.episodes.schemas import (
    Board,
    Card,
    CardsBoard,
    CardSeat,
    Cell,
    Chips,
    GridBoard,
    Labels,
    Legal,
    MatrixBoard,
    TextBoard,
)


class _Position(NamedTuple):
    """A `pyspiel.State`, the players whose information is shown, rising, and how all [P] are called."""

    state: Any
    eyes: Sequence[int]
    names: Sequence[str]


class _MoveContext(NamedTuple):
    """An action in a `pyspiel.State`, and the game's own name of it."""

    state: Any
    action: int
    label: str


_Draw: TypeAlias = Callable[[_Position], Board]

_HIDDEN_NOTE = "This game hides something from its players; who only watches sees the whole when it is over."
_STONES = {"x": "0", "o": "1", "b": "0", "w": "1", "X": "0", "O": "1", ".": "", "+": "", "-": ""}
_HEX = {**dict.fromkeys("xyzX", "0"), **dict.fromkeys("opqO", "1"), ".": ""}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_GO_LETTERS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"


def hides(game: Any) -> bool:
    """Return whether players of a `pyspiel.Game` know less than its state."""
    return bool(game.get_type().information == pyspiel.GameType.Information.IMPERFECT_INFORMATION)


def shows_moves(game: Any) -> bool:
    """Return whether everybody sees who did what."""
    return not hides(game) or game.get_type().short_name in _PUBLIC_MOVES


def is_matrix(game: Any) -> bool:
    """Return whether it is a game in normal form."""
    return bool(game.get_type().information == pyspiel.GameType.Information.ONE_SHOT)


def board_of(state: Any, *, eyes: Collection[int], names: Sequence[str] = ()) -> Board:
    """Return what a position looks like to these players. names: [P] how players are called."""
    game = state.get_game()
    name = game.get_type().short_name
    names = names or [f"player {p}" for p in range(game.num_players())]
    if is_matrix(game):
        return _matrix(game, state.history() if state.is_terminal() else [])
    draw = _BOARDS.get(name)
    if draw is None:
        return TextBoard(text=text_of(state, eyes=eyes))
    return draw(_Position(state, sorted(eyes), names))


def text_of(state: Any, *, eyes: Collection[int]) -> str:
    """Return a position as the game writes it for these players."""
    game = state.get_game()
    if not hides(game) or len(eyes) == game.num_players():
        return str(state)
    if not eyes:
        return _HIDDEN_NOTE
    return "\n\n".join(seen_by(state, player) for player in sorted(eyes))


def seen_by(state: Any, player: int) -> str:
    """Return what the game writes for one player: what it sees now, else all that it knows; "" where it writes nothing."""
    kind = state.get_game().get_type()
    if kind.provides_observation_string:
        return str(state.observation_string(player))
    return str(state.information_state_string(player)) if kind.provides_information_state_string else ""


def extra_caption(state: Any) -> str:
    """Return what a board does not show and everybody knows: of repeated games, which round it is; ""."""
    game = state.get_game()
    if game.get_type().short_name != "repeated_game" or state.is_terminal():
        return ""
    rounds, done = int(game.get_parameters()["num_repetitions"]), len(state.history()) // game.num_players()
    return f"Round {done + 1} of {rounds}."


def legal_of(state: Any, player: int, actions: Sequence[int]) -> list[Legal]:
    """Return the player's legal actions with their names and, on a grid, their cells."""
    place = _PLACES.get(state.get_game().get_type().short_name)
    legal = []
    for action in actions:
        move = _MoveContext(state, action, str(state.action_to_string(player, action)))
        cell, source = (None, None) if place is None else place(move)
        legal.append(Legal(action=action, label=label_of(state, player, action), cell=cell, from_=source))
    return legal


def label_of(state: Any, player: int, action: int) -> str:
    """Return what an action is called: games name actions for programs ("x3", "[P0]Bid: 2"); here are words that are read, heard and
    listed."""
    written = str(state.action_to_string(player, action))
    game = state.get_game().get_type().short_name
    if game == "leduc_poker" and written == "Call" and len({*_leduc_paid(state)}) == 1:
        return "Check"  # nothing is to be called
    pattern, words = _WORDS.get(game, _AS_WRITTEN)
    match = re.fullmatch(pattern, written)
    return words(*match.groups()) if match else written


def chance_label(state: Any, action: int) -> str:
    """Return what chance does: deals a card by the name that the board gives it, where it is a known game of cards."""
    card = _DEALS.get(state.get_game().get_type().short_name)
    return (
        str(state.action_to_string(pyspiel.PlayerId.CHANCE, action))
        if card is None
        else f"deals {card(state, action).text}"
    )


def _by_row(row: str, column: str) -> str:
    return f"row {int(row) + 1} column {int(column) + 1}"


def _spelt_out(move: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r" \1", move).lower()


_AS_WRITTEN: tuple[str, Callable[..., str]] = (r"(.*)", str)
_WORDS: Mapping[str, tuple[str, Callable[..., str]]] = {
    "connect_four": (r"[xo](\d+)", lambda column: f"column {int(column) + 1}"),
    "tic_tac_toe": (r"[xo]\((\d+),(\d+)\)", _by_row),
    "phantom_ttt": (r"[xo]\((\d+),(\d+)\)", _by_row),
    "phantom_ttt_ir": (r"[xo]\((\d+),(\d+)\)", _by_row),
    "go": (r"[BW] (\w+)", str.lower),
    "goofspiel": (r"\[P\d+\]Bid: (\d+)", lambda card: f"bid {card}"),
    "universal_poker": (r"player=\d+ move=(\w+)", _spelt_out),
}
"""short name of a game -> (how it writes an action, what that is in words)."""

# --------------------------------------------------------------------------------------------------------------------
# Grids.


def _last_move(state: Any, players: Collection[int]) -> tuple[int, int] | None:
    """Return (player, action) of the last move that one of these players made; None if there is none."""
    for past in reversed(state.full_history()):
        if past.player in players and past.action >= 0:
            return past.player, past.action
    return None


def _everybody(state: Any) -> range:
    return range(state.num_players())


def _last_cells(state: Any, eyes: Collection[int]) -> list[Cell]:
    """Of the last move that these players know of."""
    game = state.get_game()
    last = _last_move(state, eyes if hides(game) else _everybody(state))
    place = _PLACES.get(game.get_type().short_name)
    if last is None or place is None:
        return []
    before = _before(state, last)
    if before is None:
        return []
    cell, source = place(_MoveContext(before, last[1], str(before.action_to_string(*last))))
    return [where for where in (source, cell) if where is not None]


def _before(state: Any, move: tuple[int, int]) -> Any | None:
    """Return the state that a move was made in."""
    history = state.full_history()
    last = max(k for k, past in enumerate(history) if (past.player, past.action) == move)
    before = state.get_game().new_initial_state()
    for past in history[:last]:
        if before.is_simultaneous_node():
            return None  # such games have no boards with a last move
        before.apply_action(past.action)
    return before


def _seen_rows(state: Any, eyes: Sequence[int]) -> list[list[str]]:
    """Return characters of the lines that the game writes: of all players together, or of those with eyes, the first that knows more."""
    game = state.get_game()
    if not hides(game) or len(eyes) == game.num_players():
        return _characters(str(state))
    if not eyes:
        return [["?"] * len(row) for row in _characters(str(state))]
    views = [_characters(str(state.observation_string(player))) for player in eyes]
    rows, columns = len(views[0]), len(views[0][0])
    return [
        [next((view[r][c] for view in views if view[r][c] != "."), "?") for c in range(columns)] for r in range(rows)
    ]


def _characters(text: str) -> list[list[str]]:
    return [[c for c in line if not c.isspace()] for line in text.splitlines() if line.strip()]


def _grid(
    shape: str = "square",
    *,
    stones: Mapping[str, str] = _STONES,
    drop: bool = False,
    counted: bool = False,
) -> _Draw:
    def draw(at: _Position) -> Board:
        rows = _seen_rows(at.state, at.eyes)
        return GridBoard(
            game=at.state.get_game().get_type().short_name.removesuffix("_ir"),
            rows=len(rows),
            columns=len(rows[0]),
            cells=[[stones.get(c, c) for c in row] for row in rows],
            shape="hex" if shape == "hex" else "square",
            last=_last_cells(at.state, at.eyes),
            labels=_counted(len(rows), len(rows[0])) if counted else Labels(),
            drop=drop,
        )

    return draw


def _counted(rows: int, columns: int) -> Labels:
    return Labels(rows=[str(r + 1) for r in range(rows)], columns=list(_LETTERS[:columns]))


def _breakthrough(at: _Position) -> Board:
    lines = [line for line in str(at.state).splitlines() if line[:1].isdigit()]
    rows = [line.lstrip("0123456789") for line in lines]
    return GridBoard(
        game="breakthrough",
        rows=len(rows),
        columns=len(rows[0]),
        cells=[[_STONES[c] for c in row] for row in rows],
        last=_last_cells(at.state, at.eyes),
        labels=Labels(rows=[str(len(rows) - r) for r in range(len(rows))], columns=list(_LETTERS[: len(rows[0])])),
    )


def _go(at: _Position) -> Board:
    lines = re.findall(r"^\s*(\d+) ([+XO]+)$", str(at.state), re.MULTILINE)
    size = len(lines)
    return GridBoard(
        game="go",
        rows=size,
        columns=size,
        cells=[[_STONES[c] for c in row] for _, row in lines],
        shape="points",
        last=_last_cells(at.state, at.eyes),
        labels=Labels(rows=[number for number, _ in lines], columns=list(_GO_LETTERS[:size])),
    )


def _othello(at: _Position) -> Board:
    rows = re.findall(r"^\d ((?:[-xo] )+)\d$", str(at.state), re.MULTILINE)
    return GridBoard(
        game="othello",
        rows=len(rows),
        columns=len(rows[0].split()),
        cells=[[_STONES[c] for c in row.split()] for row in rows],
        last=_last_cells(at.state, at.eyes),
        labels=_counted(len(rows), len(rows[0].split())),
    )


def _chess(at: _Position) -> Board:
    """From FEN; of dark chess the first player's with eyes."""
    game = at.state.get_game()
    if not hides(game) or len(at.eyes) == game.num_players():
        fen = str(at.state)
    elif len(at.eyes) == 1:
        fen = str(at.state.observation_string(at.eyes[0]))
    else:
        fen = "/".join(["?" * 8] * 8)
    cells = [
        [piece for c in row for piece in ([""] * int(c) if c.isdigit() else [c])] for row in fen.split()[0].split("/")
    ]
    return GridBoard(
        game=game.get_type().short_name,
        rows=len(cells),
        columns=len(cells[0]),
        cells=cells,
        last=_last_cells(at.state, at.eyes),
        labels=Labels(rows=[str(len(cells) - r) for r in range(len(cells))], columns=list(_LETTERS[: len(cells[0])])),
    )


_Place = tuple[Cell | None, Cell | None]
"""(cell, where from)."""


def _numbered(move: _MoveContext) -> _Place:
    columns = _columns(move.state)
    return (move.action // columns, move.action % columns), None


def _columns(state: Any) -> int:
    parameters = state.get_game().get_parameters()
    return int(parameters.get("num_cols") or parameters.get("board_size") or 3)


def _dropped(move: _MoveContext) -> _Place:
    rows = _characters(str(move.state))
    free = [r for r, row in enumerate(rows) if row[move.action] == "."]
    return ((free[-1], move.action) if free else None), None


def _square(text: str, rows: int) -> Cell:
    return rows - int(text[1:]), _LETTERS.index(text[0])


def _stepped(move: _MoveContext) -> _Place:
    """From a label such as c6d5 or c6d5*."""
    rows = int(move.state.get_game().get_parameters()["rows"])
    match = re.fullmatch(r"([a-z]\d+)([a-z]\d+)\*?", move.label)
    return (_square(match[2], rows), _square(match[1], rows)) if match else (None, None)


def _chess_move(move: _MoveContext) -> _Place:
    lan = pyspiel.chess.action_to_move(move.action, move.state.board()).to_lan()
    match = re.match(r"([a-h][1-8])([a-h][1-8])", lan)
    return (_square(match[2], 8), _square(match[1], 8)) if match else (None, None)


def _point(move: _MoveContext) -> _Place:
    """From a label such as "B c4"; of a pass nothing."""
    match = re.fullmatch(r"[BW] ([a-z])(\d+)", move.label)
    if match is None:
        return None, None
    size = int(move.state.get_game().get_parameters()["board_size"])
    return (size - int(match[2]), _GO_LETTERS.lower().index(match[1])), None


def _lettered(move: _MoveContext) -> _Place:
    """From a label such as d2, counted from the top."""
    match = re.fullmatch(r"([a-z])(\d+)", move.label)
    return ((int(match[2]) - 1, _LETTERS.index(match[1])) if match else None), None


_PLACES: Mapping[str, Callable[[_MoveContext], _Place]] = {
    "tic_tac_toe": _numbered,
    "phantom_ttt": _numbered,
    "phantom_ttt_ir": _numbered,
    "hex": _numbered,
    "dark_hex": _numbered,
    "dark_hex_ir": _numbered,
    "connect_four": _dropped,
    "breakthrough": _stepped,
    "chess": _chess_move,
    "go": _point,
    "othello": _lettered,
}

# --------------------------------------------------------------------------------------------------------------------
# Cards and dice.

_RANKS = "23456789TJQK"
_SUITS = "♠♥♦♣"
_SUIT_OF = {"s": "♠", "h": "♥", "d": "♦", "c": "♣"}
_ROUNDS = re.compile(r"\[(Private|Public|Pot|Money|Ante): ?([^\]]*)\]")


def _rank(place: int, ranks: int) -> str:
    """Return the name of a rank: of few, king and what is below; of many, numbers."""
    return _RANKS[place - ranks] if ranks <= len(_RANKS) else str(place + 1)


def _card(rank: str, suit: str = "") -> Card:
    return Card(text=rank + suit, rank=rank, suit=suit)


_BACK = Card(hidden=True)


def _move_lines(state: Any, names: Sequence[str]) -> list[str]:
    """Return what players have done, in order. Only for games in which everybody sees that."""
    at = state.get_game().new_initial_state()
    out = []
    for past in state.full_history():
        if past.player >= 0:
            out.append(f"{names[past.player]}: {label_of(at, past.player, past.action)}")
        at.apply_action(past.action)
    return out


def _kuhn_card(state: Any, place: int) -> Card:
    return _card(_rank(place, state.num_players() + 1))


def _leduc_card(state: Any, place: int) -> Card:
    ranks = state.num_players() + 1
    if state.get_game().get_parameters().get("suit_isomorphism"):
        return _card(_rank(place, ranks))
    return _card(_rank(place // 2, ranks), _SUITS[place % 2])


_DEALS: Mapping[str, Callable[[Any, int], Card]] = {"kuhn_poker": _kuhn_card, "leduc_poker": _leduc_card}
"""short name of a game whose chance deals one card at a time -> the card that an outcome is."""


def _kuhn(at: _Position) -> Board:
    """A player's information is its card and everybody's bets, "2pb"."""
    players = at.state.num_players()
    known = {p: str(at.state.information_state_string(p)).rstrip("pb") for p in at.eyes}
    moves = [move for move in at.state.full_history() if move.player >= 0]
    paid = [1 + sum(move.player == p and move.action == 1 for move in moves) for p in range(players)]
    seats = [
        CardSeat(
            player=p,
            name=at.names[p],
            cards=[_kuhn_card(at.state, int(known[p])) if known.get(p) else _BACK],
            chips=Chips(paid=paid[p]),
        )
        for p in range(players)
    ]
    return CardsBoard(game="kuhn_poker", seats=seats, pot=sum(paid), history=_move_lines(at.state, at.names))


def _leduc_paid(state: Any) -> list[float]:
    """Return what each player has paid who has not folded."""
    paid = dict(_ROUNDS.findall(state.observation_string(0)))["Ante"].split()
    folded = {move.player for move in state.full_history() if move.player >= 0 and move.action == 0}
    return [float(amount) for player, amount in enumerate(paid) if player not in folded]


def _leduc(at: _Position) -> Board:
    players = at.state.num_players()

    def card(number: str) -> Card:
        return _leduc_card(at.state, int(number)) if number and int(number) >= 0 else _BACK

    public = dict(_ROUNDS.findall(at.state.observation_string(0)))  # of which the private card is not used
    known = {p: dict(_ROUNDS.findall(at.state.observation_string(p))).get("Private", "") for p in at.eyes}
    paid = [float(x) for x in public["Ante"].split()]
    folded = {move.player for move in at.state.full_history() if move.player >= 0 and move.action == 0}
    money = [float(x) for x in public["Money"].split()]
    seats = [
        CardSeat(
            player=p,
            name=at.names[p],
            cards=[card(known.get(p, ""))],
            chips=Chips(paid=paid[p], stack=money[p]),
            note="folded" if p in folded else "",
        )
        for p in range(players)
    ]
    table = [card(public["Public"])] if public.get("Public") else []
    return CardsBoard(
        game="leduc_poker", seats=seats, table=table, pot=sum(paid), history=_move_lines(at.state, at.names)
    )


def _universal(at: _Position) -> Board:
    players = at.state.num_players()

    def cards(text: str) -> list[Card]:
        return [_card(r, _SUIT_OF.get(s, s)) for r, s in re.findall(r"(\w)([shdc])", text)]

    public = dict(_ROUNDS.findall(at.state.information_state_string(0)))
    known = {p: cards(dict(_ROUNDS.findall(at.state.information_state_string(p))).get("Private", "")) for p in at.eyes}
    money = [float(x) for x in public["Money"].split()]
    stacks = [float(x) for x in str(at.state.get_game().get_parameters()["stack"]).split()]
    hole = int(at.state.get_game().get_parameters()["numHoleCards"])
    seats = [
        CardSeat(
            player=p,
            name=at.names[p],
            cards=known[p] if p in known else [_BACK] * hole,
            chips=Chips(
                paid=stacks[p] - money[p],
                stack=stacks[p] + at.state.returns()[p] if at.state.is_terminal() else money[p],
            ),
        )
        for p in range(players)
    ]
    return CardsBoard(
        game="universal_poker",
        seats=seats,
        table=cards(public.get("Public", "")),
        pot=float(public["Pot"]),
        history=_move_lines(at.state, at.names),
    )


def _liars_dice(at: _Position) -> Board:
    """A player's information is its dice and everybody's bids, "16 2-1 3-1"."""
    players, dice = at.state.num_players(), int(at.state.get_game().get_parameters()["numdice"])
    known = {}
    for p in at.eyes:
        rolled = str(at.state.information_state_string(p)).partition(" ")[0]
        known[p] = [Card(text=eyes_of, rank=eyes_of, die=int(eyes_of)) for eyes_of in rolled if eyes_of.isdigit()]
    seats = [CardSeat(player=p, name=at.names[p], cards=known.get(p) or [_BACK] * dice) for p in range(players)]
    history = _move_lines(at.state, at.names)
    bids = [line.rpartition(": ")[2] for line in history]
    return CardsBoard(game="liars_dice", seats=seats, history=history, bids=bids)


def _goofspiel(at: _Position) -> Board:
    """Return what is known to all stands in everybody's information; hands do where the game shows them."""
    players, game = at.state.num_players(), at.state.get_game()
    texts = [str(at.state.information_state_string(p)) for p in (at.eyes or [0])]
    common = _lines_of(texts[0])
    hands: dict[int, list[Card]] = {}
    for text in texts if at.eyes or not hides(game) else []:
        for key, value in _lines_of(text).items():
            if (match := re.fullmatch(r"P(\d+) hand", key)) is not None:
                hands[int(match[1])] = [_card(number) for number in value.split()]
    points, wins = common.get("Points", "").split(), common.get("Win sequence", "").split()
    prizes = common.get("Point card sequence", "").split()
    cards = int(game.get_parameters()["num_cards"]) - len(wins)
    seats = [
        CardSeat(
            player=p,
            name=at.names[p],
            cards=hands.get(p, [_BACK] * cards),
            note=f"{points[p]} points" if p < len(points) else "",
        )
        for p in range(players)
    ]
    history = [
        f"{prize}: {at.names[int(won)] if int(won) >= 0 else 'nobody'}"
        for prize, won in zip(prizes, wins, strict=False)
    ]
    table = [_card(prizes[-1])] if len(prizes) > len(wins) else []
    return CardsBoard(game="goofspiel", seats=seats, table=table, history=history)


def _lines_of(text: str) -> dict[str, str]:
    """Return `key: value` lines."""
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


# --------------------------------------------------------------------------------------------------------------------
# Matrix games.


def _matrix(game: Any, chosen: Sequence[int]) -> MatrixBoard:
    """chosen: [P] the actions that were last taken together; empty: none were."""
    root, players = game.new_initial_state(), game.num_players()
    actions = [[str(root.action_to_string(p, a)) for a in root.legal_actions(p)] for p in range(players)]
    payoffs = None
    if players == 2 and hasattr(game, "row_utilities"):
        payoffs = [game.row_utilities().tolist(), game.col_utilities().tolist()]
    return MatrixBoard(actions=actions, payoffs=payoffs, chosen=list(chosen) if chosen else [None] * players)


def _repeated(at: _Position) -> Board:
    """Return its stage, with what was done last."""
    stage = at.state.get_game().get_parameters()["stage_game"]
    game = pyspiel.load_game(stage["name"], {key: value for key, value in stage.items() if key != "name"})
    if not is_matrix(game):
        return TextBoard(text=text_of(at.state, eyes=at.eyes))
    return _matrix(game, at.state.history()[-game.num_players() :])


_BOARDS: Mapping[str, _Draw] = {
    "tic_tac_toe": _grid(),
    "phantom_ttt": _grid(),
    "phantom_ttt_ir": _grid(),
    "connect_four": _grid(drop=True),
    "hex": _grid("hex", stones=_HEX, counted=True),
    "dark_hex": _grid("hex", stones=_HEX, counted=True),
    "dark_hex_ir": _grid("hex", stones=_HEX, counted=True),
    "breakthrough": _breakthrough,
    "go": _go,
    "othello": _othello,
    "chess": _chess,
    "dark_chess": _chess,
    "kuhn_poker": _kuhn,
    "leduc_poker": _leduc,
    "universal_poker": _universal,
    "liars_dice": _liars_dice,
    "goofspiel": _goofspiel,
    "repeated_game": _repeated,
}
_PUBLIC_MOVES = ("kuhn_poker", "leduc_poker", "universal_poker", "liars_dice", "tiny_bridge_2p", "tiny_bridge_4p")
"""Games with hidden cards or dice in which everybody sees what everybody does."""
