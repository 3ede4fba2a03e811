"""Tables: games with people in some of their seats, played as they answer.

    Tables --id--> Table: RunGame --episode--> PlayedEpisode, whose persons (`HumanPolicy`) answer what `move` gave
                     |--View--> what each seat sees, and who only watches: published after every step, and read without waiting

A table's seats are told by secret tokens. What a token shows is what its seat may know (`ludus.apps.play.views`).
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium.spaces import Discrete

from ludus.apps.episodes.human_policy import HumanPolicy
from ludus.apps.episodes.played_episode import PlayedEpisode
from ludus.apps.episodes.schemas import BoardSeat, Frame, FrameDecision, Hint, KnownMove, Replay
from ludus.apps.play.hints import Advisor
from ludus.apps.play.run_game import PERSON, RunGame, check_name
from ludus.apps.play.views import View, takes_whole
from ludus.core.errors import ConfigError, LudusError, PlayError, TooManySessionsError, WrongTurnError
from ludus.core.jsonable import to_builtins
from ludus.core.machine import redact_paths
from ludus.policies.bots import what_raised

MAX_SESSIONS = 50
MAX_WITH_BOTS = 8
"""Tables at which bots play: each has a process for them."""
IDLE_SECONDS = 3600.0
LEFT_SECONDS = 120.0
"""After which a table that nobody looks at gives its place to a new one, where there are no others."""
_SEED_BITS = 48
_NAME = 40  # characters

Viewer: TypeAlias = int | None
"""A player, or somebody who only watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatRequest:
    """Request for a seat. who: "person", or a name of a policy or bot. name: the person's."""

    who: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequest:
    """A person's move for an agent. action: a number, or the numbers of a vector."""

    player: int
    agent: int
    action: int | Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatedPlayer:
    """One who plays. name: of a policy that was drawn it is told when the game is over."""

    player: int
    name: str
    who: str
    person: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """returns: [P] of a game that was played to its end."""

    returns: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """A table as one viewer may see it. you: players of the viewer's seat. hints: whose hints its seat is given; None: no hints. round:
    which of the table's games it is, from 1. frames: how many of the game's frames it has seen or could have. zero_sum: as
    `EnvSpec.zero_sum`; other games have no winner. moves, earlier: as `View.moves_known`. over: as `Frame.over`. board_seats: as
    `View.board_seats`. results: of the games that were played to their end. replay: id of the finished game's; "". note: what else is to be
    said; ""."""

    table: str
    run: str
    game: str
    players: Sequence[SeatedPlayer]
    you: Sequence[int]
    hints: str | None
    rated: bool
    zero_sum: bool
    round: int
    frame: Frame
    frames: int
    moves: Sequence[KnownMove]
    earlier: int
    over: str
    board_seats: Sequence[BoardSeat]
    results: Sequence[Result]
    waiting_for: Sequence[int]
    keys: Mapping[str, int] | None
    replay: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedGame:
    """A game that was played to its end. people: [P] names; None of policies. policies: [P] what played, "" of people."""

    table: str
    run: str
    game: str
    people: Sequence[str | None]
    policies: Sequence[str]
    returns: Sequence[float]
    steps: int
    rated: bool
    zero_sum: bool
    replay: Replay


class SavedReplay(NamedTuple):
    """Result of saving a finished game. replay: its id; "" where none is kept. note: what could not be kept, and why; ""."""

    replay: str = ""
    note: str = ""


Finish: TypeAlias = Callable[[FinishedGame], SavedReplay]
"""Told of a finished game."""
Listener: TypeAlias = Callable[[Any], None]
"""Told the table, as JSON, as its viewer sees it now; None when it was closed."""


class GameSession:
    """One table. All of it may be called from any thread."""

    def __init__(
        self,
        id: str,
        game: RunGame,
        requests: Sequence[SeatRequest],
        *,
        run: str = "",
        hints: str | None = None,
        seed: int | None = None,
        rated: bool = True,
        finish: Finish = lambda _: SavedReplay(),
    ) -> None:
        """run: what its page is to know it by. hints: whose hints people are given, a name as `Advisor` takes it ("": the usual one's);
        None for no hints. seed: of the first game; default: secret. rated: whether results are to count for the people's ratings. Raises
        ConfigError for wishes that cannot be granted, and whatever the first moves of policies raise."""
        check_seat_requests(requests, game)
        if rated and (hints is not None or seed is not None):
            raise ConfigError(
                "a rated game with hints, or with a seed that somebody knows, was asked for. Choose rated: false."
            )
        self.id, self.run, self.game, self.wishes = id, run, game, list(requests)
        self.rated = rated
        self._people = {p: HumanPolicy(p) for p, request in enumerate(requests) if request.who == PERSON}
        self.tokens = {p: secrets.token_hex(16) for p in self._people}
        self.watch_token = secrets.token_hex(16)
        self._advisors = {} if hints is None else {p: Advisor(game, p, hints) for p in self._people}
        self._finish, self._seed, self._games = finish, seed, 0
        self._lock = threading.RLock()
        self._listeners: dict[int, tuple[Viewer, Listener]] = {}
        self._numbers = itertools.count()
        self._views: dict[Viewer, Any] = {}
        self._partial_moves: dict[int, dict[int, Any]] = {}
        self._results: list[Result] = []
        self._failed = self._replay = self._note = ""
        self._closed = self._ended = self._counted = False
        self.used = time.monotonic()
        self._episode: PlayedEpisode = game.episode(
            [request.who for request in requests], seed=self._next_seed(), people=self._people
        )
        self._view = self._look(over=False)
        with self._playing():
            self._go_on()

    # ------------------------------------------------------------------------------------------ who looks

    def viewer(self, token: str) -> Viewer:
        """Return whose token it is. Raises PlayError for nobody's."""
        presented = token.encode("utf-8", "replace")  # as bytes, since text that is not ASCII cannot be compared so
        players: list[Viewer] = [p for p, own in self.tokens.items() if secrets.compare_digest(own.encode(), presented)]
        if not players and not secrets.compare_digest(self.watch_token.encode(), presented):
            raise PlayError("this address is of no seat at this table. Open the one that was made with the table.")
        return players[0] if players else None

    def view(self, viewer: Viewer) -> Any:
        """Return the table as JSON, as a seat or a watcher sees it. Never waits for a policy."""
        self.used = time.monotonic()
        return self._views[viewer]

    def listen(self, viewer: Viewer, listener: Listener) -> Callable[[], None]:
        """Be told whenever the viewer's view has changed. Returns what ends it. Neither waits for a policy."""
        key = next(self._numbers)
        self._listeners[key] = viewer, listener
        if self._closed:
            self._tell_the_end()

        def end() -> None:
            self.used = time.monotonic()
            self._listeners.pop(key, None)

        return end

    @property
    def watched(self) -> bool:
        """Return whether anybody listens."""
        return bool(self._listeners)

    # ------------------------------------------------------------------------------------------ what people do

    def move(self, viewer: Viewer, orders: Sequence[MoveRequest], number: int) -> None:
        """Answer decisions of a seat. number: of the frame that they refer to. Raises WrongTurnError if it is another one by now, or
        not this seat's turn; PlayError for an illegal action. Then nothing has changed."""
        with self._playing():
            self._check_open()
            player = self._own_player(viewer)
            if number != self._number(player):
                raise WrongTurnError("the game has gone on since. Look at the newest position and choose again.")
            if self._over():
                raise WrongTurnError("the game is over. Ask for another one.")
            due = self._episode.open_decisions(player)
            if not due or self._people[player].ready:
                raise WrongTurnError(f"it is not the turn of {self._names(over=False)[player]}. Wait for the others.")
            answers = dict(self._partial_moves.get(player, {}))
            for order in orders:
                answers[order.agent] = self._action(order, player, [one.agent for one in due])
            self._partial_moves[player] = answers
            if all(one.agent in answers for one in due):
                space = self.game.spec.agents_of(player)[0].action
                kind = np.int32 if isinstance(space, Discrete) else space.dtype
                self._people[player].answer(np.stack([np.asarray(answers[one.agent], kind) for one in due]))
                self._partial_moves.pop(player)
            self.used = time.monotonic()
            self._go_on()

    def again(self, viewer: Viewer) -> None:
        """Another game, with the seats as they are. Raises WrongTurnError unless the last one is over."""
        with self._playing():
            self._check_open()
            self._own_player(viewer)
            if not self._over():
                raise WrongTurnError("the game is still going on. Play it to its end, or leave the table.")
            self.used = time.monotonic()
            self._failed = self._replay = self._note = ""
            self._counted = False
            self._partial_moves.clear()
            for person in self._people.values():
                person.forget()
            for advisor in self._advisors.values():
                advisor.begin()
            self._play(lambda: self._episode.restart(self._next_seed()))
            self._view = self._look(over=False)
            self._go_on()

    def close(self) -> None:
        """Nobody plays here any more. Waits for no policy: one that still thinks ends the game when it has answered."""
        self._closed = True
        self._tell_the_end()
        self._close_episode()

    def _tell_the_end(self) -> None:
        for key in [*self._listeners]:
            if (listener := self._listeners.pop(key, None)) is not None:  # each is told once, whoever closes
                listener[1](None)

    @contextmanager
    def _playing(self) -> Iterator[None]:
        """For one thread at a time. Of a table that was closed meanwhile the game ends then."""
        try:
            with self._lock:
                yield
        finally:
            if self._closed:
                self._close_episode()

    def _close_episode(self) -> None:
        """Unless somebody plays, who does it then: they look whether it was closed after they have given the lock back."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if not self._ended:
                self._ended = True
                self._episode.close()
        finally:
            self._lock.release()

    @property
    def has_bots(self) -> bool:
        """Return whether bots may play, which have a process of their own."""
        return self._episode.has_bots

    # ------------------------------------------------------------------------------------------ the game

    def _next_seed(self) -> int:
        self._games += 1
        return secrets.randbits(_SEED_BITS) if self._seed is None else self._seed + self._games - 1

    def _go_on(self) -> None:
        """As far as it goes without another answer of a person."""
        steps = self._episode.episode.steps
        while not (self._over() or self._closed):
            before = len(steps)
            self._play(partial(self._episode.reach, before))
            if len(steps) == before:
                break
            self._publish()
        if self._over() and not self._counted:
            self._counted = True
            self._count()
        self._publish()

    def _play(self, go: Callable[[], object]) -> None:
        """Whatever is raised ends the game."""
        try:
            go()
        except Exception as error:  # noqa: BLE001  a policy's or an environment's own code
            self._failed = _describe_for_players(error)

    def _over(self) -> bool:
        return bool(self._failed) or self._episode.over

    def _how(self) -> str:
        """Return how it ended; "" if it goes on."""
        return self._failed or redact_paths(self._view.over(len(self._episode.episode.steps)))

    def _count(self) -> None:
        """Keep the result, unless the game was cut short."""
        steps = self._episode.episode.steps
        if self._failed or self._episode.cut or not steps:
            return
        names = self._names(over=True)
        returns = steps[-1].returns.tolist()
        self._results.append(Result(returns=returns))
        self._view = self._look(over=True)
        finished = FinishedGame(
            table=self.id,
            run=self.game.name,
            game=self.game.spec.id,
            people=[request.name if request.who == PERSON else None for request in self.wishes],
            policies=["" if p in self._people else names[p] for p in range(len(self.wishes))],
            returns=returns,
            steps=len(steps),
            rated=self.rated,
            zero_sum=self.game.spec.zero_sum,
            replay=self._view.replay(run=self.game.name, created=time.time(), discount=self.game.discount),
        )
        saved = self._finish(finished)
        self._replay, self._note = saved.replay, redact_paths(saved.note)

    # ------------------------------------------------------------------------------------------ what is seen

    def _publish(self) -> None:
        for viewer in (None, *self._people):
            view = to_builtins(self._view_for(viewer))
            if view == self._views.get(viewer):
                continue
            self._views[viewer] = view
            for whose, listener in [*self._listeners.values()]:
                if whose == viewer:
                    listener(view)

    def _view_for(self, viewer: Viewer) -> SessionView:
        over = self._over()
        frame = self._frame(viewer, over)
        due = [] if over else self._waiting()
        moves, earlier = self._view.moves_known(viewer, over=over)
        return SessionView(
            table=self.id,
            run=self.run,
            game=self.game.spec.id,
            players=self._seated(over),
            you=[] if viewer is None else [viewer],
            hints=None if viewer not in self._advisors else self._advisors[viewer].who,
            rated=self.rated,
            zero_sum=self.game.spec.zero_sum,
            round=self._games,
            frame=frame,
            frames=frame.number + 1,
            moves=moves,
            earlier=earlier,
            over=frame.over,
            board_seats=self._view.board_seats(),
            results=list(self._results),
            waiting_for=due,
            keys=self.game.keys,
            replay=self._replay,
            note=self._note,
        )

    def _frame(self, viewer: Viewer, over: bool) -> Frame:
        number = len(self._episode.episode.steps)
        if over:
            return replace(self._view.full_frame(number), over=self._how(), board_of=None)
        eyes = [] if viewer is None else [viewer]
        due = [] if viewer is None or self._people[viewer].ready else self._episode.open_decisions(viewer)
        frame = self._view.frame_for(number, eyes, due)
        decisions = list(frame.decisions)
        now = self._episode.open_step
        if viewer in self._advisors and decisions and now is not None:
            decisions = self._advised(viewer, decisions)
        return replace(frame, number=self._number(viewer), decisions=decisions)

    def _advised(self, player: int | None, decisions: list[FrameDecision]) -> list[FrameDecision]:
        now, steps = self._episode.open_step, self._episode.episode.steps
        assert player is not None
        assert now is not None
        try:
            return self._advisors[player].advise(steps, now, decisions, self._episode.state(len(steps)))
        except Exception as error:  # noqa: BLE001  a policy's own code
            hint = Hint(policy="", meta=None, how=f"There is no hint: {_describe_for_players(error)}")
            return [replace(one, hint=hint) for one in decisions]

    def _look(self, *, over: bool) -> View:
        return View(self._episode, self._names(over=over), action_name=self.game.action_name, people=self._people)

    def _number(self, viewer: Viewer) -> int:
        """Return what a viewer may count: positions, or, where moves are hidden, decisions of its own."""
        steps = self._episode.episode.steps
        return len(steps) if self._view.shows_moves() or self._over() else self._view.made_by(viewer)

    def _waiting(self) -> list[int]:
        step = self._episode.open_step
        if step is None:
            return []
        return [p for p, rows in enumerate(step.due) if len(rows) and not (p in self._people and self._people[p].ready)]

    def _names(self, *, over: bool) -> list[str]:
        policies = self._episode.episode.policy
        return [
            (request.name or f"player {p}") if request.who == PERSON else (policies[p] if over else request.who)
            for p, request in enumerate(self.wishes)
        ]

    def _seated(self, over: bool) -> list[SeatedPlayer]:
        names = self._names(over=over)
        return [
            SeatedPlayer(player=p, name=names[p], who=request.who, person=request.who == PERSON)
            for p, request in enumerate(self.wishes)
        ]

    # ------------------------------------------------------------------------------------------ checks

    def _check_open(self) -> None:
        if self._closed:
            raise WrongTurnError("this table was closed. Lay another one.")

    def _own_player(self, viewer: Viewer) -> int:
        if viewer is None:
            raise WrongTurnError("who only watches cannot do that. Open a seat's own address.")
        return viewer

    def _action(self, order: MoveRequest, player: int, agents: Sequence[int]) -> Any:
        """Return what an order means, in the agent's space. Raises WrongTurnError for another's, PlayError for what is not legal."""
        if order.player != player:
            raise WrongTurnError(
                f"a move of player {order.player} came from the seat of player {player}. Use that seat's address."
            )
        if order.agent not in agents:
            raise WrongTurnError(
                f"agent {order.agent} of player {player} has nothing to decide now; {list(agents)} have."
            )
        one = self._episode.open_decisions(player)[agents.index(order.agent)]
        space = self.game.spec.agents_of(player)[order.agent].action
        if isinstance(space, Discrete):
            if (
                isinstance(order.action, int)
                and not isinstance(order.action, bool)
                and order.action in (one.legal or ())
            ):
                return order.action
            raise PlayError(f"action {str(order.action)[:40]} is not legal here; choose one of those that are listed.")
        numbers = np.asarray(order.action if not isinstance(order.action, int) else [order.action], np.float64)
        if numbers.shape != (int(np.prod(space.shape or ())),) or not np.isfinite(numbers).all():
            raise PlayError(f"{len(numbers)} numbers were given for an action of {space}; one for each is expected.")
        whole = takes_whole(space)
        if whole and (numbers % 1).any():
            raise PlayError(f"{numbers.tolist()} was given for an action of {space}; choose whole numbers.")
        with np.errstate(invalid="ignore", over="ignore"):  # what does not fit the type is not the same then
            action = numbers.reshape(space.shape or ()).astype(space.dtype)
        if not space.contains(action) or (whole and (action.reshape(-1) != numbers).any()):
            raise PlayError(f"{numbers.tolist()} is outside of {space}. Keep within its bounds.")
        return action


def _describe_for_players(error: Exception) -> str:
    """Return what people at a table are told of it."""
    message = str(error) if isinstance(error, LudusError) else f"{what_raised(error)}."
    return redact_paths(" ".join(message.split()))


def check_seat_requests(requests: Sequence[SeatRequest], game: RunGame) -> None:
    """Raise ConfigError unless there is one for each player, a person among them, and all may be named."""
    if len(requests) != game.spec.num_players:
        raise ConfigError(f"{len(requests)} seats were given; {game.spec.id} has {game.spec.num_players} players.")
    if not any(request.who == PERSON for request in requests):
        raise ConfigError("no person was given a seat. Give one to somebody, or let policies show a game.")
    for request in requests:
        check_name(request.who)
        if len(request.name) > _NAME or not request.name.isprintable():
            raise ConfigError(
                f"a name of {len(request.name)} characters was given; up to {_NAME} printable ones are expected."
            )


# --------------------------------------------------------------------------------------------------------------------


class GameSessions:
    """All tables of a server. most: that may be open at once, and `bots` of them with bots; one that nobody has used for `idle` seconds is
    closed, and one that nobody looks at after `left` seconds where a new one needs its place."""

    def __init__(
        self,
        *,
        most: int = MAX_SESSIONS,
        bots: int = MAX_WITH_BOTS,
        idle: float = IDLE_SECONDS,
        left: float = LEFT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_sessions, self._bots, self._idle, self._idle_with_others, self._clock = most, bots, idle, left, clock
        self._tables: dict[str, GameSession] = {}
        self._making = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._tables)

    def add(self, make: Callable[[str], GameSession], *, instead: str = "") -> GameSession:
        """Return a new table. make: makes it, given its id. instead: id of a table whose place it takes, and which is closed then. Raises
        TooManySessionsError if all others are in use, and whatever `make` raises."""
        self.sweep()
        with self._lock:
            message = f"{self._max_sessions} tables are open and in use, and no more may be. Leave one"
            old = self._give_way(self._but(instead), self._max_sessions - self._making, message)
            self._making += 1
        try:
            _close(old)
            session = make(secrets.token_hex(8))
            try:
                self._keep(session, instead)
            except TooManySessionsError:
                session.close()
                raise
        finally:
            with self._lock:
                self._making -= 1
        return session

    def _keep(self, session: GameSession, instead: str) -> None:
        with self._lock:
            old = None
            if session.has_bots:
                message = f"bots play at {self._bots} tables that are in use. Play against a policy, leave one of those"
                old = self._give_way([one for one in self._but(instead) if one.has_bots], self._bots, message)
            replaced = self._tables.pop(instead, None)
            self._tables[session.id] = session
        _close(old, replaced)

    def _but(self, id: str) -> list[GameSession]:
        return [session for one, session in self._tables.items() if one != id]

    def _give_way(self, occupied: Sequence[GameSession], most: int, message: str) -> GameSession | None:
        """Under the lock: of tables of which there may be so many, the one that is taken away for a new one; None where there is a place.
        Raises TooManySessionsError, with what is told."""
        if len(occupied) < most:
            return None
        now = self._clock()
        left = [session for session in occupied if not session.watched and now - session.used > self._idle_with_others]
        if not left:
            minutes = f"{self._idle_with_others / 60:g} minutes"
            raise TooManySessionsError(
                f"{message}, or try again later: what nobody looks at gives its place after {minutes}."
            )
        oldest = min(left, key=lambda session: session.used)
        del self._tables[oldest.id]
        return oldest

    def get(self, id: str) -> GameSession | None:
        """Return None for one that there is not (any more). Waits for nobody."""
        session = self._tables.get(id)
        return None if session is None or self._clock() - session.used > self._idle else session

    def remove(self, id: str) -> None:
        """Close a table."""
        with self._lock:
            session = self._tables.pop(id, None)
        _close(session)

    def sweep(self) -> None:
        """Close those that nobody uses."""
        now = self._clock()
        for id, session in [*self._tables.items()]:
            if now - session.used > self._idle:
                self.remove(id)

    def close(self) -> None:
        """Close all."""
        for id in [*self._tables]:
            self.remove(id)


def _close(*sessions: GameSession | None) -> None:
    for session in sessions:
        if session is not None:
            session.close()
