"""Records of a game for the page: boards, frames (one position as one viewer may see it) and replays, as records and as JSON.

position of a game --boards.py--> Board --views.py--> Frame --> a table's page, or with all other positions a Replay
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

FORMAT = 1
"""Of a replay's JSON."""

Cell: TypeAlias = tuple[int, int]
"""(row, column), from the top left, from 0."""

# --------------------------------------------------------------------------------------------------------------------
# Boards: what a position looks like, by kind.


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Written beside the rows and columns of a grid."""

    rows: Sequence[str] = ()
    columns: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GridBoard:
    """Pieces on a grid. cells: [rows][columns], "" where empty, "?" where the viewer does not know; "0", "1" for the players' stones, else
    letters as chess has them ("K" … "p"). shape: of a cell. last: cells of the last move that the viewer knows of. drop: whether columns
    are chosen, not cells."""

    game: str
    rows: int
    columns: int
    cells: Sequence[Sequence[str]]
    shape: Literal["square", "hex", "points"] = "square"
    last: Sequence[Cell] = ()
    labels: Labels = field(default_factory=Labels)
    drop: bool = False
    kind: Literal["grid"] = "grid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card, or a die. text: as it is read, "K♠"; "" where hidden. die: its eyes, of dice; None of cards, and where hidden."""

    text: str = ""
    rank: str = ""
    suit: str = ""
    hidden: bool = False
    die: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chips:
    """paid: into the pot, so far. stack: left, at the end with what was won; None where the game does not say."""

    paid: float
    stack: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSeat:
    """Cards before one player. note: "folded", say; ""."""

    player: int
    name: str
    cards: Sequence[Card] = ()
    chips: Chips | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardsBoard:
    """A game of cards or dice. table: what lies open. pot: chips; None without. history: what was done, in order. bids: what was called,
    in order, where calls are the game; else None."""

    game: str
    seats: Sequence[CardSeat]
    table: Sequence[Card] = ()
    pot: float | None = None
    history: Sequence[str] = ()
    bids: Sequence[str] | None = None
    kind: Literal["cards"] = "cards"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixBoard:
    """A matrix game. actions: [P] labels. payoffs: [P][n][m] for two players; None for more. chosen: [P] what each did last; None where
    that is not known (yet)."""

    actions: Sequence[Sequence[str]]
    payoffs: Sequence[Sequence[Sequence[float]]] | None = None
    chosen: Sequence[int | None] = ()
    kind: Literal["matrix"] = "matrix"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameBoard:
    """A picture. image: a `data:` address, or a path of this server."""

    image: str
    width: int
    height: int
    kind: Literal["frame"] = "frame"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBoard:
    """Whatever else: as text."""

    text: str
    kind: Literal["text"] = "text"


Board: TypeAlias = GridBoard | CardsBoard | MatrixBoard | FrameBoard | TextBoard

# --------------------------------------------------------------------------------------------------------------------
# Frames and replays.


@dataclass(frozen=True, slots=True, kw_only=True)
class Legal:
    """A legal action. cell: where a click means it. from_: where a piece leaves from; None for other moves."""

    action: int
    label: str
    cell: Cell | None = None
    from_: Cell | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A move of an agent."""

    player: int
    agent: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMove:
    """A move that a viewer knows of. number: of the first frame that showed it."""

    number: int
    player: int
    agent: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """Advice for a person's decision. policy: name of the policy, mixture or bot whose probabilities stand at the decision. meta: [per
    legal action] how often the meta-strategy would do it; None where that is not known, or what `policy` is. how: how probabilities were
    computed, values: what the decision's values are; sentences, or ""."""

    policy: str
    meta: Sequence[float | None] | None
    how: str
    values: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Numbers that a decision's answer has, where actions are vectors. low, high: of each number. whole: whether they are whole."""

    low: Sequence[float]
    high: Sequence[float]
    names: Sequence[str] = ()
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameDecision:
    """A decision at a position: one that was made, or, at a table, one that the viewer has to make (chosen: None). name: of the agent.
    policy, mode: who answers. label: of what was chosen. legal: by rising number; empty where actions are vectors, which `box` tells.
    probs, values: [per legal action], None of what is not known. value: of the position, as the policy's critic has it. information: what
    the game writes for whoever decides."""

    player: int
    agent: int
    name: str
    policy: str
    mode: str
    chosen: int | None = None
    label: str = ""
    legal: Sequence[Legal] = ()
    probs: Sequence[float | None] | None = None
    values: Sequence[float | None] | None = None
    value: float | None = None
    information: str = ""
    output: str = ""
    box: Box | None = None
    hint: Hint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One position of a game, as one viewer may see it. number: from 0; what a move refers to. to_move: players. text: what is to be said
    of it. last: what led here, as far as the viewer may know. returns: [P] so far, None of those that are hidden; paid: [P] with the last
    move. over: how the episode ended here: "terminated", "truncated", or why it could not go on; "". board_of: in a replay, what each
    player could see, where that is less."""

    number: int
    to_move: Sequence[int]
    board: Board
    text: str = ""
    last: Sequence[Move] = ()
    returns: Sequence[float | None] = ()
    paid: Sequence[float | None] = ()
    over: str = ""
    decisions: Sequence[FrameDecision] = ()
    board_of: Mapping[int, Board] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardSeat:
    """One of the players whom a board shows. player, agent: who plays it, -1 where nobody does. name: as on the board."""

    player: int
    agent: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySeat:
    """One who played. person: whether it is a person's name."""

    player: int
    name: str
    mode: str = ""
    person: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStatistics:
    """Statistics of an episode for each player: values [P][S] by `names`."""

    names: Sequence[str]
    values: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A whole episode, seen by everybody. run: its name, "" where there is none. created: Unix time. board_seats: as `View.board_seats`.
    zero_sum: as `EnvSpec.zero_sum`. discount: of the rewards that critics' values are of, per decision; None where it is not known. Of
    replays that an older Ludus wrote both are None."""

    game: str
    run: str
    seats: Sequence[ReplaySeat]
    frames: Sequence[Frame]
    statistics: ReplayStatistics | None = None
    seed: int | None = None
    created: float = 0.0
    board_seats: Sequence[BoardSeat] = ()
    zero_sum: bool | None = None
    discount: float | None = None
    format: int = FORMAT

    @property
    def returns(self) -> tuple[float, ...]:
        """Return [P] at its end."""
        return tuple(0.0 if value is None else value for value in self.frames[-1].returns) if self.frames else ()

    @property
    def steps(self) -> int:
        return max(0, len(self.frames) - 1)
