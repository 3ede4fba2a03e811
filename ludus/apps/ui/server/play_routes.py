"""Routes of who plays: seats, tables, people. A seat's token, which comes with the table, opens that seat's view and no other's."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, HTTPException, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt

from ludus.apps.play.people import PlayedGame, PlayedSeat
from ludus.apps.ui.server.known_runs import KnownRun
from ludus.apps.ui.server.open_games import PlayRoom, json_response
from ludus.apps.ui.server.streams import Stream
from ludus.core.errors import LudusError, PlayError
from ludus.core.jsonable import to_json

if TYPE_CHECKING:
    from ludus.apps.play.game_sessions import FinishedGame, GameSession, MoveRequest, SavedReplay, Viewer

_MOST_SEATS = 64
_MOST_MOVES = 256
_MOST_NUMBERS = 4096

Token = Annotated[str, Field(max_length=64)]
Tokens = Annotated[str, Field(max_length=65 * _MOST_SEATS)]
"""With commas between them."""
Number = Annotated[float, Field(allow_inf_nan=False)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SeatRequestBody(_Body):
    """Request for a seat."""

    who: Annotated[str, Field(max_length=200)]
    name: Annotated[str, Field(max_length=40)] = ""


class ReplacedTableBody(_Body):
    """A table that is closed for another one, and a seat at it."""

    table: Annotated[str, Field(max_length=64)]
    seat: Token


class TableRequestBody(_Body):
    """A table that is wanted. hints: whose hints are given, "" the usual one's; null for no hints. instead: whose place it takes, where its
    people only change their seats."""

    run: Annotated[str, Field(max_length=64)]
    seats: Annotated[list[SeatRequestBody], Field(min_length=1, max_length=_MOST_SEATS)]
    hints: Annotated[str | None, Field(max_length=200)] = None
    seed: Annotated[int | None, Field(ge=0, lt=2**48)] = None
    rated: bool = False
    instead: ReplacedTableBody | None = None


class AgentMoveBody(_Body):
    """Move of one agent: the number of an action, or the numbers of a vector."""

    player: Annotated[StrictInt, Field(ge=0, lt=2**31)]
    agent: Annotated[StrictInt, Field(ge=0, lt=2**31)] = 0
    action: (
        Annotated[StrictInt, Field(ge=-(2**31), lt=2**31)] | Annotated[list[Number], Field(max_length=_MOST_NUMBERS)]
    )


class MoveRequestBody(_Body):
    """A seat's answer to the frame `number`."""

    seat: Token
    moves: Annotated[list[AgentMoveBody], Field(min_length=1, max_length=_MOST_MOVES)]
    number: Annotated[StrictInt, Field(ge=0, lt=2**31)]


class SeatBody(_Body):
    """Whose wish it is. seat: a token, or those of all seats at one screen."""

    seat: Tokens


def router(room: PlayRoom) -> APIRouter:
    """Seats of a run, tables and people."""
    routes = APIRouter(prefix="/api", tags=["playing"])
    _add_people(routes, room)
    _add_looking(routes, room)
    _add_playing(routes, room)
    return routes


def _add_people(routes: APIRouter, room: PlayRoom) -> None:
    state = room.state

    @routes.get("/runs/{run}/seats", dependencies=[state.access.needs("play")])
    async def seats(run: str) -> Response:
        """Return who can sit where in a run's game."""
        known = state.runs.playable(run)
        return json_response(await room.play(known, _seats, room, known))

    @routes.get("/zoo")
    async def zoo() -> Response:
        """Return the entries of zoos that can be played."""
        state.runs.refresh()
        return json_response([{"id": entry.id, "name": entry.name} for entry in state.runs.entries()])

    @routes.get("/people")
    async def people() -> Response:
        """Return what people have come to, and their newest games."""
        return json_response(await room.play(None, _people, room))


def _add_playing(routes: APIRouter, room: PlayRoom) -> None:
    state = room.state
    may_play = state.access.needs("play")

    @routes.post("/tables", dependencies=[may_play])
    async def lay(body: TableRequestBody) -> Response:
        """Return a new table, with a token for each person's seat and one for who only watches."""
        known = state.runs.playable(body.run)
        if body.instead is not None:
            _require_seat(room, body.instead.table, body.instead.seat)
        table = await room.play(known, _lay, room, known, body)
        seats = [{"player": p, "token": table.tokens.get(p)} for p in range(len(table.wishes))]
        return json_response({"table": table.id, "seats": seats, "watch": table.watch_token})

    @routes.post("/tables/{table}/move", dependencies=[may_play])
    async def move(table: str, body: MoveRequestBody) -> Response:
        """Answer what a seat has to decide."""
        session, viewer = _find_session(room, table, body.seat)
        await room.play(None, _move, session, viewer, body)  # even if its run has been deleted since
        return json_response(session.view(viewer))

    @routes.post("/tables/{table}/again", dependencies=[may_play])
    async def again(table: str, body: SeatBody) -> Response:
        """Return another game, with the seats as they are."""
        screen = _find_screen(room, table, body.seat)
        await room.play(None, screen.session.again, screen.players[0])
        return json_response(screen.view())

    @routes.delete("/tables/{table}", dependencies=[may_play])
    async def leave(table: str, seat: Token = "") -> Response:
        """Close a table."""
        _require_seat(room, table, seat)
        await room.play(None, room.sessions.remove, table)
        return json_response({"table": table})


def _add_looking(routes: APIRouter, room: PlayRoom) -> None:
    state = room.state

    @routes.get("/tables/{table}")
    async def look(table: str, seat: Tokens = "") -> Response:
        """Return a table as this seat sees it; of several seats at one screen, with commas between, what everybody may see."""
        return json_response(_find_screen(room, table, seat).view())

    @routes.get("/tables/{table}/live")
    async def live(table: str, seat: Tokens = "") -> Response:
        """Return the same whenever it changes, as server-sent events: `frame`."""
        screen = _find_screen(room, table, seat)
        ends: list[Callable[[], None]] = []
        stream = Stream(state.watcher.streams, closed=lambda: [end() for end in ends])

        def tell(view: Any) -> None:
            if view is None:
                stream.put_soon("gone", {"table": table})
            else:
                stream.put_soon("frame", screen.with_players(view))

        ends.append(screen.session.listen(screen.viewer, tell))
        stream.put("frame", screen.view())
        return stream


@dataclass(frozen=True, slots=True)
class _Screen:
    """A browser at a table. players: of its seats, None of who only watches. One seat is looked from. Several share what everybody may see:
    what one of them holds is asked for with its own token, when the person is there."""

    session: GameSession
    players: Sequence[Viewer]

    @property
    def viewer(self) -> Viewer:
        """Return whose view is sent."""
        return self.players[0] if len(self.players) == 1 else None

    def view(self) -> Any:
        """Return the table as JSON, now."""
        return self.with_players(self.session.view(self.viewer))

    def with_players(self, view: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a view, with the players of the seats here, in the order of their tokens."""
        return view if len(self.players) == 1 else {**view, "here": self.players}


def _find_screen(room: PlayRoom, id: str, seats: str) -> _Screen:
    """Raise HTTPException as `_find_session`, and 422 for too many seats."""
    tokens = seats.split(",")
    if len(tokens) > _MOST_SEATS:
        raise HTTPException(422, f"{len(tokens)} seats were given; up to {_MOST_SEATS} can be looked at together.")
    opened = [_find_session(room, id, token) for token in tokens]
    return _Screen(opened[0][0], [viewer for _, viewer in opened])


def _seats(room: PlayRoom, run: KnownRun) -> bytes:
    with room.open.use(run) as game:
        return to_json(game.seats)


def _lay(room: PlayRoom, run: KnownRun, body: TableRequestBody) -> GameSession:
    from ludus.apps.play.game_sessions import GameSession, SeatRequest
    from ludus.apps.play.run_game import RunGame

    def make(id: str) -> GameSession:
        game = RunGame(run.folder, name=run.name)  # its own: policies are not made for several threads
        requests = [SeatRequest(who=seat.who, name=" ".join(seat.name.split())) for seat in body.seats]
        return GameSession(
            id,
            game,
            requests,
            run=run.id,
            hints=body.hints,
            seed=body.seed,
            rated=body.rated,
            finish=lambda finished: _finished(room, run, finished),
        )

    return room.sessions.add(make, instead="" if body.instead is None else body.instead.table)


def _finished(room: PlayRoom, run: KnownRun, finished: FinishedGame) -> SavedReplay:
    """Keep a game's replay here, and its result for good."""
    from ludus.apps.play.game_sessions import SavedReplay
    from ludus.apps.play.replays import new_id

    id, replay = new_id(), to_json(finished.replay)
    room.replays.put(id, run.id, replay)
    names = zip(finished.people, finished.policies, strict=True)
    game = PlayedGame(
        id=id,
        time=time.time(),
        game=finished.game,
        run=finished.run,
        seats=[
            PlayedSeat(person=person is not None, name=policy if person is None else person or "somebody")
            for person, policy in names
        ],
        returns=finished.returns,
        steps=finished.steps,
        rated=finished.rated,
        zero_sum=finished.zero_sum,
    )
    try:
        room.people.add(game, replay)
    except LudusError as error:
        return SavedReplay(id, str(error))
    return SavedReplay(id)


def _find_session(room: PlayRoom, id: str, token: str) -> tuple[GameSession, Viewer]:
    """Return a table, and whose token that is. Raises HTTPException 404 and 403."""
    session = room.session(id)
    if session is None:
        raise HTTPException(404, "there is no such table (any more). Lay another one.")
    try:
        return session, session.viewer(token)
    except PlayError as error:
        raise HTTPException(403, str(error)) from error


def _require_seat(room: PlayRoom, id: str, token: str) -> None:
    """Raise HTTPException as `_find_session`, and for who only watches."""
    _, viewer = _find_session(room, id, token)
    if viewer is None:
        raise HTTPException(403, "who only watches cannot close a table. Open a seat's own address.")


def _move(session: GameSession, viewer: Viewer, body: MoveRequestBody) -> None:
    from ludus.apps.play.game_sessions import MoveRequest

    orders: list[MoveRequest] = [
        MoveRequest(player=one.player, agent=one.agent, action=one.action) for one in body.moves
    ]
    session.move(viewer, orders, body.number)


def _people(room: PlayRoom) -> bytes:
    from ludus.apps.play.standings import people_view

    return to_json(people_view(room.people.games()))
