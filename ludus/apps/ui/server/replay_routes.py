"""Routes of replays, of games that policies show, and of game trees."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated

from fastapi import APIRouter, HTTPException, Response
from pydantic import BaseModel, ConfigDict, Field

from ludus.apps.ui.server.known_runs import KnownRun
from ludus.apps.ui.server.open_games import PlayRoom, json_response
from ludus.core.jsonable import to_builtins, to_json

_ID = re.compile(r"[0-9a-f]{16}")
_FILE = re.compile(r"([0-9a-f]{16})\.(html|json|gif|mp4)")
_TYPES: Mapping[str, str] = {
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "gif": "image/gif",
    "mp4": "video/mp4",
}
_MOST_SEATS = 64
_MOST_FILMED = 2001  # positions

_MOST_EPISODES = 50

Name = Annotated[str, Field(max_length=200)]


class ShowBody(BaseModel):
    """A game that is to be shown. seats: [P] names, or one for all."""

    model_config = ConfigDict(extra="forbid")

    seats: Annotated[list[Name], Field(min_length=1, max_length=_MOST_SEATS)]
    seed: Annotated[int | None, Field(ge=0, lt=2**31)] = None


class EpisodesBody(BaseModel):
    """Episodes that are wanted, of the seeds from `first` on. seats: [P] names, or one for all."""

    model_config = ConfigDict(extra="forbid")

    seats: Annotated[list[Name], Field(min_length=1, max_length=_MOST_SEATS)]
    first: Annotated[int, Field(ge=0, lt=2**31 - _MOST_EPISODES)] = 0
    many: Annotated[int, Field(ge=1, le=_MOST_EPISODES)] = 10


class KeepBody(BaseModel):
    """A game that was shown and is to be kept. replay: its id."""

    model_config = ConfigDict(extra="forbid")

    replay: Annotated[str, Field(max_length=64)]


def router(room: PlayRoom) -> APIRouter:
    """Replays and trees of runs."""
    routes = APIRouter(prefix="/api", tags=["replays"])
    state = room.state

    @routes.get("/runs/{run}/replays")
    async def replays(run: str) -> Response:
        """Return the replays that are kept beside a run."""
        known = state.runs.playable(run)
        return json_response(await room.play(known, _listed, known))

    @routes.get("/runs/{run}/replays/{id}")
    async def replay(run: str, id: str) -> Response:
        """Return a replay: kept, or made here."""
        known = state.runs.playable(run)
        return json_response(await room.play(known, _replay, room, known, id))

    @routes.post("/runs/{run}/show", dependencies=[state.access.needs("play")])
    async def show(run: str, body: ShowBody) -> Response:
        """Play one game now."""
        known = state.runs.playable(run)
        return json_response(await room.play(known, _show, room, known, body))

    @routes.post("/runs/{run}/episodes", dependencies=[state.access.needs("play")])
    async def episodes(run: str, body: EpisodesBody) -> Response:
        """Return how episodes of a profile ended, those that are not known played now."""
        known = state.runs.playable(run)
        return json_response(await room.play(known, _episodes, room, known, body))

    @routes.post("/runs/{run}/keep", dependencies=[state.access.needs("play")])
    async def keep(run: str, body: KeepBody) -> Response:
        """Put a game that was shown beside its run."""
        known = state.runs.playable(run)
        return json_response(await room.play(known, _keep, room, known, body.replay))

    @routes.get("/replays/{file}")
    async def download(file: str, run: Annotated[str, Field(max_length=64)] = "") -> Response:
        """Return a replay as a file: one page that needs no server, JSON, or a film. run: that it is kept beside, if it is."""
        match = _FILE.fullmatch(file)
        if match is None:
            raise HTTPException(
                404, "there is no such file of a replay. Its id and .html, .json, .gif or .mp4 are expected."
            )
        known = state.runs.playable(run) if run else None
        content, name = await room.play(known, _file, room, known, match[1], match[2])
        headers = {"content-disposition": f'attachment; filename="{name}.{match[2]}"'}
        return Response(content, media_type=_TYPES[match[2]], headers=headers)

    @routes.get("/runs/{run}/tree")
    async def tree(
        run: str, seats: Annotated[str, Field(max_length=4000)] = "", node: Annotated[str, Field(max_length=4096)] = ""
    ) -> Response:
        """Return a node of a small game's tree, under a profile: [P] names, joined by commas; default: the meta-strategies."""
        known = state.runs.playable(run)
        return json_response(await room.play(known, _tree, room, known, seats, node))

    return routes


def _listed(run: KnownRun) -> bytes:
    from ludus.apps.play.replays import list_replays

    return to_json(list_replays(run.folder))


def _replay(room: PlayRoom, run: KnownRun | None, id: str) -> bytes:
    """As JSON. Raises HTTPException 404."""
    from ludus.apps.play.replays import is_saved, read

    if _ID.fullmatch(id) is None:
        raise HTTPException(404, "there is no such replay. Go back to the list.")
    replay = room.replays.get(id, None if run is None else run.id) or room.people.replay(id)
    if replay is None and run is not None and is_saved(run.folder, id):
        replay = to_json(read(run.folder, id))
    if replay is None:
        raise HTTPException(404, "there is no such replay (any more). Go back to the list, or play the game again.")
    return replay


def _show(room: PlayRoom, run: KnownRun, body: ShowBody) -> bytes:
    from ludus.apps.play.replays import new_id, play
    from ludus.apps.play.run_game import check_name

    for name in body.seats:
        check_name(name)
    with room.open.use(run) as game:
        replay = play(game, body.seats, seed=body.seed)
    id = new_id()
    room.replays.put(id, run.id, to_json(replay))
    return to_json({"id": id, "saves": not run.entry, **to_builtins(replay)})


def _episodes(room: PlayRoom, run: KnownRun, body: EpisodesBody) -> bytes:
    from ludus.apps.play.episodes import EpisodeList, play_episodes

    seeds = range(body.first, body.first + body.many)
    with room.open.use(run) as game:
        key = run.id, room.open.stamp(run), tuple(body.seats)
        lines = room.episodes.get(key, seeds, partial(play_episodes, game, body.seats))
        repeats = game.spec.determinism != "none"
        return to_json(EpisodeList(zero_sum=game.spec.zero_sum, repeats=repeats, episodes=lines))


def _keep(room: PlayRoom, run: KnownRun, id: str) -> bytes:
    """Return the game itself that was seen: played again it could be another one, since a run goes on. Raises HTTPException 404."""
    from ludus.apps.play.replays import save_replay

    if run.entry:
        raise HTTPException(422, "an entry of a zoo stays as it was pushed: save the game as a file.")
    replay = room.replays.get(id, run.id)
    if replay is None:
        raise HTTPException(404, "this game is not held any more. Watch another one, and keep that.")
    return to_json({"id": save_replay(run.folder, replay, id=id)})


def _file(room: PlayRoom, run: KnownRun | None, id: str, kind: str) -> tuple[bytes, str]:
    """Return its content and name."""
    from ludus.apps.play.replays import safe_name
    from ludus.apps.ui.static_page import replay_file

    content = _replay(room, run, id)
    replay = json.loads(content)
    name = safe_name(replay)
    if kind in ("json", "html"):
        return replay_file(content, f".{kind}"), name
    if len(replay["frames"]) > _MOST_FILMED:
        raise HTTPException(
            422, f"a film of more than {_MOST_FILMED} positions takes long. Save the replay as .html or .json."
        )
    if not room.filming.acquire(blocking=False):  # or films would take all the threads in which people play
        raise HTTPException(429, "another film is being made. Wait a moment, then try again.")
    try:
        return replay_file(content, f".{kind}"), name
    finally:
        room.filming.release()


def _tree(room: PlayRoom, run: KnownRun, seats: str, node: str) -> bytes:
    with room.open.use(run) as game:
        players = game.spec.num_players
    who = [name for name in seats.split(",") if name] or ["@meta"]
    who = who * players if len(who) == 1 else who
    return to_json(room.open.tree(run, who).look(node))
