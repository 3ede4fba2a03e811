"""Routes of tournaments: those in the folder of runs, and next to it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from fastapi import APIRouter, HTTPException, Request, Response

from ludus.apps.ui.server.answer_cache import Body, respond
from ludus.apps.ui.server.known_runs import Stamp, file_stamp, id_of
from ludus.apps.ui.server.state import State
from ludus.core.errors import RunError
from ludus.core.jsonable import to_json

_MOST = 200
"""Answers that are kept, of tournaments as they were when they were read."""

T = TypeVar("T")


class _Answers:
    """What was read of tournaments, until their files change."""

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[str, str], tuple[Stamp, object]] = OrderedDict()

    def get(self, what: str, id: str, folder: Path, read: Callable[[], T]) -> T:
        """Return what `read` returns of a folder. what: of which kind that is."""
        from ludus.tournament.tournament_store import FILE

        stamp = (*file_stamp(folder / FILE), *file_stamp(folder / f"{FILE}-wal"))
        last = self._answers.get((what, id))
        if last is not None and last[0] == stamp:
            return last[1]  # type: ignore[return-value]
        answer = read()
        self._answers[what, id] = stamp, answer
        while len(self._answers) > _MOST:
            self._answers.popitem(last=False)
        return answer


def router(state: State) -> APIRouter:
    """The list of tournaments, and one of them."""
    routes = APIRouter(prefix="/api", tags=["tournaments"])
    answers = _Answers()

    def folders() -> dict[str, Path]:
        from ludus.apps.ui.tournaments import tournament_dirs

        root = state.runs.root
        return {} if root is None else {id_of(folder): folder for folder in tournament_dirs(root)}

    def lines() -> Body:
        from ludus.apps.ui.tournaments import tournament_line

        places = folders().items()
        return Body(to_json([answers.get("line", id, at, partial(tournament_line, at, id=id)) for id, at in places]))

    def view(id: str) -> Body:
        from ludus.apps.ui.tournaments import tournament_view

        folder = folders().get(id)
        if folder is None:
            raise HTTPException(404, "there is no such tournament here (any more). Go back to the list.")
        try:
            return answers.get("view", id, folder, lambda: Body(to_json(tournament_view(folder, id=id))))
        except RunError as error:
            raise HTTPException(409, str(error).replace(str(folder), folder.name)) from error

    @routes.get("/tournaments")
    async def tournaments(request: Request) -> Response:
        """A line for each tournament."""
        return await respond(request, await asyncio.to_thread(lines))

    @routes.get("/tournaments/{tournament}")
    async def tournament(tournament: str, request: Request) -> Response:
        """Return the leaderboard and the table of win rates."""
        return await respond(request, await asyncio.to_thread(view, tournament))

    return routes
