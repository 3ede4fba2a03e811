"""The application: the page, and what it asks for.

/  /page/NAME  /enter  /login        open to everybody (they hold nothing of a run)
/api/…                               for who has the cookie; what changes something, for who has the right to
"""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import quote

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException as StarletteHTTPException

from ludus import __version__
from ludus.apps.ui.bundle import files_to_serve
from ludus.apps.ui.server import control_routes, play_routes, replay_routes, tournament_routes, watch_routes
from ludus.apps.ui.server.access import Access, AccessMiddleware
from ludus.apps.ui.server.answer_cache import Body, respond
from ludus.apps.ui.server.open_games import PlayRoom
from ludus.apps.ui.server.state import State
from ludus.core.errors import LudusError

ServeFile = Callable[[str, Request], Awaitable[Response]]
_MINUTE = 60.0  # seconds between two looks for tables that nobody uses

Page = Mapping[str, tuple[str, Body]]
"""name -> (media type, content)"""


def make_app(state: State) -> AccessMiddleware:
    """Return all routes, behind the gate."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        state.watcher.start()
        sweeping = asyncio.create_task(_sweep(room))
        yield
        sweeping.cancel()
        await state.close()

    app = FastAPI(
        title="Ludus",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=life,
        redirect_slashes=False,
    )
    app.add_exception_handler(StarletteHTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(LudusError, _wrong)
    app.add_exception_handler(Exception, _fault)
    _add_page(app, state.access)
    room = PlayRoom(state)
    app.include_router(play_routes.router(room))  # before the panels, whose addresses look like some of theirs
    app.include_router(replay_routes.router(room))
    app.include_router(tournament_routes.router(state))
    app.include_router(watch_routes.router(state))
    app.include_router(control_routes.router(state))
    return AccessMiddleware(app, state.access)


async def _sweep(room: PlayRoom) -> None:
    """Close tables that nobody uses, whether or not another is laid."""
    while True:
        await asyncio.sleep(_MINUTE)
        await asyncio.to_thread(room.sweep)


# ---------------------------------------------------------------------------------------------- the page


def read_page() -> Page:
    """Return the page's files, by name, as they are when the server begins: nothing else is ever read for a client."""
    return {name: (_media_type(name), Body(content)) for name, content in files_to_serve().items()}


def _media_type(name: str) -> str:
    kind = mimetypes.guess_type(name)[0] or "text/plain"
    kind = "text/javascript" if name.endswith(".js") else kind
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def _add_page(app: FastAPI, access: Access) -> None:
    page = read_page()

    async def file(name: str, request: Request) -> Response:
        if name not in page:
            raise HTTPException(404, "the page has no such file. Load it again.")
        kind, body = page[name]
        return await respond(request, body, media_type=kind)

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        if access.passwords and not request.scope["rights"]:
            elsewhere = request.headers.get("sec-fetch-site") == "cross-site"  # whence no cookie comes along
            return RedirectResponse("login?again" if elsewhere else "login", 303)
        return await file("index.html", request)

    @app.get("/page/{name}", include_in_schema=False)
    async def asset(name: str, request: Request) -> Response:
        return await file(name, request)

    @app.get("/enter", include_in_schema=False)
    async def enter(token: str = "", to: str = "") -> Response:
        if not access.enter(token):
            raise HTTPException(
                401, "this address is of a server that has ended. Open the one that `ludus ui` printed last."
            )
        place = quote(to, safe="#/?&=,@:.-_~%!$()*+;") if to.startswith("#/") and len(to) <= 500 else ""
        return RedirectResponse(f"{access.home}{place}", 303, headers={"set-cookie": access.set_cookie(token)})

    if access.passwords:
        _add_login(app, access, file)


class Login(BaseModel):
    """A password, as somebody typed it."""

    model_config = ConfigDict(extra="forbid")
    password: str = Field(max_length=1024)


def _add_login(app: FastAPI, access: Access, file: ServeFile) -> None:
    turn = asyncio.Lock()  # one guess is looked at at a time: each takes 16 MiB

    @app.get("/login", include_in_schema=False)
    async def login(request: Request) -> Response:
        return await file("login.html", request)

    @app.post("/enter", include_in_schema=False)
    async def enter_by_password(login: Login, request: Request) -> Response:
        wait = access.guess(request.client.host if request.client else "")
        if wait:
            headers = {"retry-after": str(max(1, round(wait)))}
            raise HTTPException(429, "too many passwords were tried. Wait a moment, then try again.", headers)
        async with turn:
            rights = await asyncio.to_thread(access.rights_of_password, login.password)
        if not rights:
            raise HTTPException(401, "this is not a password that the server was started with.")
        cookie = access.set_cookie(access.tokens.of(rights))
        return Response(status_code=204, headers={"set-cookie": cookie, "location": access.home})


# ---------------------------------------------------------------------------------------------- errors


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    texts = {404: "there is nothing here. Go back to the start.", 405: "this address is not for that method."}
    plain = str(error.detail) in ("Not Found", "Method Not Allowed")
    text = texts[error.status_code] if plain and error.status_code in texts else str(error.detail)
    return JSONResponse({"error": text}, error.status_code, headers=error.headers)


async def _not_valid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    return JSONResponse({"error": f"{where or 'the body'}: {first['msg']}."}, 422)


async def _fault(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "something went wrong in the server; its terminal says what. Try again."}, 500)


async def _wrong(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400)
