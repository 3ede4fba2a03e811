"""Routes of who watches."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException, Request, Response

from ludus import __version__
from ludus.apps.ui.server.answer_cache import respond
from ludus.apps.ui.server.state import State

MOST_RUNS = 64
"""Runs that one page may look at."""


def router(state: State) -> APIRouter:
    """The runs, their panels, and the stream of what changes."""
    routes = APIRouter(prefix="/api", tags=["watching"])
    watcher = state.watcher

    @routes.get("/session")
    async def session(request: Request) -> dict[str, object]:
        """Return what this address lets you do."""
        rights = request.scope["rights"]
        return {"may": {right: right in rights for right in ("watch", "steer", "play")}, "version": __version__}

    @routes.get("/runs")
    async def runs(request: Request) -> Response:
        """A line for each run and each experiment."""
        return await respond(request, await watcher.lines())

    @routes.get("/settings")
    async def settings(request: Request) -> Response:
        """The settings of each run, by dotted name."""
        return await respond(request, await watcher.settings())

    @routes.get("/compare")
    async def compare(request: Request, runs: str, metric: str = "", apart: bool = False) -> Response:
        """Return a comparison of runs: those of an experiment together, unless they are to be apart."""
        wanted = named(runs)
        if not wanted:
            raise HTTPException(422, "no run was given. Choose at least one in the list.")
        return await respond(request, await watcher.comparison(wanted, metric=metric, apart=apart))

    @routes.get("/experiment")
    async def experiment(request: Request, runs: str) -> Response:
        """Return whether the runs of an experiment improve, over their seeds."""
        wanted = named(runs)
        if not wanted:
            raise HTTPException(422, "no run was given: an experiment has at least one.")
        return await respond(request, await watcher.experiment(wanted))

    @routes.get("/live")
    async def live(runs: str = "") -> Response:
        """Return what changes, as server-sent events."""
        return watcher.stream(named(runs))

    @routes.get("/runs/{run}/{panel}")
    async def panel(run: str, panel: str, request: Request) -> Response:
        """A panel of a run; what it can be asked is in the panel's own words."""
        return await respond(request, await watcher.panel(run, panel, dict(request.query_params)))

    return routes


def named(runs: str) -> list[str]:
    """Return the ids in a list with commas. Raises HTTPException if there are too many."""
    wanted = [run for run in runs.split(",") if run]
    if len(wanted) > MOST_RUNS:
        raise HTTPException(422, f"{len(wanted)} runs were given; a page may look at {MOST_RUNS} at a time.")
    return wanted
