"""Views of an episode: position by position, to somebody who sees all of it, or to one seat, which sees what it may know.

What a seat is shown of a game that hides something comes from the game's own words for that player; of pictures, which show everything,
only those of games that hide nothing, and of other games the seat's observation. When the game is over, everybody sees all.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ludus.apps.episodes.debugger import Decision, EpisodeDebugger
from ludus.apps.episodes.played_episode import PlayedEpisode
from ludus.apps.episodes.recording import png
from ludus.apps.episodes.schemas import (
    Board,
    BoardSeat,
    Box,
    Frame,
    FrameBoard,
    FrameDecision,
    KnownMove,
    Legal,
    Move,
    Replay,
    ReplaySeat,
    ReplayStatistics,
    TextBoard,
)
from ludus.core.errors import EnvError
from ludus.core.types import Array, EnvSpec

_OPEN: Mapping[str, frozenset[str] | None] = {
    "ale": None,
    "football": None,
    "mpe2": frozenset({"simple_tag"}),
    "pettingzoo": frozenset(
        [
            "chess",
            "connect_four",
            "go",
            "tictactoe",
            "cooperative_pong",
            "knights_archers_zombies",
            "pistonball",
            "multiwalker",
            "basketball_pong",
            "boxing",
            "combat_plane",
            "combat_tank",
            "double_dunk",
            "entombed_competitive",
            "entombed_cooperative",
            "flag_capture",
            "foozpong",
            "ice_hockey",
            "joust",
            "mario_bros",
            "maze_craze",
            "othello",
            "pong",
            "quadrapong",
            "space_invaders",
            "space_war",
            "surround",
            "tennis",
            "video_checkers",
            "volleyball_pong",
            "warlords",
            "wizard_of_wor",
        ]
    ),
    "pgx": frozenset(
        [
            "animal_shogi",
            "backgammon",
            "chess",
            "connect_four",
            "gardner_chess",
            "go_9x9",
            "go_19x19",
            "hex",
            "othello",
            "shogi",
            "tic_tac_toe",
        ]
    ),
}
"""Games of several players whose picture shows no more than each of them may know, by family; None: all of it."""
_VERSION = re.compile(r"[_-]v\d+$")
_LEAST_SIDE, _COLOURS = 16, 3
_MOST_SIDE = 26
_SIGNS = ".123456789abcdefghijklmnopq"
_NUMBERS = 256  # of an observation that are shown as text
_MOVES = 300  # of a game, the newest, that a table tells of
_PICTURE_BYTES = 24 * 2**20  # of a replay's pictures, as text


def hides_state(spec: EnvSpec, state: Any | None) -> bool:
    """Return whether a seat may see less than the whole. state: a `pyspiel.State` of the game, where it is one of OpenSpiel's."""
    if state is not None:
        from ludus.apps.play.boards import hides

        return hides(state.get_game())
    family, _, name = spec.id.partition("/")
    known = _OPEN.get(family, frozenset())
    return spec.num_players > 1 and known is not None and _VERSION.sub("", name.rpartition("/")[2]) not in known


def takes_whole(space: gymnasium.Space[Any]) -> bool:
    """Return whether an action of numbers is one of whole numbers."""
    return space.dtype is not None and np.dtype(space.dtype).kind in "iub"


class View:
    """An episode, and how it looks. names: [P] how its players are called. action_name: makes of an action's number and label what it is
    called. people: players that are persons."""

    def __init__(
        self,
        episode: EpisodeDebugger,
        names: Sequence[str],
        *,
        action_name: Callable[[int, str], str] = lambda _, label: label,
        people: Collection[int] = (),
    ) -> None:
        self._debugger, self.names, self._action_name, self._people = episode, names, action_name, people
        self._moves: list[list[Move]] = [[]]  # what led to each position, as far as anybody has asked
        self._all_moves: list[KnownMove] = []  # the same, one after the other
        self._unseen = ""  # why there are no pictures
        self._newest: tuple[int, Board] | None = None  # the picture that was drawn last

    @property
    def spec(self) -> EnvSpec:
        return self._debugger.episode.spec

    def hides(self) -> bool:
        """Return whether a seat may see less than the whole."""
        return hides_state(self.spec, self._debugger.state(0))

    def shows_moves(self) -> bool:
        """Return whether everybody sees who did what."""
        state = self._debugger.state(0)
        if state is None:
            return not self.hides()
        from ludus.apps.play.boards import shows_moves

        return shows_moves(state.get_game())

    def board_seats(self) -> list[BoardSeat]:
        """Return the players whom boards show, where wrappers have given them other numbers or put several under one; else []."""
        seats = self._own_seats()
        same = all(seat.player == p and seat.agent == 0 for p, seat in enumerate(seats))
        return [] if same or self._debugger.state(0) is None else seats

    # ------------------------------------------------------------------------------------------ frames

    def full_frame(self, number: int) -> Frame:
        """Position `number` with all there is to see, what was decided there, and what each player could see where that was less."""
        episode = self._debugger.episode
        everybody = range(self.spec.num_players)
        decisions = self._debugger.decisions(number) if number < len(episode.steps) else []
        board_of = None
        if self.hides():
            board_of = {player: self._board(number, [player], decisions) for player in everybody}
        return Frame(
            number=number,
            to_move=self._movers(number),
            board=self._board(number, everybody, decisions),
            text=self._text(number),
            last=self.moves_before(number),
            returns=self._returns(number),
            paid=self._paid(number),
            over=self.over(number),
            decisions=[self.decision(number, one) for one in decisions],
            board_of=board_of,
        )

    def frame_for(self, number: int, eyes: Collection[int], due: Sequence[Decision] = ()) -> Frame:
        """Return the newest position, `number`, of a game that is not over, as these players see it. due: decisions of theirs that are
        open."""
        returns, paid, moves = self._returns(number), self._paid(number), self.moves_before(number)
        if self.hides():
            returns, paid = (
                [value if p in eyes else None for p, value in enumerate(values)] for values in (returns, paid)
            )
        if not self.shows_moves():  # what came last, and with it how often others have moved, is hidden too
            paid, moves = [None] * len(paid), self._own_moves(number, eyes)
        return Frame(
            number=number,
            to_move=self._movers(number),
            board=self._board(number, eyes, due),
            text=self._text(number),
            last=moves,
            returns=returns,
            paid=paid,
            decisions=[self.decision(number, one) for one in due],
        )

    def replay(
        self, *, run: str = "", seed: int | None = None, created: float = 0.0, discount: float | None = None
    ) -> Replay:
        """All of it, to its end. Arguments as the fields of `Replay`."""
        episode = self._debugger.episode
        while not self._debugger.over:
            self._debugger.reach(len(episode.steps))
        frames, size = list[Frame](), 0
        for number in range(len(episode.steps) + 1):
            frame = self.full_frame(number)
            if isinstance(frame.board, FrameBoard):
                size += len(frame.board.image)
                if size > _PICTURE_BYTES:
                    self._unseen = f"only the first {number} pictures of an episode are kept in a replay"
            frames.append(frame)
        return Replay(
            game=episode.spec.id,
            run=run,
            seats=[
                ReplaySeat(player=p, name=name, mode=mode, person=p in self._people)
                for p, (name, mode) in enumerate(zip(self.names, episode.mode, strict=True))
            ],
            frames=frames,
            statistics=self._statistics(),
            seed=seed,
            created=created,
            board_seats=self.board_seats(),
            zero_sum=self.spec.zero_sum,
            discount=discount,
        )

    # ------------------------------------------------------------------------------------------ parts of a frame

    def _movers(self, number: int) -> list[int]:
        steps = self._debugger.episode.steps
        if number < len(steps):
            return [p for p, rows in enumerate(steps[number].due) if len(rows)]
        step = getattr(self._debugger, "open_step", None)
        return [] if step is None else [p for p, rows in enumerate(step.due) if len(rows)]

    def moves_before(self, number: int) -> list[Move]:
        """Return what led to a position."""
        for before in range(len(self._moves) - 1, number):
            decisions = self._debugger.decisions(before)
            moves = [Move(player=one.player, agent=one.agent, label=self._label(before, one)) for one in decisions]
            self._moves.append(moves)
            self._all_moves += [
                KnownMove(number=before + 1, player=m.player, agent=m.agent, label=m.label) for m in moves
            ]
        return self._moves[number]

    def made_by(self, player: int | None) -> int:
        """In how many steps so far a player has decided; 0 of nobody."""
        steps = self._debugger.episode.steps
        return 0 if player is None else sum(len(step.due[player]) > 0 for step in steps)

    def moves_known(self, viewer: int | None, *, over: bool) -> tuple[list[KnownMove], int]:
        """Return the moves so far that somebody may know of, in order, the newest of them; and how many came before those. Frames are
        numbered as their viewer counts them: of hidden moves its own ones only, until the game is over and the last frame shows all."""
        last = len(self._debugger.episode.steps)
        self.moves_before(last)
        moves = self._all_moves
        if not self.shows_moves():
            own = sorted({move.number for move in moves if move.player == viewer})
            counted = {number: count for count, number in enumerate(own, 1)}
            moves = [
                replace(move, number=counted[move.number] if move.player == viewer else last)
                for move in moves
                if over or move.player == viewer
            ]
        return moves[-_MOVES:], max(0, len(moves) - _MOVES)

    def _own_moves(self, number: int, eyes: Collection[int]) -> list[Move]:
        """Return the last one of each of these players."""
        moves = []
        for player in eyes:
            last = next((k for k in range(number, 0, -1) if len(self._debugger.episode.steps[k - 1].due[player])), 0)
            moves += [move for move in self.moves_before(last) if move.player == player]
        return moves

    def _label(self, number: int, one: Decision) -> str:
        """Return what was decided."""
        state = self._debugger.state(number)
        if one.legal is None:
            return one.action_name
        if state is None:
            return self._action_name(int(one.action), one.action_name)
        from ludus.apps.play.boards import label_of

        return label_of(state, self._own(one), int(one.action))

    def _own(self, one: Decision) -> int:
        """Return the environment's own player that decides."""
        own = self._debugger.own_players(one.player)
        return own[min(one.agent, len(own) - 1)]

    def _text(self, number: int) -> str:
        """Return what a board does not say."""
        state = self._debugger.state(number)
        if state is None:
            return ""
        from ludus.apps.play.boards import extra_caption

        return extra_caption(state)

    def _returns(self, number: int) -> list[float | None]:
        steps = self._debugger.episode.steps
        return steps[number - 1].returns.tolist() if number else [0.0] * self.spec.num_players

    def _paid(self, number: int) -> list[float | None]:
        steps = self._debugger.episode.steps
        return steps[number - 1].paid.tolist() if number else [0.0] * self.spec.num_players

    def over(self, number: int) -> str:
        """Return how the episode ended at a position; "" if it goes on there."""
        steps = self._debugger.episode.steps
        if number < len(steps) or not self._debugger.over:
            return ""
        return self._debugger.cut or (steps[-1].over if steps else "")

    def _statistics(self) -> ReplayStatistics | None:
        steps = self._debugger.episode.steps
        counted = steps[-1].statistics if steps else None
        return None if counted is None else ReplayStatistics(names=self.spec.statistics, values=counted.tolist())

    def decision(self, number: int, one: Decision) -> FrameDecision:
        """Return a decision at a position. One with action -1 has not been made."""
        legal = self._legal(number, one)
        actions = [option.action for option in legal]
        discrete = one.legal is not None
        has_action = not discrete or int(one.action) >= 0
        output = (
            self._debugger.output(number, one.player, one.agent) if isinstance(self._debugger, PlayedEpisode) else ""
        )
        return FrameDecision(
            player=one.player,
            agent=one.agent,
            name=one.name,
            policy=one.policy,
            mode=one.mode,
            chosen=int(one.action) if discrete and has_action else None,
            label=self._label(number, one) if has_action and not _unknown(one.action) else "",
            legal=legal,
            probs=None if one.probs is None else one.probs[actions].tolist(),
            values=None if one.action_values is None else one.action_values[actions].tolist(),
            value=one.value if math.isfinite(one.value) else None,
            information=one.information.removesuffix(output).rstrip(),
            output=output,
            box=None if discrete else self._box(one),
        )

    def _legal(self, number: int, one: Decision) -> list[Legal]:
        if one.legal is None:
            return []
        state = self._debugger.state(number)
        if state is None:
            names = {action: one.names.get(action, str(action)) for action in one.legal}
            return [Legal(action=action, label=self._action_name(action, name)) for action, name in names.items()]
        from ludus.apps.play.boards import legal_of

        return legal_of(state, self._own(one), one.legal)

    def _box(self, one: Decision) -> Box:
        space = self.spec.agents_of(one.player)[one.agent].action
        if isinstance(space, gymnasium.spaces.Box):
            low, high = space.low.reshape(-1), space.high.reshape(-1)
        elif isinstance(space, gymnasium.spaces.MultiDiscrete):
            low = space.start.reshape(-1)
            high = low + space.nvec.reshape(-1) - 1
        else:  # MultiBinary
            low = np.zeros(int(np.prod(space.shape or ())))
            high = low + 1
        return Box(low=low.astype(float).tolist(), high=high.astype(float).tolist(), whole=takes_whole(space))

    # ------------------------------------------------------------------------------------------ boards

    def _board(self, number: int, eyes: Collection[int], decisions: Sequence[Decision]) -> Board:
        state = self._debugger.state(number)
        if state is not None:
            from ludus.apps.play.boards import board_of

            return board_of(
                state,
                eyes={own for p in eyes for own in self._debugger.own_players(p)},
                names=[s.name for s in self._own_seats()],
            )
        if len(eyes) < self.spec.num_players and self.hides():
            visible = [one for one in decisions if one.player in eyes]
            return _observed(visible)
        board = self._picture(number)
        if self._unseen and decisions and isinstance(board, TextBoard):
            obs = _observed(decisions)
            return TextBoard(text=f"{board.text}\n\n{obs.text}") if isinstance(obs, TextBoard) else obs
        return board

    def _own_seats(self) -> list[BoardSeat]:
        """Of the environment's own players."""
        own: dict[int, BoardSeat] = {}
        for player, name in enumerate(self.names):
            several = self._debugger.own_players(player)
            for k, p in enumerate(several):
                own[p] = BoardSeat(player=player, agent=k, name=f"{name} {k + 1}" if len(several) > 1 else name)
        nobody = (BoardSeat(player=-1, agent=0, name=f"player {p}") for p in range(max(own) + 1))
        return [own.get(p, none) for p, none in enumerate(nobody)]

    def _picture(self, number: int) -> Board:
        if self._newest is not None and self._newest[0] == number:
            return self._newest[1]
        board: Board = TextBoard(text=self._unseen)
        if not self._unseen:
            try:
                picture = self._debugger.picture(number)
            except EnvError as error:
                self._unseen = " ".join(str(error).split())
                board = TextBoard(text=self._unseen)
            else:
                board = TextBoard(text=picture) if isinstance(picture, str) else picture_board(picture)
        self._newest = number, board
        return board


def _unknown(action: Array) -> bool:
    return action.dtype.kind == "f" and not np.isfinite(action).all()


def _observed(decisions: Sequence[Decision]) -> Board:
    """Return what the seat that decides observes."""
    if not decisions:
        return TextBoard(
            text="This game hides something from its players: what a seat sees is shown when it is its turn."
        )
    if len(decisions) == 1 and (image := _as_picture(decisions[0].observation)) is not None:
        return picture_board(image)
    return TextBoard(text="\n\n".join(map(_observation, decisions)))


def _observation(one: Decision) -> str:
    """Return what a decision observes, as text."""
    if one.information:
        return one.information
    head = f"What {one.name} observes:"
    if (grid := _planes(one.observation)) is not None:
        return f"{head}\n{grid}"
    numbers = np.asarray(one.observation, np.float64).reshape(-1)
    names = one.columns or [str(k) for k in range(len(numbers))]
    lines = [f"{name}: {value:.6g}" for name, value in zip(names, numbers[:_NUMBERS].tolist(), strict=False)]
    more = [f"and {len(numbers) - _NUMBERS} more numbers"] if len(numbers) > _NUMBERS else []
    return "\n".join([head, *lines, *more])


def _planes(obs: Array) -> str | None:
    """Return an observation [rows, columns, planes] of zeros and ones, as games on boards have it, as a grid: a cell holds the number of
    its first plane that is set, from 1, or a letter. None of others."""
    if obs.ndim != 3 or max(obs.shape) > _MOST_SIDE or not np.isin(obs, (0, 1)).all():
        return None
    first = np.where(obs.any(axis=2), np.argmax(obs != 0, axis=2) + 1, 0)
    return "\n".join(" ".join(_SIGNS[k] for k in row) for row in first.tolist())


def _as_picture(obs: Array) -> NDArray[np.uint8] | None:
    """Return an observation that is an image, channels last or first, as uint8[height, width, 3]; of frames behind one another the last
    one; None of other observations."""
    if obs.dtype != np.uint8 or obs.ndim not in (2, 3) or min(sorted(obs.shape)[-2:]) < _LEAST_SIDE:
        return None
    image = obs[..., None] if obs.ndim == 2 else obs if obs.shape[2] < _LEAST_SIDE else np.moveaxis(obs, 0, 2)
    coloured = image.shape[2] == _COLOURS
    return np.ascontiguousarray(image if coloured else np.repeat(image[:, :, -1:], _COLOURS, axis=2))


def picture_board(image: NDArray[np.uint8]) -> FrameBoard:
    """Return an image uint8[height, width, 3], as PNG."""
    height, width, _ = image.shape
    return FrameBoard(
        image=f"data:image/png;base64,{base64.b64encode(png(image)).decode()}", width=width, height=height
    )
