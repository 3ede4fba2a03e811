"""Routes of who steers."""

from __future__ import annotations

from fastapi import APIRouter

from ludus.view.server.state import State


def router(state: State) -> APIRouter:
    """Orders to a run's driver."""
    del state
    return APIRouter(prefix="/api", tags=["steering"])
