"""Routes of who steers: orders to a run's driver, and its tags and notes.

An order is left as the commands leave it; the driver takes it between two steps, which may be a while."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict, Field

from ludus.apps.common import control_requests
from ludus.apps.common.control_requests import ControlRequest
from ludus.apps.ui.server.known_runs import KnownRun
from ludus.apps.ui.server.live_status import live_status
from ludus.apps.ui.server.state import State
from ludus.core.errors import RunError
from ludus.runs.control import Status
from ludus.storage.run_notes import MAX_NOTES, make_notes, write_notes

WAIT = 2.0
"""Seconds for which an answer waits until the driver has taken the order."""


class Order(BaseModel):
    """do: what the run is to do. speed: share of full speed, for "throttle". session: of the driver that the page shows, so that nobody
    stops a run that has begun anew."""

    model_config = ConfigDict(extra="forbid")
    do: Literal["pause", "go_on", "throttle", "checkpoint", "stop"]
    speed: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    session: str | None = Field(default=None, max_length=64)


class NewNotes(BaseModel):
    """Tags and notes of a run, in place of those before."""

    model_config = ConfigDict(extra="forbid")
    tags: list[Annotated[str, Field(max_length=200)]] = Field(max_length=100)
    notes: str = Field(max_length=2 * MAX_NOTES)


def router(state: State) -> APIRouter:
    """Orders to a run's driver."""
    routes = APIRouter(prefix="/api", tags=["steering"], dependencies=[state.access.needs("steer")])

    @routes.post("/runs/{run}/order")
    async def order(run: str, order: Order) -> dict[str, Any]:
        """Leave an order. The answer says what the driver does now; one that has not taken it yet takes it when its step ends."""
        if (order.speed is not None) != (order.do == "throttle"):
            raise HTTPException(
                422, "`speed` belongs to `throttle`, and only to it: a share of full speed above 0 and up to 1."
            )
        return await asyncio.to_thread(submit_order, state.runs.run(run), order)

    @routes.post("/runs/{run}/notes")
    async def notes(run: str, notes: NewNotes) -> dict[str, Any]:
        """Keep tags and notes of a run in its `notes.json`. Who writes last is kept."""
        stored = await asyncio.to_thread(keep_notes, state.runs.run(run), notes)
        state.watcher.expire_list()
        return stored

    return routes


def keep_notes(run: KnownRun, notes: NewNotes) -> dict[str, Any]:
    """Write a run's notes, and return them as they are kept. Raises HTTPException; ConfigError for such as are not kept."""
    try:
        content = make_notes(notes.tags, notes.notes)
        write_notes(run.folder, content)
    except RunError as error:
        raise HTTPException(409, run.without_paths(str(error))) from error
    return asdict(content)


def submit_order(run: KnownRun, order: Order) -> dict[str, Any]:
    """Leave an order for a run's driver, and wait a little for it. Raises HTTPException."""
    try:
        before = control_requests.running_status(run.folder, run.name)
    except RunError as error:
        raise HTTPException(409, run.without_paths(str(error))) from error
    try:
        if order.session is not None and order.session != before.session:
            raise HTTPException(
                409, "the run has begun another session since the page was loaded. Look again, then decide."
            )
        after = control_requests.submit_and_wait(
            run.folder, run.name, control_request(order, before), before, wait=WAIT
        )
    except RunError as error:
        if order.do == "stop" and not control_requests.still_running(run.folder, before):
            return {"status": None, "taken": True}
        raise HTTPException(409, run.without_paths(str(error))) from error
    return {"status": asdict(live_status(after or before)), "taken": after is not None}


def control_request(order: Order, status: Status) -> ControlRequest:
    """Return what the order says. status: what its driver did when it was given."""
    if order.do == "throttle":
        assert order.speed is not None
        return control_requests.throttle(order.speed)
    if order.do == "checkpoint":
        return control_requests.checkpoint_now(status)
    return {"pause": control_requests.PAUSE, "go_on": control_requests.GO_ON, "stop": control_requests.STOP}[order.do]
